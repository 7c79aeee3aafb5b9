"""Which declared columns a model uses, and which of them it refuses."""

from collections.abc import Iterable, Sequence

from core.base.errors import FieldError, Invalid
from core.data.columns import ArrayColumn, BinaryColumn, Coded, Column, Scalar, bounds_of, find
from core.models.kinds import (
    LinearModel,
    LogisticModel,
    MultinomialModel,
    PhaseRetrievalModel,
    PoissonModel,
    RegressionModel,
)
from core.models.network.model import NetworkModel


def target_of(columns: Sequence[Column], model: RegressionModel | NetworkModel) -> Scalar:
    """Return the column that a model predicts.

    Raises:
        Invalid: it is unknown, or of a type that the model cannot predict (pointer /model/target).
    """
    column = find(columns, model.target)
    if column is None:
        detail = f"the dataset declares no column `{model.target}`; it declares {some_of(c.name for c in columns)}"
        raise Invalid(f"Unknown target `{model.target}`.", FieldError("/model/target", detail))
    if isinstance(column, ArrayColumn):
        raise Invalid(
            f"The target `{column.name}` is an array; models predict one value a record.",
            FieldError("/model/target", "name a column that is no array"),
        )
    if isinstance(model, LogisticModel) and not isinstance(column, BinaryColumn):
        raise Invalid(
            f"The target `{column.name}` is of type {column.type}; a logistic model needs a binary column.",
            FieldError("/model/target", "name a binary column, or fit a linear model to a number"),
        )
    if isinstance(model, LinearModel) and isinstance(column, Coded):
        raise Invalid(
            f"The target `{column.name}` is of type {column.type}; a linear model needs a number, integer or date.",
            FieldError("/model/target", "name a numeric column, or fit a logistic model to a binary one"),
        )
    if isinstance(model, MultinomialModel) and not isinstance(column, Coded):
        raise Invalid(
            f"The target `{column.name}` is of type {column.type}; a multinomial model needs a category.",
            FieldError("/model/target", "name a category, or fit a linear model to a number"),
        )
    if isinstance(model, PoissonModel | PhaseRetrievalModel) and not _counts(column):
        noun = "a count" if isinstance(model, PoissonModel) else "a square"
        raise Invalid(
            f"The target `{column.name}` cannot be {noun}: it may be a category, a date or negative.",
            FieldError("/model/target", "name a number or integer column whose declared lower bound is 0 or more"),
        )
    return column


def _counts(column: Scalar) -> bool:
    """Say whether a column's declared values may be counts, or squares."""
    return not isinstance(column, Coded) and column.type != "date" and bounds_of(column)[0] >= 0


def used_by(columns: Sequence[Column], model: RegressionModel | NetworkModel) -> tuple[Scalar, ...] | ArrayColumn:
    """Return the columns that a model reads, in its order: ordinary ones, or for a network one array.

    Raises:
        Invalid: a feature is unknown, doubled, the target or an array that the model cannot read (pointers
            /model/features/k), or there is none.
    """
    used = tuple(_named(columns, model))
    arrays = [place for place, column in enumerate(used) if isinstance(column, ArrayColumn)]
    if isinstance(model, NetworkModel) and len(used) == 1 and isinstance(used[0], ArrayColumn):
        return used[0]
    if arrays:
        array = used[arrays[0]]
        where = "/model/features" if model.features is None else f"/model/features/{arrays[0]}"
        if isinstance(model, NetworkModel):
            fix = f'name it alone, ["{array.name}"], or ordinary columns only'
            raise Invalid("A network reads one array, or ordinary columns, not both.", FieldError(where, fix))
        fix = "name ordinary columns, or train a network on the array"
        raise Invalid(f"`{array.name}` is an array; a {model.kind} model cannot read it.", FieldError(where, fix))
    return tuple(column for column in used if not isinstance(column, ArrayColumn))


def _named(columns: Sequence[Column], model: RegressionModel | NetworkModel) -> Iterable[Column]:
    """Yield the feature columns, in the model's order."""
    if model.features is None:
        # Such columns are features only if `features` names them.
        aside = {model.target, *(getattr(model, name, None) for name in ("offset", "exposure", "sampling_weights"))}
        others = [column for column in columns if column.name not in aside]
        if isinstance(model, NetworkModel):
            field, keep = "features", ""
        else:
            field, keep = "intercept", "keep the intercept, or "
        # An intercept alone is a model; without one nothing is left to fit.
        if not others and (isinstance(model, NetworkModel) or not model.intercept):
            raise Invalid(
                "The dataset has no column beside the target.",
                FieldError(f"/model/{field}", f"{keep}upload a dataset with more columns"),
            )
        yield from others
        return
    seen: set[str] = set()
    for place, name in enumerate(model.features):
        where = f"/model/features/{place}"
        column = find(columns, name)
        if column is None:
            detail = f"the dataset declares no column `{name}`; it declares {some_of(c.name for c in columns)}"
            raise Invalid(f"Unknown feature `{name}`.", FieldError(where, detail))
        if name == model.target:
            raise Invalid(f"`{name}` is the target.", FieldError(where, "the target cannot be a feature too"))
        if name in seen:
            raise Invalid(f"The feature `{name}` is named twice.", FieldError(where, "name each feature once"))
        seen.add(name)
        yield column


def some_of(names: Iterable[str], most: int = 10) -> str:
    """Return the first names of many, for an error."""
    listed = [f"`{name}`" for name in names]
    return ", ".join(listed[:most]) + (f" and {len(listed) - most} more" if len(listed) > most else "")
