"""Statements of the comparison with other libraries, with any part of its figures present; it needs no library."""

import subprocess
import sys

import numpy as np
import pytest

from benchmarks.peers.__main__ import (
    AGREE,
    FIXED,
    Table,
    distances,
    goals_missed,
    last_line,
    lines_of,
    main,
    read_figures,
    told,
)
from benchmarks.peers.tasks import Task, task_named

SAME = dict.fromkeys(FIXED, AGREE / 2)


def table(failed: dict[str, str] | None = None, **least: float) -> Table:
    """Return a table of methods that take so long and as many megabytes."""
    measured = {one: {"least": at, "median": at + 0.5, "peak": at * 2**20} for one, at in least.items()}
    return Table(measured, failed or {})


def missed(task: Task, fixed: Table | None = None, sampled: Table | None = None) -> list[str]:
    return goals_missed(task, fixed, sampled, SAME)


@pytest.mark.parametrize(
    ("ours", "fallen_short"),
    [
        (10.0, []),
        (11.0, ["1.3 x Opacus"]),
        (15.0, ["1.3 x Opacus", "its least memory"]),
        (18.0, ["1.3 x Opacus", "its least memory", "1.5 x SGD"]),
    ],
)
def test_a_network_is_judged_by_the_fastest_and_the_least_opacus_mode_and_by_sgd(
    ours: float, fallen_short: list[str]
) -> None:
    found = table(sgd=11.0, hooks=60.0, ghost=14.0, farthing=ours)
    assert missed(task_named("cnn", None), found) == fallen_short


def test_sgd_is_no_goal_at_large_batches() -> None:
    found = table(sgd=1.0, ghost=14.0, farthing=10.0)
    assert missed(task_named("cnn", 2048), found) == []
    assert missed(task_named("cnn", 256), found) == ["1.5 x SGD"]


def test_logistic_regression_is_judged_on_fixed_batches_and_on_samples() -> None:
    task, fixed = task_named("logistic", None), table(hooks=5.0, farthing=1.0)
    assert missed(task, fixed, table(hooks=15.0, farthing=1.0)) == []
    assert missed(task, fixed, table(hooks=14.9, farthing=1.0)) == ["15 x Opacus with sampling"]
    assert missed(task, table(hooks=4.9, farthing=1.0)) == ["5 x Opacus"]


@pytest.mark.parametrize("found", [table(farthing=1.0), table(ew=1.0), table()], ids=["alone", "without us", "nothing"])
def test_what_was_not_measured_is_no_goal_met(found: Table) -> None:
    logistic, cnn = task_named("logistic", None), task_named("cnn", None)
    assert missed(logistic, found, found) == [
        "5 x Opacus on fixed batches: not measured",
        "15 x Opacus with sampling: not measured",
    ]
    assert missed(cnn, found, found) == ["1.3 x Opacus on fixed batches: not measured"]
    assert missed(cnn, table(hooks=3.0, farthing=1.0)) == ["1.5 x SGD: not measured"]


@pytest.mark.parametrize("far", [2 * AGREE, float("nan")])
def test_ends_that_differ_or_are_missing_are_told(far: float) -> None:
    task = task_named("mlp", None)
    (said,) = goals_missed(task, None, None, {**SAME, "ghost": far})
    assert said.startswith("ghost is ")
    for apart in ({}, {"farthing": 0.0}, {"hooks": 0.0, "ew": 0.0}):
        assert goals_missed(task, None, None, apart) == ["ends of methods were not compared"]
    assert goals_missed(task, None, None, None) == []


def test_methods_are_as_far_as_their_farthest_parameter_from_the_median() -> None:
    ends = {"a": np.array([1.0, 2.0]), "b": np.array([1.0, 2.5]), "c": np.array([1.25, 2.5])}
    assert distances(ends, np.array([0.0, 2.0])) == ({"a": 0.5, "b": 0.0, "c": 0.25}, 1.0)
    assert distances({}, np.zeros(2)) == ({}, 0.0)


def test_a_method_that_fails_is_a_row_that_says_why() -> None:
    lines = lines_of(table({"jax": "did not end within 9 s"}, sgd=2.0, hooks=6.0, farthing=3.0), "a title")
    assert [line.split() for line in lines[3:]] == [
        ["sgd", "2.000", "2.500", "1.00", "3.00", "2"],
        ["hooks", "6.000", "6.500", "3.00", "1.00", "6"],
        ["farthing", "3.000", "3.500", "1.50", "2.00", "3"],
        ["jax", *["did", "not", "end", "within", "9", "s"]],
    ]
    alone = lines_of(table({"hooks": "failed"}, farthing=3.0), "a title")
    assert [line.split() for line in alone[3:]] == [["farthing", "3.000", "3.500", "-", "-", "3"], ["hooks", "failed"]]


def test_what_a_process_printed_is_read_or_told() -> None:
    figures = {"least": 1.0, "median": 2.0, "peak": 3.0}
    assert read_figures('a warning\n{"least": 1.0, "median": 2.0, "peak": 3.0}\n', "fixed") == figures
    assert read_figures("", "equal") == {}
    assert read_figures("Killed", "poisson") == "printed no figures: Killed"
    assert last_line(None) == last_line(" \n") == "it said nothing"


def test_the_status_tells_whether_all_was_met(capsys: pytest.CaptureFixture[str]) -> None:
    assert (told([]), told(["1.5 x SGD", "its least memory"])) == (0, 1)
    assert capsys.readouterr().out.split("\n")[1:4:2] == ["all goals met", "missed: 1.5 x SGD; its least memory"]


@pytest.mark.slow
def test_the_command_ends_with_a_table_of_whatever_it_could_measure() -> None:
    """Ours alone, in a process of its own: nothing to compare it with is a goal that is missed."""
    arguments = ["cnn", "--batch", "64", "--methods", "farthing", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.peers", *arguments], check=False, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert "farthing" in done.stdout
    assert "missed: ends of methods were not compared; 1.3 x Opacus on fixed batches: not measured" in done.stdout


def test_parts_and_methods_are_from_lists() -> None:
    for wrong in (["lstm"], ["--parts", "half"], ["--methods", "sgd", "tensorflow"]):
        with pytest.raises(SystemExit):
            main(wrong)
