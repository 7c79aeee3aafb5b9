"""Request of a job by whitened Newton, and the facts that follow from its model; public facts alone."""

from itertools import combinations
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from core.base.errors import FieldError, Invalid
from core.data.columns import Coded, IntegerColumn, bounds_of
from core.inference.settings import Inference
from core.losses.categorical import Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.robust import Huber
from core.losses.squares import Squared
from core.losses.weights import Mallows
from core.methods.base import Request, Spec
from core.models.design import Design
from core.models.features import parts_of
from core.models.kinds import AnyModel, LinearModel, LogisticModel, MultinomialModel, PoissonModel
from core.models.terms import product_bounds
from core.privacy.arithmetic import Mu
from core.privacy.facts import Facts, Ranges
from core.queries.looks import MOST_VALUES, FewValues

MOST_PARAMETERS: Final = 1000
"""Of all classes: a Hessian has a quarter of this many squared numbers, each noised."""
Family = Annotated[Logistic | Multinomial | Huber | Squared | Poisson, Field(discriminator="kind")]
Tails = Literal["counted", "assumed_light"]
DampedSteps = Annotated[int, Field(ge=1, le=20)]
WeightBound = Annotated[float, Field(gt=0, le=1e6)]
Count = Annotated[int, Field(ge=0)]
_OWN: Final = "whitened_newton has its own: leave it out"


class WhitenedSettings(Spec):
    """Settings of whitened Newton in a request, some of which follow from its model."""

    offers_intervals: ClassVar = True
    checks_intervals: ClassVar = True
    has_covariance: ClassVar = True
    federates: ClassVar = True
    about: ClassVar = (0, 1)
    given: ClassVar = ("looked",)

    cited: ClassVar = "a method of the service's own, sandwich after Avella-Medina, Bradshaw and Loh, 2023"
    takes_terms: ClassVar = True
    kind: Literal["whitened_newton"] = "whitened_newton"
    mu: Mu | None = Field(default=None, description="null: the job's")
    damped_steps: DampedSteps | None = Field(
        default=None, description="short steps before both precise ones; null: planned"
    )
    weight_bound: WeightBound | None = Field(
        default=None, description="t, on re-encoded rows, whose numbers have about unit variance each; null: planned"
    )
    least_weight_bound: WeightBound | None = Field(
        default=None,
        description="t is no less, and weight_bound at most: a rarer outcome, or a farther bound of a target, takes a "
        "smaller t; null: t is weight_bound",
    )
    unidentified_deviation: Annotated[float, Field(gt=0, le=1e6)] = Field(
        default=0.5,
        description="plausible deviation of the linear predictor, in logits, log rates or residual scales, along a "
        "direction that the noise hides",
    )
    tails: Tails = Field(
        default="counted",
        description="of least squares: counted: intervals hold whatever large residuals there are, up to the target's "
        "bounds; assumed_light: they hold if no record lies beyond the largest band of residuals that was seen",
    )
    loss: Family | None = Field(default=None, description="null: the model's")
    numbers: Count | None = Field(default=None, description="numeric columns; null: as declared")
    two_valued: Count | None = Field(
        default=None, description="two-valued columns, those of a category's values included; null: as declared"
    )
    few_valued: tuple[FewValues, ...] | None = Field(
        default=None,
        description=f"number of values of each integer column that has at most {MOST_VALUES}: they are counted value "
        "by value, and not among numbers; null: as declared",
    )
    products: Count | None = Field(
        default=None,
        description="products that are looked at with their numbers centred by what was learned of these; 0: as any "
        "number, in declared centres; null: all whose lower terms are in the model",
    )

    weighted: bool | None = Field(default=None, description="records have sampling weights; null: as the model says")
    trimmed: bool | None = Field(
        default=None,
        description="sampling weights count up to the largest that the job sees, not up to their declared bound; null: "
        "where there are weights",
    )
    shifted: bool | None = Field(
        default=None, description="an offset enters a log or logit link; null: as the model says"
    )
    looked: bool | None = Field(
        default=None,
        description="the look at the columns is that of a description, which the job names in `models`; null: as named",
    )

    @property
    def steps(self) -> int | None:
        """All steps, both precise ones among them."""
        return None if self.damped_steps is None else self.damped_steps + 2

    @property
    def start(self) -> Literal["zeros"]:
        """Zeros: where it really starts is learned."""
        return "zeros"


def refuse(settings: WhitenedSettings, request: Request) -> None:
    """Refuse what the method does not offer, and settings that contradict the job beside them.

    Raises:
        Invalid: with JSON pointers.
    """
    for name, known in followed(request).items():
        if getattr(settings, name) not in {None, known}:
            source = "/models" if name == "looked" else "/model"
            fix = (
                "leave it out: it follows from whether /models names a description"
                if name == "looked"
                else "leave it out: it follows from /model"
            )
            raise Invalid(
                f"/optimizer/{name} does not agree with {source}: {fix}.", FieldError(f"/optimizer/{name}", fix)
            )
    planned = settings.loss is not None  # a plan that is made again has scales and weights filled
    errors = [*_of_model(request.model, planned=planned), *([] if planned else _of_inference(request.inference))]
    squares = isinstance(request.model, LinearModel) and isinstance(request.model.loss, Squared)
    if settings.tails != "counted" and not squares:
        errors.append(FieldError("/optimizer/tails", "is for linear models with loss squared: leave it out"))
    if errors:
        raise Invalid(
            f"whitened_newton, the default for logistic, multinomial, linear and poisson models, does not offer this: "
            f"see {errors[0].pointer}, or name another method under /optimizer.",
            *errors,
        )


def followed(request: Request) -> dict[str, bool]:
    """Return what the settings say of a job that names these things elsewhere."""
    model = request.model
    offset = any(getattr(model, name, None) for name in ("offset", "exposure"))
    weighted = getattr(model, "sampling_weights", None) is not None
    looked = bool(request.released)
    return {
        "looked": looked,
        "weighted": weighted,
        "trimmed": weighted and not looked,  # a description's look has no sizes of weights
        "shifted": offset and not isinstance(model, LinearModel),
    }


def _of_model(model: AnyModel, *, planned: bool) -> list[FieldError]:
    """Return what is wrong with the model."""
    if not isinstance(model, LogisticModel | MultinomialModel | LinearModel | PoissonModel):
        detail = "is for logistic, multinomial, linear and poisson models: take noisy_newton or noisy_gd"
        return [FieldError("/optimizer/kind", detail)]
    errors = []
    if not model.intercept:
        errors.append(FieldError("/model/intercept", "must be true: columns are centred by what is learned"))
    if model.ridge:
        errors.append(FieldError("/model/ridge", "must be 0: columns are re-encoded; take noisy_newton for a ridge"))
    loss = Logistic() if isinstance(model, MultinomialModel) else model.loss  # which leaves nothing to choose either
    offered = Logistic | Squared | Poisson | Huber
    if not isinstance(loss, offered) or (isinstance(loss, Huber) and loss.joint):
        errors.append(
            FieldError("/model/loss", "must be logistic, huber without joint, squared or poisson for whitened_newton")
        )
    elif isinstance(loss, Poisson) and loss.c is not None:
        errors.append(FieldError("/model/loss/c", "must be left out: whitened_newton cuts counts and means alone"))
    elif isinstance(loss, Huber) and loss.scale is not None and not planned:
        errors.append(FieldError("/model/loss/scale", "must be left out: whitened_newton learns the residual scale"))
    if not planned and model.weights != Mallows():
        errors.append(FieldError("/model/weights", f"{_OWN}, or give /optimizer/weight_bound"))
    return errors


def _of_inference(inference: Inference) -> list[FieldError]:
    """Return which options of other methods' intervals are given."""
    accepts = inference.accept_unchecked  # a request that many methods share may say it
    usual = Inference(intervals=inference.intervals, level=inference.level, accept_unchecked=accepts)
    names = [name for name in type(inference).model_fields if getattr(inference, name) != getattr(usual, name)]
    return [FieldError(f"/inference/{name}", _OWN) for name in names]


def loss_of(model: AnyModel, design: Design) -> Logistic | Multinomial | Huber | Squared | Poisson:
    """Return the filled model's loss; a residual scale is learned, so it counts in its own units.

    Raises:
        Invalid: classes and features whose matrices would be too large.
    """
    if isinstance(model, MultinomialModel):
        parameters = (design.classes - 1) * design.dimension
        if parameters > MOST_PARAMETERS:
            fix = f"has {parameters} coefficients in all classes; at most {MOST_PARAMETERS} by whitened_newton"
            raise Invalid(f"/model/features {fix}.", FieldError("/model/features", f"{fix}: leave out features"))
        return Multinomial(classes=design.classes)
    assert isinstance(model, LogisticModel | LinearModel | PoissonModel), "others were refused"
    loss = Huber(c=model.loss.c, scale=1.0) if isinstance(model.loss, Huber) else model.loss
    assert isinstance(loss, Logistic | Huber | Squared | Poisson), "others were refused"
    return loss


def with_ranges(facts: Facts, design: Design, *, by_value: bool = True, centred: bool = True) -> Facts:
    """Return facts that say where encoded features and target may lie.

    Args:
        facts: without ranges.
        design: of the model.
        by_value: integers of few values are a kind of their own; False: they are numbers.
        centred: products whose lower terms are all in the model are a kind of their own; False: they are numbers.
    """
    kinds, lower, upper, values = [], [], [], []
    columns = {column.name: column for column in (*design.columns, *design.aside)}
    factors = _factors(design) if centred else ()
    for place, feature in enumerate(design.features):
        whole = 0
        if feature.column is None:
            ends, kind = (1.0, 1.0), "constant"
        elif feature.factors:
            ends = product_bounds(feature.factors, columns)
            # A product of indicators is an indicator.
            kind = "product" if factors and factors[place] else "number"
            kind = "two" if all(factor.code is not None for factor in feature.factors) else kind
        elif feature.code is not None:
            ends, kind = (0.0, 1.0), "two"
        else:
            column = columns[feature.column]
            assert not isinstance(column, Coded), "categories have codes"
            ends, kind = bounds_of(column), "number"
            if isinstance(column, IntegerColumn):
                whole = column.upper - column.lower + 1
                kind = "few" if by_value and whole <= MOST_VALUES else "number"
        if feature.column is not None and not feature.factors:
            ends = ((ends[0] - feature.centre) / feature.scale, (ends[1] - feature.centre) / feature.scale)
        kinds.append(kind)
        values.append(whole)
        lower.append(ends[0])
        upper.append(ends[1])
    offset, origin = design.margin_offset, design.to_declared()[0][0]
    crossed = any(feature.factors for feature in design.features)
    ranges = Ranges.model_validate(
        {
            "kinds": kinds,
            "lower": lower,
            "upper": upper,
            "values": values,
            # A hidden product leaves its effect to the intercept, which is then judged in the middle of all ranges, if
            # no product is centred elsewhere.
            "origin": (origin / origin[0]).tolist() if factors or not crossed else [],
            "factors": factors,
            "target": (0.0, 1.0) if isinstance(design.target_column, Coded) else design.target_bounds,
            "offset": None if offset is None else offset.bounds,
        }
    )
    return facts.model_copy(update={"ranges": ranges})


def _factors(design: Design) -> tuple[tuple[int, ...], ...]:
    """Return which features each feature is the product of, if all lower terms are features; empty: no numbers are."""
    places = {parts_of(feature): place for place, feature in enumerate(design.features)}
    found, numbers = [], False
    for feature in design.features:
        parts = tuple((factor.column, factor.code) for factor in feature.factors)
        lower = (frozenset(some) for size in range(1, len(parts)) for some in combinations(parts, size))
        own = tuple(places[frozenset({part})] for part in parts) if all(some in places for some in lower) else ()
        numbers |= any(design.features[place].code is None for place in own)
        found.append(own)
    return tuple(found) if numbers else ()
