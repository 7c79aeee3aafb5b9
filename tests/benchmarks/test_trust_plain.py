"""The judge itself: its rules about plain truth, predictions, forecasts, repeats and budgets see planted faults."""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from benchmarks.trust.__main__ import beside, judged, table
from benchmarks.trust.exact import minimum
from benchmarks.trust.fresh_fifth import FIFTH, counted_rows, fifth_rows
from benchmarks.trust.jobs import Cell, Job, drawn, encoded, fitted, plain_truth, planned, run
from benchmarks.trust.plain import counted_widening, plain_fit
from benchmarks.trust.predicted import log_loss
from benchmarks.trust.repeats import agreement, at_variance, rising
from benchmarks.trust.row import Row
from benchmarks.trust.shapes import Outcome
from benchmarks.trust.verdicts import Verdict, broken, judge, wider
from core.data.columns import IntegerColumn
from core.inference.checks import ColumnLook, Learned
from core.losses.categorical import Logistic
from core.privacy.facts import Adjacency

SIZE: Final = 4
TRUTH: Final = np.array([1.0, -2.0, 0.5, 0.0])
SMALL: Final = Cell("normal", 300, 3, 1.0, Outcome("linear"), least_squares=True)


def job(seed: int, **changed: Any) -> Job:
    """Return a sound job: sampling error and noise of deviation 1 each, claimed as they are."""
    draws = np.random.default_rng(seed)
    sampling, noise = draws.normal(size=SIZE), draws.normal(size=SIZE)
    error = np.full(SIZE, np.sqrt(2))
    fields: dict[str, Any] = {
        "estimate": TRUTH + sampling + noise,
        "error": error,
        "noise": np.ones(SIZE),
        "flagged": np.zeros(SIZE, dtype=np.bool_),
        "truth": TRUTH,
        "nonprivate": TRUTH + sampling,
        "nonprivate_error": np.ones(SIZE),
        "plain_error": np.ones(SIZE),
        "foreseen": error,
        "rival": error,
        "words": (),
        "plain_truth": TRUTH,
        "plain": TRUTH + sampling,
        "forecast": error,
        "losses": (0.60, 0.65),
    }
    return Job(**fields | changed)


def jobs(count: int = 60, **changed: Any) -> list[Job]:
    return [job(seed, **changed) for seed in range(count)]


def flags(*places: int) -> Any:
    found = np.zeros(SIZE, dtype=np.bool_)
    found[list(places)] = True
    return found


@pytest.mark.parametrize("expected", ["sound", "elsewhere", "counted"])
def test_sound_jobs_keep_every_rule(expected: Any) -> None:
    assert broken(judge(jobs()), expected) == []


PLANTED: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "another plain truth": ({"plain_truth": TRUTH + 2.0}, "of the plain truth"),
    "another plain truth of one coefficient": ({"plain_truth": TRUTH + np.array([0, 0, 0, 2.5])}, "worst coefficient"),
    "a plain truth far away": ({"plain_truth": TRUTH + np.array([0, 20.0, 0, 0])}, "six of their standard errors"),
    "predictions worse than the base rate": ({"losses": (0.68, 0.65)}, "predict worse"),
    "a forecast of half the width": ({"forecast": np.full(SIZE, np.sqrt(2) / 2)}, "of the forecast"),
    "flags of sound coefficients": ({"flagged": flags(2)}, "coefficients that are sound"),
    "intervals narrower than non-private ones": ({"nonprivate_error": np.full(SIZE, 2.0)}, "narrower"),
    "half of the noise claimed": (
        {"noise": np.full(SIZE, 0.5), "error": np.full(SIZE, np.sqrt(1.25))},
        "of what is claimed",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_fault_breaks_its_rule(name: str) -> None:
    changed, words = PLANTED[name]
    assert any(words in said for said in broken(judge(jobs(**changed)), "counted"))


def test_one_silent_coefficient_in_one_job_is_enough() -> None:
    """Of 1,500 jobs none may have one."""
    good = jobs(300)
    bad = replace(good[7], estimate=TRUTH + np.array([0, 0, 9.0, 0]))
    found = judge([*good[:7], bad, *good[8:]])
    assert found.off == 1
    assert found.silent_plain == pytest.approx(1 / 300)
    assert any(said.startswith("1 unflagged") for said in broken(found, "counted"))


def test_a_note_of_the_estimand_excuses_and_its_absence_does_not() -> None:
    """Planted bug: the note is off."""
    away = {"plain_truth": TRUTH + np.array([0, 20.0, 0, 0])}
    assert broken(judge(jobs(noted=flags(1), **away)), "counted") == []
    assert broken(judge(jobs(noted=flags(), **away)), "counted")


def test_a_planted_width_beside_an_earlier_state() -> None:
    line: dict[str, Any] = {"width": 1.3, "expected": "sound"}
    assert wider(line, {"width": 1.1, "broken": []})
    assert not wider(line, {"width": 1.2, "broken": []})
    assert not wider(line, {"width": 1.1, "broken": ["flags"]})
    assert not wider(line | {"expected": "counted"}, {"width": 1.1, "broken": []})


def test_an_unknown_plain_truth_is_not_judged() -> None:
    found = judge(jobs(plain_truth=None))
    assert (found.plain, found.off) == (None, 0)


class TestAgreement:
    def sets(self, withheld: float, count: int = 100) -> list[list[Job]]:
        """Return data sets whose jobs withhold one coefficient so often."""
        draws = np.random.default_rng(3)
        chosen = draws.random((count, 10)) < withheld
        return [
            [job(10 * place + k, flagged=flags(1) if one else flags()) for k, one in enumerate(row)]
            for place, row in enumerate(chosen)
        ]

    def test_verdicts_that_agree(self) -> None:
        for withheld in (0.0, 0.02, 1.0):
            found = agreement(self.sets(withheld))
            assert at_variance(found) == [], found

    def test_planted_verdicts_by_chance(self) -> None:
        found = agreement(self.sets(0.3))
        assert found.agreed[0] == 1.0
        assert found.agreed[1] < 0.3
        assert found.wholly == found.agreed[1]
        assert any("agree on" in said for said in at_variance(found))

    def test_planted_estimates_at_odds(self) -> None:
        """As 5.04 +- .21 beside others of the same records."""
        apart = [job(1), job(2, estimate=TRUTH + np.array([0, 30.0, 0, 0]))]
        assert agreement([apart]).at_odds == 1
        assert at_variance(agreement([apart, [job(3), job(4)]]))
        withheld = [apart[0], replace(apart[1], flagged=flags(1))]
        assert agreement([withheld]).at_odds == 0


class TestBudgets:
    def at(self, flagged: float) -> Verdict:
        draws = np.random.default_rng(5)
        return judge([job(seed, flagged=draws.random(SIZE) < flagged) for seed in range(60)])

    def test_flags_that_fall_or_stay(self) -> None:
        assert rising({0.1: self.at(0.5), 0.2: self.at(0.5), 0.5: self.at(0.1), 1.0: self.at(0.1)}) == []

    def test_planted_flags_that_rise_and_fall(self) -> None:
        """As .05, .51, .03 at mu .1, .2, .5."""
        said = rising({0.5: self.at(0.03), 0.1: self.at(0.05), 0.2: self.at(0.51)})
        assert len(said) == 1
        assert "at mu 0.1" in said[0]


class TestPlainFit:
    def test_least_squares_is_that_of_numpy(self) -> None:
        draws = np.random.default_rng(2)
        features = np.column_stack([np.ones(500), draws.normal(3.0, 2.0, (500, 3))])
        target = features @ TRUTH + draws.standard_t(3, 500)
        theta, covariance = plain_fit("linear", (features, target))
        assert theta == pytest.approx(np.linalg.lstsq(features, target, rcond=None)[0])
        residual, inverse = target - features @ theta, np.linalg.inv(features.T @ features)
        assert covariance == pytest.approx(inverse @ (features.T * residual**2) @ features @ inverse)

    @pytest.mark.parametrize("kind", ["logistic", "poisson", "linear"])
    def test_weights_count_records_so_many_times(self, kind: Any) -> None:
        draws = np.random.default_rng(4)
        features = np.column_stack([np.ones(300), draws.normal(size=(300, 2))])
        target, times = (draws.random(300) < 0.4).astype(float), draws.integers(1, 4, 300)
        weighted, _ = plain_fit(kind, (features, target), times.astype(float))
        repeated, _ = plain_fit(kind, (features.repeat(times, 0), target.repeat(times)))
        assert weighted == pytest.approx(repeated)

    def test_weights_of_the_weighted_equation_too(self) -> None:
        draws = np.random.default_rng(6)
        features = np.column_stack([np.ones(300), draws.normal(size=(300, 2))])
        target, times = (draws.random(300) < 0.4).astype(float), draws.integers(1, 4, 300)
        identity = tuple(tuple(row) for row in np.eye(3).tolist())
        learned = Learned(columns=(ColumnLook(centre=0, scale=1),) * 3, encoding=identity, weight_bound=1.5)
        weighted, _ = minimum(Logistic(), learned, (features, target), np.zeros(3), sampling=times / 4)
        whole = (features.repeat(times, 0), target.repeat(times))
        assert weighted == pytest.approx(minimum(Logistic(), learned, whole, np.zeros(3))[0], abs=1e-6)

    def test_the_plain_truth_is_not_cut(self) -> None:
        """Population least squares of wages that bend, by NumPy from the same draws."""
        cell = Cell("curved_wages", 200, 4, 1.0, Outcome("linear"), least_squares=True)
        truth = plain_truth(cell)
        data = FIFTH["curved_wages"](np.random.default_rng(99), 400_000)
        assert data.mean is not None
        design = np.column_stack([np.ones(400_000), data.features])
        assert truth == pytest.approx(np.linalg.lstsq(design, data.mean, rcond=None)[0], rel=1e-6)

    def test_a_robust_regression_has_none(self) -> None:
        assert plain_truth(Cell("normal", 200, 3, 1.0, Outcome("linear", lacking="square"))) is None


class TestForecast:
    @pytest.mark.parametrize(("adjacency", "sites", "price"), [("zero_out", 1, 3.5), ("replace_one", 3, 42.0)])
    def test_is_the_formula(self, adjacency: Adjacency, sites: int, price: float) -> None:
        cell = replace(SMALL, adjacency=Adjacency(adjacency), mu=0.5)
        data = drawn(cell, 1)
        plan = planned(cell, data)
        features, target = encoded(plan, data)
        residual = target - features @ np.linalg.lstsq(features, target, rcond=None)[0]
        reach = 1 + abs(np.median(target)) + 2 * residual.std()
        expected = np.sqrt(1 + price * (1.3 * 3 + 1) * (reach / residual.std()) ** 2 / (300 * 0.25))
        assert counted_widening(plan, 0.5, (features, target), sites) == pytest.approx(expected)


class TestJobs:
    @pytest.mark.parametrize("sites", [1, 3])
    def test_a_job_has_every_figure(self, sites: int) -> None:
        cell = replace(SMALL, units=SMALL.units // sites, sites=sites)
        found = run(cell, (1, 1))
        assert found.plain_truth is found.truth
        assert found.plain is not None
        assert found.forecast is not None
        assert np.abs(found.estimate - found.plain).max() < 12 * found.error.max()

    def test_three_sites_answer_together(self) -> None:
        """Each from its own third, with the noise of its own: at great budget their mean is that of all records."""
        cell = replace(SMALL, units=100, sites=3, mu=100.0)
        data = drawn(cell, 5)
        assert len(data.target) == 300
        plan = planned(cell, data)
        records = encoded(plan, data)
        together = fitted(plan, records, None, 3).value.estimate.theta.numpy()
        alone = fitted(planned(replace(cell, units=300), data), records).value.estimate.theta.numpy()
        assert together == pytest.approx(alone, abs=0.02)
        assert plan.facts.units == 100

    def test_predictions_are_judged_by_what_a_model_row_says(self) -> None:
        losses = run(Cell("normal", 1500, 3, 2.0, Outcome("logistic")), (1, 1)).losses
        assert losses is not None
        assert losses[0] < losses[1] - 0.02

    def test_log_loss(self) -> None:
        assert log_loss(np.array([1.0, 0.0]), 0.5) == pytest.approx(np.log(2))
        assert log_loss(np.array([1.0]), np.array([0.0])) > 20

    def test_integers_products_and_weights_are_declared(self) -> None:
        for shape, count in (("households", 3), ("area_by_price", 0), ("survey_of_strata", 1)):
            row = next(row for row in fifth_rows() if row.cell.shape == shape)
            plan = planned(row.cell, drawn(replace(row.cell, units=50), 1))
            assert sum(isinstance(column, IntegerColumn) for column in plan.design.columns) == count
            assert plan.design.dimension == row.cell.dimension
            assert (plan.design.sampling is not None) == (shape == "survey_of_strata")


@pytest.mark.parametrize("row", list(fifth_rows()), ids=lambda row: row.cell.shape)
def test_a_shape_is_its_formula(row: Row) -> None:
    """The unweighted fit of a large draw agrees with the coefficients that the shape says."""
    cell = replace(row.cell, units=60_000)
    data = drawn(cell, 12)
    plan = planned(cell, data)
    assert plan.design.dimension == cell.dimension
    lower, upper = np.array(data.bounds).T
    assert ((data.features >= lower) & (data.features <= upper)).all()
    assert ((data.target >= data.target_bounds[0]) & (data.target <= data.target_bounds[1])).all()
    if data.truth is None or row.expected == "alias":
        assert (data.mean is not None) == (data.truth is None) or row.expected == "alias"
        return
    theta, covariance = plain_fit(cell.outcome.kind, encoded(plan, data))
    to_declared, offset = plan.design.to_declared()
    error = np.sqrt(np.diag(to_declared @ covariance @ to_declared.T))
    assert (np.abs(to_declared @ theta + offset - data.truth) < 4.5 * error).all()


def test_counted_cells_have_both_adjacencies_and_three_sites() -> None:
    cells = [row.cell for row in counted_rows()]
    assert len({cell.name for cell in cells}) == len(cells) == 28
    assert {(cell.adjacency.value, cell.sites) for cell in cells} == {
        (adjacency, sites) for adjacency in ("zero_out", "replace_one") for sites in (1, 3)
    }


def test_a_line_of_the_file_has_it_all() -> None:
    row = Row(SMALL, "counted")
    line = judged(row, 2)
    line |= beside(row, line, 1, 0) | {"commit": "abc"}
    assert {"plain", "off", "forecast", "repeats"} <= set(line)
    assert line["repeats"]["data_sets"] == 1
    heads, *_, last = table([line])
    assert heads.count("|") == last.count("|")
