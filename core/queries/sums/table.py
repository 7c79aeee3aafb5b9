"""Declared columns as they are, for counts and for sums of bounded functions of values.

Counts are integers, so nothing is rounded: a count is summed in part steps as a whole multiple of them, and the grid's
sensitivity covers it with its margin. Other sums are floats over at most PART_UNITS records, then integers, and err by
what the lattice charges. A record's terms depend on its own values, on the question and on public shapes only; values
that are missing or not finite are selected away.
"""

from collections.abc import Iterator
from math import sqrt
from typing import Final, assert_never

import torch
from torch import Tensor

from core.base.errors import ensure
from core.data.limits import LARGEST_SUM
from core.losses.losses_torch import ordinary
from core.privacy.facts import PART_UNITS, Facts
from core.queries.gradients import Question, Tabled
from core.queries.looks import CellCounts, MagnitudeCounts
from core.queries.sums import looking
from core.queries.sums.parts_at_once import block_numbers, by_part, sent, whole_parts
from core.queries.sums.terms import Records, constants
from core.queries.tables import (
    Axis,
    Cut,
    CutProducts,
    CutSums,
    InfluenceSquares,
    Partition,
    StandardCut,
    TableCounts,
    parts_of,
)

Summed = CutSums | CutProducts | InfluenceSquares
LARGEST_SCORE: Final = 1e150
"""Beyond it, a number's square is no ordinary one."""


class TableProblem:
    """Columns behind an oracle.

    Args:
        values: float64, shape (n, columns): numbers as parts of their declared range, categories as the number of their
            value; NaN where a value is missing.
        present: bool, shape (n,), on the same device; False marks an excluded row, which adds nothing.
    """

    replicates: Final = None

    def __init__(self, values: Tensor, present: Tensor) -> None:
        ensure(values.ndim == 2, "a row for each record")  # noqa: PLR2004 - as the sentence says
        ensure(values.dtype == torch.float64, "values are float64")
        ensure(present.shape == values.shape[:1], "every record has a presence")
        self._values = values
        self._present = present
        self._numbers = block_numbers(values.device)

    @property
    def units(self) -> int:
        """n, excluded rows included."""
        return self._values.shape[0]

    @property
    def dimension(self) -> int:
        """The number of columns."""
        return self._values.shape[1]

    def integer_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        *,
        other: Tensor | None = None,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        """Return the sum over records, int64, in steps; see `core.queries.sums.Problem`.

        Raises:
            PrivacyInvariantError: the question is about a model, or about a list of records.
        """
        ensure(other is None, "columns are asked about at one point")
        ensure(rows is None, "columns are asked about in full")
        if isinstance(question, CellCounts | MagnitudeCounts):
            return looking.integer_sum(
                question, facts, theta, step, looking.Blocks(self._looked_at(included), 1, self._values.device)
            )
        assert isinstance(question, Tabled), "columns answer questions about columns"
        if isinstance(question, TableCounts):
            unit = round(1 / step)
            ensure(unit * step == 1, "a count is a whole number of steps")
            return self._counts(question, included) * unit
        total = torch.zeros(question.shape(self.dimension), dtype=torch.int64, device=self._values.device)
        largest = total.new_zeros((), dtype=torch.float64)  # of all parts: a GPU is waited for once
        for parts in self._parts(question, included):
            steps = parts / step
            largest = torch.maximum(largest, steps.abs().max())
            total += steps.round_().to(torch.int64).sum(0)
        ensure(float(largest) < LARGEST_SUM, "every part is finite and within its public bound")
        return total

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the same sum in floats, for synthetic records; see `core.queries.sums.SyntheticProblem`."""
        ensure(other is None, "columns are asked about at one point")
        if isinstance(question, CellCounts | MagnitudeCounts):
            return looking.float_sum(
                question, facts, theta, looking.Blocks(self._looked_at(None), 1, self._values.device)
            )
        assert isinstance(question, Tabled), "columns answer questions about columns"
        if isinstance(question, TableCounts):
            return self._counts(question, None).double()
        return torch.cat(list(self._parts(question, None))).sum(0)

    def _blocks(self, included: Tensor | None, numbers: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield values and presence, a part at a time, on a GPU many: `numbers` are made of each record."""
        device, size = self._present.device, PART_UNITS
        present = self._present if included is None else self._present & sent(included, device)
        if device.type != "cpu":
            size *= max(1, self._numbers // (max(self.dimension, numbers) * PART_UNITS))
        for first in range(0, self.units, size):
            yield self._values[first : first + size], present[first : first + size]

    def _looked_at(self, included: Tensor | None) -> Iterator[Records]:
        """Yield records as questions about columns of a model read them: values that are missing lie in no cell."""
        for values, present in self._blocks(included):
            weights = present.double()
            yield Records(values, torch.zeros_like(weights), weights, weights)

    def _counts(self, question: TableCounts, included: Tensor | None) -> Tensor:
        """Return how many records lie in each cell, int64."""
        total = torch.zeros(question.sets, dtype=torch.int64, device=self._values.device)
        with torch.inference_mode():
            for values, present in self._blocks(included):
                total += torch.cat([_counted(one, values, present) for one in question.partitions])
        return total

    def _parts(self, question: Summed, included: Tensor | None) -> Iterator[Tensor]:
        """Yield the float sums of some parts, shape (parts, entries)."""
        with torch.inference_mode():
            for values, present in self._blocks(included, question.shape(self.dimension)[0]):
                terms = torch.where(present.unsqueeze(-1), _terms(question, values), 0.0)
                for rows, parts in whole_parts(len(terms)):
                    yield by_part(terms[rows], 0, parts).sum(1)


def _counted(partition: Partition, values: Tensor, present: Tensor) -> Tensor:
    """Return how many records lie in each cell of a partition; its last cell counts those without a value.

    Rows are not selected: the numbers of either kind are private, and shapes and times must not depend on them.
    """
    place, known = torch.zeros(len(values), dtype=torch.int64, device=values.device), torch.ones_like(present)
    for axis in partition.axes:
        column = values[:, axis.column]
        known = known & column.isfinite()
        # Zero in place of NaN, whose cast to an integer is not defined.
        place = place * axis.cells + _cell(axis, torch.where(known, column, 0.0))
    last = partition.cells - 1
    place = torch.where(known, -1 if partition.only_missing else place, last)
    counted = present & (place >= 0)
    return torch.bincount(torch.where(counted, place, last + 1), minlength=last + 2)[: last + 1]


def _cell(axis: Axis, column: Tensor) -> Tensor:
    """Return in which cell each finite value lies."""
    if axis.values is not None:
        return column.clamp(0.0, axis.values - 1.0).to(torch.int64)
    edges = constants(axis.edges, column.device)
    return torch.searchsorted(edges, column.contiguous(), right=True)  # on an edge: the cell above


def _scores(cut: Cut, values: Tensor) -> Tensor:
    """Return (value - centre)/reach, shape (m,), NaN where the value is missing."""
    score = ((values[:, cut.column] - cut.centre) / cut.reach).clamp(-LARGEST_SCORE, LARGEST_SCORE)
    return torch.where(score.isnan(), score, ordinary(score))


def _terms(question: Summed, values: Tensor) -> Tensor:
    """Return each record's term, shape (m, ...); zeros for a record that lacks a value which it needs."""
    if isinstance(question, CutSums):
        terms: list[Tensor] = []
        for column in question.columns:
            score = _scores(column, values)
            known, score = score.isfinite(), torch.where(score.isfinite(), score, 0.0)
            z = score.clamp(-1.0, 1.0)
            found = {"one": torch.ones_like(z), "value": z, "square": z * z}
            if column.rest is not None:
                r = ((score - z) / column.rest).clamp(-1.0, 1.0)
                found |= {"rest": r, "rest_square": r * r}
            terms += [torch.where(known, found[name] * sqrt(part), 0.0) for name, part in parts_of(column).items()]
        return torch.stack(terms, -1)
    scores = torch.stack([_scores(column, values) for column in question.columns], -1)
    known = scores.isfinite().all(-1)
    cut = torch.where(known.unsqueeze(-1), scores, 0.0).clamp(-1.0, 1.0)
    match question:
        case CutProducts():
            table = torch.cat((torch.ones_like(cut[:, :1]), cut), -1)
            first, second = torch.triu_indices(table.shape[-1], table.shape[-1], device=values.device)
            products = table[:, first] * table[:, second]
        case InfluenceSquares():
            products = _influences(question, cut)
        case _:
            assert_never(question)
    return torch.where(known.unsqueeze(-1), products, 0.0)


def _influences(question: InfluenceSquares, cut: Tensor) -> Tensor:
    """Return min(1, squared influence/cap) of each record on each pair's correlation."""
    columns: tuple[StandardCut, ...] = question.columns
    mean = constants(tuple(column.mean for column in columns), cut.device)
    deviation = constants(tuple(column.deviation for column in columns), cut.device)
    standard = ordinary(((cut - mean) / deviation).clamp(-LARGEST_SCORE, LARGEST_SCORE))
    first, second = torch.triu_indices(len(columns), len(columns), 1, device=cut.device)
    one, other = standard[:, first], standard[:, second]
    correlation = constants(question.correlations, cut.device)
    influence = (one * other - correlation * (one.square() + other.square()) / 2).abs().clamp(max=LARGEST_SCORE)
    return (ordinary(influence).square() / question.cap).clamp(max=1.0)
