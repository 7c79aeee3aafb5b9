"""Audits of what each release of a method really tells of one record, at the history that was released before it.

Record a run of any method over synthetic records, then ask what the same questions, at the same points, would have been
answered about neighbouring records. Releases are Gaussian given what came before, so what each one tells,
|mean - mean'|^2 / (2 scale^2), and the log-likelihood ratio of a whole run are exact: no attack and no sampling.

    records, changed = canaries(units=1000, dimension=10)
    public = facts_of(records, bound=1.0)
    oracle = Recording(Simulation(records, public, SimulationGenerator(1), payments=CountingFilter(Zcdp(rho=1.0))))
    estimate, status = iterate(settings, oracle)
    ratios = check_dominated(oracle.releases, records, changed, public)    # A1: told <= charged, each release
    assert ratios.max() > 0.99                                             # ... and nothing is noised twice over
    told(oracle.releases, records, changed, public).sum()                  # what the run told in all, <= rho
    likelihood_ratio(oracle.releases, records, changed, public)            # A2: its mean over runs is at most rho
    check_branches(lambda blind: iterate(settings, blind), oracle, payments=CountingFilter(Zcdp(rho=1.0)))  # A5

With replicates, every figure has one entry a replicate. Settings may be of any method; the planted bugs of the audits'
own tests are methods too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.oracle import Answer, Oracle, PrivacyFilter, PublicRandomness, Release, Status
from core.oracle.noise import grid_for
from core.oracle.simulation import Simulation
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Gradient, GradientDifference, LeastGradient, Question
from core.queries.sums import SyntheticProblem

T = TypeVar("T")

ROUNDING = 1e-9
"""Relative, of sums of floats."""


@dataclass(frozen=True)
class Told:
    """One answer: to which question, where, and what it said."""

    question: Question
    theta: Tensor
    other: Tensor | None
    answer: Answer

    def charge(self) -> float:
        """Return rho, what the question costs in zero-concentrated terms: that of the sigma that was used."""
        return 1 / (2 * self.question.sigma**2)


class Recording:
    """An oracle that writes down all that another one tells, in order.

    Attributes:
        releases: every answer so far.
    """

    def __init__(self, real: Oracle) -> None:
        self._real = real
        self.releases: list[Told] = []

    @property
    def facts(self) -> Facts:
        return self._real.facts

    @property
    def randomness(self) -> PublicRandomness:
        return self._real.randomness

    @property
    def precision(self) -> torch.dtype:
        return self._real.precision

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        answer = self._real.ask(question, theta, other)
        self.releases.append(Told(question, theta.clone(), None if other is None else other.clone(), answer))
        return answer

    def affords(self, question: Question, then: Question | None = None) -> bool:
        return self._real.affords(question, then)

    def block(self, name: str) -> Oracle:
        return self._real.block(name)

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        return self._real.resume(initial)

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        self._real.keep(state, step)

    def release(self, value: T, status: Status) -> Release[T]:
        return self._real.release(value, status)


class Blind:
    """An oracle without records: it tells again what was released, and fails where it is asked anything else.

    The actions of a method behind it can only follow from released values and public ones.

    Args:
        facts: as of the recorded run.
        releases: the answers of that run.
        payments: like that of the recorded run, and fresh; the affordable questions follow from public figures too.
    """

    def __init__(self, facts: Facts, releases: Sequence[Told], payments: PrivacyFilter) -> None:
        self.facts, self.precision = facts, torch.float64
        self._left = list(releases)
        self._payments = payments

    @property
    def randomness(self) -> PublicRandomness:
        raise AssertionError("this run has no coins: record them first")

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        assert self._left, "nothing is asked that was not asked before"
        told = self._left.pop(0)
        assert told.question == question, "the same questions are asked"
        assert torch.equal(told.theta, theta), "they are asked at the same points"
        assert (told.other is None) == (other is None), "they are asked at the same points"
        assert other is None or told.other is None or torch.equal(told.other, other), "at the same other points"
        self._payments.pay(question.event())
        return told.answer

    def affords(self, question: Question, then: Question | None = None) -> bool:
        events = [one.event() for one in (question, then) if one is not None]
        return self._payments.affords(*events)

    def block(self, name: str) -> Oracle:
        raise AssertionError(f"this run has no block {name!r}")

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        return initial

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Nothing to keep."""

    def release(self, value: T, status: Status) -> Release[T]:
        return Release(value=value, status=status, event=self._payments.close())

    def finished(self) -> bool:
        """Say whether everything was asked again."""
        return not self._left


def check_branches(method: Callable[[Oracle], object], recorded: Recording, *, payments: PrivacyFilter) -> object:
    """Fail unless a method asks the same of released values alone (A5); return what it returns then."""
    blind = Blind(recorded.facts, recorded.releases, payments)
    result = method(blind)
    assert blind.finished(), "the run ends where it ended"
    return result


def told(releases: Sequence[Told], first: SyntheticProblem, second: SyntheticProblem, facts: Facts) -> Tensor:
    """Return what each release tells of the records' difference, in zero-concentrated terms: shape (m,), or (m, R)."""
    means = zip(_means(releases, first, facts), _means(releases, second, facts), strict=True)
    found = [
        _choice_tells(one, *pair, facts)
        if isinstance(one.question, LeastGradient)
        else (pair[0] - pair[1]).square().sum(-1) / (2 * one.answer.scale**2)
        for one, pair in zip(releases, means, strict=True)
    ]
    replicates = torch.broadcast_tensors(*found)  # type: ignore[no-untyped-call] # torch's own
    return torch.stack(replicates)  # a start is one point for all replicates


def check_dominated(
    releases: Sequence[Told], first: SyntheticProblem, second: SyntheticProblem, facts: Facts
) -> Tensor:
    """Fail where a release tells more than it was charged (A1); return the quotients, shape (m,), or (m, R)."""
    found = told(releases, first, second, facts)
    charges = torch.tensor([one.charge() for one in releases], dtype=torch.float64)
    ratios = found / charges.view(-1, *[1] * (found.ndim - 1))
    assert bool((ratios <= 1 + ROUNDING).all()), f"a release tells {float(ratios.max()):.4g} times what it was charged"
    return ratios


def likelihood_ratio(
    releases: Sequence[Told], first: SyntheticProblem, second: SyntheticProblem, facts: Facts
) -> Tensor:
    """Return the log-likelihood ratio of a run's Gaussian releases, of its records to neighbours', a replicate each."""
    total = torch.zeros((), dtype=torch.float64)
    pairs = zip(_means(releases, first, facts), _means(releases, second, facts), strict=True)
    for one, (mean, changed) in zip(releases, pairs, strict=True):
        assert not isinstance(one.question, LeastGradient), "a choice is not Gaussian"
        value = one.answer.value
        far, near = (value - changed).square().sum(-1), (value - mean).square().sum(-1)
        total = total + (far - near) / (2 * one.answer.scale**2)
    return total


def _means(releases: Sequence[Told], problem: SyntheticProblem, facts: Facts) -> list[Tensor]:
    """Return what each release would be without noise, and for a choice the norms it is made by, in its own scores."""
    found = []
    for one in releases:
        replicates = one.theta.shape[0] if one.theta.ndim > 1 and one.question.places != "list" else None
        silent = Simulation(problem, facts, SimulationGenerator(0), noiseless=True, replicates=replicates)
        if isinstance(one.question, LeastGradient):
            gradients = [silent.ask(one.question.gradient(), point).value for point in one.theta]
            found.append(torch.stack(gradients).norm(dim=-1) * facts.units)
        else:
            found.append(silent.ask(one.question, one.theta, one.other).value)
    return found


def _choice_tells(one: Told, norms: Tensor, others: Tensor, facts: Facts) -> Tensor:
    """Return epsilon^2/8 for epsilon the range of the changes of the logarithms of the choices' probabilities."""
    grid = grid_for(one.question, facts, facts.units)
    change = (norms - others) / (grid.parameter(one.question.sigma) * grid.step)
    return (change.max() - change.min()).square() / 8


class CanaryProblem:
    """n - 1 equal records, smooth and convex, and one that pulls as hard as it may, with a sign.

    The others' loss is |w - centre|^2 / 2, linear from the distance of the clip on. The canary's gradient is as long as
    the clip and along theirs, now with it and now against it. The rule for this separates half of all pairs of points,
    however near; with the other sign it does the opposite. Gradients, their norms where they are long, half of their
    changes, and choices among points thus differ between two such sets by the most that replacing a record can change.

    Args:
        units: n.
        centre: of the others, shape (p,).
        sign: of the canary: 1 or -1; 0 for an excluded row.
    """

    replicates = None

    def __init__(self, units: int, centre: Tensor, sign: float) -> None:
        self.units, self.dimension = units, centre.shape[0]
        self._centre, self._sign = centre, sign

    def integer_sum(self, *arguments: object, **named: object) -> Tensor:
        del arguments, named
        raise AssertionError("canaries are simulated")

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum of clipped gradients, or of their changes, at points of shape (..., p)."""
        if isinstance(question, GradientDifference):
            assert other is not None, "a change is between two points"
            clip = question.gradient_clip(facts)
            before, after = self._gradients(theta, clip), self._gradients(other, clip)
            changes = [one - two for one, two in zip(after, before, strict=True)]
            rest, canary = (project(change, question.bound(facts)) for change in changes)
        else:
            assert isinstance(question, Gradient), "canaries have gradients"
            rest, canary = self._gradients(theta, question.bound(facts))
        return (self.units - 1) * rest + canary

    def _gradients(self, theta: Tensor, clip: float) -> tuple[Tensor, Tensor]:
        """Return that of every other record, and the canary's."""
        away = theta - self._centre
        length = away.norm(dim=-1, keepdim=True)
        along = torch.where(length > 0, away / length, torch.eye(self.dimension, dtype=torch.float64)[0])
        turned = torch.where(torch.cos(_TURNS * theta[..., :1]) > 0, 1.0, -1.0)
        return project(away, clip), self._sign * clip * turned * along


_TURNS = 1e9


def project(vector: Tensor, radius: float) -> Tensor:
    """Return the nearest vectors of a norm of at most the radius, shape (..., p)."""
    length: Tensor = vector.norm(dim=-1, keepdim=True)
    return vector * (radius / length.clamp(min=radius))


def canaries(
    units: int,
    dimension: int,
    distance: float = 0.0,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
) -> tuple[CanaryProblem, CanaryProblem]:
    """Return adversarial neighbours, whose other records' minimum is at a distance from zero along the last axis."""
    centre = torch.zeros(dimension, dtype=torch.float64)
    centre[-1] = distance
    changed = -1.0 if adjacency is Adjacency.REPLACE_ONE else 0.0
    return CanaryProblem(units, centre, 1.0), CanaryProblem(units, centre, changed)


def facts_of(
    problem: SyntheticProblem,
    bound: float,
    adjacency: Adjacency = Adjacency.REPLACE_ONE,
    start_gap: float | None = None,
) -> Facts:
    """Return what is public about canaries: gradients within a bound, the others' curvature 1."""
    return Facts(
        units=problem.units,
        dimension=problem.dimension,
        adjacency=adjacency,
        gradient_bound=bound,
        smoothness=1.0,
        weak_convexity=0.0,
        start_gap=start_gap,
    )
