"""Model kinds: what is fitted to which columns."""

from typing import Annotated, Literal

from pydantic import Field

from core.catalogue.columns import Name
from core.catalogue.losses import Huber, Mallows
from core.privacy.facts import Frozen


class _Linear(Frozen):
    target: Name
    features: tuple[Name, ...] | None = Field(default=None, min_length=1, description="default: all other columns")
    intercept: bool = True
    weights: Mallows = Mallows()


class LogisticModel(_Linear):
    """Logistic regression of a binary column."""

    kind: Literal["logistic"] = "logistic"


class LinearModel(_Linear):
    """Robust linear regression of a number, integer or date column."""

    kind: Literal["linear"] = "linear"
    loss: Huber = Huber()


class NetworkModel(Frozen):
    """A neural network; part of the interface, not offered yet."""

    kind: Literal["network"] = "network"
    target: Name
    features: tuple[Name, ...] | None = None


AnyModel = Annotated[LogisticModel | LinearModel | NetworkModel, Field(discriminator="kind")]
