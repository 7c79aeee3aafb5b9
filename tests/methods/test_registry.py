"""A method that lacks a part is refused by name where its package is imported, before a job could name it."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import pytest

from core.methods.base import Card, Plan, Spec
from core.methods.fits import iterate_of
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent, NoisyGradientDescentPlan
from core.methods.registry import METHODS, check_registered
from core.privacy.events import Event
from core.privacy.facts import Facts
from core.queries.gradients import Gradient
from farthing.schemas.estimates import Bound

PACKAGE = "core.methods.m_estimation.planted"


class Planted(NoisyGradientDescent):
    """A method that is whole; it stands in a package of its own."""

    kind: Literal["planted"] = "planted"  # type: ignore[assignment] # another method's settings under another name

    def plan(self, facts: Facts, mu: float) -> "PlantedPlan":
        return self.closed(PlantedPlan, **vars(super().plan(facts, mu)))

    @classmethod
    def card(cls) -> Card:
        return super().card().model_copy(update={"kind": "planted"})


class PlantedPlan(Planted, NoisyGradientDescentPlan):  # type: ignore[misc] # as above
    """Plans of `Planted`."""


Planted.__module__ = f"{PACKAGE}.spec"


class Halved(Spec):
    """A method whose author forgot how it is planned."""

    kind: Literal["halved"] = "halved"


class Unpriced(Halved):
    """A method whose author forgot what its plans draw and promise."""

    def plan(self, facts: Facts, mu: float) -> "UnpricedPlan":
        del facts, mu
        return self.closed(UnpricedPlan)

    @classmethod
    def card(cls) -> Card:
        return Planted.card().model_copy(update={"kind": "halved"})


class UnpricedPlan(Unpriced, Plan):
    """Plans of `Unpriced`."""


class Priced(UnpricedPlan):
    """A method whose author forgot where it begins, its price, and its authors."""

    def questions(self) -> tuple[Gradient, ...]:
        return ()

    def schedule(self, facts: Facts) -> tuple[Event, ...]:
        del facts
        return ()

    def bound(self, facts: Facts) -> Bound:
        raise AssertionError(facts)


class Opened(NoisyGradientDescent):
    """A method that plans no plan."""

    def plan(self, facts: Facts, mu: float) -> NoisyGradientDescent:  # type: ignore[override] # which is refused
        del facts, mu
        return self


class Misnamed(Planted):
    kind: Literal["misnamed"] = "misnamed"  # type: ignore[assignment] # as above

    def plan(self, facts: Facts, mu: float) -> "MisnamedPlan":
        return self.closed(MisnamedPlan, **vars(super().plan(facts, mu)))


class MisnamedPlan(Misnamed, PlantedPlan):  # type: ignore[misc] # as above
    """Plans of `Misnamed`."""


def installed(monkeypatch: pytest.MonkeyPatch, iterate: Callable[..., Any] | None) -> None:
    """Put the method's package into place, with such a function in its module `fit`."""
    found = ModuleType(f"{PACKAGE}.fit")
    if iterate is not None:
        found.iterate = iterate  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, PACKAGE, ModuleType(PACKAGE))
    monkeypatch.setitem(sys.modules, found.__name__, found)


def test_what_is_registered_is_whole() -> None:
    check_registered(METHODS)
    assert all(callable(iterate_of(method)) for method in METHODS)


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (Halved, "Halved lacks card, plan"),
        (Unpriced, "UnpricedPlan lacks bound, questions, schedule"),
        (Priced, "Priced lacks start, steps, mu, cited"),
        (Opened, "Opened.plan returns no subclass"),
        (Misnamed, "Misnamed: its card and its settings name"),
    ],
)
def test_settings_that_lack_a_part_are_refused(method: type[Spec], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        check_registered([*METHODS, method])


def test_a_new_method_offers_no_intervals_and_cites_nobody_for_another_method() -> None:
    """It would print p values that nobody derived."""
    assert not Halved.offers_intervals
    assert {method.model_fields["kind"].default for method in METHODS if method.offers_intervals} == {
        "noisy_gd",
        "noisy_newton",
        "whitened_newton",
    }


@pytest.mark.parametrize("left", METHODS)
def test_settings_that_the_union_leaves_out_are_refused(left: type[Spec]) -> None:
    with pytest.raises(TypeError, match=f"{left.__module__}: a spec that METHODS leaves out"):
        check_registered(method for method in METHODS if method is not left)


def test_a_method_without_a_loop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match=r"Planted: .*planted.fit has no iterate\(plan, oracle"):
        iterate_of(Planted)
    installed(monkeypatch, None)
    with pytest.raises(TypeError, match=r"Planted: core.methods.m_estimation.planted.fit has no iterate"):
        iterate_of(Planted)


def test_a_loop_with_other_arguments_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, lambda plan, oracle, points: (plan, oracle, points))
    with pytest.raises(TypeError, match=r"Planted: .* its spec says"):
        iterate_of(Planted)
    installed(monkeypatch, lambda plan, oracle: (plan, oracle))
    assert iterate_of(Planted)(1, 2) == (1, 2)
