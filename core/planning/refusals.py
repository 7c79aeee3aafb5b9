"""Jobs whose answers nothing bounds or checks, refused before they are planned, each with the fields at fault.

Gradients are bounded by every weight, Hessians only by some: w(x) = t/|x| leaves w |x|^2 = t |x|, and clipped gradients
are those of no loss, so that no Hessian belongs to them. Hessians of losses that are not convex may be anything but
positive semidefinite, which the answers to questions about them, and the covariance made of them, rest on.
"""

from core.base.errors import FieldError, Invalid
from core.inference.settings import Inference
from core.losses.categorical import Logistic
from core.losses.weights import Clip, Mallows
from core.methods.registry import METHODS, AnySpec
from core.models.kinds import LinearModel, LogisticModel, PhaseRetrievalModel, RegressionModel
from core.privacy.facts import Facts


def refuse_unbounded(optimizer: AnySpec, inference: Inference, model: RegressionModel, facts: Facts) -> None:
    """Refuse questions that the model has no bound for.

    Raises:
        Invalid: with JSON pointers.
    """
    errors, clipped = [], isinstance(model.weights, Clip)
    newton = optimizer.inverts_hessians
    if facts.weak_convexity != 0:
        errors += _not_convex(optimizer, inference)
    elif not optimizer.offers_intervals:
        if inference.intervals:
            detail = f"{optimizer.kind} has none: set it to false"
            errors.append(FieldError("/inference/intervals", detail))
    elif clipped and newton:
        errors.append(FieldError("/model/weights/kind", "clip bounds no Hessian: use mallows, or noisy_gd"))
    if clipped and inference.intervals and not errors:
        detail = "clipped gradients are those of no loss, so no interval would be right: set it to false"
        errors.append(FieldError("/inference/intervals", detail))
    # Only if nothing else is wrong: the assertion below rests on the checks above.
    if not clipped and facts.curvature_bound is None and (newton or inference.intervals) and not errors:
        assert isinstance(model.weights, Mallows), "other weights bound it"
        detail = "1 bounds no Hessian: use 2 or 3, or noisy_gd without intervals"
        errors.append(FieldError("/model/weights/power", detail))
    errors += optimizer.wrong_for(model, facts)
    errors += _no_terms(optimizer, model)
    errors += _unaccepted(optimizer, inference, errors)
    if isinstance(inference.shares, str) and not optimizer.offers_intervals:
        errors.append(FieldError("/inference/shares", "is for methods with intervals; leave it out"))
    if errors:
        raise Invalid(f"This job asks for what nothing bounds or checks: see {errors[0].pointer}.", *errors)
    _refuse_start(optimizer, facts)
    begins = optimizer.begins and not optimizer.about[1]
    if isinstance(model, PhaseRetrievalModel) and begins:
        _refuse_saddle(optimizer)


def _unaccepted(optimizer: AnySpec, inference: Inference, errors: list[FieldError]) -> list[FieldError]:
    """Return how to accept intervals that their method does not check, where `errors` do not exclude all intervals."""
    given = inference.intervals and all(one.pointer != "/inference/intervals" for one in errors)
    if not given or optimizer.checks_intervals or inference.accept_unchecked:
        return []
    detail = (
        f"{optimizer.kind} does not check its intervals: set it to true to have them unchecked, or "
        "/inference/intervals to false; whitened_newton checks its own"
    )
    return [FieldError("/inference/accept_unchecked", detail)]


def _no_terms(optimizer: AnySpec, model: RegressionModel) -> list[FieldError]:
    """Return why a method or a loss cannot have an offset in a log or logit link, or sampling weights."""
    given = [name for name in ("offset", "exposure", "sampling_weights") if getattr(model, name, None) is not None]
    errors = []
    for name in given:
        if isinstance(model, LinearModel) and name == "offset":
            continue  # it is taken from the target, before any method sees it
        if not optimizer.takes_terms:
            offered = ", ".join(sorted(method.card().kind for method in METHODS if method.takes_terms))
            detail = f"{optimizer.kind} does not offer it: take {offered}"
            errors.append(FieldError(f"/model/{name}", detail))
        elif name != "sampling_weights" and isinstance(model, LogisticModel) and model.loss != Logistic():
            errors.append(FieldError(f"/model/{name}", "is for the logistic loss: leave it or /model/loss out"))
    return errors


def _refuse_saddle(optimizer: AnySpec) -> None:
    """Refuse a start where every record's gradient is zero."""
    if optimizer.start == "zeros" or not any(optimizer.start or ()):
        detail = "is where a square has no slope, so that no method would leave it: give random, or numbers"
        raise Invalid(f"/optimizer/start {detail}.", FieldError("/optimizer/start", detail))


def _not_convex(optimizer: AnySpec, inference: Inference) -> list[FieldError]:
    """Return what is wrong with a job whose loss is not convex."""
    errors = []
    if optimizer.inverts_hessians:
        detail = "asks for Hessians, which are not positive semidefinite for this loss: use noisy_gd, or a convex loss"
        errors.append(FieldError("/optimizer/kind", detail))
    if inference.intervals:
        detail = "no covariance is known for a loss that is not convex: set it to false, or use a convex loss"
        errors.append(FieldError("/inference/intervals", detail))
    return errors


def _refuse_start(optimizer: AnySpec, facts: Facts) -> None:
    """Refuse a start whose scale is none."""
    if facts.scale is None or optimizer.start is None or isinstance(optimizer.start, str):
        return
    if len(optimizer.start) == facts.dimension and optimizer.start[-1] < facts.scale.floor:
        detail = f"its last number is the scale, at least its floor, {facts.scale.floor:g}, in encoded units"
        raise Invalid(f"/optimizer/start {detail}.", FieldError("/optimizer/start", detail))
