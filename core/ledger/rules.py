"""The text of the rules by which chains are verified, as a digest: marks made under other rules do not count.

A mark vouches for entries that nobody follows again soon. If this code refuses an entry that the code of before took,
a mark of before would hide it. So the key of marks follows from the sources that decide whether an entry follows.
Comments and docstrings decide nothing, and the rest of the service neither: most upgrades keep their marks.

Where a release changes the rules, `EARLIER` may name the digest of the release before. Whoever adds it has made sure
that this code leads to the same state for each chain that the earlier code verified (decision 80).
"""

import ast
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Final

EARLIER: Final = (
    # 0.1.0, whose keys follow from all its sources. It verified entries of version 1, whose rules are what they were.
    "sha256:298c0d4375e345fdd8595ec464cb82db688cb978153084a10e98c3ffb17c5eb9",
    "sha256:65a9a1790300d86f6b1d03cc62ef2d98dba4427ad04715cf046e258959f966db",
)
"""Digests under which marks of earlier releases count."""
_ROOT: Final = Path(__file__).resolve().parents[2]
_SOURCES: Final = ("core/ledger/*.py", "core/privacy/*.py", "core/base/canonical.py")
_NAMED: Final = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def sources() -> list[Path]:
    """Return the files that decide whether an entry follows, in the order of their names."""
    return sorted(path for pattern in _SOURCES for path in _ROOT.glob(pattern))


@lru_cache(maxsize=1)
def rules_digest() -> str:
    """Return SHA-256 over the rules' statements, by path: `sha256:` and 64 digits."""
    lines = (f"{path.relative_to(_ROOT).as_posix()}\n{statements(path.read_text('utf-8'))}\n" for path in sources())
    return "sha256:" + sha256("".join(lines).encode()).hexdigest()


def statements(text: str) -> str:
    """Return a module's statements as Python writes them, without comments and texts that no statement uses."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, _NAMED):
            node.body = [one for one in node.body if not _is_text(one)] or [ast.Pass()]
    return ast.unparse(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
