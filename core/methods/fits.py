"""The methods at work: each method's `fit` module, found beside its spec, asks the oracle and nobody else."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from types import MappingProxyType
from typing import Any, Final

from torch import Tensor

from core.base.errors import ensure
from core.inference.description import Answers
from core.inference.estimate import Estimate, Sandwich
from core.inference.looks import Columns
from core.inference.sandwich import infer
from core.inference.settings import Inference, PlannedInference
from core.methods.base import Plan, Spec
from core.methods.registry import METHODS, plans_of
from core.oracle import Oracle, Release, Status

Iterate = Callable[..., Any]
"""A method's `iterate(plan, oracle, ...)`: an estimate with its status, or a release where it estimates nothing."""


@dataclass(frozen=True)
class Fitted:
    """An estimate with its covariance, None where a job asks for no intervals."""

    estimate: Estimate
    sandwich: Sandwich | None


def iterate_of(method: type[Spec]) -> Iterate:
    """Return what runs a method: `iterate` of the module `fit` beside its spec.

    Raises:
        TypeError: there is no such module or function, or it takes other arguments than the spec says.
    """
    package = method.__module__.rpartition(".")[0]
    expected = ["plan", "oracle", *method.given]
    try:
        found: Iterate = import_module(f"{package}.fit").iterate
    except (ModuleNotFoundError, AttributeError) as error:
        raise TypeError(f"{method.__name__}: {package}.fit has no iterate({', '.join(expected)})") from error
    taken = list(signature(found).parameters)
    if taken != expected:
        raise TypeError(f"{method.__name__}: {package}.fit.iterate takes {taken}; its spec says {expected}")
    return found


ITERATES: Final[Mapping[type[Plan], Iterate]] = MappingProxyType(
    {plan: iterate_of(method) for method in METHODS for plan in plans_of(method)}
)


def iterate(
    plan: Plan, oracle: Oracle, points: Tensor | None = None, looked: Columns | None = None
) -> tuple[Estimate, Status]:
    """Run the method of this plan and leave the oracle open.

    Args:
        plan: the method's.
        oracle: the only way to the records.
        points: released before, shape (K, p), float64, encoded units; None for methods that are about none.
        looked: where columns lie, of a description that the job names; None: it names none.

    Raises:
        Diverged: the last step left the public radius; decided from noised values only.
    """
    ensure(plan.estimates, "a description estimates nothing; see `answer`")
    ensure(points is not None or "points" not in plan.given, "a job of this kind is about released models")
    beside = {"points": points, "looked": looked}
    # Tests subclass plans, and only registered classes have an entry.
    run = next(ITERATES[kind] for kind in type(plan).__mro__ if kind in ITERATES)
    ended: tuple[Estimate, Status] = run(plan, oracle, *(beside[name] for name in plan.given))
    return ended


@dataclass(frozen=True)
class Described:
    """Answers of a method that estimates nothing, and what it divided among them."""

    value: Answers
    steps: int
    shares: dict[str, float]
    """Of mu^2, by statistic."""


def answer(plan: Plan, oracle: Oracle) -> Described:
    """Run a method that describes, and close the oracle; arguments as `iterate`."""
    ensure(not plan.estimates, f"{plan.kind} estimates, and describes nothing")
    release: Release[Answers] = ITERATES[type(plan)](plan, oracle)
    shares = {name: share for name, share in plan.model_dump()["shares"].items() if share}
    return Described(release.value, plan.steps or 1, shares)


def fit(plan: Plan, oracle: Oracle, points: Tensor | None = None) -> Release[Estimate]:
    """Run a method and close the oracle; arguments as `iterate`.

    Raises:
        Diverged: as `iterate`.
    """
    estimate, status = iterate(plan, oracle, points)
    return oracle.release(estimate, status)


def fit_and_infer(
    plan: Plan,
    inference: Inference,
    oracle: Oracle,
    shifts: Tensor | None = None,
    points: Tensor | None = None,
    looked: Columns | None = None,
) -> Release[Fitted]:
    """Run a method, ask for the two matrices of its intervals where wanted, and close the oracle.

    Args:
        plan: the method's.
        inference: the requested intervals, nothing open.
        oracle: the only way to the records.
        shifts: directions that move many coefficients together; see `infer`.
        points: of the released models that the job is about, shape (K, p).
        looked: where columns lie, of a description that the job names.

    Raises:
        Diverged: as `iterate`; nothing is asked for the intervals then.
    """
    estimate, status = iterate(plan, oracle, points, looked)
    sandwich = None
    if plan.has_covariance:
        sandwich = estimate.sandwich if inference.intervals else None
    elif isinstance(inference, PlannedInference):
        sandwich = infer(inference, estimate, oracle, shifts)
    else:
        ensure(not inference.intervals, "intervals are planned before they are paid for")
    return oracle.release(Fitted(estimate, sandwich), status)
