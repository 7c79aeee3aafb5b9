"""Sums with public arguments of their own: counts of records in sets, and sums over re-encoded rows.

Counts are integers, so nothing is rounded. A count is a whole multiple of part steps, and the grid's sensitivity covers
it with its margin.

Re-encoded rows. A block's rows are multiplied by the encoding, whose entries are public. Row i of the product depends
on record i, the encoding and public shapes only, as a margin does (`core.queries.sums.blocks`). Rows that are not
finite or beyond the largest norm count as zero. Weights and cuts are made of the very rows that enter the products, so
each term's exact norm is at most the question's bound, whatever rounding the encoding met; sums err by what `blocks`
charges.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple, assert_never

import torch
from torch import Tensor

from core.base.errors import ensure
from core.data.limits import LARGEST_SUM
from core.losses.counts import CutPoisson
from core.losses.counts_torch import CutPoissonRecords
from core.losses.records import ordinary, per_record, record_weights
from core.losses.weights import Mallows
from core.privacy.facts import Facts, Ranges
from core.queries.banded import BandGradients, BandScores, BandTotals
from core.queries.classes import ClassCounts, ClassCurvature, ClassGradient, ClassMoments
from core.queries.gradients import ClassSum, Counted, Looked, Reencoded
from core.queries.looks import (
    CellCounts,
    IntegerCounts,
    LinearResidualCounts,
    MagnitudeCounts,
    ProductMagnitudeCounts,
    ResidualMagnitudeCounts,
    SecondMoments,
    ValueCounts,
    WeightSums,
)
from core.queries.reencoded import ReencodedCurvature, ReencodedGradient
from core.queries.sums.band_sums import band_sum
from core.queries.sums.blocks import BLOCK_NUMBERS, clean
from core.queries.sums.class_sums import EncodedRows, class_sum
from core.queries.sums.parts_at_once import by_part, sent, whole_parts
from core.queries.sums.terms import Records, constants, matvec, mirror

_Sized = MagnitudeCounts | LinearResidualCounts | ProductMagnitudeCounts | ResidualMagnitudeCounts


class Blocks(NamedTuple):
    """Records block by block, how many blocks make a part, and where records are."""

    blocks: Iterator[Records]
    in_part: int
    device: torch.device


def integer_sum(question: Looked, facts: Facts, theta: Tensor, step: float, records: Blocks) -> Tensor:
    """Return the sum over records, int64, in steps, of the question's shape.

    Args:
        question: the sum to make.
        facts: public; with ranges for counts of columns.
        theta: public, shape (p,), or (p + 1, p) for a point above an encoding; a multinomial model's point is longer
            than its rows, and the encoding is in the first p columns.
        step: a power of two; at most 1 for counts.
        records: records left out have weight zero.
    """
    theta = sent(theta, records.device)
    if isinstance(question, Counted):
        unit = round(1 / step)
        ensure(unit * step == 1, "a count is a whole number of steps")
        return _counted(question, facts, theta, records) * unit
    total = torch.zeros(question.shape(facts.dimension), dtype=torch.int64, device=records.device)
    largest = total.new_zeros((), dtype=torch.float64)  # of all parts: a GPU is waited for once
    for parts in _parts(question, theta, records):
        steps = parts / step
        largest = torch.maximum(largest, steps.abs().max())
        total = total + steps.round_().to(torch.int64).sum(0)
    ensure(float(largest) < LARGEST_SUM, "every part is finite and within its public bound")
    return _mirrored(total)


def _mirrored(total: Tensor) -> Tensor:
    """Return a vector as it is, and of a square the symmetric matrix that agrees with it above its diagonal."""
    return mirror(total) if total.ndim > 1 else total


def float_sum(question: Looked, facts: Facts, theta: Tensor, records: Blocks) -> Tensor:
    """Return the same sum in floats, for synthetic records; arguments as `integer_sum`."""
    theta = theta.to(records.device)
    if isinstance(question, Counted):
        return _counted(question, facts, theta, records).double()
    return _mirrored(torch.cat(list(_parts(question, theta, records))).sum(0))


def _counted(question: Counted, facts: Facts, theta: Tensor, records: Blocks) -> Tensor:
    """Return counts of records in each set, int64."""
    assert facts.ranges is not None, "the planner says where columns lie"
    total = torch.zeros(question.sets, dtype=torch.int64, device=records.device)
    for block in records.blocks:
        with torch.inference_mode():
            total += _counts(question, facts.ranges, theta, block)
    return total


def _counts(question: Counted, ranges: Ranges, theta: Tensor, block: Records) -> Tensor:  # noqa: C901, PLR0911, PLR0912 - one a kind
    """Return the counts in one block."""
    present = block.weights > 0
    match question:
        case CellCounts(of="target"):
            numbers = [(block.target, *ranges.target)]
            return _in_cells(numbers, present, question.level, question.cells)
        case CellCounts():
            places = ranges.places("number")
            ensure(len(places) == question.read, "cells are named for every numeric column")
            numbers = [(block.features[:, at], ranges.lower[at], ranges.upper[at]) for at in places]
            return _in_cells(numbers, present, question.level, question.cells)
        case IntegerCounts():
            ensure(ranges.few == question.values, "all columns of few values are read together")
            return _by_value(block.features, present, ranges)
        case LinearResidualCounts():
            margin = (block.features @ theta[1:].mT) @ theta[0]
            residual = (block.target - question.target_centre) / question.target_unit - margin
            sizes = [(residual.abs(), question.top)]
        case ResidualMagnitudeCounts():
            margin = (block.features @ theta[1:].mT) @ theta[0]
            mean = torch.exp(margin if block.offset is None else margin + block.offset)
            weight = (question.rate_cap / mean).clamp(max=1.0)
            sizes = [((mean.clamp(max=question.rate_cap) - weight * block.target).abs(), question.top)]
        case MagnitudeCounts(of="target"):
            ensure(question.columns == 1, "the target is one column")
            sizes = [((block.target + 0.5).abs(), ranges.target[1] + 0.5)]
        case MagnitudeCounts(of="weights"):
            ensure(question.columns == 1, "the weights are one column")
            assert block.sampling is not None, "asked where records have sampling weights"
            sizes = [(block.sampling, 1.0)]
        case MagnitudeCounts():
            places = ranges.places("number")
            ensure(len(places) == question.read, "all numeric columns are read together")
            sizes = [((block.features[:, at] - theta[at]).abs(), ranges.upper[at] - ranges.lower[at]) for at in places]
        case ProductMagnitudeCounts():
            places = ranges.places("product")
            ensure(len(places) == question.read, "all products of centred columns are read together")
            encoding = theta[1:].index_select(0, constants(places, theta.device, torch.int64))
            encoded = block.features @ encoding[:, : block.features.shape[-1]].mT
            sizes = [(encoded[:, at].abs(), 1.0) for at in range(len(places))]
        case ClassCounts():
            sure = torch.where(present, block.target, 0.0).to(torch.int64)
            return _tallied(sure, present, question.classes)
        case ValueCounts(of="target"):
            ensure(question.columns == 1, "the target is one column")
            return (present & (block.target > sum(ranges.target) / 2)).sum().reshape(1)
        case ValueCounts():
            places = ranges.places("two")
            ensure(len(places) == question.read, "all two-valued columns are read together")
            device = block.features.device
            middles = constants(tuple((ranges.lower[at] + ranges.upper[at]) / 2 for at in places), device)
            chosen = block.features.index_select(1, constants(places, device, torch.int64))
            return (present.unsqueeze(-1) & (chosen > middles)).sum(0)
        case _:
            assert_never(question)
    return torch.cat([_by_size(size, present, top, question) for size, top in sizes])


def _in_cells(
    numbers: list[tuple[Tensor, float, float]], present: Tensor, level: int, cells: tuple[tuple[int, ...], ...]
) -> Tensor:
    """Return how many present numbers lie in each named cell of each range, column after column."""
    found, last = [], 2.0**level - 1
    for (values, lower, upper), named in zip(numbers, cells, strict=True):
        wanted = constants(named, values.device)
        cell = ((values - lower) * (2.0**level / (upper - lower))).floor().clamp(0.0, last)
        place = torch.searchsorted(wanted, cell).clamp(max=len(named) - 1)
        # A value that is missing is NaN, which equals no cell.
        found.append(_tallied(place, present & (wanted[place] == cell), len(named)))
    return torch.cat(found)


def _by_value(features: Tensor, present: Tensor, ranges: Ranges) -> Tensor:
    """Return how many present records have each value of each column of few values, column after column."""
    found = []
    for at, values in zip(ranges.places("few"), ranges.few, strict=True):
        own = features[:, at]
        place = ((own - ranges.lower[at]) / ranges.step(at)).round().clamp(0.0, values - 1.0)
        found.append(_tallied(place.to(torch.int64), present & own.isfinite(), values))
    return torch.cat(found)


def _by_size(sizes: Tensor, present: Tensor, top: float, question: _Sized) -> Tensor:
    """Return how many present sizes lie in each interval."""
    # The logarithm of size zero is minus infinity, which the clamp puts into the last interval.
    place = ((sizes / top).log2() * -question.per_octave).floor()
    place = place.clamp(0.0, question.bins - 1.0)
    return _tallied(place.to(torch.int64), present & sizes.isfinite(), question.bins)


def _tallied(place: Tensor, counted: Tensor, sets: int) -> Tensor:
    """Return how many records are counted in each set; those that are not lie in one more, which is left out.

    Rows are not selected: the numbers of either kind are private, and shapes and times must not depend on them.
    """
    return torch.bincount(torch.where(counted, place, sets), minlength=sets + 1)[:sets]


def _parts(question: Reencoded, theta: Tensor, records: Blocks) -> Iterator[Tensor]:
    """Yield the float sums of some parts, shape (parts, ...), the others being the question's."""
    blocks = records.blocks
    while some := list(islice(blocks, records.in_part)):
        with torch.inference_mode():
            total = _part_sums(question, theta, some[0])
            for block in some[1:]:
                total = total + _part_sums(question, theta, block)
        yield total


def _part_sums(question: Reencoded, theta: Tensor, block: Records) -> Tensor:
    """Return the sums of a block's terms, of each part in it."""
    block = _trimmed(question, block)
    rows = _reencoded(question, theta[1:, : block.features.shape[-1]], block)
    if block.features.device.type == "cpu":
        return _term_sum(question, theta, rows, block.sampling).unsqueeze(0)
    found = []
    for some, parts in whole_parts(len(block.features)):
        features, target, norms, weights = (by_part(one[some], 0, parts) for one in rows[:4])
        beside = (None if one is None else by_part(one[some], 0, parts) for one in (rows.offset, block.sampling))
        offset, sampling = beside
        found.append(_term_sum(question, theta, EncodedRows(features, target, norms, weights, offset), sampling))
    return torch.cat(found) if len(found) > 1 else found[0]


def _trimmed(question: Reencoded, block: Records) -> Records:
    """Return a block whose sampling weights are cut where the question says, over that cut."""
    cut = 1.0 if isinstance(question, ClassSum) else question.sampling_cut
    if block.sampling is None or cut == 1:
        return block
    return block._replace(sampling=(block.sampling / cut).clamp(max=1.0))


def _term_sum(question: Reencoded, theta: Tensor, rows: EncodedRows, sampling: Tensor | None) -> Tensor:
    """Return the sum of some rows' terms, or of those of each part, the first axis."""
    match question:
        case WeightSums(weight_bound=most):
            # Norms are upper bounds, so that the product may pass t^2 by roundings.
            once = (rows.weights * rows.norms * rows.norms).clamp(max=most**2)
            sums = [once.sum(-1), (once * rows.weights).sum(-1)]
            if question.sampled:
                assert sampling is not None, "asked where records have sampling weights"
                counted = torch.where(rows.weights > 0, sampling, 0.0)
                sums += [most**2 * counted.sum(-1), most**2 * counted.square().sum(-1)]
            return torch.stack(sums, -1)
        case SecondMoments():
            beside = [_cut(rows, rows.target, question.target_centre, question.target_unit)]
            if question.offset_unit is not None:
                assert rows.offset is not None, "asked where there is an offset"
                beside.append(_cut(rows, rows.offset, question.offset_centre, question.offset_unit))
            table = torch.cat((rows.features, torch.stack(beside, -1)), -1)
            return table.mT @ (table * rows.weights.unsqueeze(-1))
        case ReencodedGradient():
            return matvec(rows.features.mT, _numbers(question, rows, theta[0]))
        case ReencodedCurvature():
            limit = question.norm_bound / rows.norms / rows.norms
            numbers = torch.minimum(_numbers(question, rows, theta[0]), limit)
            return rows.features.mT @ (rows.features * numbers.unsqueeze(-1))
        case ClassMoments() | ClassGradient() | ClassCurvature():
            return class_sum(question, rows, theta[0])
        case BandTotals() | BandGradients() | BandScores():
            return band_sum(question, rows, theta[0])
    assert_never(question)


def _reencoded(question: Reencoded, encoding: Tensor, block: Records) -> EncodedRows:
    """Return a block's rows in the public encoding, those that do not count as zeros."""
    features = (block.features @ encoding.mT).contiguous()
    norms, kept = clean(features, block.weights > 0, BLOCK_NUMBERS if features.is_cpu else features.numel())
    kept &= norms > 0  # a row of zeros adds nothing
    weights = record_weights(norms, Mallows(bound=question.weight_bound))
    if block.sampling is not None:  # at most 1, so every bound holds as without
        weights = ordinary(weights * block.sampling)
    return EncodedRows(features, block.target, norms, torch.where(kept, weights, 0.0), block.offset)


def _cut(rows: EncodedRows, numbers: Tensor, centre: float, unit: float) -> Tensor:
    """Return a number of each record between -1 and 1, zero for those that do not count."""
    return torch.where(rows.weights > 0, ((numbers - centre) / unit).clamp(-1.0, 1.0), 0.0)


@lru_cache(maxsize=8)
def _cut_poisson(loss: CutPoisson) -> CutPoissonRecords:
    """Return the loss with its public tables, which are copied to a device once and not for each block."""
    return CutPoissonRecords(loss)


def _numbers(question: ReencodedGradient | ReencodedCurvature, rows: EncodedRows, theta: Tensor) -> Tensor:
    """Return the number that multiplies each record's x or x x', zero where it is not finite."""
    loss = _cut_poisson(question.loss) if isinstance(question.loss, CutPoisson) else per_record(question.loss)
    margin = rows.features @ theta
    if rows.offset is not None:
        margin = margin + rows.offset
    target = (rows.target - question.target_centre) / question.target_unit
    bends = isinstance(question, ReencodedCurvature) and question.of == "hessian"
    found = (loss.curvature if bends else loss.score)(margin, target) * rows.weights
    found = ordinary(torch.where(margin.isfinite() & found.isfinite(), found, 0.0))
    squared = isinstance(question, ReencodedCurvature) and question.of == "score"
    return found.square() if squared else found
