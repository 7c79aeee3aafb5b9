"""Ellipsoids and joint intervals, against numpy, scipy and draws from the law that they are about."""

import json
from contextlib import suppress
from math import gamma, pi
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, norm

from api.pages.standalone import summary_page
from core.base.errors import Invalid
from core.data.columns import BinaryColumn, NumberColumn
from core.inference.hypotheses import contrast, wald_test
from core.inference.regions import Joint, ellipsoid, intervals
from core.inference.released import Released, declared
from core.models.design import make_design
from core.models.kinds import LogisticModel
from core.service.readings import whole_of
from tests.support.released import KINDS, of_kind, released, rows_of, shown_of, spread

LEVELS = (0.8, 0.95)
METHODS: tuple[Joint, ...] = ("pointwise", "bonferroni", "sidak", "scheffe")


def block(model: Released, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return estimates and covariance of some coefficients, in declared units."""
    shown = declared(model)
    places = [shown.names.index(name) for name in names]
    return np.asarray(shown.estimate)[places], np.asarray(shown.covariance)[np.ix_(places, places)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_region_is_the_chi_squared_ellipsoid(kind: str, count: int) -> None:
    model = of_kind(kind)
    names = model.names[-count:]
    centre, shape = block(model, names)
    found = ellipsoid(model, names, LEVELS)
    np.testing.assert_allclose(found["centre"], centre)
    np.testing.assert_allclose(found["shape"], shape)
    assert found["degrees_of_freedom"] == count
    values = np.linalg.eigvalsh(shape)[::-1]
    axes = np.array(found["axes"])
    np.testing.assert_allclose(axes @ axes.T, np.eye(count), atol=1e-12)
    for level, region in zip(LEVELS, found["regions"], strict=True):
        limit = chi2.ppf(level, count)
        assert region["radius_squared"] == pytest.approx(limit)
        np.testing.assert_allclose(region["half_axes"], np.sqrt(limit * values), rtol=1e-8)
        volume = pi ** (count / 2) / gamma(count / 2 + 1) * np.sqrt(limit**count * np.linalg.det(shape))
        assert region["volume"] == pytest.approx(volume, rel=1e-8)
        assert region["log_volume"] == pytest.approx(np.log(volume), rel=1e-8)
        for axis, half in zip(axes, region["half_axes"], strict=True):  # the ends of the axes are on its surface
            end = half * axis
            assert end @ np.linalg.inv(shape) @ end == pytest.approx(limit, rel=1e-6)


def test_a_point_is_inside_just_when_the_wald_test_of_it_does_not_reject() -> None:
    model = released()
    names = ("age", "job[b]", "job[c]")
    centre, shape = block(model, names)
    draws = np.random.default_rng(3).multivariate_normal(centre, 3 * shape, size=60)
    insides = []
    for point in draws.tolist():
        asked = dict(zip(names, point, strict=True))
        found = ellipsoid(model, names, LEVELS, asked)
        tested = wald_test(model, [{name: 1.0} for name in names], point)
        assert found["point"]["p_value"] == pytest.approx(tested["p_value"], rel=1e-8)
        assert found["point"]["statistic"] == pytest.approx(tested["statistic"], rel=1e-8)
        for level, region in zip(LEVELS, found["regions"], strict=True):
            assert region["inside"] == (tested["p_value"] >= 1 - level)
            insides.append(region["inside"])
    assert True in insides
    assert False in insides


def test_an_ellipse_has_a_closed_outline_on_its_border() -> None:
    names = ("age", "job[c]")
    centre, shape = block(released(), names)
    (region,) = ellipsoid(released(), names)["regions"]
    outline = np.array(region["outline"])
    assert (outline[0] == outline[-1]).all()
    away = outline - centre
    distances = np.einsum("ni,ij,nj->n", away, np.linalg.inv(shape), away)
    np.testing.assert_allclose(distances, region["radius_squared"], rtol=1e-9)
    spans = outline.max(0) - outline.min(0)
    np.testing.assert_allclose(spans, 2 * region["radius"] * np.sqrt(np.diag(shape)), rtol=2e-3)
    assert ellipsoid(released(), ("age",))["regions"][0]["outline"] is None


def test_small_axes_keep_their_digits_where_units_differ_wildly() -> None:
    wild = released(covariance=rows_of(np.diag([1e-4, 1e-12, 1e8, 1e-4])))
    names = ("age", "job[b]")
    _, shape = block(wild, names)
    (region,) = ellipsoid(wild, names)["regions"]
    np.testing.assert_allclose(
        region["half_axes"], region["radius"] * np.sqrt(np.sort(np.diag(shape))[::-1]), rtol=1e-6
    )


@pytest.mark.parametrize("level", LEVELS)
def test_intervals_hold_together_as_often_as_they_say(level: float) -> None:
    """2e5 draws of the estimate's own law; |z| < 4.5 is a false alarm in 7e-6 of runs. Pointwise ones are the bug."""
    names = ("age", "job[b]", "job[c]")
    centre, shape = block(released(), names)
    draws = np.random.default_rng(17).multivariate_normal(centre, shape, size=200_000)
    covered = {}
    for method in METHODS:
        ends = np.array([one["interval"] for one in intervals(released(), [level], method, names)["intervals"]])
        covered[method] = float(((draws >= ends[:, 0]) & (draws <= ends[:, 1])).all(1).mean())
    slack = 4.5 * np.sqrt(level * (1 - level) / 200_000)
    for method in ("bonferroni", "sidak", "scheffe"):
        assert covered[method] >= level - slack, method
    assert covered["pointwise"] < level - slack
    assert covered["sidak"] <= covered["bonferroni"] <= covered["scheffe"]
    region = chi2.ppf(level, 3)
    away = draws - centre
    inside = float((np.einsum("ni,ij,nj->n", away, np.linalg.inv(shape), away) <= region).mean())
    assert abs(inside - level) < slack


def test_what_each_method_reaches() -> None:
    found = {method: intervals(released(), [0.95], method)["standard_errors"] for method in METHODS}
    assert found["pointwise"] == pytest.approx(norm.ppf(0.975))
    assert found["bonferroni"] == pytest.approx(norm.ppf(1 - 0.05 / 8))
    assert found["sidak"] == pytest.approx(norm.ppf((1 + 0.95**0.25) / 2))
    assert found["scheffe"] == pytest.approx(np.sqrt(chi2.ppf(0.95, 4)))
    for method in METHODS:  # one comparison needs no correction
        assert intervals(released(), [0.95], method, ["age"])["standard_errors"] == pytest.approx(norm.ppf(0.975))


def test_scheffes_intervals_are_the_shadows_of_the_ellipsoid_in_every_direction() -> None:
    """No combination of any point of the region lies outside its interval, and the furthest lies on its end."""
    model = released()
    centre, shape = block(model, model.names)
    factor = np.linalg.cholesky(shape)
    draws = np.random.default_rng(23)
    surface = draws.standard_normal((4000, 4))
    surface /= np.linalg.norm(surface, axis=1, keepdims=True)
    points = centre + np.sqrt(chi2.ppf(0.9, 4)) * surface @ factor.T
    for weights in draws.standard_normal((25, 4)) / np.sqrt(np.diag(shape)):
        named = dict(zip(model.names, weights.tolist(), strict=True))
        low, high = contrast(model, named, [0.9], scheffe=True)["interval"]
        values = points @ weights
        assert low - 1e-9 <= values.min()
        assert values.max() <= high + 1e-9
        top = factor.T @ weights
        furthest = centre + np.sqrt(chi2.ppf(0.9, 4)) * factor @ (top / np.linalg.norm(top))
        assert furthest @ weights == pytest.approx(high)
        single = contrast(model, named, [0.9])["interval"]
        assert low < single[0] < single[1] < high


@pytest.mark.parametrize(
    ("names", "point", "pointer"),
    [
        ((), None, "/coefficients"),
        (("age", "nope"), None, "/coefficients/1"),
        (("age", "job[b]", "age"), None, "/coefficients/2"),
        (("age", "job[b]"), {"age": 0.0}, "/point/job[b]"),
        (("age",), {"age": 0.0, "intercept": 1.0}, "/point/intercept"),
    ],
    ids=["none", "unknown", "repeated", "a value lacks", "a value too many"],
)
def test_a_region_that_makes_no_sense_is_named(
    names: tuple[str, ...], point: dict[str, float] | None, pointer: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        ellipsoid(released(), names, (), point)
    assert refusal.value.fields[0].pointer == pointer


def test_a_region_needs_a_covariance_that_says_something() -> None:
    with pytest.raises(Invalid):
        ellipsoid(released(with_covariance=False), ("age",))
    flat = spread(4)
    flat[3], flat[:, 3] = flat[2], flat[:, 2]
    flat[3, 3] = flat[2, 2]
    singular = released(covariance=rows_of(flat))
    with pytest.raises(Invalid):
        ellipsoid(singular, ("job[b]", "job[c]"))
    with pytest.raises(Invalid):
        wald_test(singular, [{"job[b]": 1.0}, {"job[c]": 1.0}])
    assert ellipsoid(singular, ("age", "job[b]"))["degrees_of_freedom"] == 2


EXTREME = st.sampled_from([0.0, 1e-300, 1e-100, 1e-12, 1.0, -1.0, 1e12, 1e100, -1e100])
SIZES = st.sampled_from([1e-100, 1e-12, 1.0, 1e12, 1e99])


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.tuples(EXTREME, EXTREME), st.tuples(EXTREME, EXTREME), st.tuples(SIZES, SIZES))
def test_whatever_units_and_numbers_people_bring_the_answer_is_a_number_or_a_refusal(
    weights: tuple[float, float], values: tuple[float, float], ranges: tuple[float, float]
) -> None:
    columns = (
        NumberColumn(name="a", lower=0, upper=ranges[0]),
        NumberColumn(name="b", lower=0, upper=ranges[1]),
        BinaryColumn(name="y", values=("no", "yes")),
    )
    model = released(
        design=make_design(columns, LogisticModel(target="y")), theta=(0.1, 0.2, 0.3), covariance=rows_of(spread(3))
    )
    answers: list[dict[str, Any]] = [ellipsoid(model, ("a", "b"), (), dict(zip("ab", values, strict=True)))]
    shown = shown_of(model)
    assert summary_page(whole_of(model, shown))
    for row in (dict(zip("ab", weights, strict=True)), {"a": 1.0}):
        asks = (
            lambda row=row: contrast(model, row, value=values[0], margin=1e100),
            lambda row=row: wald_test(model, [row, {"b": 1.0}], values),
        )
        for ask in asks:
            with suppress(Invalid):
                answers.append(ask())
    for answer in answers:
        json.dumps(answer, allow_nan=False)
