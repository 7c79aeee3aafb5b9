"""Private selection: which candidate is returned and what is claimed of it, in every mode, at oracles and in
simulations.

Thresholds of statistics are |z| > 4.5 or the stated per cent with a fixed seed, so a run repeats.
"""

from decimal import Decimal
from math import log, sqrt
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from core.inference.wording import claim as said_of
from core.losses.phase import SmoothPhase
from core.losses.weights import Clip
from core.mechanisms.generator import SimulationGenerator, SystemGenerator
from core.methods.selection.select_model import fit as select_model
from core.methods.selection.select_model.spec import SelectModel, SelectModelPlan
from core.oracle import Status, stationarity
from core.oracle.federation import FederatedOracle, MessageRounds, SiteFilter
from core.oracle.filters import CountingFilter, UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.simulation import Simulation
from core.privacy.amounts import PrivacyTarget
from core.privacy.calibration import allowed
from core.privacy.conversions import gdp_mu
from core.privacy.events import BoundedRange, Gaussian, Pure
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Question
from core.queries.hessians import LikelyStationary
from core.queries.sums.linear import LinearProblem
from studies.second_order.saddle_records import ComponentRecords
from tests.support.peer_groups import Mail, ThreadPeerGroup, together
from tests.support.problems import repeatable_generator
from tests.support.store import TERMS

MODES = ("gradient", "sound", "printed", "hessian_products", "above_threshold", "exponential")
UNITS, DIMENSION = 20_000, 4
TRUTH = torch.tensor([1.0, 0.0, 0.0, 0.0]).double()
CANDIDATES = torch.stack([2 * TRUTH, torch.zeros(4).double(), TRUTH.roll(1) / sqrt(3), TRUTH, -TRUTH])
"""Too long; a maximum; a saddle; two minima."""
FACTS = Facts(
    units=UNITS,
    dimension=DIMENSION,
    adjacency=Adjacency.REPLACE_ONE,
    gradient_bound=40.0,
    smoothness=5.0,
    hessian_rank=1,
)
SHARP = {"alpha": 0.05, "gamma_star": 0.05, "candidates": len(CANDIDATES)}


def records(units: int = UNITS, seed: int = 1) -> LinearProblem:
    """Squares of x1 of normal x: phase retrieval, whose mean Hessian at zero is -diag(3, 1, 1, 1)."""
    x = torch.randn(units, DIMENSION, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return LinearProblem(x, (x @ TRUTH).square(), torch.ones(units).bool(), SmoothPhase(cap=100.0), Clip(bound=40.0))


def planned(mode: str, mu: float = 3.0, **options: object) -> SelectModelPlan:
    bends = {"gamma_star": None} if mode == "gradient" else {"smoothness": 60.0}
    return SelectModel.model_validate({**SHARP, "mode": mode, **bends, **options}).plan(FACTS, mu)


def narrow(settings: SelectModelPlan) -> SelectModelPlan:
    """Let tests allow for next to nothing, so that what decides is the records."""
    return settings.model_copy(update={"units": 10**12})


def silent() -> Simulation:
    return Simulation(records(), FACTS, SimulationGenerator(1), noiseless=True)


class TestSelection:
    @pytest.mark.parametrize("mode", ["sound", "hessian_products", "above_threshold"])
    def test_the_first_minimum_is_returned_unchanged_where_nothing_blurs(self, mode: str) -> None:
        settings = narrow(planned(mode, mu=1e4))
        estimate, status = select_model.iterate(settings, silent(), CANDIDATES)
        assert torch.equal(estimate.theta, CANDIDATES[3])
        assert status is Status.FINISHED
        assert estimate.error_bound is not None
        assert estimate.error_bound.selection is not None
        assert estimate.error_bound.selection.chosen == 3

    @pytest.mark.parametrize("past", [1e-6, -1e-6])
    @pytest.mark.parametrize("by", ["slope", "bend"])
    def test_a_test_allows_for_its_tolerance_and_no_more(self, by: str, past: float) -> None:
        """At a point whose gradient, or least eigenvalue, misses what is asked by all that is allowed for."""
        one = TRUTH / 2 if by == "slope" else torch.zeros(4).double()
        settings = planned("sound", mu=1e4, candidates=1, gamma_star=1.0).model_copy(update={"units": 10**6})
        slope, bend = (records().bounded_sum(asked, FACTS, one) / UNITS for asked in settings.questions())
        steep, sharp = settings.tolerances(FACTS, (0.0, 0.0))
        given = {"alpha": float(slope.norm()) - steep - past, "gamma_star": 100.0}
        if by == "bend":
            given = {"alpha": 0.05, "gamma_star": -float(torch.linalg.eigvalsh(bend)[0]) - sharp - past}
        assert min(given.values()) > 0, "there is something to miss"
        _, status = select_model.iterate(settings.model_copy(update=given), silent(), one.unsqueeze(0))
        assert (status is Status.NONE) == (past > 0)

    @pytest.mark.parametrize("mode", MODES[:5])
    def test_none_is_told_where_none_passes(self, mode: str) -> None:
        worse = CANDIDATES[:1].repeat(3, 1)
        settings = planned(mode, candidates=3)
        estimate, status = select_model.iterate(
            settings, FullOracle(records(), FACTS, UnlimitedFilter(), SystemGenerator()), worse
        )
        assert status is Status.NONE
        assert not estimate.theta.any()
        claim = estimate.error_bound
        assert claim is not None
        assert claim.selection is not None
        assert (claim.ended_by, claim.value, claim.selection.chosen, claim.selection.curvature) == (
            "none",
            None,
            None,
            None,
        )

    def test_the_exponential_choice_is_one_of_the_best_and_claims_nothing(self) -> None:
        oracle = FullOracle(records(), FACTS, UnlimitedFilter(), SystemGenerator())
        estimate, _ = select_model.iterate(planned("exponential"), oracle, CANDIDATES)
        assert any(torch.equal(estimate.theta, one) for one in CANDIDATES[3:])
        assert estimate.error_bound is not None
        assert estimate.error_bound.value is None

    @pytest.mark.parametrize("mode", MODES)
    def test_what_is_drawn_is_at_most_what_is_priced(self, mode: str) -> None:
        settings, payments = planned(mode), CountingFilter()
        select_model.iterate(settings, FullOracle(records(), FACTS, payments, SystemGenerator()), CANDIDATES)
        (event,) = set(settings.schedule(FACTS))
        assert event == {"above_threshold": Pure(epsilon=3.0), "exponential": BoundedRange(epsilon=6.0)}.get(
            mode, Gaussian(sigma=settings.multiplier)
        )
        assert len(payments.totals) <= len(settings.schedule(FACTS)) == settings.answers
        assert settings.answers == {
            "hessian_products": 5 * 21,
            "above_threshold": 1,
            "exponential": 1,
            "gradient": 5,
        }.get(mode, 10)

    def test_gradients_alone_take_the_first_that_is_short_and_claim_no_curvature(self) -> None:
        """The maximum at zero passes: a request for a gradient alone gets no claim on curvature."""
        payments = CountingFilter()
        settings = narrow(planned("gradient", mu=1e4))
        oracle = Simulation(records(), FACTS, SimulationGenerator(1), noiseless=True, payments=payments)
        estimate, status = select_model.iterate(settings, oracle, CANDIDATES)
        assert (status, len(payments.totals)) == (Status.FINISHED, 2)
        claim = estimate.error_bound
        assert claim is not None
        assert claim.selection is not None
        assert (claim.quantity, claim.selection.chosen, claim.selection.curvature) == ("gradient_norm", 1, None)
        assert (claim.selection.gamma_star, claim.selection.curvature_tolerance) == (None, None)
        assert claim.value is not None
        assert claim.selection.gradient_tolerance is not None
        assert claim.value == pytest.approx(0.05 + 2 * claim.selection.gradient_tolerance)
        assert "of any curvature" in said_of(claim)

    def test_a_hessian_is_not_paid_for_where_the_gradient_fails(self) -> None:
        payments = CountingFilter()
        oracle = FullOracle(records(), FACTS, payments, SystemGenerator())
        settings = planned("sound", candidates=1)
        select_model.iterate(settings, oracle, CANDIDATES[:1])
        assert payments.totals == [settings.questions()[0].event()]

    def test_it_goes_on_where_it_was(self) -> None:
        """An attempt that finds three candidates behind it asks about the fourth alone."""
        payments = CountingFilter()
        nothing = torch.tensor(0.0).double()
        kept = {"place": torch.tensor(3), "chosen": torch.tensor(-1), "slope_scale": nothing, "bend_scale": nothing}
        payments.log.keep(kept, 3)
        oracle = Simulation(records(), FACTS, SimulationGenerator(1), noiseless=True, payments=payments)
        estimate, _ = select_model.iterate(narrow(planned("sound", mu=1e4)), oracle, CANDIDATES)
        assert torch.equal(estimate.theta, CANDIDATES[3])
        assert len(payments.totals) == 2

    def test_as_many_candidates_as_were_priced(self) -> None:
        with pytest.raises(AssertionError, match="as many points were priced"):
            select_model.iterate(planned("sound"), silent(), CANDIDATES[:2])

    def test_a_ridge_bends_up_and_pulls(self) -> None:
        """With enough of it the maximum at zero passes; a score counts it as the tests do."""
        bent = FACTS.model_copy(update={"ridge": 3.2})
        for mode in ("sound", "hessian_products", "above_threshold"):
            oracle = Simulation(records(), bent, SimulationGenerator(1), noiseless=True)
            estimate, _ = select_model.iterate(narrow(planned(mode, mu=1e4)), oracle, CANDIDATES)
            assert estimate.error_bound is not None
            assert estimate.error_bound.selection is not None
            assert estimate.error_bound.selection.chosen == 1


class TestClients:
    """Two clients with records of their own, each behind its own oracle, go through the candidates together."""

    @pytest.mark.parametrize("mode", ["gradient", "sound", "printed", "hessian_products"])
    def test_select_alike_and_each_pays_for_itself(self, mode: str) -> None:
        settings = narrow(planned(mode, mu=1e4, sites=2))

        def work(peers: ThreadPeerGroup) -> tuple[Tensor, int, int]:
            payments = CountingFilter()
            paying = SiteFilter(payments, MessageRounds(peers))
            own = FullOracle(records(seed=peers.place), FACTS, paying, SystemGenerator())
            estimate, _ = select_model.iterate(settings, FederatedOracle(own, paying, "fed_test"), CANDIDATES)
            assert estimate.error_bound is not None
            assert estimate.error_bound.selection is not None
            chosen = estimate.error_bound.selection.chosen
            return estimate.theta, -1 if chosen is None else chosen, len(payments.totals)

        (theta, chosen, asked), other = together(Mail(2), work)
        assert chosen == (1 if mode == "gradient" else 3)
        assert torch.equal(theta, CANDIDATES[chosen])
        assert torch.equal(other[0], theta)
        assert other[1:] == (chosen, asked)
        if mode == "gradient":
            assert asked == 2
            return
        bends = 20 if mode == "hessian_products" else 1
        assert asked == 4 + 3 * bends, "the first candidate's gradient is long; the fourth passes"


class TestClaims:
    def test_a_sound_claim_is_twice_what_the_test_allows_for(self) -> None:
        settings, oracle = planned("sound", mu=0.5), FullOracle(records(), FACTS, UnlimitedFilter(), SystemGenerator())
        estimate, _ = select_model.iterate(settings, oracle, CANDIDATES)
        claim = estimate.error_bound
        assert claim is not None
        found = claim.selection
        assert found is not None
        assert found.gradient_tolerance is not None
        assert found.curvature_tolerance is not None
        assert claim.value == pytest.approx(0.05 + 2 * found.gradient_tolerance)
        assert found.curvature == pytest.approx(0.05 + 2 * found.curvature_tolerance)
        assert claim.confidence == 0.95
        assert claim.conditions
        quoted = settings.figures(FACTS)
        assert quoted["claimed_gradient"] == pytest.approx(claim.value, rel=2e-3)
        assert quoted["claimed_curvature"] == pytest.approx(found.curvature, rel=2e-3)

    def test_tolerances_by_their_formulas(self) -> None:
        settings = planned("sound", mu=0.5, sites=4)
        level, root = log(8 * 5 / 0.05), sqrt(4 * UNITS)
        noise = sqrt(10) / 0.5 / sqrt(4)
        slope, bend = noise * 2 * 40 / UNITS, noise * 2 * 60 / UNITS
        steep, sharp = settings.tolerances(FACTS, settings.noises(FACTS))
        assert steep == pytest.approx(40 / root * (1 + sqrt(2 * level)) + slope * (2 + sqrt(2 * level)))
        assert sharp == pytest.approx(240 / root * sqrt(log(4) + level) + bend * (4 + 2 * sqrt(level)))

    def test_printed_thresholds_by_their_formulas(self) -> None:
        settings = planned("printed", mu=gdp_mu(1.0, 1e-5), sites=4)
        sampled, spread = log(8 * 4 / 0.05), 5 * log(1e5)
        steep = 40 * sampled / sqrt(4 * UNITS) + 40 * sqrt(4 * spread * log(16 / 0.05)) / (2 * UNITS)
        sharp = 60 * sqrt(sampled / (4 * UNITS)) + 60 * 4 * sqrt(spread * log(32 / 0.05)) / (2 * UNITS)
        assert list(settings.tolerances(FACTS, (0.0, 0.0))) == pytest.approx([steep, sharp], rel=1e-6)
        assert settings.claimed(FACTS) == (None, None)

    def test_the_slack_of_above_threshold_and_its_claim(self) -> None:
        settings = planned("above_threshold", mu=1.0)
        (question,) = settings.questions()
        slack = 8 / 1.0 * (log(5) + log(2 / 0.05))
        assert question.model_dump()["slack"] == pytest.approx(slack)
        steep, sharp = settings.claimed(FACTS)
        held = settings.held(DIMENSION)
        assert steep == pytest.approx(0.05 + 2 * slack * 80 / UNITS + held.sampled_gradient(40.0))
        assert sharp == pytest.approx(0.05 + 2 * slack * 120 / UNITS + held.sampled_hessian(60.0))
        assert settings.confidence == pytest.approx(0.9)

    def test_an_epsilon_is_what_the_target_allows(self) -> None:
        fits = allowed(PrivacyTarget(epsilon=Decimal(1)), TERMS)
        settings = SelectModel.model_validate({**SHARP, "mode": "above_threshold"}).calibrated(FACTS, fits)
        assert settings.epsilon is not None
        assert 0.9 < settings.epsilon < 1.0


SIZES = (20, 100, 1000)


def study_facts(dimension: int) -> Facts:
    return Facts(
        units=100_000, dimension=dimension, adjacency=Adjacency.REPLACE_ONE, gradient_bound=5.3, smoothness=7.47
    )


class TestPredictedNoise:
    """n = 1e5, epsilon 1, delta 1e-5, G = 5.3, M = 7.47, T = 100: a sweep of dimensions, predicted and measured."""

    MU = gdp_mu(1.0, 1e-5)

    def settings(self, dimension: int, mode: str, clients: int) -> SelectModelPlan:
        asked = SelectModel.model_validate(
            {"mode": mode, "alpha": 0.02, "gamma_star": 0.3, "candidates": 100, "sites": clients}
        )
        if mode == "above_threshold":
            asked = asked.model_copy(update={"epsilon": 1.0})
        return asked.plan(study_facts(dimension), self.MU)

    @pytest.mark.parametrize(
        ("dimension", "gradient", "hessian", "product"),
        [(20, 0.008, 0.10, 0.036), (100, 0.018, 0.50, 0.081), (1000, 0.056, 5.0, 0.255)],
    )
    def test_ten_clients(self, dimension: int, gradient: float, hessian: float, product: float) -> None:
        sound, products = (self.settings(dimension, mode, 10) for mode in ("sound", "hessian_products"))
        facts = study_facts(dimension)
        assert sound.figures(facts)["gradient_noise_norm"] == pytest.approx(gradient, rel=0.05)
        assert sound.figures(facts)["curvature_noise_norm"] == pytest.approx(hessian, rel=0.05)
        assert products.figures(facts)["curvature_noise_norm"] == pytest.approx(product, rel=0.05)

    @pytest.mark.parametrize("dimension", SIZES)
    def test_the_slack_does_not_know_the_dimension(self, dimension: int) -> None:
        found = self.settings(dimension, "above_threshold", 1).figures(study_facts(dimension))
        assert found["slack_of_curvature"] == pytest.approx(0.0099, rel=0.05)

    @pytest.mark.parametrize(
        ("dimension", "vectors", "matrices", "edge"),
        [(20, 60, 60, 1.88), (100, 10, 10, 1.96), pytest.param(1000, 5, 1, 1.99, marks=pytest.mark.slow)],
    )
    def test_the_oracle_s_noise_is_what_was_predicted(
        self, dimension: int, vectors: int, matrices: int, edge: float
    ) -> None:
        """Means over ten clients of real oracles' noise about records of zeros, whose answers are noise alone.

        Within 5 per cent; `edge` is the mean operator norm of such a matrix with unit entries over sqrt(d), of which 2
        is predicted. The root mean square of 1,000 normal numbers varies by 2 per cent; generators are forced.
        """
        own = study_facts(dimension).model_copy(update={"units": 100})
        zeros, at = ComponentRecords(torch.zeros(100, dimension).double()), torch.zeros(dimension).double()
        sound, products = (
            self.settings(dimension, mode, 10).model_copy(update={"units": 100})
            for mode in ("sound", "hessian_products")
        )
        oracles = [
            FullOracle(zeros, own, UnlimitedFilter(), repeatable_generator(bytes([place] * 32))) for place in range(10)
        ]

        def told(question: Question, repeats: int, other: Tensor | None = None) -> Tensor:
            answers = [[one.ask(question, at, other).value for one in oracles] for _ in range(repeats)]
            return torch.stack([torch.stack(each).mean(0) for each in answers])

        length = float(told(sound.questions()[0], vectors).square().sum(-1).mean().sqrt())
        assert length == pytest.approx(sound.figures(own)["gradient_noise_norm"], rel=0.05)
        along = torch.ones_like(at) / sqrt(dimension)
        length = float(told(products.questions()[1], vectors, along).square().sum(-1).mean().sqrt())
        assert length == pytest.approx(products.figures(own)["curvature_noise_norm"], rel=0.05)
        norm = float(torch.linalg.matrix_norm(told(sound.questions()[1], matrices), 2).mean())
        assert norm * 2 / edge == pytest.approx(sound.figures(own)["curvature_noise_norm"], rel=0.05)


class TestComponentRecords:
    """Integers and floats of fixed records agree, and no neighbour moves a sum by more than is charged."""

    FACTS = Facts(units=50, dimension=3, adjacency=Adjacency.REPLACE_ONE, gradient_bound=1.0, smoothness=2.0)
    AT = torch.tensor([0.5, -0.2, 0.1]).double()

    def rows(self, seed: int) -> Tensor:
        return 2 * torch.randn(50, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def test_sums_agree_and_a_changed_row_moves_them_within_bounds(self) -> None:
        settings = planned("sound", smoothness=2.0)
        slope, bend = settings.questions()
        (_, turned) = planned("hessian_products", smoothness=2.0).questions()
        direction = torch.tensor([0.6, 0.8, 0.0]).double()
        for question, other in ((slope, None), (bend, None), (turned, direction)):
            one, step = self.rows(1), 2.0**-30
            exact = ComponentRecords(one).bounded_sum(question, self.FACTS, self.AT, other=other)
            steps = ComponentRecords(one).integer_sum(question, self.FACTS, self.AT, step, other=other)
            assert torch.allclose(exact, steps.double() * step, atol=1e-8)
            for row in (torch.full((3,), torch.nan), torch.full((3,), 1e6), torch.zeros(3)):
                changed = one.clone()
                changed[0] = row
                moved = (
                    exact - ComponentRecords(changed).bounded_sum(question, self.FACTS, self.AT, other=other)
                ).norm()
                assert moved <= 50 * question.sensitivity(self.FACTS)


def test_a_score_s_noise_without_its_scale_would_be_seen() -> None:
    """Planted bug: eigenvalues scaled as if a unit moved them half as far: neighbours' scores are too far apart."""
    genuine = stationarity.scales_of
    at, question = torch.zeros(4).double(), planned("exponential").questions()[0]
    assert isinstance(question, LikelyStationary)
    x = TRUTH.repeat(100, 1) * 5
    y = torch.full((100,), 100.0).double()
    facts = FACTS.model_copy(update={"units": 100})

    def apart() -> int:
        found = []
        for first in (100.0, 0.0):
            y[0] = first
            own = LinearProblem(x.clone(), y.clone(), torch.ones(100).bool(), SmoothPhase(cap=100.0), Clip(bound=40.0))
            oracle = FullOracle(own, facts, UnlimitedFilter(), SystemGenerator())
            found.append(int(oracle._sum(oracle.bind(question), at.unsqueeze(0), None, oracle._select(question))))
        return abs(found[0] - found[1])

    assert 0.45 * stationarity.SCORE_STEPS < apart() <= stationarity.SCORE_STEPS
    with patch.object(
        stationarity, "scales_of", lambda *given: genuine(*given)._replace(moved=genuine(*given).moved // 3)
    ):
        assert apart() > stationarity.SCORE_STEPS
