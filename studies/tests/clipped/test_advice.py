"""Clips without a theorem: those that public gradients favour."""

import numpy as np
import pytest

from studies.clipped.advice import Estimate, Proxy, foresee
from studies.clipped.without_replacement import multiplier

CLIPS = np.geomspace(0.05, 100, 12).tolist()


def regression(seed: int, records: int = 5000, tail: float = 1.6) -> Proxy:
    """Return gradients at the least squares fit: unit-norm features, an intercept, skewed Pareto residuals."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(records, 5))
    features /= np.linalg.norm(features, axis=1)[:, None]
    features = np.hstack([features, np.ones((records, 1))])
    residuals = 0.2 * ((1 - random.random(records)) ** (-1 / tail) - tail / (tail - 1))
    fitted = features @ np.linalg.lstsq(features, residuals, rcond=None)[0]
    return Proxy(gradients=((fitted - residuals)[:, None] * features).tolist(), factors=features.tolist())


def noise(epsilon: float) -> float:
    found = multiplier(0.01, 1000, epsilon, 1e-5)
    assert found is not None
    return found


PROXY = regression(2)


@pytest.mark.parametrize(("epsilon", "best", "value"), [(1.0, 6.3, 0.00175), (4.0, 12.6, 0.00113)])
def test_public_gradients_favour_the_clip_that_runs_of_the_regression_do(
    epsilon: float, best: float, value: float
) -> None:
    """n = 20,000, b = 200, K = 1000: of 12 clips the best in simulation are 6.3 and 12.6."""
    z = noise(epsilon)
    found = foresee(PROXY, multiplier=z, batch=200, steps=1000, plan_clip=CLIPS[0])
    at = Estimate(PROXY, multiplier=z, batch=200, steps=1000).excess
    assert min(CLIPS, key=at) == pytest.approx(best, rel=0.01)
    assert found.value == pytest.approx(value, rel=0.02)
    assert found.value <= min(map(at, CLIPS))
    assert found.clip == pytest.approx(best, rel=0.1)


def test_the_curve_is_a_valley_with_noise_on_one_side_and_bias_on_the_other() -> None:
    at = Estimate(PROXY, multiplier=noise(1.0), batch=200, steps=1000).excess
    assert min(at(0.4), at(50.0)) > 5 * at(6.3)


def test_more_noise_asks_for_shorter_gradients() -> None:
    clips = [foresee(PROXY, multiplier=z, batch=200, steps=1000, plan_clip=1.0).clip for z in (0.5, 8.0, 32.0)]
    assert clips == sorted(clips, reverse=True)


def test_where_no_record_is_left_unclipped_nothing_is_estimated() -> None:
    shortest = min(float(np.linalg.norm(row)) for row in PROXY.gradients)
    assert foresee(PROXY, multiplier=1.0, batch=200, steps=1000, plan_clip=shortest / 2).at_plan is None


def test_equal_gradients_of_length_zero_tell_nothing() -> None:
    still = Proxy(gradients=[[0.0, 0.0], [0.0, 0.0]], factors=[[1.0, 0.0], [0.0, 1.0]])
    found = foresee(still, multiplier=1.0, batch=1, steps=1, plan_clip=3.0)
    assert (found.clip, found.value, found.at_plan) == (3.0, None, None)


def test_curvatures_weigh_the_records() -> None:
    half = PROXY.model_copy(update={"curvatures": [0.5] * len(PROXY.gradients)})
    one, other = (foresee(proxy, multiplier=1.0, batch=200, steps=1000, plan_clip=6.3) for proxy in (PROXY, half))
    assert one.at_plan is not None
    assert other.at_plan == pytest.approx(2 * one.at_plan)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"factors": [[1.0], [1.0]]}, "same length"),
        ({"factors": [[1.0, 2.0]] * 3}, "as many factors"),
        ({"curvatures": [1.0]}, "as many curvatures"),
        ({"gradients": [[1.0] * 401] * 100, "factors": [[1.0] * 401] * 100}, "fewer records"),
    ],
)
def test_records_of_several_shapes_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Proxy.model_validate({"gradients": [[1.0, 2.0]] * 2, "factors": [[1.0, 2.0]] * 2} | changes)
