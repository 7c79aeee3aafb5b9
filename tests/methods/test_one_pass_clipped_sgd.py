"""One pass, its sensitivity, its average and what it claims; with planted bugs that must be seen."""

from math import inf, nan, sqrt

import pytest
import torch
from torch import Tensor

from core.base.errors import Invalid
from core.losses.squares import Squared
from core.losses.weights import Clip
from core.mechanisms.generator import SimulationGenerator
from core.methods.clipped.one_pass.spec import Moment, OnePassClippedSgd, OnePassClippedSgdPlan
from core.methods.fits import fit, iterate
from core.oracle.filters import CountingFilter, LastState, UnlimitedFilter
from core.oracle.noise import grid_for
from core.oracle.simulation import Simulation
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient
from core.queries.sums.linear import LinearProblem
from tests.support.problems import facts

CLIP, UNITS, BATCH, DIMENSION = 2.0, 60, 5, 3


def squared(features: Tensor, target: Tensor, adjacency: Adjacency = Adjacency.ZERO_OUT) -> tuple[LinearProblem, Facts]:
    """Return least squares with gradients clipped to 2, and its facts."""
    weights, (units, dimension) = Clip(bound=CLIP), features.shape
    known = facts(units, dimension, Squared(), adjacency, weights)
    known = known.model_copy(update={"curvature_bound": 1.0, "weak_convexity": 0.0})
    return LinearProblem(features, target, torch.ones(units, dtype=torch.bool), Squared(), weights), known


def table(seed: int = 1) -> tuple[Tensor, Tensor]:
    """Return features and a target with heavy tails."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(UNITS, DIMENSION, generator=generator, dtype=torch.float64)
    tail = torch.rand(UNITS, generator=generator, dtype=torch.float64).clamp(min=1e-6) ** -0.7
    return features, features.sum(1) + tail


def settings(**changes: object) -> OnePassClippedSgdPlan:
    """Return twelve steps of five units each."""
    usual = {"batch": BATCH, "steps": 12, "clip": CLIP, "step_size": 0.1, "mu": 1.0, "radius": 1e9}
    return OnePassClippedSgdPlan.model_validate({**usual, "returns": "average", **changes})


class Watching(LastState):
    """An answer log that holds every iterate that is kept."""

    def __init__(self) -> None:
        super().__init__()
        self.iterates: list[Tensor] = []

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        super().keep(state, step)
        self.iterates.append(state["theta"])


def simulate(asked: OnePassClippedSgdPlan, data: LinearProblem, known: Facts, **more: object) -> Simulation:
    return Simulation(data, known, SimulationGenerator(1), sampling=asked.sampling(known), **more)  # type: ignore[arg-type]  # as named


class TestSensitivity:
    """Two sets of records that differ in one; the mean clipped gradient of its batch before noise."""

    def difference(self, one: Tensor, other: Tensor, target: Tensor) -> float:
        """Return the largest distance of the first step's mean over all batches, at zero."""
        asked, moved = settings(steps=UNITS // BATCH), []
        for features in (one, other):
            data, known = squared(features, target)
            oracle, zero = simulate(asked, data, known, noiseless=True), torch.zeros(features.shape[1]).double()
            (question,) = asked.questions()
            moved.append(torch.stack([oracle.ask(question, zero).value for _ in range(asked.steps or 0)]))
        apart = torch.linalg.vector_norm(moved[0] - moved[1], dim=-1)
        assert int((apart > 0).sum()) <= 1, "a unit is in one batch"
        return float(apart.max())

    def neighbours(self, changed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rows that pull with 1e6, the same with one changed, and targets."""
        features = torch.zeros(UNITS, 1, dtype=torch.float64)
        features[7] = 1.0
        other = features.clone()
        other[7] = changed
        return features, other, torch.full((UNITS,), 1e6, dtype=torch.float64)

    @pytest.mark.parametrize(("changed", "multiple"), [(-1.0, 2.0), (0.0, 1.0), (nan, 1.0), (inf, 1.0)])
    def test_is_two_clips_over_the_batch_for_a_change_and_one_for_a_zero(self, changed: float, multiple: float) -> None:
        """A row that is not finite counts as zero."""
        found = self.difference(*self.neighbours(torch.tensor(changed)))
        assert found == pytest.approx(multiple * CLIP / BATCH, rel=1e-5)
        for adjacency, most in ((Adjacency.REPLACE_ONE, 2.0), (Adjacency.ZERO_OUT, 1.0)):
            question = Gradient(sigma=1.0, batch=BATCH, clip=CLIP)
            priced = question.sensitivity(squared(*table(), adjacency)[1])
            assert priced == pytest.approx(most * CLIP / BATCH), adjacency

    def test_is_never_more_for_a_thousand_pairs_of_records_with_heavy_tails(self) -> None:
        """Integer sums of a batch and of its neighbours, each of which has another record in the same place."""
        pairs, generator = 1000, torch.Generator().manual_seed(4)
        features, target = table()
        tails = torch.rand(pairs, 1, generator=generator, dtype=torch.float64).clamp(min=1e-9) ** -2
        others = tails * torch.randn(pairs, DIMENSION, generator=generator, dtype=torch.float64)
        data, known = squared(torch.cat([features, others]), torch.cat([target, target[7].expand(pairs)]))
        question, zero = Gradient(sigma=1.0, batch=BATCH, clip=CLIP), torch.zeros(DIMENSION, dtype=torch.float64)
        grid = grid_for(question, known, BATCH)

        def summed(place: int) -> Tensor:
            rows = torch.tensor([5, 6, place, 8, 9])
            return data.integer_sum(question, known, zero, grid.part_step, rows=rows) * grid.part_step / BATCH

        moved = [float((summed(UNITS + pair) - summed(7)).norm()) for pair in range(pairs)]
        assert 1.9 * CLIP / BATCH < max(moved) <= 2 * CLIP / BATCH * (1 + 1e-9)

    def test_clipping_the_mean_of_a_batch_is_caught(self) -> None:
        """Planted: gradients are not clipped one by one, their mean is; it moves by two clips, not over the batch."""
        features, other, target = self.neighbours(torch.tensor(-1.0))
        moved = []
        for rows in (features, other):
            mean = (rows[5:10] * (rows[5:10] @ torch.zeros(1).double() - target[5:10])[:, None]).mean(0)
            moved.append(mean * min(1.0, CLIP / float(mean.norm())))
        assert float((moved[0] - moved[1]).norm()) == pytest.approx(2 * CLIP)
        assert float((moved[0] - moved[1]).norm()) > 2 * CLIP / BATCH


class TestAverage:
    def iterates(self, asked: OnePassClippedSgdPlan) -> tuple[Tensor, Tensor]:
        """Return x^0 to x^K and what is returned."""
        data, known = squared(*table())
        watching = Watching()
        found = fit(asked, simulate(asked, data, known, payments=UnlimitedFilter(watching))).value.theta
        start = torch.zeros(1, DIMENSION, dtype=torch.float64)
        return torch.cat([start, torch.stack(watching.iterates)]), found

    def test_has_the_start_and_every_update_in_it(self) -> None:
        points, found = self.iterates(settings())
        assert len(points) == 13, "K updates make K + 1 iterates; the printed loop's x^(K+1) is not made"
        assert torch.allclose(found, points.mean(0), atol=1e-14)
        assert not torch.allclose(found, points[1:].mean(0), atol=1e-6), "planted: without x^0"
        assert not torch.allclose(found, points[:-1].mean(0), atol=1e-6), "planted: without x^K"

    def test_or_one_of_them_that_coins_choose_each_as_likely(self) -> None:
        """Chi-square of 400 runs over 4 iterates; one false alarm in 10,000 at other seeds."""
        asked, counts = settings(steps=3, returns="random_iterate"), torch.zeros(4)
        data, known = squared(*table())
        for seed in range(400):
            watching = Watching()
            sampling = asked.sampling(known)
            oracle = Simulation(
                data, known, SimulationGenerator(seed), sampling=sampling, payments=UnlimitedFilter(watching)
            )
            found = fit(asked, oracle).value.theta
            points = torch.stack([torch.zeros(DIMENSION).double(), *watching.iterates])
            counts[int((points == found).all(-1).nonzero()[0])] += 1
        assert float(((counts - 100) ** 2 / 100).sum()) < 21.1, counts


class TestPrice:
    def test_is_that_of_one_answer_however_many_steps(self) -> None:
        data, known = squared(*table())
        asked = settings()
        assert [event for event in asked.schedule(known) if isinstance(event, Gaussian)] == [Gaussian(sigma=1.0)]
        drawn = fit(asked, simulate(asked, data, known, payments=CountingFilter(Gaussian(sigma=1.0)))).event
        assert drawn == Gaussian(sigma=1.0)

    def test_one_pass_in_chunks(self) -> None:
        known = squared(*table())[1].model_copy(update={"units": 10_000})
        for steps, chunks in ((1, 1), (97, 97), (98, 49), (1000, 91), (10_000, 97)):
            asked = settings(batch=1, steps=steps)
            assert len(asked.schedule(known)) == chunks <= 97
            assert (chunks - 1) * asked.chunk < steps <= chunks * asked.chunk

    def test_it_ends_where_units_end(self) -> None:
        """After a loss fewer batches are left than steps: it ends sooner, and says so."""
        data, known = squared(*table())
        oracle = simulate(settings(), data, known)
        (question,) = settings().questions()
        for _ in range(5):
            oracle.ask(question, torch.zeros(DIMENSION).double())
        estimate, _ = iterate(settings(), oracle)
        assert estimate.steps == 7
        assert estimate.error_bound is not None
        assert estimate.error_bound.ended_by == "lost_batches"


DECLARED = {"smoothness": 1.0, "distance": 1.0, "moment": Moment(order=1.5, size=0.1)}
BIG = Facts(
    units=10**7, dimension=10, adjacency=Adjacency.REPLACE_ONE, gradient_bound=1e4, curvature_bound=1, weak_convexity=0
)


class TestCertificate:
    def planned(self, known: Facts = BIG, **changes: object) -> OnePassClippedSgdPlan:
        return OnePassClippedSgd.model_validate(DECLARED | changes).plan(known, 1.0)

    def test_a_plan_takes_the_theorems_step_and_the_clip_of_the_least_bound(self) -> None:
        asked = self.planned()
        bound = asked.bound(BIG)
        assert bound.value is not None
        assert not bound.vacuous
        assert bound.value < bound.trivial == 0.5
        assert "Farthing" in bound.source, "the refined certificate is ours"
        for factor in (0.5, 0.9, 1.1, 2.0):
            worse = asked.bound_with(BIG, asked.run, factor * (asked.clip or 0))
            assert worse >= bound.value * (1 - 1e-6)
        assert self.planned(**asked.model_dump()) == asked
        found = asked.guarantee(BIG)
        assert found is not None
        assert asked.step_size == pytest.approx(found.step_size, rel=1e-9)

    def test_the_papers_step_is_smaller_and_its_bound_about_what_is_not_released(self) -> None:
        asked = self.planned(certificate="paper")
        bound = asked.bound(BIG)
        assert bound.value is not None
        assert bound.vacuous
        assert "best iterate" in bound.quantity
        assert "extension" in bound.source, "a batch above one is ours"
        claim = asked.claim(BIG, asked.steps or 0, 0.0, strayed=False)
        assert claim.value is not None
        assert claim.value < bound.value
        assert claim.untrained == bound.trivial

    def test_what_is_lost_of_the_units_lowers_what_is_claimed(self) -> None:
        asked = self.planned()
        assert asked.steps is not None
        whole = asked.claim(BIG, asked.steps, asked.run.deviation(BIG), strayed=False)
        part = asked.claim(BIG, asked.steps // 2, asked.run.deviation(BIG), strayed=False)
        assert whole.value is not None
        assert part.value == pytest.approx(whole.value * (asked.steps + 1) / (asked.steps // 2 + 1))
        assert (whole.confidence, whole.quantity, whole.ended_by) == (0.95, "excess_risk", "steps")
        assert whole.untrained == asked.bound(BIG).trivial
        assert not whole.is_vacuous
        assert asked.claim(BIG, 1, asked.run.deviation(BIG), strayed=False).is_vacuous, "one step shows nothing"

    def test_is_none_where_a_condition_does_not_hold(self) -> None:
        asked = self.planned()
        assert asked.steps is not None
        bigger = asked.model_copy(update={"step_size": 1.1 * (asked.step_size or 0)})
        assert bigger.bound(BIG).value is None
        for claim in (
            bigger.claim(BIG, asked.steps, 0.0, strayed=False),
            asked.claim(BIG, asked.steps, 1.001 * asked.run.deviation(BIG), strayed=False),
            asked.claim(BIG, asked.steps, 0.0, strayed=True),
            asked.claim(BIG, 0, 0.0, strayed=False),
            asked.model_copy(update={"returns": "random_iterate"}).claim(BIG, asked.steps, 0.0, strayed=False),
        ):
            assert (claim.value, claim.confidence) == (None, None)

    @pytest.mark.parametrize("missing", ["smoothness", "distance", "moment"])
    def test_says_what_is_not_declared(self, missing: str) -> None:
        asked = OnePassClippedSgd.model_validate({**DECLARED, missing: None}).plan(BIG, 0.5)
        bound = asked.bound(BIG)
        assert bound.value is None
        assert f"{missing} is not declared" in bound.source
        assert asked.claim(BIG, 5, 0.0, strayed=False).variant == "practical step size"

    def test_a_ridge_is_outside_the_clip_and_has_none(self) -> None:
        asked = self.planned(BIG.model_copy(update={"ridge": 0.1}))
        assert "ridge" in asked.bound(BIG.model_copy(update={"ridge": 0.1})).source

    def test_without_convexity_it_is_about_a_random_iterates_gradient(self) -> None:
        known = BIG.model_copy(update={"weak_convexity": 1.0})
        asked = OnePassClippedSgd.model_validate({**DECLARED, "start_gap": 1.0}).plan(known, 0.5)
        assert asked.returns == "random_iterate"
        bound = asked.bound(known)
        assert bound.value is not None
        assert bound.trivial == 2.0
        claim = asked.claim(known, asked.steps or 0, 0.0, strayed=False)
        assert (claim.quantity, claim.confidence) == ("gradient_norm", pytest.approx(0.9))
        assert claim.value == pytest.approx(sqrt(bound.value / 0.05))
        assert claim.untrained == pytest.approx(sqrt(2.0))

    def test_replicates_make_no_claim(self) -> None:
        data, known = squared(*table())
        asked = settings()
        estimate, _ = iterate(asked, simulate(asked, data, known, replicates=3))
        assert estimate.theta.shape == (3, DIMENSION)
        assert estimate.error_bound is None


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"batch": 61}, "/optimizer/batch"),
        ({"steps": 61}, "/optimizer/steps"),
        ({"batch": 6, "steps": 11}, "/optimizer/steps"),
        ({"clip": 2.1}, "/optimizer/clip"),
    ],
)
def test_figures_that_contradict_each_other_are_refused(changes: dict[str, object], pointer: str) -> None:
    with pytest.raises(Invalid) as refused:
        OnePassClippedSgd.model_validate(changes).plan(squared(*table())[1], 1.0)
    assert [one.pointer for one in refused.value.fields] == [pointer]
