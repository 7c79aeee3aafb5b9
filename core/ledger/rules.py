"""A digest of the rules by which the service verifies chains; a mark made under other rules does not count.

A mark says that the entries before it were verified, so that the service need not verify them again soon. Suppose that
this code refuses an entry that earlier code accepted: an earlier mark would hide it. The key of marks is therefore
derived from the source files that decide whether an entry is valid. Comments, docstrings and the rest of the service do
not enter it, so most upgrades keep their marks.

If a release changes the rules, `EARLIER` may name the digest of the release before. The author of that change makes
sure that this code leads to the same state for each chain that the earlier code verified (decision 80).
"""

import io
import tokenize
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Final

EARLIER: Final = (
    # 0.1.0, whose keys follow from all its sources. It verified entries of version 1, whose rules are what they were.
    "sha256:65a9a1790300d86f6b1d03cc62ef2d98dba4427ad04715cf046e258959f966db",
)
"""Digests under which marks of earlier releases count."""
_ROOT: Final = Path(__file__).resolve().parents[2]
# Without `core/ledger/witness`, which compares heads and holds no rule of an entry.
_SOURCES: Final = ("core/ledger/*.py", "core/privacy/*.py", "core/base/canonical.py")
_NOTHING: Final = (tokenize.NL, tokenize.ENCODING)
_STARTS: Final = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)
_ENDS: Final = (tokenize.NEWLINE, tokenize.COMMENT)


def sources() -> list[Path]:
    """Return the files that decide whether an entry follows, in the order of their names."""
    return sorted(path for pattern in _SOURCES for path in _ROOT.glob(pattern))


_TEXTS: Final = {path.relative_to(_ROOT).as_posix(): path.read_text("utf-8") for path in sources()}
"""Read with this module: a new checkout may come under the feet of a process, which goes on by these rules."""


@lru_cache(maxsize=1)
def rules_digest() -> str:
    """Return SHA-256 over the statements of the rules that this process runs, by path: `sha256:` and 64 digits."""
    lines = (f"{name}\n{statements(text)}\n" for name, text in _TEXTS.items())
    return "sha256:" + sha256("".join(lines).encode()).hexdigest()


def statements(text: str) -> str:
    """Return a module's text without comments, docstrings, and empty lines that are in no text of a statement.

    Tokens say where these stand, for `ast.parse` fails in Python 3.11 where two threads call it at a time.
    """
    kept = text.split("\n")  # as tokens count lines: Python's own `splitlines` knows other ends
    is_start, inside = True, set[int]()
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in _NOTHING]
    for token, after in pairwise(tokens):
        if token.type == tokenize.COMMENT:
            kept[token.start[0] - 1] = kept[token.start[0] - 1][: token.start[1]]
        elif token.type == tokenize.STRING and is_start and after.type in _ENDS:
            for number in range(token.start[0] - 1, token.end[0]):
                kept[number] = ""
        else:
            inside |= set(range(token.start[0] - 1, token.end[0] - 1))
        if token.type != tokenize.COMMENT:
            is_start = token.type in _STARTS
    lines = (line if number in inside else line.rstrip() for number, line in enumerate(kept))
    return "\n".join(line for number, line in enumerate(lines) if line or number in inside)
