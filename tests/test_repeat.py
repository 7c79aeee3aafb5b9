"""The script that repeats a tier: it counts, names what fails, and exits with 1 then."""

from pathlib import Path

import pytest

from tests.support.repeat import main

FLAKY = """
import pathlib
def test_good(): pass
def test_second_time():
    seen = pathlib.Path(__file__).with_suffix(".seen")
    assert not seen.exists()
    seen.touch()
"""


def test_a_failure_in_any_run_is_named_and_ends_with_status_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take seconds to start
    (tmp_path / "test_flaky.py").write_text(FLAKY)
    own = ["-p", "no:cacheprovider", "--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path)]
    assert main(["--times", "2", "--busy", "1", "-m", "not slow", "--", *own]) == 1
    said = capsys.readouterr().out.splitlines()
    assert "run 1 alone: 2 passed, 0 failed, 0 skipped" in said[0]
    assert "run 2 beside 1 busy cores: 1 passed, 1 failed, 0 skipped" in said[1]
    assert said[2].endswith("test_flaky::test_second_time")
    assert main(["--times", "1", "-m", "not slow", "--", *own, "-k", "good"]) == 0
    assert main(["--times", "1", "-m", "slow", "--", *own]) == 1, "a tier of no tests"
