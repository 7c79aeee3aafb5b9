"""H4, H6 and H7: sites that are not alike, errors that fall with their number, and when to ask for a fresh gradient.

A site (here: a client) knows its own mean gradient and adds its own noise, sampling and privacy apart. A method
receives the mean of all, as in a federated job. It has so many units and no more, as each question reads them.
"""

from collections.abc import Sequence
from math import hypot, sqrt
from typing import TypeVar

import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.methods.second_order.ada_spider import AdaSpider, EstimatorState, no_estimate
from core.methods.second_order.figures import MOST_STEPS
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.methods.second_order.gauss_psgd.spec import GaussPsgd, GaussPsgdPlan
from core.oracle import Answer, Oracle, Release, Status
from core.oracle.simulation import SeededRandomness, Simulation
from core.privacy.events import NOTHING
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, GradientDifference, Question
from core.queries.sampling import StreamSampling
from studies.inference.results import Result, Row
from studies.second_order.clients import Clients
from studies.second_order.populations import PrincipalComponent
from studies.second_order.saddles import COMPONENT_SPECTRUM, mu_of

T = TypeVar("T")

SIGMA = torch.diag(torch.tensor(COMPONENT_SPECTRUM, dtype=torch.float64))
DIMENSION = len(COMPONENT_SPECTRUM)
UNITS, BATCH, DIFFERENCE_BATCH = 3_000_000, 20_000, 1000
SHORT_UNITS = 1_500_000
"""Of H7: fewer than any rule has read when its iterates come to rest."""
CLIP, SMOOTHNESS, HESSIAN_SMOOTHNESS, STEP_SIZE = 5.3, 7.47, 6.6, 0.0669
SPREAD, DIFFERENCE_SPREAD = 0.77, 2.4
"""Root mean square of a unit's gradient, and of its change over the distance, around the mean."""
BALANCED_DRIFT = (CLIP * DIFFERENCE_BATCH / (SMOOTHNESS * BATCH)) ** 2
STATED_RADII = {1: 0.0220, 2: 0.0156, 4: 0.0110, 16: 0.0055}
STATED_GRADIENTS = {1: 0.011, 2: 0.009, 4: 0.013, 16: 0.017}


class LevelClient:
    """One site of the rank-one problem: its own covariance, its own noise, its own stream of units.

    Args:
        covariance: Sigma_j, shape (p, p).
        facts: public; `units` are its own.
        seed: of its noise.
    """

    def __init__(self, covariance: Tensor, facts: Facts, seed: int) -> None:
        generator = SimulationGenerator(seed)
        self.facts, self.randomness, self.precision = facts, SeededRandomness(generator), torch.float64
        self._covariance, self._generator = covariance, generator
        self._read = 0

    def slope(self, theta: Tensor) -> Tensor:
        """Return its mean gradient, |u|^2 u - Sigma_j u, shape (p,)."""
        return theta.dot(theta) * theta - self._covariance @ theta

    def affords(self, question: Question, then: Question | None = None) -> bool:
        """Say whether so many units are left."""
        units = sum(one.consumed(self.facts) for one in (question, then) if one is not None)
        return self._read + units <= self.facts.units

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        """Return its noised answer."""
        assert self.affords(question), "the stream has run out of units"
        assert isinstance(question, Gradient | GradientDifference), "a method of gradients"
        units = question.consumed(self.facts)
        self._read += units
        exact = self.slope(theta) if other is None else self.slope(other) - self.slope(theta)
        spread = SPREAD if other is None else DIFFERENCE_SPREAD * float(torch.linalg.vector_norm(other - theta))
        scale = question.sigma * question.sensitivity(self.facts)
        size = hypot(scale, spread / sqrt(units * len(theta)))
        return Answer(torch.add(exact, self._generator.normal(len(theta)), alpha=size), scale)

    def block(self, name: str) -> "LevelClient":
        """Refuse: there are no records."""
        raise AssertionError(f"no client has a block {name!r}")

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the beginning."""
        return initial

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Forget the state."""

    def release(self, value: T, status: Status) -> Release[T]:
        """Return the value; no record was read."""
        return Release(value=value, status=status, event=NOTHING)


def level_facts(units: int = UNITS) -> Facts:
    """Return what is public about a site."""
    return Facts(
        units=units,
        dimension=DIMENSION,
        adjacency=Adjacency.REPLACE_ONE,
        gradient_bound=CLIP,
        smoothness=SMOOTHNESS,
    )


def saddle() -> Tensor:
    """Return sqrt(lambda_2) v_2, shape (p,)."""
    point = torch.zeros(DIMENSION, dtype=torch.float64)
    point[1] = COMPONENT_SPECTRUM[1] ** 0.5
    return point


def radius_of(clients: int) -> float:
    """Return chi = 1.5 psi of so many sites, psi^2 twice the squared error of a fresh gradient."""
    noise = Gradient(sigma=1 / mu_of(), batch=BATCH).sensitivity(level_facts()) / mu_of()
    return 1.5 * sqrt(2 * (SPREAD**2 / BATCH + DIMENSION * noise**2) / clients)


def settings_of(clients: int, **changed: object) -> GaussPsgdPlan:
    """Return the figures of H6 for so many sites."""
    figures: dict[str, object] = {
        "mode": "given",
        "mu": mu_of(),
        "batch": BATCH,
        "difference_batch": DIFFERENCE_BATCH,
        "restart_drift": BALANCED_DRIFT,
        "error_radius": radius_of(clients),
        "escape_distance": 0.04,
        "round_steps": 120,
        "rounds": 6,
        "step_size": STEP_SIZE,
        "smoothness": SMOOTHNESS,
        "hessian_smoothness": HESSIAN_SMOOTHNESS,
        "radius": 1e3,
        "sites": clients,
        "start": tuple(saddle().tolist()),
    }
    return GaussPsgd.model_validate(figures | changed).with_rounds(level_facts(), mu_of())


def tilts(clients: int) -> list[Tensor]:
    """Return A_j, symmetric and not commuting with Sigma, shape (p, p) each; they add up to nothing."""
    generator = SimulationGenerator(77)
    found: list[Tensor] = []
    for _ in range(clients // 2):
        drawn = generator.normal(DIMENSION, DIMENSION)
        tilt = (drawn + drawn.mT) / (2 * DIMENSION)
        found += [tilt, -tilt]
    return found if clients % 2 == 0 else [*found, torch.zeros_like(SIGMA)]


def level_clients(clients: int, seed: int, spread: float = 0.0, units: int = UNITS) -> list[LevelClient]:
    """Return sites whose covariances are Sigma + h A_j."""
    return [
        LevelClient(SIGMA + spread * tilt, level_facts(units), 1000 * seed + place)
        for place, tilt in enumerate(tilts(clients))
    ]


def found_by(oracle: Oracle, settings: GaussPsgdPlan) -> tuple[str, float, float, list[int]]:
    """Run the method; return how it ended, the gradient's length and least curvature there, phases and restarts."""
    estimate, _ = gauss_psgd.iterate(settings, oracle)
    assert estimate.error_bound is not None, "there are rounds"
    ended = estimate.error_bound.second_order
    assert ended is not None, "it is told"
    theta = estimate.theta
    law = PrincipalComponent(COMPONENT_SPECTRUM, 1, radius=1.1)
    gradient = float(torch.linalg.vector_norm(law.mean_gradient(theta)))
    return ended.outcome, gradient, float(law.least_curvature(theta)), [ended.phases, ended.restarts]


def points_of(clients: Sequence[LevelClient], settings: GaussPsgdPlan) -> list[Tensor]:
    """Return all iterates of a run."""
    path: list[Tensor] = []
    gauss_psgd.iterate(settings, Clients(clients, 0, lambda state: path.append(state["theta"])))
    return path


def heterogeneity(*, full: bool) -> Result:
    """H4: only the mean of the sites' functions matters, unless clipping acts."""
    clients, seeds = 4, range(5 if full else 1)
    settings = settings_of(clients)
    apart = [
        max(
            float((one - other).abs().max())
            for one, other in zip(
                points_of(level_clients(clients, seed), settings),
                points_of(level_clients(clients, seed, 0.5), settings),
                strict=True,
            )
        )
        for seed in seeds
    ]
    records = 400_000 if full else 40_000
    rows = [Row("largest difference of any iterate, h = 0 against .5, nothing clipped", 0.0, max(apart), 1e-9)]
    for clip in (None, 1.0, 0.5):
        for spread in (0.0, 0.5):
            name = "no clip" if clip is None else f"clip {clip}"
            rows.append(
                Row(f"bias of the mean gradient, {name}, h = {spread}", None, clipping_bias(clip, spread, records))
            )
    return Result(
        "H4",
        "Clients that are not alike: Sigma_j = Sigma + h A_j",
        f"4 clients, the rank-one problem, h in {{0, .5}}, equal noise, {len(seeds)} runs from the saddle; biases at "
        f"(.3, .64, 0, ...), of {records:,} records a client, whose sampling alone makes {SPREAD / records**0.5:.4f}.",
        tuple(rows),
        "Heterogeneity adds no error of its own, since every client answers every question. Where a clip acts it acts "
        "on each client's own gradients, which moves the mean a little otherwise for clients that differ.",
    )


def clipping_bias(clip: float | None, spread: float, records: int) -> float:
    """Return the distance of the mean of four sites' clipped mean gradients from the mean gradient."""
    at = 0.9 * saddle()
    at[0] = 0.3
    told = []
    for sign in (1.0, -1.0, 1.0, -1.0):
        first, second, *others = COMPONENT_SPECTRUM
        law = PrincipalComponent((first + 0.4 * sign * spread, second - 0.4 * sign * spread, *others), records, 1.1)
        oracle = Simulation(
            law,
            level_facts(records),
            SimulationGenerator(9),
            noiseless=True,
            sampling=StreamSampling(batches=(records,)),
        )
        told.append(oracle.ask(Gradient(sigma=1.0, batch=records, clip=clip), at).value.reshape(-1))
    exact = PrincipalComponent(COMPONENT_SPECTRUM, 1, 1.1).mean_gradient(at)
    return float(torch.linalg.vector_norm(torch.stack(told).mean(0) - exact))


def clients_count(*, full: bool) -> Result:
    """H6: errors, and with them what is certified, shrink with the root of the number of sites."""
    rows, seeds = [], range(5 if full else 1)
    for clients in (1, 2, 4, 16):
        settings = settings_of(clients)
        runs = [found_by(Clients(level_clients(clients, seed), seed, lambda _: None), settings) for seed in seeds]
        assert settings.error_radius is not None, "given"
        stated = STATED_RADII[clients]
        certified = sum(one[0] == "no_escape_observed" for one in runs) / len(runs)
        rows += [
            Row(f"m = {clients}: chi", stated, settings.error_radius, 0.00006),
            Row(f"m = {clients}: share certified", 1.0, certified, 0.0),
            Row(f"m = {clients}: least curvature of any (above .45)", 0.5, min(one[2] for one in runs), 0.05),
            Row(
                f"m = {clients}: longest gradient of any over 4 chi (at most 1)",
                0.5,
                max(one[1] for one in runs) / (4 * settings.error_radius),
                0.5,
            ),
            Row(
                f"m = {clients}: mean gradient, beside one prototype run",
                STATED_GRADIENTS[clients],
                sum(one[1] for one in runs) / len(runs),
            ),
        ]
    return Result(
        "H6",
        "More clients, smaller certificates: chi falls as the root of their number",
        f"Oracle level, Sigma = diag(1, .5, .05 x 18), G = 5.3, M = 7.47, n = 3e6 a client, b1 = 2e4, b2 = 1000, "
        f"R = .04, Gamma = 120, Q = 6; {len(seeds)} seeds.",
        tuple(rows),
        "chi, and alpha = 4 chi, are proportional to m^(-1/2). The gradient at the point returned is not: it is set by "
        "where rounds begin, at up to 3 chi, and by R.",
    )


class WatchedFederation(AdaSpider):
    """The estimator, with the squared length of each estimate's error.

    Args:
        settings: filled.
        oracle: the mean of the sites.
        state: nothing known.
    """

    def __init__(self, settings: GaussPsgdPlan, oracle: Oracle, state: EstimatorState) -> None:
        super().__init__(settings, oracle, state)
        self.errors: list[float] = []
        self._law = PrincipalComponent(COMPONENT_SPECTRUM, 1, radius=1.1)

    def query(self, theta: Tensor) -> Tensor | None:
        """Return the estimate."""
        slope = super().query(theta)
        if slope is not None:
            self.errors.append(float((slope - self._law.mean_gradient(theta)).square().sum()))
        return slope


def descent(clients: int, seed: int, **changed: object) -> tuple[float, float, int, int]:
    """Descend until no record is left; return the estimates' error, the last gradient's length, restarts and steps."""
    start = saddle()
    start[0] = 0.1
    settings = settings_of(clients, error_radius=1e-9, steps=MOST_STEPS, start=tuple(start.tolist()), **changed)
    oracle = Clients(level_clients(clients, seed, units=SHORT_UNITS), seed, lambda _: None)
    estimator = WatchedFederation(settings, oracle, no_estimate(start))
    state = gauss_psgd.walk(settings, oracle.facts, estimator, gauss_psgd.beginning(start), lambda _: None)
    law = PrincipalComponent(COMPONENT_SPECTRUM, 1, radius=1.1)
    gradient = float(torch.linalg.vector_norm(law.mean_gradient(state.theta)))
    error = sqrt(sum(estimator.errors) / len(estimator.errors))
    return error, gradient, int(estimator.state().restarts), int(state.step)


def restarts(*, full: bool) -> Result:
    """H7: fresh gradients by drift against a fixed period, of equal records."""
    clients, seeds, rows = 4, range(10 if full else 2), []
    kinds: dict[str, dict[str, object]] = {
        "drift, balanced": {},
        "drift, a tenth": {"restart_drift": BALANCED_DRIFT / 10},
        "drift, tenfold": {"restart_drift": 10 * BALANCED_DRIFT},
        **{f"every {period} queries": {"estimator": "period", "period": period} for period in (5, 20, 100, 500)},
    }
    for name, changed in kinds.items():
        runs = [descent(clients, seed, **changed) for seed in seeds]
        for of, what in enumerate(("error of estimates", "gradient at the end", "fresh gradients", "steps")):
            rows.append(Row(f"{name}: {what}", None, sum(run[of] for run in runs) / len(runs)))
    return Result(
        "H7",
        "When to ask for a fresh gradient: by drift, or at a fixed period (DIFF2), of equal records",
        f"4 clients of {SHORT_UNITS:,} records each, all of them read; descent from beside the saddle, without rounds; "
        f"{len(seeds)} seeds.",
        tuple(rows),
        "Reported, nothing claimed. With about as many fresh gradients, balanced drift has smaller errors than "
        "a fixed period (100), and needs no period to be guessed; a short period ends at shorter gradients, since what "
        "its iterates rest on is averaged over more of them. Drift that is too small uses the records up before it "
        "arrives, and one that is too large rests on one wrong estimate: where nothing moves, nothing is asked.",
    )
