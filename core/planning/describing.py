"""From a request to describe columns to the method's layout, the reading of its columns, and their public facts."""

from collections.abc import Sequence

from core.base.errors import FieldError, Invalid
from core.data.columns import ArrayColumn, Coded, Column, Scalar, bounds_of, find
from core.inference.settings import Inference
from core.models.description import DescriptionModel
from core.models.design import Design
from core.models.features import Feature, TargetCoding
from core.models.used_columns import some_of
from core.planning.job import JobSpec
from core.privacy.facts import Adjacency, Facts, Ranges


def refuse_for_descriptions(spec: JobSpec) -> None:
    """Refuse a description by another method, a model by this one, and options that are about models.

    Raises:
        Invalid: with JSON pointers.
    """
    describes, described = not spec.optimizer.estimates, isinstance(spec.model, DescriptionModel)
    if describes != described:
        fix = 'describes columns: give the model {"kind": "description"}' if describes else 'give {"kind": "describe"}'
        raise Invalid(f"A description and its method go together: {fix}.", FieldError("/optimizer/kind", fix))
    if not describes:
        return
    usual = Inference(level=spec.inference.level)
    wrong = [
        FieldError(f"/inference/{name}", "is about models: leave it out")
        for name in Inference.model_fields
        if getattr(spec.inference, name) != getattr(usual, name)
    ]
    if spec.assume is not None:
        wrong.append(FieldError("/assume", "is about coefficients, which a description has none of: leave it out"))
    if spec.resources.processes > 1:
        wrong.append(FieldError("/resources/processes", "must be 1 to describe columns"))
    if wrong:
        raise Invalid(f"This job asks for what descriptions do not have: see {wrong[0].pointer}.", *wrong)


def described(columns: Sequence[Column], model: DescriptionModel) -> tuple[Scalar, ...]:
    """Return the columns that a job describes, in its order.

    Raises:
        Invalid: a column is unknown, doubled or an array, with pointers.
    """
    if model.columns is None:
        found = tuple(column for column in columns if not isinstance(column, ArrayColumn))
        if not found:
            raise Invalid("The dataset has arrays only.", FieldError("/model/columns", "upload ordinary columns"))
        return found
    used: list[Scalar] = []
    for place, name in enumerate(model.columns):
        where, column = f"/model/columns/{place}", find(columns, name)
        if column is None:
            detail = f"the dataset declares no column `{name}`; it declares {some_of(one.name for one in columns)}"
            raise Invalid(f"Unknown column `{name}`.", FieldError(where, detail))
        if isinstance(column, ArrayColumn):
            raise Invalid(f"`{name}` is an array.", FieldError(where, "name ordinary columns"))
        if column in used:
            raise Invalid(f"The column `{name}` is named twice.", FieldError(where, "name each column once"))
        used.append(column)
    return tuple(used)


def description_design(columns: Sequence[Scalar]) -> Design:
    """Return how a description's columns are read: numbers as parts of their range, categories as codes.

    A design names a target; that of a description is its first column, which is read with the others.
    """
    features = []
    for column in columns:
        # Centre 0 and scale 1 leave a category's code as it is.
        lower, upper = (0.0, 1.0) if isinstance(column, Coded) else bounds_of(column)
        features.append(Feature(name=column.name, column=column.name, centre=lower, scale=upper - lower))
    target = TargetCoding(column=columns[0].name, kind="number")
    return Design(
        features=tuple(features), target=target, columns=tuple(columns), target_column=columns[0], keeps_missing=True
    )


def description_facts(columns: Sequence[Scalar], units: int, adjacency: Adjacency) -> Facts:
    """Return what is public of a description's records."""
    return Facts(
        units=units,
        dimension=len(columns),
        adjacency=adjacency,
        # No gradient is asked for; the fact must be positive.
        gradient_bound=1.0,
        ranges=Ranges(
            # Categories get no look: their values are counted one by one.
            kinds=tuple("constant" if isinstance(column, Coded) else "number" for column in columns),
            lower=(0.0,) * len(columns),
            upper=tuple(len(column.values) - 1.0 if isinstance(column, Coded) else 1.0 for column in columns),
            target=(0.0, 1.0),
        ),
    )
