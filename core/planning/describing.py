"""From a request to describe columns to the method's layout, the reading of its columns, and their public facts."""

from collections.abc import Sequence
from typing import Final

from core.base.errors import FieldError, Invalid
from core.data.columns import ArrayColumn, Coded, Column, Ordered, Scalar, bounds_of, find
from core.inference.settings import Inference
from core.methods.describe.spec import MOST_COUNTS, ColumnShape, Describe, Layout
from core.models.description import DescriptionModel
from core.models.design import Design
from core.models.features import Feature, TargetCoding
from core.models.used_columns import some_of
from core.planning.job import JobSpec
from core.privacy.arithmetic import fill
from core.privacy.facts import Adjacency, Facts, Ranges

MOST_CORRELATED: Final = 40
"""Numbers whose correlations one job asks for."""


def refuse_for_descriptions(spec: JobSpec) -> None:
    """Refuse a description by another method, a model by this one, and options that are about models.

    Raises:
        Invalid: with JSON pointers.
    """
    describes, described = isinstance(spec.optimizer, Describe), isinstance(spec.model, DescriptionModel)
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


def part_of_range(column: Ordered, value: float) -> float:
    """Return a number in the column's own units as a part of its declared range."""
    lower, upper = bounds_of(column)
    return (value - lower) / (upper - lower)


def make_layout(columns: Sequence[Scalar], model: DescriptionModel) -> Layout:
    """Return what is asked of which columns.

    Raises:
        Invalid: edges or tables do not fit the columns, or there is nothing to ask.
    """
    places = {column.name: place for place, column in enumerate(columns)}
    shapes = [
        ColumnShape(values=len(column.values))
        if isinstance(column, Coded)
        else ColumnShape(edges=_edges(column, model.edges.get(column.name)))
        for column in columns
    ]
    for name in model.edges:
        if name not in places or isinstance(columns[places[name]], Coded):
            detail = "edges are for numbers, integers and dates that this job describes"
            raise Invalid(f"`{name}` has no edges: {detail}.", FieldError(f"/model/edges/{name}", detail))
    tables = []
    for at, pair in enumerate(model.tables):
        for side, name in enumerate(pair):
            if name not in places:
                detail = f"`{name}` is none of the columns that this job describes"
                raise Invalid(
                    f"A table's columns are described too: {detail}.", FieldError(f"/model/tables/{at}/{side}", detail)
                )
        if pair[0] == pair[1]:
            raise Invalid("A table is of two columns.", FieldError(f"/model/tables/{at}/1", f"names `{pair[0]}` again"))
        tables.append((places[pair[0]], places[pair[1]]))
    layout = Layout(
        columns=tuple(shapes),
        statistics=tuple(sorted(model.statistics)),
        tables=tuple(tables),
        quantiles=model.quantiles,
        bins=model.bins,
    )
    _check_sizes(layout)
    return layout


def _check_sizes(layout: Layout) -> None:
    """Refuse a layout that asks for nothing, or for more than one answer may hold.

    Raises:
        Invalid: with a pointer.
    """
    if not layout.asked():
        detail = f"none of {', '.join(layout.statistics)} is for columns of these types"
        raise Invalid(f"There is nothing to describe: {detail}.", FieldError("/model/statistics", detail))
    if "correlations" in layout.asked() and len(layout.numbers) > MOST_CORRELATED:
        detail = f"correlations are of at most {MOST_CORRELATED} numbers: name fewer columns"
        raise Invalid(f"Too many columns: {detail}.", FieldError("/model/columns", detail))
    settings = fill(Describe(), mu=1.0, layout=layout, shares=layout.planned_shares())
    if max(question.shape(len(layout.columns))[0] for question in settings.questions()) > MOST_COUNTS:
        detail = f"one answer would have more than {MOST_COUNTS:,} counts: name fewer columns, tables or bins"
        raise Invalid(f"Too many cells: {detail}.", FieldError("/model/columns", detail))


def _edges(column: Ordered, given: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Return given edges as parts of the declared range.

    Raises:
        Invalid: one lies at or beyond a bound.
    """
    if given is None:
        return None
    lower, upper = bounds_of(column)
    if not lower < given[0] <= given[-1] < upper:
        detail = f"must lie within the declared bounds, {lower:g} to {upper:g}, where every value lies"
        raise Invalid(f"The edges of `{column.name}` {detail}.", FieldError(f"/model/edges/{column.name}", detail))
    return tuple(part_of_range(column, edge) for edge in given)


def description_design(columns: Sequence[Scalar]) -> Design:
    """Return how a description's columns are read: numbers as parts of their range, categories as codes.

    A design names a target; that of a description is its first column, which is read with the others.
    """
    features = []
    for column in columns:
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
        gradient_bound=1.0,
        ranges=Ranges(
            kinds=tuple("constant" if isinstance(column, Coded) else "number" for column in columns),
            lower=(0.0,) * len(columns),
            upper=tuple(len(column.values) - 1.0 if isinstance(column, Coded) else 1.0 for column in columns),
            target=(0.0, 1.0),
        ),
    )
