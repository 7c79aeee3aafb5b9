"""The registry of losses. A new loss adds one line to `LOSSES`; one that lacks a part is refused by name."""

from collections.abc import Iterable
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Annotated, Any, Final, Union

from pydantic import Field

import core.losses
from core.losses.bases import AbstractLoss
from core.losses.categorical import Brier, Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.phase import RobustPhase, SmoothPhase
from core.losses.robust import Cauchy, GemanMcClure, Huber, LogCosh, OstrovskiiBach, PseudoHuber, SmoothedHuber
from core.losses.squares import SineLink, Squared
from core.losses.weights import WEIGHTS, AbstractWeights

LOSSES: Final[tuple[type[AbstractLoss], ...]] = (
    Logistic,
    Brier,
    Multinomial,
    Poisson,
    Huber,
    SmoothedHuber,
    LogCosh,
    PseudoHuber,
    OstrovskiiBach,
    GemanMcClure,
    Cauchy,
    Squared,
    SineLink,
    SmoothPhase,
    RobustPhase,
)
"""In the order in which losses are listed."""
MODELS: Final = frozenset({"logistic", "multinomial", "poisson", "linear", "phase_retrieval"})


def example_of(loss: type[AbstractLoss]) -> AbstractLoss:
    """Return a loss's example."""
    return loss(**loss.example)


def kind_of(settings: type[AbstractLoss | AbstractWeights]) -> str:
    """Return the name of a loss or of weights in requests."""
    return str(settings.model_fields["kind"].default)


def check_registered(losses: Iterable[type[AbstractLoss]]) -> None:
    """Refuse a loss without one of its parts, one with another one's name, and a family that the union leaves out.

    Raises:
        TypeError: with the loss's name, and what it lacks.
    """
    found = list(losses)
    named: dict[str, type[AbstractLoss]] = {}
    for loss in found:
        lacks = {name for name in ("card", "example", "phrase") if not hasattr(loss, name)}
        lacks |= loss.__abstractmethods__ | ({"kind"} - loss.model_fields.keys())
        if lacks:
            raise TypeError(f"{loss.__name__} lacks {', '.join(sorted(lacks))}")
        example = example_of(loss)
        for own in (f"kind {example.kind}", example.words()):
            if named.setdefault(own, loss) is not loss:
                raise TypeError(f"{loss.__name__} has the name of {named[own].__name__}: {own}")
        if not MODELS.issuperset(loss.card.models) or not set(map(kind_of, WEIGHTS)).issuperset(loss.card.weights):
            raise TypeError(f"{loss.__name__}: its card names models or weights that there are not")
        offers_intervals = example.weak_convexity == 0 and example.score_bound is not None
        if offers_intervals and (example.usual_spread(1.0) is None or example.moments(0.5) is None):
            raise TypeError(f"{loss.__name__} lacks usual_spread or moments: no width of its intervals is predicted")
        # Its torch module is looked up and not imported, so that no API loads torch.
        if example.one_margin and find_spec(f"{loss.__module__}_torch") is None:
            raise TypeError(f"{loss.__name__} lacks {loss.__module__}_torch, its code for records")
    coded = {f"core.losses.{one.name}" for one in iter_modules(core.losses.__path__) if one.name.endswith("_torch")}
    missing = {name.removesuffix("_torch") for name in coded} - {loss.__module__ for loss in found}
    if missing:
        raise TypeError(f"{', '.join(sorted(missing))}: a family that LOSSES leaves out")


# At import, before any job could name a loss that lacks a part.
check_registered(LOSSES)


def losses_of(model: str) -> tuple[type[AbstractLoss], ...]:
    """Return the losses that a kind of model may have."""
    return tuple(loss for loss in LOSSES if model in loss.card.models)


if TYPE_CHECKING:
    Loss = AbstractLoss
    Binary = AbstractLoss
    Robust = AbstractLoss
    Phase = AbstractLoss
else:
    Loss = Annotated[Union[LOSSES], Field(discriminator="kind")]  # noqa: UP007 - made of a tuple
    Binary = Annotated[Union[losses_of("logistic")], Field(discriminator="kind")]  # noqa: UP007 - as above
    Robust = Annotated[Union[losses_of("linear")], Field(discriminator="kind")]  # noqa: UP007 - as above
    Phase = Annotated[Union[losses_of("phase_retrieval")], Field(discriminator="kind")]  # noqa: UP007 - as above


def entry(settings: type[AbstractLoss | AbstractWeights]) -> dict[str, Any]:
    """Return an entry of the catalogue with the JSON Schema of what a job may say."""
    shown = {"description": settings.__doc__, "settings": settings.model_json_schema()}
    return {"kind": kind_of(settings), **settings.card.model_dump(mode="json"), **shown}
