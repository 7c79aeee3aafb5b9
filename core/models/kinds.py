"""Model kinds, and the columns that each is fitted to."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from core.data.column_fields import Name
from core.losses.categorical import Logistic
from core.losses.counts import Poisson
from core.losses.phase import SmoothPhase
from core.losses.registry import Binary, Phase, Robust
from core.losses.squares import Squared
from core.losses.weights import Clip, Mallows, Weights
from core.models.description import DescriptionModel
from core.models.network.model import NetworkModel as NetworkModel  # noqa: PLC0414 - where every kind is looked for
from core.privacy.facts import Frozen


def _with_kind(kind: str, given: Any) -> Any:  # noqa: ANN401 - whatever was sent
    """Name the default kind where the request names none, so that `"weights": {"bound": 4}` is enough."""
    return {"kind": kind, **given} if isinstance(given, dict) and "kind" not in given else given


AnyWeights = Annotated[Weights, BeforeValidator(partial(_with_kind, "mallows"))]
PlainWeights = Annotated[
    Annotated[Mallows | Clip, Field(discriminator="kind")], BeforeValidator(partial(_with_kind, "mallows"))
]
OnlyClip = Annotated[Clip, BeforeValidator(partial(_with_kind, "clip"))]
BinaryLoss = Annotated[Binary, BeforeValidator(partial(_with_kind, "logistic"))]
RegressionLoss = Annotated[Robust, BeforeValidator(partial(_with_kind, "huber"))]
PhaseLoss = Annotated[Phase, BeforeValidator(partial(_with_kind, "smooth"))]


Interactions = Annotated[
    tuple[Annotated[tuple[Name, ...], Field(min_length=2, max_length=3)], ...],
    Field(
        max_length=200,
        description='products of two or three columns, such as [["age", "smoker"]], called `age:smoker`; of a category '
        "each value but the first",
    ),
]


class _Linear(Frozen):
    target: Name
    features: tuple[Name, ...] | None = Field(default=None, min_length=1, description="default: all other columns")
    intercept: bool = True
    ridge: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)] = Field(
        default=0.0, description="lambda of (lambda/2) |b|^2 on encoded coefficients, intercept included"
    )
    interactions: Interactions = ()


class _Generalised(_Linear):
    offset: Name | None = Field(
        default=None,
        description="a number or integer column that enters the linear predictor with coefficient one; no feature "
        "unless `features` names it",
    )
    sampling_weights: Name | None = Field(
        default=None,
        description="a number or integer column, declared lower bound 0 or more: each record counts so many times "
        "over the declared upper bound, and estimates are those of the weighted population",
    )


class LogisticModel(_Generalised):
    """Logistic regression of a binary column, by likelihood or by squared errors of probabilities."""

    kind: Literal["logistic"] = "logistic"
    loss: BinaryLoss = Logistic()
    weights: PlainWeights = Mallows()


class LinearModel(_Generalised):
    """Linear regression of a number, integer or date column: of its mean by least squares, unless a loss is named.

    Loss `huber` and others like it make a robust regression: of a location that large residuals do not move, which is
    not the mean where residuals are skewed. With `sine_link` the link is not linear.
    """

    kind: Literal["linear"] = "linear"
    loss: RegressionLoss = Squared()
    weights: AnyWeights = Mallows()


class PoissonModel(_Generalised):
    """Poisson regression, log link, of a number or integer column whose declared lower bound is 0 or more."""

    kind: Literal["poisson"] = "poisson"
    exposure: Name | None = Field(
        default=None,
        description="a number or integer column, declared lower bound above 0, such as years at risk: its logarithm "
        "enters the linear predictor with coefficient one",
    )
    loss: Poisson = Poisson()
    weights: PlainWeights = Mallows()


class MultinomialModel(_Linear):
    """Multinomial logistic regression of a category; its first declared value is the baseline."""

    kind: Literal["multinomial"] = "multinomial"
    weights: PlainWeights = Mallows()


class PhaseRetrievalModel(_Linear):
    """Squares of linear predictors: a number or integer column, declared lower bound 0 or more, is (x.b)^2.

    b and -b tell the same, and a method that starts at zero stays there: start at random, or from numbers. Without an
    intercept unless asked for.
    """

    kind: Literal["phase_retrieval"] = "phase_retrieval"
    intercept: bool = False
    loss: PhaseLoss = SmoothPhase()
    weights: OnlyClip = Clip()


RegressionModel = LogisticModel | LinearModel | PoissonModel | MultinomialModel | PhaseRetrievalModel
"""Models that are fitted to a design: all but networks."""
TrainedModel = RegressionModel | NetworkModel
AnyModel = Annotated[TrainedModel | DescriptionModel, Field(discriminator="kind")]
"""Requests of a job; a description trains nothing."""
