"""From a model and its design to a filled model, its loss on encoded records, and their public facts."""

from core.base.errors import FieldError, Invalid
from core.data.columns import Coded, bounds_of
from core.losses.bases import RESIDUALS_PER_RANGE, AbstractRobust
from core.losses.categorical import Multinomial
from core.losses.registry import Loss, Robust
from core.losses.robust import Huber, SmoothedHuber
from core.losses.squares import Squared
from core.losses.weights import (
    Clip,
    Mallows,
    Schweppe,
    Weights,
    cubic_bound,
    curvature_bound,
    gradient_bound,
    gradient_diameter,
)
from core.models.design import Design
from core.models.kinds import LinearModel, LogisticModel, MultinomialModel, RegressionModel
from core.models.loss_geometry import smoothness, start_gap, weak_convexity
from core.privacy.arithmetic import AnyStart, fill
from core.privacy.facts import Adjacency, Facts, UnknownScale


def fill_model(model: RegressionModel, design: Design) -> RegressionModel:
    """Fill the weight bound, so that ordinary rows are not down-weighted, and what a loss leaves open.

    Raises:
        Invalid: loss and weights do not go together.
    """
    if isinstance(model, LinearModel):
        _refuse_unbounded(model.loss, model.weights)
    if not isinstance(design.target_column, Coded) and not isinstance(model, LogisticModel | MultinomialModel):
        loss = model.loss.filled(bounds_of(design.target_column)[1], design.target.scale)
        model = model.model_copy(update={"loss": loss})
    bound = design.ordinary_norm
    if isinstance(model.weights, Clip):
        bound *= encoded_loss(model, design).score_bound or 1.0  # a residual of 1 is half the target's range
    return model.model_copy(update={"weights": fill(model.weights, bound=bound)})


def encoded_loss(model: RegressionModel, design: Design) -> Loss:
    """Return a filled model's loss on encoded targets: residual scales are declared in the target's own units."""
    if isinstance(model, MultinomialModel):
        return Multinomial(classes=design.classes)
    if isinstance(model, LinearModel) and isinstance(model.loss, Squared) and not isinstance(model.weights, Clip):
        return bounded_squares()
    return model.loss.encoded(design.target.scale)


def bounded_squares() -> Huber:
    """Return squares of residuals that count whole up to the target's declared range, which is two encoded units."""
    scale = 2 / RESIDUALS_PER_RANGE
    return Huber(scale=scale, c=2 / scale)


def make_facts(
    model: RegressionModel, design: Design, units: int, adjacency: Adjacency, start: AnyStart = "zeros"
) -> Facts:
    """Return the public facts of a filled model's records, in encoded units, for a method that starts there."""
    loss, weights = encoded_loss(model, design), model.weights
    bent = curvature_bound(loss, weights)
    if isinstance(loss, Squared):  # its Hessian x x^T is bounded by the declared columns; its gradient is clipped
        bent = design.norm_bound**2
    scale = None
    if isinstance(loss, Huber) and loss.joint:
        scale = UnknownScale(start=loss.known_scale, floor=loss.known_floor, curvature=loss.scale_curvature)
    return Facts(
        units=units,
        dimension=parameters(loss, design.dimension),
        adjacency=adjacency,
        gradient_bound=gradient_bound(loss, weights),
        gradient_diameter=gradient_diameter(loss, weights),
        curvature_bound=bent,
        cubic_bound=cubic_bound(weights),
        concordance=_concordance(loss, weights, design),
        third_derivative=loss.lipschitz if isinstance(loss, SmoothedHuber) else None,
        residual_scale=loss.scale if isinstance(loss, AbstractRobust) and scale is None else None,
        target_bound=design.target_reach if isinstance(loss, Squared) else None,
        smoothness=smoothness(loss, weights, design.norm_bound),
        weak_convexity=weak_convexity(loss, weights, design.norm_bound),
        # With an offset in the margin, nothing is known of the loss at zero.
        start_gap=None if design.margin_offset else start_gap(loss, weights, design, start, model.ridge),
        ridge=model.ridge,
        scale=scale,
        sampling=None if design.sampling is None else design.sampling.expected(),
    )


def _concordance(loss: Loss, weights: Weights, design: Design) -> float | None:
    """Return gamma of the loss in theta: that in the margin times the largest norm of a row, as the weights leave it.

    Source: Avella-Medina, Bradshaw and Loh (2023), Lemmas 8 and 9; a weight before the loss changes nothing.
    """
    if loss.concordance is None or isinstance(weights, Clip):
        return None
    return loss.concordance * (weights.known_bound if isinstance(weights, Schweppe) else design.norm_bound)


def parameters(loss: Loss, features: int) -> int:
    """Return how many parameters a loss has on so many encoded features."""
    if isinstance(loss, Multinomial):
        return features * (loss.known_classes - 1)
    # True counts as one more parameter, the scale.
    return features + (isinstance(loss, Huber) and loss.joint)


def _refuse_unbounded(loss: Robust, weights: Weights) -> None:
    """Refuse combinations that no bound is proved for."""
    bounded = isinstance(loss, Squared) and isinstance(weights, Mallows)  # by the target's declared range
    if loss.score_bound is None and not bounded and not isinstance(weights, Clip):
        raise Invalid(
            f"The loss {loss.kind} has unbounded gradients.",
            FieldError("/model/weights/kind", "use clip with it, or a robust loss such as huber"),
        )
    if isinstance(loss, Huber) and loss.joint and isinstance(weights, Schweppe | Clip):
        raise Invalid(
            "A scale is estimated with Mallows weights only.",
            FieldError("/model/weights/kind", "use mallows, or give a known scale and leave joint out"),
        )
