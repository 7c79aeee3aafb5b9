"""A model as text: aligned, and the same for the same release."""

import re

import pytest

from core.data.columns import BinaryColumn, NumberColumn
from core.inference import coefficient_document
from core.inference.comparison import compare
from core.inference.forest import plot_levels
from core.inference.released import Released
from core.inference.rendering import columns, comparison_text, number, plain, text_of, wide
from core.inference.swept import SweepOutcome
from core.inference.wording import methods_paragraph
from core.losses.weights import Clip
from core.models.design import make_design
from core.models.kinds import LogisticModel
from tests.support.released import KINDS, UNTOUCHED, of_kind, released, rows_of, shown_of, spread

HOSTILE = "<script>alert('\"&age')</script>"
IDS = {"model": "mdl_1", "job": "job_1"}
GOLDEN = """\
               Logistic regression of y, differentially private
==============================================================================
Target:                             y
Records: 1,000 declared; excluded ones are not counted
Method:                  noisy newton   Steps:                   8 (finished)
Loss:                   logistic loss   Correction:                stationary
Weights:    Mallows weights (bound 2)   Parameters:                         4
==============================================================================
                 coef    std err          z      P>|z|     [0.025     0.975]
------------------------------------------------------------------------------
intercept       1.876     0.6009      3.121      0.002      0.698      3.054
age             -0.04   0.005081     -7.872      0.000   -0.04996   -0.03004
job[b]         0.7071      0.314      2.252      0.024    0.09175      1.322
job[c]         0.1414     0.3639      0.389      0.698    -0.5717     0.8546
==============================================================================
Method: Noisy Newton. Source: Avella-Medina, Bradshaw, Loh: Differentially
  private inference via noisy optimization (2023).
Privacy (informational): mu 0.5, epsilon 2.255 at delta 1e-6, adjacency
  zero_out.
Under replace_one: mu 1, epsilon 4.887 at delta 1e-6.
Eigenvalues floored: 1 of the Hessian, 0 of the scores, 0 in the last step.
  Slow directions: 0.
Note: The intervals are unchecked: in four of six audited settings, intervals
  like these covered 60 to 83 % of the time at a nominal 95 %.
Note: 1 eigenvalue of the covariance's noised matrices fell below a public
  floor (1 of the Hessian, 0 of the score matrix): figures along such
  directions rest on the floor, not on the records.
Model mdl_1, job job_1.
"""


def text(model: Released, *levels: float) -> str:
    shown = shown_of(model, levels)
    return text_of(coefficient_document.document(shown))


def test_the_text_is_as_it_was_agreed() -> None:
    assert text(released()) == GOLDEN
    assert text(released()) == text(released()), "no clock is in it"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("levels", [(), (0.5001, 0.9, 0.99999)])
def test_columns_are_aligned(kind: str, levels: tuple[float, ...]) -> None:
    lines = text(of_kind(kind), *levels).splitlines()
    start = next(at for at, line in enumerate(lines) if "P>|z|" in line)
    body = [lines[start], *lines[start + 2 : lines.index(lines[1], start)]]
    assert len(body) == 1 + len(of_kind(kind).names) + (kind == "joint")
    coefficients = [line for line in body if not line.startswith("(residual")]
    assert len({wide(line) for line in coefficients}) == 1
    ends = [[found.end() for found in re.finditer(r"\S+$|\S+(?= )", line)][-4:] for line in coefficients]
    assert all(one == ends[0] for one in ends), "numbers end where their headings do"
    assert {wide(line) for line in lines if set(line) in ({"="}, {"-"})} == {max(78, wide(body[0]))}


def test_wide_letters_and_marks_keep_their_place() -> None:
    assert wide("年齢") == 4
    assert wide("e\u0301") == 1
    first, second = columns([["年齢", "1"], ["age", "22"]])
    assert wide(first) == wide(second)


def test_what_would_turn_a_line_around_is_shown_as_its_code() -> None:
    assert plain("a\u202eb\u2028c\nd") == r"a\u202eb\u2028c\u000ad"
    assert number(None) == ""
    assert number(1234567.0) == "1.235e+06"


@pytest.mark.parametrize("kind", KINDS)
def test_without_intervals_nothing_is_said_that_follows_from_them(kind: str) -> None:
    model = of_kind(kind, covariance=None)
    told = text(model)
    assert not re.search(r"std err|P>|Correction|Eigenvalues|intervals at", told)
    assert all(name in told for name in model.names)


def test_two_levels_of_the_plot_are_those_shown() -> None:
    assert plot_levels([0.95]) == [0.95, 0.8]
    assert plot_levels([0.8]) == [0.8, 0.9]
    assert plot_levels([0.9, 0.9, 0.99, 0.7]) == [0.9, 0.99]


def test_a_hostile_name_is_shown_as_it_is() -> None:
    columns = (NumberColumn(name=HOSTILE, lower=0, upper=2), BinaryColumn(name="y", values=("no", "yes")))
    design = make_design(columns, LogisticModel(target="y"))
    assert HOSTILE in text(released(design=design, theta=(0.1, 0.2), covariance=rows_of(spread(2))))


def test_two_models_as_text_say_what_is_assumed() -> None:
    clipped = released(covariance=None, weights=Clip(bound=1.0), theta=(0.5, -0.9, 0.2, 0.0), flags=UNTOUCHED)
    told = compare(released(), clipped, "same_dataset")
    for model, name in zip(told["models"], ("mdl_1", "mdl_2"), strict=True):
        model["model"] = name
    said = comparison_text(told)
    assert "no test of the difference is justified" in " ".join(said.split())
    assert "gradient clipped at 1" in said
    assert re.search(r"^age +-0\.04 +0\.005081 +-0\.03 +0\.01 +1\.97", said, re.MULTILINE)
    both = compare(released(), released(theta=(0.4, -1.0, 0.5, 0.2)), "different_people")
    for model in both["models"]:
        model["model"] = "mdl_1"
    assert re.search(r"chi2\(4\) = [\d.]+, P = 0\.\d+", comparison_text(both))


SWEPT = {
    "candidate": 3,
    "candidates": 12,
    "optimizer": {"kind": "noisy_gd", "steps": 20, "step_size": 0.123456789, "radius": None, "stop": "budgeted"},
    "ridge": 0.01,
    "score": 0.31234567,
    "score_scale": 0.0021,
    "way": "selection",
}


def test_a_sweep_says_which_candidate_won() -> None:
    shown = shown_of(released().model_copy(update={"sweep": SweepOutcome.model_validate(SWEPT)}))
    assert shown["sweep"] == SWEPT
    said = re.sub(r"\s+", " ", text_of(coefficient_document.document(shown)))
    assert (
        "Sweep: Candidate 3 of 12, numbered from 0, has the least mean error of those trained, 0.3123, with noise of "
        "standard deviation 0.0021. The least of several is too small on average. Priced by selection. "
        "Its settings: kind noisy_gd, steps 20, step size 0.1235, ridge 0.01." in said
    )
    nothing = dict.fromkeys(("candidate", "optimizer", "ridge", "score"))
    shown["sweep"] = {**SWEPT, **nothing}
    said = re.sub(r"\s+", " ", text_of(coefficient_document.document(shown)))
    assert "Sweep: No run of the 12 candidates was drawn, or each that was drawn failed. Priced by selection." in said
    assert "Sweep" not in text(released())


def test_a_paper_names_the_method_that_won_a_sweep() -> None:
    won = released().model_copy(update={"optimizer": "sweep", "sweep": SweepOutcome.model_validate(SWEPT)})
    said = methods_paragraph(won, "Papernot and Steinke, 2022")
    assert "by noisy gd, the best of 12 candidate settings by a noised mean error, with 8 steps and Gaussian" in said
