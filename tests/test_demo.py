"""The demo that the README promises, run to its end as `make demo` does."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[1]


def run(example: str, folder: Path, timeout_seconds: float) -> str:
    """Run an example to its end, as a newcomer would, its temporary files in a folder; return what it printed."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    done = subprocess.run(
        [sys.executable, "-m", example],
        cwd=ROOT,
        env=clean | {"TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.service
def test_the_demo_runs_to_its_end(tmp_path: Path) -> None:
    said = run("examples.bank_demo", tmp_path, timeout_seconds=240)
    assert re.search(r"^rows +45,211", said, re.MULTILINE)
    assert re.search(r"^such jobs still fit +\d", said, re.MULTILINE)
    (steps,) = re.findall(r"^succeeded .* (\d+)/(\d+) ", said, re.MULTILINE)
    assert steps[0] == steps[1] != "0"
    row = r"^(\S+) +(-?[\d.e-]+) +([\d.e-]+) +-?\d[\d.]* +\d[\d.]* +-?[\d.e-]+ +-?[\d.e-]+$"
    lines = re.findall(row, said, re.MULTILINE)
    table = {name: (float(estimate), float(error)) for name, estimate, error in lines}
    assert {"intercept", "age", "housing", "marital[single]", "poutcome[success]"} <= set(table)
    assert len(table) == 17
    # By the default method: the intercept's error is near .11, where the plan that stood here before left .34.
    assert "Method: Whitened Newton. Source: ours" in said
    assert table["intercept"][1] < 0.2
    # The service is at work here, with its own noise. At this budget the estimate
    # of `housing` is below zero by a dozen standard errors.
    estimate, error = table["housing"]
    assert estimate + error < 0
    assert re.search(r"spent 32\.\d+ % of the budget", said)
    assert re.search(r"^per cent +100 +32\.\d+ +0 +67\.\d+", said, re.MULTILINE)
    assert "HTTP 403 privacy-budget-exhausted" in said
    assert re.search(r"The ledger's chain is whole: \d+ entries recomputed", said)
    assert list(tmp_path.iterdir()) == []  # it cleans up after itself


def test_a_demo_that_is_asked_to_stop_leaves_nothing_behind(tmp_path: Path) -> None:
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-m", "examples.bank_demo"], cwd=ROOT, env=environment, stdout=-1) as demo:
        try:
            deadline = time.monotonic() + 60
            while not (started := psutil.Process(demo.pid).children(recursive=True)):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            demo.terminate()
            assert demo.wait(60) == 128 + signal.SIGTERM
        finally:
            demo.kill()
    assert psutil.wait_procs(started, timeout=60)[1] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_bank_models_are_read_to_the_end(tmp_path: Path) -> None:
    told = run("examples.bank_models", tmp_path, timeout_seconds=500)
    said = " ".join(told.split())
    assert "residual scale learned" in said
    assert said.count("Whitened Newton. Source: ours") == 2
    assert "housing and loan, 95 %: half axes" in said
    assert re.search(r"housing = 0, loan = 0: chi2\(2\) \d+", said)
    assert "no test of the difference is justified" in said
    assert "gradient clipped at 1" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_bank_data_by_the_methods_under_the_kl_condition(tmp_path: Path) -> None:
    told = run("examples.kl_bank", tmp_path, timeout_seconds=500)
    found = re.findall(r"^(\S.*?)  +0\.0300 +([\d.]+) +([\d.]+) .* ([\d.]+)$", told, re.MULTILINE)
    table = {name: tuple(map(float, figures)) for name, *figures in found}
    assert len(table) == 4
    for name, (spent, returned, loss) in table.items():
        assert spent + returned == pytest.approx(0.03, abs=2e-4)
        assert loss < 0.45, name  # a coin says 0.693
    assert table["adaptive"][1] > 0.01, "it ends where the gradient is small, and gives back the rest"
    assert "excess risk <=" in told
    assert list(tmp_path.iterdir()) == []
