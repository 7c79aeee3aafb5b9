"""A loss that lacks a part is refused by name where the registry is made, before a job could name it."""

import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

import pytest

from core.losses import registry
from core.losses.bases import AbstractLoss
from core.losses.categorical import Logistic, Multinomial
from core.losses.per_record import PerRecord
from core.losses.records import records_of
from core.losses.registry import LOSSES, check_registered
from core.losses.robust import Cauchy, Huber
from core.losses.robust_torch import HuberRecords
from core.losses.squares import Squared


class Welsch(Cauchy):
    """A loss that is whole, but for its code for records."""

    phrase: ClassVar = "Welsch loss"
    kind: Literal["welsch"] = "welsch"  # type: ignore[assignment] # another loss's settings under another name


class Nameless(Cauchy):
    """A loss whose author left the name as it was."""


class Unworded(Cauchy):
    kind: Literal["unworded"] = "unworded"  # type: ignore[assignment] # as above


class Unforeseen(Logistic):
    """A loss of which no widths are predicted, and that offers intervals."""

    kind: Literal["unforeseen"] = "unforeseen"  # type: ignore[assignment] # as above
    phrase: ClassVar = "unforeseen loss"

    def moments(self, spread: float) -> None:  # type: ignore[override] # which is refused
        del spread


class Elsewhere(Welsch):
    card: ClassVar = Welsch.card.model_copy(update={"models": ("linaer",)})


class Empty(AbstractLoss):
    """A loss whose author wrote nothing."""


class Away(Welsch):
    """A loss of a family without a torch module."""


Away.__module__ = "core.losses.away"


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (Empty, "Empty lacks card, curvature_peak, example, gap_at_zero, kind, phrase, score_bound"),
        (Nameless, "Nameless has the name of Cauchy: kind cauchy"),
        (Unworded, "Unworded has the name of Cauchy: Cauchy loss"),
        (Unforeseen, "Unforeseen lacks usual_spread or moments"),
        (Elsewhere, "Elsewhere: its card names models"),
        (Away, "Away lacks core.losses.away_torch"),
    ],
)
def test_a_loss_without_a_part_is_refused(loss: type[AbstractLoss], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        check_registered([*LOSSES, loss])


def test_a_family_that_the_union_leaves_out_is_refused() -> None:
    with pytest.raises(TypeError, match=r"core\.losses\.squares: a family that LOSSES leaves out"):
        check_registered(loss for loss in LOSSES if loss.__module__ != Squared.__module__)


class TestRecords:
    def put(self, monkeypatch: pytest.MonkeyPatch, **names: Any) -> None:
        found = ModuleType("core.losses.away_torch")
        vars(found).update(names)
        monkeypatch.setitem(sys.modules, found.__name__, found)

    def test_code_is_found_beside_the_family(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert records_of(Huber) is HuberRecords
        self.put(monkeypatch, AwayRecords=HuberRecords)
        assert records_of(Away) is HuberRecords

    def test_code_that_is_not_there_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(TypeError, match=r"Away: core\.losses\.away_torch has no class AwayRecords"):
            records_of(Away)
        self.put(monkeypatch)
        with pytest.raises(TypeError, match=r"Away: core\.losses\.away_torch has no class AwayRecords"):
            records_of(Away)

    def test_code_without_a_part_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.put(monkeypatch, AwayRecords=PerRecord)
        with pytest.raises(TypeError, match="AwayRecords lacks curvature, score, valid, value"):
            records_of(Away)


def test_each_kind_of_model_has_the_losses_whose_cards_name_it() -> None:
    assert registry.losses_of("logistic")[0] is Logistic
    assert registry.losses_of("multinomial") == (Multinomial,)
    assert {loss for model in registry.MODELS for loss in registry.losses_of(model)} == set(LOSSES)


def test_no_method_may_import_code_for_records() -> None:
    contracts = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (found,) = [one for one in contracts if one["name"].startswith("an optimizer talks to the oracle")]
    families = {f"core.losses.{path.stem}" for path in Path("core/losses").glob("*_torch.py")}
    assert families <= set(found["forbidden_modules"])
