"""The registry of methods. A new method adds one line to `METHODS`; one that lacks a part is refused by name."""

from collections.abc import Iterable
from functools import cache
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Annotated, Final, Union, get_args, get_type_hints

from pydantic import Field, TypeAdapter

import core.methods
from core.methods.base import Plan, Spec
from core.methods.clipped.clipped_sgd.spec import ClippedSgd
from core.methods.clipped.one_pass.spec import OnePassClippedSgd
from core.methods.describe.spec import Describe
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.kl.proximal_point.spec import ProximalPoint
from core.methods.kl.spider.spec import KlSpider
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent
from core.methods.m_estimation.noisy_newton.spec import NoisyNewton
from core.methods.m_estimation.sufficient_statistics.spec import SufficientStatistics
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewton
from core.methods.second_order.check_bound.spec import CheckBound
from core.methods.second_order.gauss_psgd.spec import GaussPsgd
from core.methods.second_order.perturbed_spider.spec import PerturbedSpider
from core.methods.selection.select_model.spec import SelectModel
from core.methods.selection.sweep.spec import Sweep
from farthing.schemas.jobs import MethodSource

METHODS: Final[tuple[type[Spec], ...]] = (
    NoisyGradientDescent,
    NoisyNewton,
    SufficientStatistics,
    KlSpider,
    ProximalPoint,
    AdaptiveGradientDescent,
    ClippedSgd,
    OnePassClippedSgd,
    GaussPsgd,
    PerturbedSpider,
    CheckBound,
    SelectModel,
    Sweep,
    WhitenedNewton,
    Describe,
)
"""Each method's spec, in the order in which methods are listed."""


def plans_of(method: type[Spec]) -> tuple[type[Plan], ...]:
    """Return the classes of a method's plans: the declared return type of its `plan`, or each of a union.

    Raises:
        TypeError: `plan` declares no class of plans.
    """
    if issubclass(method, Plan):
        return (method,)
    declared = get_type_hints(method.plan).get("return")
    found = get_args(declared) or (declared,)
    for plan in found:
        if not isinstance(plan, type) or not issubclass(plan, Plan) or not issubclass(plan, method):
            raise TypeError(f"{method.__name__}.plan returns no subclass of {method.__name__} and Plan")
    return found


def _has(method: type[Spec], name: str) -> bool:
    """Tell whether a spec has a field, property or constant of this name."""
    return name in method.model_fields or hasattr(method, name)


def check_registered(methods: Iterable[type[Spec]]) -> None:
    """Refuse a method without one of its parts, and a package of a method that the union leaves out.

    Raises:
        TypeError: with the method's name, and what it lacks.
    """
    found = list(methods)
    for method in found:
        if method.__abstractmethods__:
            raise TypeError(f"{method.__name__} lacks {', '.join(sorted(method.__abstractmethods__))}")
        for plan in plans_of(method):
            if plan.__abstractmethods__:
                raise TypeError(f"{plan.__name__} lacks {', '.join(sorted(plan.__abstractmethods__))}")
        unnamed = [name for name in ("kind", "start", "steps", "mu", "cited") if not _has(method, name)]
        if unnamed:
            raise TypeError(f"{method.__name__} lacks {', '.join(unnamed)}")
        if method.card().kind != method.model_fields["kind"].default:
            raise TypeError(f"{method.__name__}: its card and its settings name different kinds")
    specs = {one.name for one in walk_packages(core.methods.__path__, "core.methods.") if one.name.endswith(".spec")}
    missing = specs - {method.__module__ for method in found}
    if missing:
        raise TypeError(f"{', '.join(sorted(missing))}: a spec that METHODS leaves out")


# At import, before any job could name a method that lacks a part.
check_registered(METHODS)

if TYPE_CHECKING:
    AnySpec = Spec
    AnyPlan = Plan
else:
    AnySpec = Annotated[Union[METHODS], Field(discriminator="kind")]  # noqa: UP007 - made of a tuple
    _OF_EACH = tuple(Annotated[Union[plans_of(one)], Field(discriminator=one.plans_by)] for one in METHODS)  # noqa: UP007
    AnyPlan = Annotated[Union[_OF_EACH], Field(discriminator="kind")]  # noqa: UP007 - as above
SPECS: Final[TypeAdapter[AnySpec]] = TypeAdapter(AnySpec)
PLANS: Final[TypeAdapter[AnyPlan]] = TypeAdapter(AnyPlan)


@cache
def _defaults() -> dict[str, str]:
    return {model: card.kind for card in (method.card() for method in METHODS) for model in card.default_for}


def default_method(model: object) -> str | None:
    """Return the method that fits a kind of model where a job names none; None: one has to be named."""
    return _defaults().get(model) if isinstance(model, str) else None


CHECKERS: Final = tuple(method.card().kind for method in METHODS if method.bounds_models)
"""Kinds of methods whose releases say something of a model that exists."""


@cache
def method_of(kind: str) -> type[Spec]:
    """Return a method's spec by its kind."""
    return next(method for method in METHODS if method.card().kind == kind)


@cache
def source_of(kind: str) -> MethodSource:
    """Return a method's name and source, by its kind."""
    card = method_of(kind).card()
    return MethodSource(kind=card.kind, title=card.title, source=card.paper)
