"""Offsets, sampling weights and interactions, with nearly no noise, are those of statsmodels; with noise they cover.

statsmodels: GLM with `offset` and `var_weights`, formulas of patsy, and HC0 (sandwich) standard errors, whose scores
have squared weights. Both sides solve the same equation, so they differ by what little noise there is, and standard
errors by n/(n - p) and by that noise in the scores.
"""

from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from numpy.typing import NDArray

from core.inference import predictions
from core.inference.released import Released
from core.losses.categorical import Logistic
from core.losses.records import ordinary, per_record
from core.losses.weights import Mallows
from core.models.design import Design
from core.privacy.events import Gaussian
from core.queries.sums import looking
from core.training.fitting import learned_loss
from tests.support.released import UNTOUCHED
from tests.support.terms import CROSSED, MAINS, Table, fitted, people, plan

UNITS: Final = 6000
SILENT: Final = 1e6
"""A budget whose noise is nothing beside sampling; no row reaches the weights' bound."""
OUTCOMES: Final = {
    "logistic": ("ill", sm.families.Binomial()),
    "poisson": ("visits", sm.families.Poisson()),
    "linear": ("score", sm.families.Gaussian()),
}
JOB: Final = "C(job, Treatment('none'))"
every = pytest.mark.parametrize("kind", OUTCOMES)


def frame(table: Table) -> Any:
    names = np.array(["none", "clerk", "nurse"])
    return pd.DataFrame({**table, "job": names[table["job"]]})


def reference(kind: str, table: Table, *, shifted: bool, weighted: bool, crossed: bool) -> Any:
    """Return what statsmodels finds."""
    data, (target, family) = frame(table), OUTCOMES[kind]
    formula = f"{target} ~ age + dose + smoker + {JOB}"
    formula += f" + age:smoker + age:dose + {JOB}:smoker" * crossed
    beside = (np.log(data["years"]) if kind == "poisson" else data["shift"]) if shifted else None
    weights = data["w"] / data["w"].mean() if weighted else None
    return smf.glm(formula, data, family=family, offset=beside, var_weights=weights).fit(cov_type="HC0", tol=1e-12)


def model_of(kind: str, *, shifted: bool, weighted: bool, crossed: bool) -> dict[str, Any]:
    """Return the same model, as a job asks for it."""
    model: dict[str, Any] = {"kind": kind, "target": OUTCOMES[kind][0], "features": MAINS}
    if shifted:
        model |= {"exposure": "years"} if kind == "poisson" else {"offset": "shift"}
    if weighted:
        model["sampling_weights"] = "w"
    if crossed:
        model["interactions"] = CROSSED
    return model | ({"loss": {"kind": "squared"}} if kind == "linear" else {})


def ordered(names: tuple[str, ...], other: Any) -> list[int]:
    """Return the place of each of our names among statsmodels'."""
    theirs = [name.replace(f"{JOB}[T.", "job[").replace("Intercept", "intercept") for name in other]
    places = {frozenset(name.split(":")): place for place, name in enumerate(theirs)}
    return [places[frozenset(name.split(":"))] for name in names]


def silent(kind: str, table: Table, optimizer: str = "whitened_newton", **given: bool) -> tuple[Any, Any, Any]:
    """Return estimates and standard errors over statsmodels': differences in its errors, and ratios of errors."""
    settings: dict[str, Any] = {"kind": optimizer}
    if optimizer == "whitened_newton":
        settings["weight_bound"] = 12.0 if kind == "poisson" else 60.0
    planned = plan(UNITS, SILENT, model=model_of(kind, **given), optimizer=settings)
    estimate, error, found = fitted(planned, table)
    other = reference(kind, table, **given)
    place = ordered(planned.design.names, other.params.index)
    return (
        (estimate - other.params.to_numpy()[place]) / other.bse.to_numpy()[place],
        error / other.bse.to_numpy()[place],
        found,
    )


@every
@pytest.mark.parametrize(
    ("shifted", "weighted", "crossed"),
    [(True, False, False), (False, True, False), (False, False, True), (True, True, True)],
    ids=["offset", "weights", "interactions", "all"],
)
def test_estimates_and_sandwich_are_statsmodels(kind: str, shifted: bool, weighted: bool, crossed: bool) -> None:
    """To a hundredth of a standard error; errors to 15 % (of counts, whose scores have the most noise, 20 %).

    A learned scale has noise even here: in one draw it made all errors of a linear model 5.2 % larger.
    """
    table = people(np.random.default_rng(1), UNITS)
    apart, ratio, found = silent(kind, table, shifted=shifted, weighted=weighted, crossed=crossed)
    assert np.abs(apart).max() < 0.01
    assert np.abs(ratio - 1).max() < (0.2 if kind == "poisson" else 0.15)
    assert found.checks.job == ()
    sampling = found.checks.learned.sampling
    if not weighted:
        assert sampling is None
        return
    w = table["w"]
    assert sampling.mean == pytest.approx(w.mean() / 25, rel=0.01)
    assert sampling.effect == pytest.approx((w**2).mean() / w.mean() ** 2, rel=0.03)


def test_scores_whose_weight_is_not_squared_would_be_seen() -> None:
    """Planted bug: w psi^2 x x' for w^2 psi^2 x x', frequency weights where sampling weights are meant."""

    def once(question: Any, rows: Any, theta: Any) -> Any:
        margin = rows.features @ theta
        loss = per_record(question.loss)
        bends = getattr(question, "of", "") == "hessian"
        found = (loss.curvature if bends else loss.score)(margin, rows.target)
        if getattr(question, "of", "") == "score":
            return ordinary(found.square() * rows.weights)
        return ordinary(found * rows.weights)

    table = people(np.random.default_rng(1), UNITS)
    with patch.object(looking, "_numbers", once):
        apart, ratio, _ = silent("logistic", table, shifted=False, weighted=True, crossed=False)
    assert np.abs(apart).max() < 0.01, "the estimate is the same"
    assert np.abs(ratio - 1).max() > 0.3


def test_an_offset_left_out_of_the_margin_would_be_seen() -> None:
    """Planted bug: rows whose margin lacks the offset."""
    table = people(np.random.default_rng(1), UNITS)
    with patch.object(looking, "_numbers", _without_offset(looking._numbers)):
        apart, _, _ = silent("logistic", table, shifted=True, weighted=False, crossed=False)
    assert np.abs(apart).max() > 3


def _without_offset(numbers: Any) -> Any:
    return lambda question, rows, theta: numbers(question, rows._replace(offset=None), theta)


@pytest.mark.parametrize("kind", ["logistic", "poisson"])
def test_the_papers_newton_takes_them_too(kind: str) -> None:
    """Mallows weights down-weigh no row here: the same estimates to a tenth of a standard error."""
    table = people(np.random.default_rng(3), UNITS)
    given = {"shifted": True, "weighted": True, "crossed": True}
    planned = plan(
        UNITS,
        3e5,
        model=model_of(kind, **given) | {"weights": {"bound": 8.0}},
        optimizer={"kind": "noisy_newton", "steps": 30},
        inference={"accept_unchecked": True},
    )
    estimate, error, _ = fitted(planned, table)
    other = reference(kind, table, **given)
    place = ordered(planned.design.names, other.params.index)
    assert np.abs((estimate - other.params.to_numpy()[place]) / other.bse.to_numpy()[place]).max() < 0.1
    assert (error > 0.9 * other.bse.to_numpy()[place]).all()


def released(kind: str, table: Table, **given: bool) -> Released:
    """Return a release of a silent job, as a trainer writes it."""
    planned = plan(UNITS, SILENT, model=model_of(kind, **given), optimizer={"kind": "whitened_newton"})
    estimate = fitted(planned, table)[2]
    assert estimate.sandwich is not None
    assert estimate.checks is not None
    model: Any = planned.spec.model
    return Released.model_construct(
        kind=kind,
        target=model.target,
        optimizer="whitened_newton",
        units=UNITS,
        design=planned.design,
        theta=tuple(estimate.theta.tolist()),
        covariance=tuple(tuple(row) for row in estimate.sandwich.covariance.tolist()),
        flags=UNTOUCHED,
        weights=Mallows(bound=2.0),
        loss=Logistic() if kind == "logistic" else learned_loss(model.loss, estimate.checks.learned, planned.design),
        checks=estimate.checks,
        level=0.95,
    )


def check_predictions(kind: str, found: Released, table: Table) -> None:
    """Fail unless new records' predictions are statsmodels', offsets and all, with its standard errors of means."""
    some = people(np.random.default_rng(50), 20)
    other = reference(kind, table, shifted=True, weighted=True, crossed=True)
    data = frame(some)
    beside = np.log(data["years"]) if kind == "poisson" else data["shift"]
    expected = other.get_prediction(data, offset=beside).summary_frame()
    rows = [{**row, "smoker": ("no", "yes")[row["smoker"]]} for row in data.to_dict("records")]
    told = predictions.predict(found, rows, 0.95)
    name = {"logistic": "probability", "poisson": "mean", "linear": "value"}[kind]
    np.testing.assert_allclose([one[name] for one in told], expected["mean"], rtol=0.1, atol=0.1)
    np.testing.assert_allclose([one["std_error"] for one in told], expected["mean_se"], rtol=0.35)


@every
def test_predictions_take_the_offset_of_new_records(kind: str) -> None:
    table = people(np.random.default_rng(4), UNITS)
    found = released(kind, table, shifted=True, weighted=True, crossed=True)
    check_predictions(kind, found, table)
    row = {"age": 50, "dose": 1, "smoker": "no", "job": "none"}
    with pytest.raises(Exception, match="cannot be encoded") as refused:
        predictions.predict(found, [row])
    assert refused.value.fields[0].pointer == f"/rows/0/{'years' if kind == 'poisson' else 'shift'}"  # type: ignore[attr-defined] # of ours


def test_an_offset_forgotten_in_predictions_would_be_seen() -> None:
    """Planted bug: new records without their offset."""
    table = people(np.random.default_rng(4), UNITS)
    found = released("logistic", table, shifted=True, weighted=True, crossed=True)
    with patch.object(Design, "encode_offset", lambda *_: 0.0), pytest.raises(AssertionError):
        check_predictions("logistic", found, table)


TRUTH: Final = {
    "intercept": -1.5, "age": 0.02, "dose": 0.3, "smoker": -0.05, "job[clerk]": -0.3, "job[nurse]": 0.2,
    "age:smoker": 0.01,
}  # fmt: skip
JOBS: Final = 30


@pytest.mark.parametrize(("kind", "units", "mu"), [("logistic", 8000, 2.0), ("linear", 8000, 2.0)])
def test_intervals_cover_over_fresh_data_sets(kind: str, units: int, mu: float) -> None:
    """All three together, at .95. Mean coverage of a job's ten coefficients varies by at most .1 from job to job, so
    the mean of 30 lies below .88 in 1e-4 of all draws where it is .95. No coefficient lies six errors off (1e-8). The
    noise follows from the test's name, so that a run repeats.
    """
    planned = plan(units, mu, model=model_of(kind, shifted=True, weighted=True, crossed=True))
    scale = 3.0 if kind == "linear" else 1.0
    truth = np.array([scale * TRUTH.get(name, 0.0) for name in planned.design.names])
    truth[0] += 5.0 * (kind == "linear")
    away: list[NDArray[np.float64]] = []
    for seed in range(JOBS):
        estimate, error, found = fitted(planned, people(np.random.default_rng((77, seed)), units))
        assert found.checks is not None
        kept = [not one and not found.checks.job for one in found.checks.coefficients]
        away.append(np.where(kept, (estimate - truth) / error, np.nan))
    found_z = np.array(away)
    assert np.isnan(found_z).mean() < 0.05
    assert np.nanmean(np.abs(found_z) < 1.96) > 0.88
    assert np.nanmax(np.abs(found_z)) < 6


def test_weights_that_follow_the_outcome_are_of_the_weighted_population() -> None:
    """A case-control sample: all the ill and a tenth of the others, weighted back. Without weights the intercept is 2.3
    off, more than twenty standard errors; with them each slope and the intercept are within five (1 in 10^5).
    """
    draws = np.random.default_rng(8)
    whole = people(draws, 60_000, crossed=False, shifted=False)
    rare = whole["ill"] == 1
    kept = rare | (draws.random(len(rare)) < 0.1)
    table = {name: column[kept] for name, column in whole.items()}
    table["w"] = np.where(table["ill"] == 1, 1.0, 10.0)
    units = len(table["w"])
    truth = {**TRUTH, "smoker": 0.4}
    for weighted in (True, False):
        model = model_of("logistic", shifted=False, weighted=weighted, crossed=False)
        planned = plan(units, 4.0, model=model)
        estimate, error, found = fitted(planned, table)
        assert found.checks is not None
        assert found.checks.job == ()
        away = (estimate - np.array([truth[name] for name in planned.design.names])) / error
        assert (np.abs(away).max() < 5) == weighted
        assert weighted or abs(away[0]) > 20


@pytest.mark.parametrize(("heaviest", "flags"), [(1.0, ()), (25.0, ("too few events",))])
def test_few_heavy_events_are_few(heaviest: float, flags: tuple[str, ...]) -> None:
    """About 180 events for six coefficients are enough; of weights 1, and 25 for 3 % of them, they are worth 27."""
    draws = np.random.default_rng(11)
    table = people(draws, UNITS, crossed=False, shifted=False)
    table["ill"] = (draws.random(UNITS) < 0.03).astype(np.int64)
    table["w"] = np.where(draws.random(UNITS) < 0.03, heaviest, 1.0)
    model = model_of("logistic", shifted=False, weighted=True, crossed=False)
    _, _, found = fitted(plan(UNITS, SILENT, model=model), table)
    assert found.checks is not None
    assert found.checks.job == flags


def test_the_method_asks_for_the_same_with_weights_and_pays_no_more() -> None:
    """A linear model asks one question more, of the same mu."""
    worth: list[float] = []
    for weighted in (False, True):
        model = model_of("linear", shifted=False, weighted=weighted, crossed=False)
        planned = plan(1000, 1.0, model=model)
        worth.append(sum(event.sigma**-2 for event in planned.schedule if isinstance(event, Gaussian)))
    assert worth == pytest.approx([1.0, 1.0])
