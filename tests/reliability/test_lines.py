"""`kill -9` between any two lines of ours from claim to finish: nothing is lost, and nothing is read unpaid."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.embedded import ROOT
from tests.support.killed_lines import PROMISES

QUICK = 16


def kill_at_lines(database_url: str, folder: Path, kills: int, *options: str) -> dict[str, int]:
    """Kill so many processes, each at another line; return what broke."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.support.killed_lines", database_url, str(folder), str(kills), *options]
    done = subprocess.run(command, cwd=ROOT, env=os.environ, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def broken(found: dict[str, int]) -> dict[str, int]:
    return {name: found[name] for name in PROMISES if found[name]}


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_kill_at_a_line_breaks_nothing(database_url: str, tmp_path: Path) -> None:
    found = kill_at_lines(database_url, tmp_path / "home", QUICK)
    assert (found["kills"], broken(found)) == (QUICK, {})
    assert found["lines"] > 1000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kills_at_many_lines_break_nothing(database_url: str, tmp_path: Path) -> None:
    assert broken(kill_at_lines(database_url, tmp_path / "home", 200)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_reading_before_paying_would_be_seen(database_url: str, tmp_path: Path) -> None:
    assert kill_at_lines(database_url, tmp_path / "home", QUICK, "naive")["unpaid"] > 0
