"""Use cases of those who read a model: all post-processing of what was paid for, so reading is free.

Each raises `NotFound` where the model does not exist for the caller, and `Invalid` as the reckoning below does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.base.errors import FieldError, Invalid
from core.data.columns import ArrayColumn, BinaryColumn, Scalar
from core.db.tables import Job
from core.inference import (
    check_words,
    coefficient_document,
    comparison,
    description_document,
    description_summary,
    forest,
    hypotheses,
    network_predictions,
    network_summary,
    predictions,
    regions,
    rendering,
    results,
    row_flags,
    wording,
)
from core.inference.description import ReleasedDescription
from core.inference.description_figures import About
from core.inference.error_bound import Records
from core.inference.hypotheses import Alternative
from core.inference.network import AnyReleased, ReleasedNetwork, with_coefficients
from core.inference.regions import Joint
from core.jobs import mocks
from core.methods.registry import method_of, source_of
from core.service.context import Caller, Context
from core.service.guarantees import clients_guarantees
from core.service.models import coefficients_of, released_by
from farthing.schemas.descriptions import DescriptionView
from farthing.schemas.documents import Document

Levels = Sequence[float]


def summary(context: Context, caller: Caller, model_id: str, levels: Levels) -> dict[str, Any]:
    """Return the coefficient table, in the units of the declared columns; of a network its layers."""
    released, job = released_by(context, caller, model_id)
    return _summary(context, caller, model_id, released, job, levels)


def _summary(
    context: Context, caller: Caller, model_id: str, released: AnyReleased, job: Job, levels: Levels
) -> dict[str, Any]:
    told = {"model": model_id, "job": job.id, **_told(released, levels)}
    if not job.is_federated:
        return told
    clients = clients_guarantees(context, caller, job)
    privacy = told["privacy"] | {"label": "weakest"}
    return told | {"privacy": privacy, "sites": clients, "methods": told["methods"] + wording.apart(len(clients))}


def _told(released: AnyReleased, levels: Levels) -> dict[str, Any]:
    return wording.marked(_read(released, levels), mock=released.mock)


def _read(released: AnyReleased, levels: Levels) -> dict[str, Any]:
    if isinstance(released, ReleasedNetwork):
        return network_summary.summary(released)
    if isinstance(released, ReleasedDescription):
        return description_summary.summary(released, levels[0] if levels else None)
    return results.summary(released, levels) | {
        "method": source_of(released.optimizer).model_dump(),
        "methods": wording.methods_paragraph(released, method_of(released.optimizer).cited),
    }


@dataclass(frozen=True)
class Whole:
    """The whole summary of a model: for a page, a file, or text."""

    summary: dict[str, Any]
    document: Document
    """The summary in words and tables."""
    job_flags: list[tuple[str, str]]
    """Faults that a method found in its whole estimate: each flag with its sentence."""
    effects: list[forest.Effect]
    """Rows of the forest plot; none of a network or a description."""
    ratios: list[dict[str, Any]]
    """Odds or rate ratios, where the kind has them."""
    ratio: str
    """Their field's name; empty where there are none."""


def whole(context: Context, caller: Caller, model_id: str, levels: Levels) -> Whole:
    """Return the summary of a model with its document, its plot, its ratios and its flags."""
    released, job = released_by(context, caller, model_id)
    return whole_of(released, _summary(context, caller, model_id, released, job, levels))


def whole_of(released: AnyReleased, shown: dict[str, Any]) -> Whole:
    """Return what people read of a release.

    Args:
        released: a model's row.
        shown: its summary, with `model` and `job`.
    """
    if isinstance(released, ReleasedNetwork):
        return Whole(shown, network_summary.document(shown), [], [], [], "")
    if isinstance(released, ReleasedDescription):
        return Whole(shown, description_document.document(shown), [], [], [], "")
    ratio = results.RATIOS.get(released.kind, "")
    return Whole(
        summary=shown,
        document=coefficient_document.document(shown),
        job_flags=check_words.of_job(released),
        effects=forest.effects(released, shown["levels"]),
        ratios=results.ratios(released, shown["levels"], ratio) if ratio else [],
        ratio=ratio,
    )


def summary_text(context: Context, caller: Caller, model_id: str, levels: Levels) -> str:
    """Return the same table as text, as statistics packages print it."""
    return rendering.text_of(whole(context, caller, model_id, levels).document)


def description(context: Context, caller: Caller, model_id: str, level: float | None, about: About) -> DescriptionView:
    """Return a description's figures with intervals at one level, about the population or about the records.

    Raises:
        NotFound: it does not exist for the caller.
        Invalid: it is no description.
    """
    return DescriptionView.model_validate(_described(context, caller, model_id, level, about))


def description_text(context: Context, caller: Caller, model_id: str, level: float | None, about: About) -> str:
    """Return the same figures as text."""
    return rendering.text_of(description_document.document(_described(context, caller, model_id, level, about)))


def _described(context: Context, caller: Caller, model_id: str, level: float | None, about: About) -> dict[str, Any]:
    released, job = released_by(context, caller, model_id)
    if not isinstance(released, ReleasedDescription):
        fix = "name what a job of the kind describe released, or ask for this model's summary"
        raise Invalid(f"{model_id} is a {released.kind} model.", FieldError("/model", fix))
    told = description_summary.summary(released, level, about)
    return {"model": model_id, "job": job.id, **wording.marked(told, mock=released.mock)}


def intervals(
    context: Context, caller: Caller, model_id: str, levels: Levels, method: Joint, names: Sequence[str] | None
) -> dict[str, Any]:
    """Return each coefficient's interval, on its own or so that all hold together."""
    released, _ = coefficients_of(context, caller, model_id, "intervals")
    return {"model": model_id, **regions.intervals(released, levels, method, names)}


def covariance(context: Context, caller: Caller, model_id: str) -> dict[str, Any]:
    """Return the covariance of the coefficients' estimates, sampling and privacy noise together."""
    released, _ = coefficients_of(context, caller, model_id, "covariance")
    return {"model": model_id, **results.covariance(released)}


def ratios(context: Context, caller: Caller, model_id: str, levels: Levels, kind: str) -> dict[str, Any]:
    """Return odds or rate ratios, as `odds_ratio` or `rate_ratio` says."""
    released, _ = coefficients_of(context, caller, model_id, "ratios")
    shown = results.asked(released, levels)
    return {
        "model": model_id,
        "level": shown[0],
        "levels": list(shown),
        f"{kind}s": results.ratios(released, shown, kind),
        **results.caveats(released),
    }


def contrast(
    context: Context,
    caller: Caller,
    model_id: str,
    weights: Mapping[str, float],
    levels: Levels,
    *,
    value: float,
    alternative: Alternative,
    margin: float | None,
    scheffe: bool,
) -> dict[str, Any]:
    """Return a linear combination of coefficients with its interval and tests."""
    released, _ = coefficients_of(context, caller, model_id, "contrasts")
    found = hypotheses.contrast(
        released, weights, levels, value=value, alternative=alternative, margin=margin, scheffe=scheffe
    )
    return {"model": model_id, "level": results.asked(released, levels)[0], **found}


def wald_test(
    context: Context,
    caller: Caller,
    model_id: str,
    restrictions: Sequence[Mapping[str, float]],
    values: Sequence[float] | None,
) -> dict[str, Any]:
    """Test linear hypotheses jointly."""
    released, _ = coefficients_of(context, caller, model_id, "tests")
    return {"model": model_id, **hypotheses.wald_test(released, restrictions, values)}


def ellipsoid(
    context: Context,
    caller: Caller,
    model_id: str,
    names: Sequence[str],
    levels: Levels,
    point: Mapping[str, float] | None,
) -> dict[str, Any]:
    """Return the region that holds some coefficients together."""
    released, _ = coefficients_of(context, caller, model_id, "regions")
    return {"model": model_id, **regions.ellipsoid(released, names, levels, point)}


def compare(context: Context, caller: Caller, model_id: str, other_id: str, level: float | None) -> dict[str, Any]:
    """Return two models side by side, both of which the caller may see."""
    (first, one), (second, other) = (
        coefficients_of(context, caller, found, "comparison") for found in (model_id, other_id)
    )
    if model_id == other_id:
        raise Invalid("This is one model twice.", FieldError("/other", "name another model of the same target"))
    if first.mock != second.mock:
        fix = "compare two models of mock jobs, or two of records"
        raise Invalid("One of these models was trained on made-up rows.", FieldError("/other", fix))
    shown = comparison.compare(first, second, _records(one, other), level)
    for described, found, job in zip(shown["models"], (model_id, other_id), (one, other), strict=True):
        described |= {"model": found, "job": job.id}
    return shown


def _records(one: Job, other: Job) -> Records:
    """Say whose records two jobs read: a scope is the people behind its datasets. Mock jobs draw rows of their own."""
    if mocks.is_mock(one.id):
        return "different_people"
    if one.dataset_id == other.dataset_id:
        return "same_dataset"
    return "same_people" if one.scope_id == other.scope_id else "different_people"


def compare_text(context: Context, caller: Caller, model_id: str, other_id: str, level: float | None) -> str:
    """Return the same comparison as text."""
    return rendering.comparison_text(compare(context, caller, model_id, other_id, level))


def methods(context: Context, caller: Caller, model_id: str) -> str:
    """Return a paragraph for the methods section of a paper."""
    return str(summary(context, caller, model_id, ())["methods"])


@dataclass(frozen=True)
class Predictions:
    """Predictions of some rows, with the flags of the whole job."""

    rows: list[dict[str, Any]]
    """One a row, with `flags` of its own where it has some."""
    flags: list[str]


def predict(
    context: Context, caller: Caller, model_id: str, rows: Sequence[Mapping[str, Any]], level: float | None
) -> Predictions:
    """Predict rows given in the units of the declared columns, with intervals of the mean where a level is given."""
    released, _ = released_by(context, caller, model_id)
    if isinstance(released, ReleasedNetwork):
        return Predictions(network_predictions.predict(model_id, released, rows, level), [])
    released = with_coefficients(released, "predictions")
    return Predictions(predictions.predict(released, rows, level), row_flags.job_flags(released))


@dataclass(frozen=True)
class Inputs:
    """The inputs of a model's predictions: ordinary columns, or one array."""

    columns: tuple[Scalar, ...]
    array: str | None
    level: float | None
    """Of the intervals of its predictions; None: they have none."""
    target: str
    success: str
    """The value of a binary target whose probability is predicted; empty of other targets."""


def inputs(context: Context, caller: Caller, model_id: str) -> Inputs:
    """Return what a model takes to predict.

    Raises:
        NotFound: it does not exist for the caller.
        Invalid: it is a description, which predicts nothing.
    """
    released, _ = released_by(context, caller, model_id)
    level = None
    if not isinstance(released, ReleasedNetwork):
        released = with_coefficients(released, "predictions")
        level = predictions.level_of(released)
    design = released.design
    target = design.target_column
    return Inputs(
        columns=tuple(column for column in design.predictors if not isinstance(column, ArrayColumn)),
        array=None if design.array is None else design.array.name,
        level=level,
        target=design.target.column,
        success=target.values[1] if isinstance(target, BinaryColumn) else "",
    )
