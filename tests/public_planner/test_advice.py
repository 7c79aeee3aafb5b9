"""Clips without a theorem: the rule of thumb, and what public gradients tell."""

import numpy as np
import pytest

from public_planner.clipped.advice import Estimate, Proxy, foresee, tail_of, thumb
from public_planner.clipped.order_level import Scale
from public_planner.clipped.schemes import multiplier

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
    found = multiplier("fixed_batch", "replace_one", fraction=0.01, times=1000, epsilon=epsilon, delta=1e-5)
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


def test_the_rule_of_thumb_is_four_slopes_where_privacy_is_dear() -> None:
    scale = Scale.convex(2, 3)
    assert thumb(scale, 1.5, 0.1, 10.0) == 24.0
    assert thumb(scale, 1.5, 0.1, 1e-6) == pytest.approx(0.1 * 1e4)
    assert thumb(scale, 1.5, 0.1, 0.0) is None


class TestPublicTails:
    @pytest.mark.parametrize("tail", [1.3, 1.6, 2.5])
    def test_the_index_of_a_power_law_is_found_within_its_errors(self, tail: float) -> None:
        """Each of 20 draws is within two standard errors with probability .95: 13 or fewer, once in 7e5 runs."""
        random, inside = np.random.default_rng(5), 0
        for _ in range(20):
            ways = random.normal(size=(900, 3))
            rows = ways / np.linalg.norm(ways, axis=1)[:, None] * (1 - random.random((900, 1))) ** (-1 / tail)
            found = tail_of(Proxy(gradients=rows.tolist(), factors=rows.tolist()))
            assert found is not None
            assert found.largest == 30
            inside += found.least <= tail <= found.most
        assert inside >= 14

    def test_a_power_far_out_alone_is_taken_for_a_heavier_tail_and_not_for_a_lighter_one(self) -> None:
        """Residuals less their mean: a shift of a power law, whose index is found too small."""
        found = tail_of(regression(2, tail=2.5))
        assert found is not None
        assert found.least < found.index < 2.5

    def test_light_tails_are_not_called_heavy(self) -> None:
        random = np.random.default_rng(3)
        rows = random.normal(size=(5000, 4)).tolist()
        found = tail_of(Proxy(gradients=rows, factors=rows))
        assert found is not None
        assert found.least > 3
        assert not found.heavy
        assert found.moments[-1].order == 2
        assert found.moments[-1].size == pytest.approx(2, rel=0.05)

    def test_no_moment_is_told_that_may_be_infinite(self) -> None:
        found = tail_of(regression(2, tail=1.6))
        assert found is not None
        assert found.heavy
        assert all(one.order < found.least for one in found.moments)
        sizes = [one.size for one in found.moments]
        assert sizes == sorted(sizes), "sizes never fall with the order"

    def test_gradients_of_one_length_tell_nothing(self) -> None:
        rows = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
        assert tail_of(Proxy(gradients=rows, factors=rows)) is None
        assert tail_of(Proxy(gradients=[[0.0], [0.0]], factors=[[1.0], [1.0]])) is None
