"""The rights of a site's login, as a fresh process grants them."""

import re
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "migrations" / "versions" / "0001_first.py"


def test_rights_do_not_depend_on_what_else_was_imported() -> None:
    """A process that makes a role grants rights on every table there is, also those that it has no need of itself."""
    code = "from core.operations.roles import _rights; print(*_rights(), sep='\\n')"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    made = set(re.findall(r"create_table\(\s*['\"](\w+)['\"]", SCRIPT.read_text()))
    assert len(made) > 20
    for right in ("SELECT", "INSERT"):
        line = next(line for line in found.splitlines() if line.startswith(right))
        missing = made - set(re.findall(r"\w+", line))
        assert missing <= ({"principals", "api_keys", "audit_archives"} if right == "INSERT" else set()), right
