"""The planted bugs: tests that plant one and see a law, an audit or a gate fail on it.

`python -m tests.support.planted` writes their list into `tests/README.md`; `tests/test_house.py` compares both.
"""

import ast
import re
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
PAGE: Final = TESTS / "README.md"
_NAME: Final = re.compile(r"^test_.*(would_be_seen|_seen_to_fail|_(is|are)_(seen|caught)|planted)")
_HEAD: Final = "| file | planted bugs | tests that fail on them |\n|---|---|---|\n"


def planted() -> dict[str, list[str]]:
    """Return the names of the tests that plant a bug, by file."""
    found = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
        names = [node.name for node in functions if _plants(node)]
        if names:
            found[str(path.relative_to(TESTS))] = sorted(set(names))
    return found


def _plants(node: ast.FunctionDef) -> bool:
    if not node.name.startswith("test_"):
        return False
    return bool(_NAME.match(node.name)) or "planted bug" in (ast.get_docstring(node) or "").lower()


def table() -> str:
    """Return the page's table."""
    rows = (
        "| `{}` | {} | {} |\n".format(file, len(names), ", ".join(f"`{name}`" for name in names))
        for file, names in planted().items()
    )
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(text[: text.index(_HEAD)] + table())
