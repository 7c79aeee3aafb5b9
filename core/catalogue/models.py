"""Model kinds: what is fitted to which columns."""

from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from core.catalogue.columns import Name
from core.catalogue.losses import Clip, Huber, Mallows, Poisson, Robust, Weights
from core.privacy.facts import Frozen, Grown


def _with_kind(kind: str, given: Any) -> Any:  # noqa: ANN401 - whatever was sent
    """Name the usual kind where none was, as the first release, which had no other, let people do."""
    return {"kind": kind, **given} if isinstance(given, dict) and "kind" not in given else given


AnyWeights = Annotated[Weights, BeforeValidator(partial(_with_kind, "mallows"))]
PlainWeights = Annotated[
    Annotated[Mallows | Clip, Field(discriminator="kind")], BeforeValidator(partial(_with_kind, "mallows"))
]
RegressionLoss = Annotated[Robust, BeforeValidator(partial(_with_kind, "huber"))]


class _Linear(Grown):
    NEWER: ClassVar = frozenset({"ridge"})

    target: Name
    features: tuple[Name, ...] | None = Field(default=None, min_length=1, description="default: all other columns")
    intercept: bool = True
    ridge: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        default=0.0, description="lambda of (lambda/2) |b|^2 on encoded coefficients, intercept included"
    )


class LogisticModel(_Linear):
    """Logistic regression of a binary column."""

    kind: Literal["logistic"] = "logistic"
    weights: PlainWeights = Mallows()


class LinearModel(_Linear):
    """Robust linear regression of a number, integer or date column."""

    kind: Literal["linear"] = "linear"
    loss: RegressionLoss = Huber()
    weights: AnyWeights = Mallows()


class PoissonModel(_Linear):
    """Poisson regression, log link, of a number or integer column whose declared lower bound is 0 or more."""

    kind: Literal["poisson"] = "poisson"
    loss: Poisson = Poisson()
    weights: PlainWeights = Mallows()


class MultinomialModel(_Linear):
    """Multinomial logistic regression of a category; its first declared value is the baseline."""

    kind: Literal["multinomial"] = "multinomial"
    weights: PlainWeights = Mallows()


class NetworkModel(Frozen):
    """A neural network; part of the interface, not offered yet."""

    kind: Literal["network"] = "network"
    target: Name
    features: tuple[Name, ...] | None = None


RegressionModel = LogisticModel | LinearModel | PoissonModel | MultinomialModel
"""What is fitted to a design: anything but networks."""
AnyModel = Annotated[RegressionModel | NetworkModel, Field(discriminator="kind")]
