"""A method that lacks a part is refused by name where its package is imported, before a job could name it."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import pytest

from core.inference.wording import methods_paragraph
from core.methods.base import AbstractSettings, Card
from core.methods.fits import iterate_of
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescent
from core.methods.registry import METHODS, check_registered
from tests.support.released import released

PACKAGE = "core.methods.m_estimation.planted"


class Planted(NoisyGradientDescent):
    """A method whose settings are whole; they stand in a package of their own."""

    kind: Literal["planted"] = "planted"  # type: ignore[assignment]

    @classmethod
    def card(cls) -> Card:
        return super().card().model_copy(update={"kind": "planted"})


Planted.__module__ = f"{PACKAGE}.spec"


class Halved(AbstractSettings):
    """A method whose author forgot what it draws, and four parts more."""


class Misnamed(NoisyGradientDescent):
    kind: Literal["misnamed"] = "misnamed"  # type: ignore[assignment]


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
    [(Halved, "Halved lacks bound, card, plan, schedule"), (Misnamed, "Misnamed: its card and its settings name")],
)
def test_settings_that_lack_a_part_are_refused(method: type[AbstractSettings], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        check_registered([*METHODS, method])


def test_a_new_method_offers_no_intervals_and_is_refused_until_a_paper_may_cite_it() -> None:
    """It would print p values that nobody derived, and cite the authors of another method."""
    assert not Halved.offers_intervals
    assert {method.model_fields["kind"].default for method in METHODS if method.offers_intervals} == {
        "noisy_gd",
        "noisy_newton",
        "whitened_newton",
    }
    with pytest.raises(TypeError, match=r"planted: core\.inference\.wording cites nobody"):
        check_registered([*METHODS, Planted])
    assert "(" not in methods_paragraph(released(optimizer="planted")).split("noise on every answer")[1].split(".")[0]


@pytest.mark.parametrize("left", METHODS)
def test_settings_that_the_union_leaves_out_are_refused(left: type[AbstractSettings]) -> None:
    with pytest.raises(TypeError, match=f"{left.__module__}: settings that AnySettings leaves out"):
        check_registered(method for method in METHODS if method is not left)


def test_a_method_without_a_loop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match=r"Planted: .*planted.fit has no iterate\(settings, oracle"):
        iterate_of(Planted)
    installed(monkeypatch, None)
    with pytest.raises(TypeError, match=r"Planted: core.methods.m_estimation.planted.fit has no iterate"):
        iterate_of(Planted)


def test_a_loop_with_other_arguments_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, lambda settings, oracle, points: (settings, oracle, points))
    with pytest.raises(TypeError, match=r"Planted: .* its settings say"):
        iterate_of(Planted)
    installed(monkeypatch, lambda settings, oracle: (settings, oracle))
    assert iterate_of(Planted)(1, 2) == (1, 2)
