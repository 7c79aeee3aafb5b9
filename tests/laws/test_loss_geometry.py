"""Claims on a mean loss's smoothness, distance from convexity and height: none is passed, and all are reached."""

from math import inf, log
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter
from torch import Tensor

from core.data.columns import Columns, NumberColumn
from core.losses.categorical import Brier, Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.phase import AbstractPhase, RobustPhase, SmoothPhase
from core.losses.records import per_record
from core.losses.registry import Loss
from core.losses.robust import Cauchy, GemanMcClure, Huber
from core.losses.squares import SineLink
from core.losses.weights import Clip, Mallows, Schweppe
from core.models.design import Design, make_design
from core.models.kinds import AnyModel, RegressionModel
from core.models.loss_geometry import (
    hessian_smoothness,
    longest_cube,
    longest_square,
    smoothness,
    start_gap,
    weak_convexity,
)
from core.models.modelling import encoded_loss, fill_model, make_facts
from core.privacy.arithmetic import AnyStart
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient
from core.queries.sums import make_problem
from tests.support.losses import ALL, told, weighted

COLUMNS = TypeAdapter(Columns).validate_python(
    [
        {"type": "number", "name": "a", "lower": 0, "upper": 2, "centre": 0.5},
        {"type": "number", "name": "b", "lower": -1, "upper": 3},
        {"type": "binary", "name": "y", "values": ["no", "yes"]},
        {"type": "integer", "name": "k", "lower": 0, "upper": 9},
        {"type": "category", "name": "z", "values": ["u", "v", "w"]},
    ]
)
MODEL: TypeAdapter[Any] = TypeAdapter(AnyModel)
ROBUST = ("huber", "smoothed_huber", "log_cosh", "pseudo_huber", "ostrovskii_bach", "geman_mcclure", "cauchy")
MALLOWS = [{"kind": "mallows", "bound": 1.3, "power": power} for power in (1, 2, 3)]
CLIP = {"kind": "clip", "bound": 0.8}
SINGLE: list[dict[str, Any]] = [
    *({"kind": "logistic", "loss": {"kind": loss}, "weights": weights}
      for loss in ("logistic", "brier") for weights in (*MALLOWS, CLIP)),
    *({"kind": "linear", "loss": {"kind": loss}, "weights": weights}
      for loss in ROBUST for weights in (MALLOWS[1], {"kind": "schweppe", "bound": 1.1})),
    *({"kind": "linear", "loss": {"kind": loss}, "weights": CLIP} for loss in ("squared", "sine_link")),
    *({"kind": "phase_retrieval", "loss": {"kind": loss}, "weights": CLIP} for loss in ("smooth", "robust")),
    *({"kind": "poisson", "weights": weights} for weights in (MALLOWS[0], CLIP)),
]  # fmt: skip
OTHERS: list[dict[str, Any]] = [
    {"kind": "linear", "loss": {"kind": "huber", "joint": True}, "weights": MALLOWS[0]},
    {"kind": "linear", "loss": {"kind": "huber", "joint": True}, "weights": MALLOWS[1]},
    {"kind": "multinomial", "weights": MALLOWS[1]},
    {"kind": "multinomial", "weights": CLIP},
]
TARGETS = {"logistic": "y", "linear": "k", "poisson": "k", "phase_retrieval": "k", "multinomial": "z"}
LOOSE = 0.5
"""Of what a bound that is not attained must at least be found."""


def name_of(body: dict[str, Any]) -> str:
    return "-".join([body["kind"], body.get("loss", {}).get("kind", ""), *(str(v) for v in body["weights"].values())])


def made(body: dict[str, Any], start: AnyStart = "zeros") -> tuple[RegressionModel, Design, Facts]:
    model = MODEL.validate_python({"target": TARGETS[body["kind"]], "features": ["a", "b"], **body})
    design = make_design(COLUMNS, model)
    model = fill_model(model, design)
    return model, design, make_facts(model, design, 1, Adjacency.ZERO_OUT, start)


def targets_of(loss: Loss, reach: float) -> list[float]:
    """Targets that a column of that reach may hold."""
    if isinstance(loss, Logistic | Brier):
        return [0.0, 1.0]
    if isinstance(loss, Poisson | AbstractPhase):
        return [reach * part for part in (0.0, 0.1, 0.5, 0.9, 1.0)]
    return [reach * part for part in (-1.0, -0.4, 0.0, 0.7, 1.0)]


def slopes(loss: Loss, reach: float, clip: float = inf) -> tuple[float, float]:
    """The most that the score, clipped, rises and falls for each unit of the margin."""
    margin = torch.linspace(-12, 12, 48_001, dtype=torch.float64)
    found = []
    for target in targets_of(loss, reach):
        score = per_record(loss).score(margin, torch.full_like(margin, target)).clamp(-clip, clip)
        found.append(score.diff() / margin.diff())
    every = torch.cat(found)
    return every.max().item(), -every.min().item()


def holds(claimed: float, found: float, least: float = 0.999) -> None:
    assert found <= claimed * (1 + 1e-6) + 1e-9, f"{found} is more than the claimed {claimed}"
    assert found >= least * claimed, f"{found} is much less than the claimed {claimed}"


@pytest.mark.parametrize("loss", ALL, ids=told)
def test_the_score_rises_and_falls_as_fast_as_claimed(loss: Loss) -> None:
    rise, fall = slopes(loss, 6.0 if isinstance(loss, Poisson) else 2.5)
    if loss.smoothness is not None:
        holds(loss.smoothness, max(rise, fall))
        for wrong in (0.98, 1.02):
            with pytest.raises(AssertionError, match="claimed"):
                holds(wrong * loss.smoothness, max(rise, fall))
    if loss.weak_convexity is not None:
        holds(loss.weak_convexity, max(fall, 0.0))


@pytest.mark.parametrize("clip", [0.05, 0.6, 4.0])
@pytest.mark.parametrize("loss", [SineLink(), SineLink(amplitude=0.3), SmoothPhase(cap=2.5)], ids=told)
def test_clipping_makes_a_score_without_bounds_smooth(loss: Loss, clip: float) -> None:
    rise, fall = slopes(loss, 2.5, clip)
    claimed, bent = loss.clipped_smoothness(clip), loss.clipped_weak_convexity(clip)
    assert claimed is not None
    assert bent is not None
    exact = isinstance(loss, SmoothPhase)
    holds(claimed, max(rise, fall), 0.99 if exact else LOOSE)
    holds(bent, max(fall, 0.0), 0.99 if exact else 0.0)
    assert exact or clip < 1 or fall > 0.2 * bent


def turns(loss: Loss, reach: float, clip: float = inf) -> float:
    """The most that the second derivative changes for each unit of the margin, where the score is not clipped."""
    margin = torch.linspace(-12, 12, 48_001, dtype=torch.float64)
    found = 0.0
    for target in targets_of(loss, reach):
        at = torch.full_like(margin, target)
        bent, whole = per_record(loss).curvature(margin, at), per_record(loss).score(margin, at).abs() <= clip
        rates = (bent.diff() / margin.diff()).abs()[whole[1:] & whole[:-1]]
        found = max(found, rates.max().item())
    return found


@pytest.mark.parametrize("loss", [Brier(), GemanMcClure(scale=0.7), Cauchy(scale=1.3)], ids=told)
def test_the_second_derivative_changes_as_fast_as_claimed(loss: Loss) -> None:
    assert loss.third_derivative is not None
    holds(loss.third_derivative, turns(loss, 2.5))
    for wrong in (0.98, 1.02):
        with pytest.raises(AssertionError, match="claimed"):
            holds(wrong * loss.third_derivative, turns(loss, 2.5))
    assert loss.clipped_third_derivative(0.1) == loss.third_derivative


@pytest.mark.parametrize("clip", [0.05, 0.6, 4.0])
@pytest.mark.parametrize("loss", [SineLink(), SineLink(amplitude=0.3), SmoothPhase(cap=2.5)], ids=told)
def test_where_nothing_is_clipped_the_second_derivative_changes_as_fast_as_claimed(loss: Loss, clip: float) -> None:
    claimed = loss.clipped_third_derivative(clip)
    assert claimed is not None
    holds(claimed, turns(loss, 2.5, clip), 0.99 if isinstance(loss, SmoothPhase) else LOOSE / 4)


def test_of_losses_that_are_convex_or_have_kinks_nothing_is_claimed() -> None:
    for loss in ALL:
        if loss.weak_convexity == 0 or isinstance(loss, RobustPhase):
            assert loss.clipped_third_derivative(1.0) is None


@pytest.mark.parametrize("weights", [*(Mallows(bound=1.3, power=p) for p in (1, 2, 3)), Schweppe(bound=1.3), Clip()])
def test_weighted_cubes_are_as_large_as_claimed(weights: Mallows | Schweppe | Clip) -> None:
    for longest in (0.7, 1.3, 4.0):
        r = torch.linspace(1e-3, longest, 4001, dtype=torch.float64)
        inside = (1.3 / r).clamp(max=1.0)
        factor = inside**weights.power if isinstance(weights, Mallows) else inside**3 if weights.kind != "clip" else 1.0
        holds(longest_cube(weights, longest), (factor * r**3).max().item())


@pytest.mark.parametrize("loss", ["brier", "geman_mcclure", "cauchy", "smooth"])
def test_hessians_of_the_longest_row_move_as_fast_as_claimed(loss: str) -> None:
    """Differences of its gradients, twice over, along the row itself, where no gradient is clipped."""
    kind = {"brier": "logistic", "smooth": "phase_retrieval"}.get(loss, "linear")
    weights = CLIP if loss == "smooth" else {"kind": "mallows", "bound": 10.0, "power": 2}
    body = {"kind": kind, "loss": {"kind": loss}, "weights": weights}
    model, design, _ = made(body)
    claimed = hessian_smoothness(encoded_loss(model, design), model.weights, design.norm_bound)
    assert claimed is not None
    x, y = records(body, 24, seed=1)
    points = torch.linspace(-4, 4, 2001, dtype=torch.float64).unsqueeze(-1) * (x[0] / x[0].norm())
    slopes_along = gradients(body, x, y, points)
    step = float((points[1] - points[0]).norm())
    rates = slopes_along.diff(dim=0).diff(dim=0).norm(dim=-1) / step**2
    bound = model.weights.bound
    assert bound is not None
    free = slopes_along.norm(dim=-1) < (1 - 1e-9) * bound if loss == "smooth" else slopes_along.norm(dim=-1) < inf
    holds(claimed, rates[free[2:] & free[1:-1] & free[:-2]].max().item(), 0.98)


@pytest.mark.parametrize("loss", ALL, ids=told)
@pytest.mark.parametrize("reach", [0.3, 2.0])
def test_no_target_starts_higher_above_its_least_loss_than_claimed(loss: Loss, reach: float) -> None:
    margin = torch.cat([torch.linspace(-50, 12, 124_001, dtype=torch.float64), torch.tensor([50.0])])
    zero, found = torch.zeros(1, dtype=torch.float64), 0.0
    for target in targets_of(loss, reach):
        at = torch.full((1,), target, dtype=torch.float64)
        least = per_record(loss).value(margin, at).min()
        found = max(found, (per_record(loss).value(zero, at) - least).item())
    holds(loss.gap_at_zero(reach), found, 0.5 if isinstance(loss, Poisson) and loss.c is not None else 0.999)


@pytest.mark.parametrize("cap", [0.4, 1.0, 6.0])
def test_counts_start_no_higher_than_claimed(cap: float) -> None:
    loss, margin = Poisson(cap=cap), torch.linspace(-40, 5, 45_001, dtype=torch.float64)
    zero, found = torch.zeros(1, dtype=torch.float64), 0.0
    for target in torch.linspace(0, cap, 41, dtype=torch.float64):
        found = max(found, (per_record(loss).value(zero, target) - per_record(loss).value(margin, target).min()).item())
    holds(loss.gap_at_zero(100.0), found)


@pytest.mark.parametrize("weights", [*(Mallows(bound=1.3, power=p) for p in (1, 2, 3)), Schweppe(bound=1.3), Clip()])
def test_weighted_rows_are_as_long_as_claimed(weights: Mallows | Schweppe | Clip) -> None:
    for longest in (0.7, 1.3, 4.0):
        r = torch.linspace(1e-3, longest, 4001, dtype=torch.float64)
        inside = (1.3 / r).clamp(max=1.0)
        factor = inside**weights.power if isinstance(weights, Mallows) else inside**2 if weights.kind != "clip" else 1.0
        holds(longest_square(weights, longest), (factor * r**2).max().item())


def gradients(body: dict[str, Any], x: Tensor, y: Tensor, points: Tensor) -> Tensor:
    """Return the summand of each record at each point in the oracle's sum, shape (points, records, p)."""
    model, design, facts = made(body)
    loss, present = encoded_loss(model, design), torch.ones(len(x), 1, dtype=torch.bool)
    single = make_problem(x.clone().unsqueeze(1), y.unsqueeze(1), present, loss, model.weights)
    return torch.stack([single.bounded_sum(Gradient(sigma=1), facts, point) for point in points])


def records(body: dict[str, Any], count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Encoded rows and targets within the declared bounds; the longest row comes first, with each kind of target."""
    model, design, _ = made(body)
    generator = torch.Generator().manual_seed(seed)
    picked = torch.rand(count, 2, generator=generator, dtype=torch.float64)
    picked[: count // 2] = picked[: count // 2].round()
    picked[:5] = 1.0
    (a, b), found = (COLUMNS[0], COLUMNS[1]), torch.empty(count, design.dimension, dtype=torch.float64)
    assert isinstance(a, NumberColumn)
    assert isinstance(b, NumberColumn)
    ends = [(column.lower, column.upper) for column in (a, b)]
    values = {
        column.name: (low + (high - low) * picked[:, place]).numpy()
        for place, (column, (low, high)) in enumerate(zip((a, b), ends, strict=True))
    }
    design.encode_columns(values, found.numpy())
    loss = encoded_loss(model, design)
    if isinstance(loss, Multinomial):
        return found, torch.randint(0, 3, (count,), generator=generator).double()
    reach = 1.0 if isinstance(loss, Logistic | Brier) else design.target_reach
    allowed = torch.tensor(targets_of(loss, reach), dtype=torch.float64)
    drawn = allowed[torch.randint(0, len(allowed), (count,), generator=generator)]
    return found, torch.cat([allowed, drawn[len(allowed) :]])


class TestEveryModel:
    @pytest.mark.parametrize("body", SINGLE, ids=name_of)
    def test_facts_are_passed_nowhere_and_reached_along_the_longest_row(self, body: dict[str, Any]) -> None:
        """Points along a row that the weights leave as it is, as long as can be, one small step after another."""
        model, design, facts = made(body)
        x, y = records(body, 24, seed=1)
        assert x.norm(dim=-1).max().item() == pytest.approx(design.norm_bound)
        along = x[0] / x[0].norm()
        points = torch.linspace(-8, 8, 1601, dtype=torch.float64).unsqueeze(-1) * along
        found = gradients(body, x, y, points)
        moved, step = found.diff(dim=0), points.diff(dim=0).unsqueeze(1)
        rates = moved.norm(dim=-1) / step.norm(dim=-1)
        falls = -(moved * step).sum(-1) / step.square().sum(-1)
        loss = encoded_loss(model, design)
        exact = not isinstance(loss, SineLink)
        if facts.smoothness is not None:
            weights_are_flat = model.weights.kind != "mallows" or model.weights.power != 3
            holds(facts.smoothness, rates.max().item(), (0.9 if exact else 0.4) if weights_are_flat else 0.2)
        assert facts.weak_convexity is not None
        holds(facts.weak_convexity, max(falls.max().item(), 0.0), 0.0)
        assert facts.weak_convexity == 0 or falls.max().item() > 0.1 * facts.weak_convexity

    @pytest.mark.parametrize("body", [*SINGLE, *OTHERS], ids=name_of)
    @given(seed=st.integers(0, 10**6), spread=st.floats(0.05, 20), near=st.floats(1e-4, 1))
    @settings(max_examples=4, deadline=None)
    def test_no_pair_of_points_passes_them(self, body: dict[str, Any], seed: int, spread: float, near: float) -> None:
        _, _, facts = made(body)
        x, y = records(body, 16, seed)
        drawn = torch.randn(12, 2, facts.dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        first, other = spread * drawn[:, 0], spread * drawn[:, 0] + near * spread * drawn[:, 1]
        if facts.scale is not None:
            for points in (first, other):
                points[:, -1] = points[:, -1].abs().clamp(min=facts.scale.floor)
        moved = gradients(body, x, y, other) - gradients(body, x, y, first)
        step = (other - first).unsqueeze(1)
        if facts.smoothness is not None:
            assert (moved.norm(dim=-1) <= facts.smoothness * step.norm(dim=-1) * (1 + 1e-9) + 1e-12).all()
        assert facts.weak_convexity is not None
        if body["kind"] != "multinomial" or body["weights"] != CLIP:  # clipped, they are the gradients of no loss
            falls = -(moved * step).sum(-1)
            assert (falls <= facts.weak_convexity * step.square().sum(-1) + 1e-9 * (1 + step.norm(dim=-1))).all()

    @pytest.mark.parametrize("body", SINGLE, ids=name_of)
    @given(seed=st.integers(0, 10**6), spread=st.floats(0.05, 20), at_zero=st.booleans())
    @settings(max_examples=4, deadline=None)
    def test_no_point_is_further_below_the_start(
        self, body: dict[str, Any], seed: int, spread: float, at_zero: bool
    ) -> None:
        drawn = torch.randn(13, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        given_start = tuple(drawn[0].tolist())
        clipped = body["weights"] == CLIP
        body = body | {"intercept": True}
        model, design, facts = made(body, "zeros" if at_zero or clipped else given_start)
        start = 0 * drawn[0] if at_zero or clipped else drawn[0]
        x, y = records(body, 16, seed)
        loss = encoded_loss(model, design)
        heights = [weighted(loss, model.weights, point, x, y).mean() for point in (start, *(spread * drawn[1:]))]
        assert facts.start_gap is not None
        assert all(heights[0] - height <= facts.start_gap * (1 + 1e-9) for height in heights[1:])


class TestOfAnUnknownScale:
    LOSS = Huber(joint=True, scale=0.5, scale_floor=0.01, c=1.345)

    def test_the_start_is_no_higher_than_claimed(self) -> None:
        found = self.LOSS.gap_at_zero(1.0)
        assert found == pytest.approx(0.5 * self.LOSS.rho(2.0) + self.LOSS.kappa / 4)

    def test_smoothness_is_that_at_the_floor(self) -> None:
        claimed = smoothness(self.LOSS, Mallows(bound=1.3), 4.0)
        assert claimed == pytest.approx((1.3**2 + 1.345**2) / 0.01)
        assert weak_convexity(self.LOSS, Mallows(bound=1.3), 4.0) == 0

    def test_a_start_elsewhere_counts_both_distances(self) -> None:
        model, design, _ = made(OTHERS[1])
        loss = encoded_loss(model, design)
        assert isinstance(loss, Huber)
        here, usual = loss.known_scale, start_gap(loss, model.weights, design, "zeros", 0.0)
        assert start_gap(loss, model.weights, design, (0.0, 0.0, 0.0, here), 0.0) == pytest.approx(usual)
        assert usual is not None
        for start in ((0.0, 0.0, 0.0, here + 1), (0.0, 1.0, 0.0, here), "random"):
            found = start_gap(loss, model.weights, design, start, 0.0)
            assert found == pytest.approx(usual + made(OTHERS[1])[2].gradient_bound)


def test_a_ridge_raises_a_start_that_is_not_zero() -> None:
    model, design, facts = made(SINGLE[0])
    found = start_gap(Logistic(), model.weights, design, "random", 0.6)
    assert found == pytest.approx(log(2) + facts.gradient_bound + 0.3)
    assert start_gap(Logistic(), model.weights, design, "zeros", 0.6) == pytest.approx(log(2))


def test_a_gap_that_no_float_holds_is_not_told() -> None:
    for start in ((1e200, 0.0, 0.0), (1e308, 1e308, 1e308)):
        model, design, _ = made(SINGLE[0])
        assert start_gap(Logistic(), model.weights, design, start, 1.0) is None


def test_clipped_gradients_of_several_margins_say_nothing_of_how_far_a_loss_rises() -> None:
    model, design, facts = made(OTHERS[3], "random")
    loss = encoded_loss(model, design)
    assert isinstance(loss, Multinomial)
    assert facts.start_gap == pytest.approx(log(3) + loss.score_bound * design.norm_bound)
    assert facts.gradient_bound == 0.8
