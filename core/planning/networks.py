"""A network's plan: its loss by the target's type, its public facts, and what is refused before a record is read."""

from math import prod
from typing import Final

from core.base.errors import FieldError, Invalid
from core.data.columns import Coded
from core.methods.registry import METHODS
from core.models.design import Design
from core.models.network.layers import Attention, Conv2d, Embedding, Layer, Linear, Shape
from core.models.network.model import NetworkModel, check_layers, trace
from core.models.network.trained import placed, trained_count
from core.planning.job import JobSpec
from core.privacy.arithmetic import fill
from core.privacy.facts import Adjacency, Facts

PLANNED_CLIP: Final = 1.0
SMALLEST_CLIP, LARGEST_CLIP = 1e-6, 1e6
"""Within these, single precision holds what is clipped and what is added up."""
LARGEST_RADIUS: Final = 1e12
"""Within it, no parameter and no product of two passes what single precision holds."""
MOST_DRAWN: Final = 10_000
"""Trained numbers of a network whose iterates may all be held, for one to be drawn among them."""
PART_ROWS: Final = 256
"""Rows that one single-precision partial sum of a network's gradients adds up.

Each sum is made whole numbers of, as many as there are parameters. Fewer sums take less time, and more noise: of 256
rows 1/200 more than sums without error would, of 128 rows 1/800.
"""


def refuse_for_networks(spec: JobSpec) -> None:
    """Refuse what no network has.

    Raises:
        Invalid: another method, a constant that nobody declares, intervals, assumptions of coefficients, or extreme
            figures; with JSON pointers.
    """
    errors = _extreme_figures(spec)
    if spec.optimizer.of_networks is None:
        detail = (
            f"{spec.optimizer.kind} rests on bounds that a network's loss does not have; use clipped_sgd, which clips "
            "every record's gradient, or a method whose constants may be declared: "
            + ", ".join(method.card().kind for method in METHODS if method.of_networks)
        )
        errors.append(FieldError("/optimizer/kind", detail))
    for name in spec.optimizer.declared_of_networks():
        if getattr(spec.optimizer, name) is None:
            other = spec.optimizer.free_of_constants
            detail = f"is known of no network's loss: declare it, or use {other}, which needs none"
            errors.append(FieldError(f"/optimizer/{name}", detail))
    if spec.inference.intervals:
        detail = "no covariance is known for the parameters of a network: set it to false"
        errors.append(FieldError("/inference/intervals", detail))
    if spec.optimizer.start != "zeros":
        detail = "is the change from the public start, so it is zeros: leave it out; model.pretrained names another"
        errors.append(FieldError("/optimizer/start", detail))
    if spec.assume is not None:
        errors.append(FieldError("/assume", "is about coefficients, which a network has none of; leave it out"))
    if errors:
        raise Invalid(f"This job asks for what networks do not have: see {errors[0].pointer}.", *errors)


def _extreme_figures(spec: JobSpec) -> list[FieldError]:
    """Return which figures of a method are too large or too small for single precision, or for a row."""
    errors = []
    if not SMALLEST_CLIP <= clip_of(spec) <= LARGEST_CLIP:
        errors.append(
            FieldError("/optimizer/clip", f"of a network lies between {SMALLEST_CLIP:g} and {LARGEST_CLIP:g}")
        )
    if (getattr(spec.optimizer, "radius", None) or 0) > LARGEST_RADIUS:
        errors.append(FieldError("/optimizer/radius", f"of a network is at most {LARGEST_RADIUS:g}; lower it"))
    if getattr(spec.optimizer, "keep_iterates", None) is not None:
        detail = "is not offered for networks, whose rows hold one set of parameters: leave it out"
        errors.append(FieldError("/optimizer/keep_iterates", detail))
    return errors


def refuse_wide_draws(spec: JobSpec, facts: Facts) -> None:
    """Refuse a draw among the iterates of a network that is too large to hold them all.

    Raises:
        Invalid: such a draw.
    """
    if getattr(spec.optimizer, "select", None) == "exponential" and facts.dimension > MOST_DRAWN:
        detail = f"draws among iterates, which are held of up to {MOST_DRAWN:,} trained numbers: take least_norm"
        raise Invalid(f"/optimizer/select {detail}.", FieldError("/optimizer/select", detail))


def fill_network(model: NetworkModel, design: Design) -> NetworkModel:
    """Return the model with its loss, once its layers fit the columns and the target.

    Raises:
        Invalid: they do not, or loss and target do not go together; the layer at fault is named.
    """
    classes = isinstance(design.target_column, Coded)
    model = fill(model, loss="cross_entropy" if classes else "squared")
    if classes != (model.loss == "cross_entropy"):
        noun = "has values, not a size" if classes else "is a number, not a class"
        detail = f"the target `{model.target}` {noun}: leave the loss out, or name another target"
        raise Invalid(f"The loss {model.loss} does not fit the target.", FieldError("/model/loss", detail))
    check_layers(model, design.shape, design.classes if classes else 1)
    _check_tokens(model, design)
    trained_count(model, design.shape)  # refuses layers that cannot be adapted
    return model


def _check_tokens(model: NetworkModel, design: Design) -> None:
    """Refuse embeddings of what is no token, too few of them, and tokens that meet anything else."""
    tokens = design.array if design.array is not None and design.array.of == "token" else None
    for one in trace(model.layers, design.shape):
        first = one.place == (0,)
        if isinstance(one.layer, Embedding):
            if tokens is None or not first:
                detail = "takes tokens: put it first, and feed it an array column that is declared as tokens"
                raise Invalid(f"An embedding {detail}.", FieldError(one.pointer, detail))
            if tokens.upper >= one.layer.tokens:
                detail = f"must be at least {tokens.upper + 1:.0f}: `{tokens.name}` declares tokens below that"
                raise Invalid(f"/tokens {detail}.", FieldError(f"{one.pointer}/tokens", detail))
        elif first and tokens is not None:
            detail = f"`{tokens.name}` holds tokens, which are names, not sizes: begin with an embedding"
            raise Invalid(f"The layers do not fit: {detail}.", FieldError(one.pointer, detail))


def clip_of(spec: JobSpec) -> float:
    """Return to which norm each record's gradient is clipped: 1 unless the method says another."""
    return getattr(spec.optimizer, "clip", None) or PLANNED_CLIP


def network_facts(model: NetworkModel, design: Design, units: int, adjacency: Adjacency, clip: float) -> Facts:
    """Return the public facts of records behind a filled network: as many parameters as are trained, and the clip.

    Args:
        model: filled.
        design: of its columns.
        units: n, public.
        adjacency: of the scope that pays.
        clip: to which each record's gradient is clipped.
    """
    return Facts(
        units=units,
        dimension=trained_count(model, design.shape),
        adjacency=adjacency,
        gradient_bound=clip,
        part_rows=PART_ROWS,
    )


def multiplications(model: NetworkModel, design: Design) -> int:
    """Return how many a network takes for one record: forward, back to what layers were given, and for the sum."""
    return 3 * sum(_products(layer, shape) for _, layer, shape in placed(model.layers, design.shape))


def _products(layer: Layer, given: Shape) -> int:
    """Return the multiplications of one layer's forward pass; those of no matrix are not counted."""
    match layer:
        case Linear():
            return prod(given) * layer.units
        case Conv2d():
            return prod(layer.output(given)) * given[0] * layer.kernel**2
        case Attention():
            positions, features = given
            return 4 * positions * features**2 + 2 * positions**2 * features
    return 0
