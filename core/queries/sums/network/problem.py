"""Clipped sums of every record's own gradient of a network, by parts of few rows.

One forward and one backward pass of a micro-batch give each layer's inputs a and slopes b, record by record, as floats.
The norm of a record's gradient g_i of all trained parameters is measured from those very floats. Then w_i g_i is added
up, w_i = min(1, C / |g_i|), by contractions that never hold the un-clipped sum. There is one norm for all parameters.
(For wide layers that a record meets at few places, the norm is measured from above, in double precision. The sum over
places is in double precision too, and the measure bounds its error: `core.queries.sums.network.grams`. The text below
holds there too.)

Terms. Record i adds w_i g_i to the sum, with g_i made of floats: outer products of float vectors, or rows of floats
(`core.queries.sums.network.terms`). The relative error of the measured norm is within 2^-13, that of w_i, rounded to
the gradients' precision, within 2^-23. The exact term's norm is thus at most C (1 + 2^-12), inside the C / (1 - 2^-10)
that the lattice charges. (Where squares underflow, 2^-50 is missing at most, since there are fewer than 2^23
parameters: no clip is below SMALLEST_CLIP.) Privacy does not depend on the distance of g_i from the true gradient: g_i
is a function of record i and of public values, and it is clipped.

Error. In a part of m rows a term passes through at most two roundings for its products and m - 1 for additions. Zeros
of records left out, and sums continued from one micro-batch to the next, add none.
`core.mechanisms.lattice.network_grid` charges for these, in single precision. Products that underflow err by less than
2^-80 each, the factors of outer products being at most LARGEST in norm, and so does what a trainer's processor flushes
to zero (`core.training.device`), below 2^-126. No sum is made in less than single precision.

Zero by selection. A record has weight zero if it is excluded, not included, or its gradient is not finite (or beyond
LARGEST). Before anything is added up, zeros replace its row, or its a and its weighted b. (Where a is the record itself
it is finite and stays, since zero times it is zero.) Before the pass, zeros overwrite features and target of a record
that is not included, so that it equals an excluded row (`core.queries.sums.network.slots`).

Same floats. A record's floats depend on that record, the point, its slot, and public shapes alone. Every layer maps
records one by one. Kernels compute each output from its own inputs in an order that shapes alone determine. The list of
rows is walked in micro-batches of public sizes, and no branch depends on a record. Neighbours therefore differ in the
one part that holds the changed record's slot, and all other parts' integers are the same.

On a GPU a pass holds many parts, as many as its memory has room for. The list is filled up to whole parts with slots
that are left out, which add zeros. The parts' sums are made by products of all parts at once, each of its own records,
and are checked once a sum.
"""

from collections.abc import Callable, Iterator
from typing import Final

import torch
from torch import Tensor

from core.base.errors import ensure
from core.models.network.layers import Embedding, Layer, Shape, output_of
from core.models.network.model import Loss, Train
from core.models.network.trained import start_parameters, trained_parameters
from core.privacy.facts import Facts
from core.queries.gradients import Gradient, GradientDifference, Question, summed
from core.queries.sums.network.differences import SMALLEST_BOUND, Measured, changes
from core.queries.sums.network.images import channels_back, channels_last
from core.queries.sums.network.kernels import repeatable
from core.queries.sums.network.losses import cleaned, losses_of, usable
from core.queries.sums.network.modules import ForwardPass, Given
from core.queries.sums.network.parts import OpenSum, closed, moved, truncated, write_truncated
from core.queries.sums.network.pass_sizes import micro_rows, most_of, numbers_of
from core.queries.sums.network.slots import Slots
from core.queries.sums.network.terms import LARGEST, LayerTerms, begin, exact_squares
from core.queries.sums.parts_at_once import sent
from core.queries.sums.terms import ones

SMALLEST_CLIP: Final = 2.0**-30
"""Clips below this are refused: beside them the squares that underflow would count."""

KERNEL_AXES: Final = 4
"""Of a convolution's weights; no other parameter has so many."""


class NetworkProblem:
    """Records behind an oracle, and a network: see `core.queries.sums.SyntheticProblem`.

    Args:
        features: float32 (float64 in studies), shape (n, numbers), or whole numbers, shape (n, positions), for networks
            that begin with an embedding. They become this object's: records that count as null are overwritten.
        target: shape (n,), on the same device: a class's number, or the number to predict.
        present: bool, shape (n,); False marks an excluded row.
        layers: the network.
        loss: of its outputs.
        given: the shape of one record.
        initial: the public start, shape (numbers of `start_parameters`,), float32 or, in studies, float64: the
            precision of everything that is computed.
        train: which parameters theta is the change of, in the order of `trained_parameters`.
        micro: rows of one forward and backward pass, a divisor or a multiple of the rows in a part; None: as many as
            MICRO_NUMBERS has room for, a public number.
    """

    replicates = None

    def __init__(
        self,
        features: Tensor,
        target: Tensor,
        present: Tensor,
        layers: tuple[Layer, ...],
        loss: Loss,
        given: Shape,
        initial: Tensor,
        *,
        train: Train = "all",
        micro: int | None = None,
    ) -> None:
        ensure(features.ndim == 2, "records are rows of numbers")  # noqa: PLR2004 - as the text says
        ensure(present.dtype == torch.bool, "presence is boolean")
        ensure(target.shape == present.shape == features.shape[:1], "every record has a target and a presence")
        ensure(micro is None or micro > 0, "a pass has rows")
        (outputs,) = output_of(layers, given)
        first = layers[0]
        self._tokens = first.tokens if isinstance(first, Embedding) else None
        started, moved = start_parameters(layers, given, train), trained_parameters(layers, given, train)
        ensure(initial.shape == (sum(one.size for one in started),), "a start has all parameters")
        self._layers, self._loss, self._given, self._micro = layers, loss, given, micro
        kept = present & usable(loss, target, outputs) & cleaned(features, self._tokens)
        features.masked_fill_(~kept.unsqueeze(-1), 0)
        squares = exact_squares(features) if self._tokens is None else None
        self._records = Slots(features, torch.where(kept, target, 0), kept, squares)
        pieces = initial.split([one.size for one in started])  # type: ignore[no-untyped-call] # torch's stub has no types
        self._start = {one.name: at.view(one.shape) for one, at in zip(started, pieces, strict=True)}
        self._moved = moved
        self._numbers, self._most = numbers_of(layers, given), most_of(features.device)
        self._offsets: dict[str, int] = {}
        self.dimension = 0
        for one in moved:
            self._offsets[one.name] = self.dimension
            self.dimension += one.size
        here = [] if features.is_cpu else [self._start[one.name].flatten() for one in moved]
        self._whole = torch.cat(here) if here else None  # one launch moves all of them

    @property
    def units(self) -> int:
        """n, excluded rows included."""
        return len(self._records.features)

    @property
    def _device(self) -> torch.device:
        """Where the records are."""
        return self._records.features.device

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
        """Return the sum of clipped gradients or of their changes, int64, in steps; see `core.queries.sums.Problem`.

        Parts are `facts.part_rows` rows of the list, or of all records. Memory beyond the records is that of one
        micro-batch and of a few times p numbers.
        """
        chosen = {"rows": rows, "included": included}
        if question.places == "list":
            return torch.stack([closed(self.open_sum(question, facts, one, step, **chosen)) for one in theta])
        return closed(self.open_sum(question, facts, theta, step, other=other, **chosen))

    def open_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        *,
        other: Tensor | None = None,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor | OpenSum:
        """Return the same sum at one point, or between two, with its last part as floats; on a GPU as integers."""
        (size, micro), read = self._sizes(question, facts), self.units if rows is None else len(rows)
        total = part = None
        with repeatable(self._device):
            if not self._records.features.is_cpu and micro % size == 0 and read:
                return self._arranged(self._all_parts(question, facts, theta, step, rows, included, other))
            last = -(-read // size)
            for number, part in enumerate(self._parts(question, facts, theta, rows, included, other), 1):
                if number == last:
                    break
                if total is None:
                    total = torch.empty_like(part, dtype=torch.int64)
                write_truncated(total, part, step, adding=number > 1)
        if part is None:  # an empty list, as one of several processes may hold
            part = self._room().zero_()
        return OpenSum(None if total is None else self._arranged(total), self._arranged(part), step)

    def _all_parts(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        rows: Tensor | None,
        included: Tensor | None,
        other: Tensor | None,
    ) -> Tensor:
        """Return the sum of parts, int64, shape (p,), weights with channels last, where a pass holds whole parts."""
        measure, (size, micro) = self._measure(question, facts, theta, other), self._sizes(question, facts)
        total = within = None
        for slots in self._batches(rows, included, micro, size):
            terms, scales, kept = measure(slots)
            with torch.no_grad():
                parts = scales.new_zeros(len(kept) // size, self.dimension)
                mask = ones(kept, torch.int32 if scales.dtype == torch.float32 else torch.int64)
                for one in terms:
                    one.put(parts, scales, mask)
                integers, fit = truncated(parts, step)
                total, within = (integers, fit) if total is None or within is None else (total + integers, within & fit)
        assert total is not None, "a row is read"
        assert within is not None, "a row is read"
        ensure(bool(within), "every part is finite and within its public bound")
        return total

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum of clipped gradients or of their changes, float64, (p,) or (R, p), for simulations."""
        if theta.ndim > 1:
            ends = [None] * len(theta) if other is None else other
            return torch.stack(
                [self.bounded_sum(question, facts, one, other=end) for one, end in zip(theta, ends, strict=True)]
            )
        total = torch.zeros(self.dimension, dtype=torch.float64, device=self._device)
        with repeatable(self._device):
            for part in self._parts(question, facts, theta, None, None, other):
                total += part
        return self._arranged(total)

    def _arranged(self, total: Tensor) -> Tensor:
        """Return a sum with its convolutions' weights in the order of theta."""
        for one in self._moved:
            if len(one.shape) == KERNEL_AXES:
                channels_back(total, self._offsets[one.name], one.shape)
        return total

    def _parts(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        rows: Tensor | None,
        included: Tensor | None,
        other: Tensor | None = None,
    ) -> Iterator[Tensor]:
        """Yield the float sum of each part, shape (p,), overwritten by the next one's; weights with channels last."""
        measure = self._measure(question, facts, theta, other)
        size, micro = self._sizes(question, facts)
        total, filled, width = self._room(), 0, min(size, micro)
        for slots in self._batches(rows, included, micro):
            terms, scales, kept = measure(slots)
            for start in range(0, len(kept), width):
                _add(terms, scales, kept, slice(start, start + width), total, begins=filled == 0)
                filled = (filled + width) % size
                if filled == 0:
                    yield total
        if filled:
            yield total

    def _measure(
        self, question: Question, facts: Facts, theta: Tensor, other: Tensor | None
    ) -> Callable[[Slots], Measured]:
        """Return what makes summands of some records."""
        ensure(torch.get_float32_matmul_precision() == "highest", "no sum is made in less than single precision")
        asked = summed(question)
        assert isinstance(asked, Gradient | GradientDifference), "networks have gradients and their changes only"
        ensure((other is not None) == isinstance(asked, GradientDifference), "changes are between two points")
        ensure(theta.shape == (self.dimension,), "parameters have shape (p,)")
        clip = asked.bound(facts) if isinstance(asked, Gradient) else asked.gradient_clip(facts)
        ensure(clip >= SMALLEST_CLIP, "a clip is an ordinary positive number")
        before = self._weights(theta)
        if other is None:
            return lambda slots: self._measured(before, slots, clip)
        ensure(other.shape == theta.shape, "both points are of one network")
        after, bound = self._weights(other), asked.bound(facts)
        ensure(bound >= SMALLEST_BOUND, "a cap is an ordinary positive number")

        def changed(slots: Slots) -> Measured:
            earlier = self._measured(before, slots, clip)
            return changes(earlier, self._measured(after, slots, clip), self.dimension, bound)

        return changed

    def _sizes(self, question: Question, facts: Facts) -> tuple[int, int]:
        """Return the rows of a part, and of one pass; one of them divides the other."""
        size = facts.part_rows
        assert size is not None, "sums of networks have parts of a public number of rows"
        pair = isinstance(question, GradientDifference)  # two passes, and rows of all parameters, also in double
        numbers = 2 * self._numbers + 4 * self.dimension if pair else self._numbers
        if not self._records.features.is_cpu:  # sums of all parts of a pass, in floats and as integers
            numbers += 1 + 3 * self.dimension // size
        micro = self._micro or micro_rows(size, numbers, *self._most)
        ensure(size % micro == 0 or micro % size == 0, "micro-batches tile parts, or parts them")
        return size, micro

    def block_rows(self, question: Question, facts: Facts) -> int:
        """Return after how many rows of a list a pass and a part both end: processes share lists there.

        On a GPU a part: a pass holds as many as a process is given.
        """
        sizes = self._sizes(question, facts)
        return max(sizes) if self._records.features.is_cpu else sizes[0]

    def _batches(self, rows: Tensor | None, included: Tensor | None, micro: int, whole: int = 1) -> Iterator[Slots]:
        """Yield records, `micro` at a time, filled up to whole parts of so many; their number is public."""
        size = self.units if rows is None else len(rows)
        ensure(included is None or included.shape == (size,), "every row that is read counts or does not")
        if more := -size % whole:
            rows, included = (
                None if one is None else torch.cat((one, one.new_zeros(more))) for one in (rows, included)
            )
        rows, included = (None if one is None else sent(one, self._device) for one in (rows, included))
        if more:
            places = torch.arange(size + more, device=self._device)
            rows = places.clamp(max=size - 1) if rows is None else rows
            included = places < size if included is None else included
            size += more
        for at in range(0, size, micro):
            some = slice(at, at + micro)
            left = None if included is None else included[some]
            yield self._records.some(some if rows is None else rows[some], left)

    def _weights(self, theta: Tensor) -> dict[str, Tensor]:
        """Return all parameters at theta, in the start's precision; public."""
        weights, theta = dict(self._start), sent(theta, self._device)
        all_moved = None if self._whole is None else moved(self._whole, theta)
        for one in self._moved:
            at, start = self._offsets[one.name], weights[one.name]
            some = slice(at, at + one.size)
            weights[one.name] = (
                all_moved[some].view(one.shape) if all_moved is not None else moved(start, theta[some].view(one.shape))
            )
        return {name: channels_last(at) if at.ndim == KERNEL_AXES else at for name, at in weights.items()}

    def _room(self) -> Tensor:
        """Return room for a part's sum."""
        precision = next(iter(self._start.values())).dtype
        return torch.empty(self.dimension, dtype=precision, device=self._device)

    def _measured(self, weights: dict[str, Tensor], slots: Slots, clip: float) -> Measured:
        """Return the terms of some records, their weights, and which of them count."""
        given = None if slots.squares is None else Given(slots.features, slots.squares)
        forward = ForwardPass(weights, self._offsets, given)
        outputs = forward.run(self._layers, slots.features.view(-1, *self._given))
        loss = losses_of(self._loss, outputs, slots.target)
        # The sum's slopes are each record's own, for no loss depends on another record.
        slopes = list(torch.autograd.grad(loss.sum(), [site.made for site in forward.sites]))
        terms: list[LayerTerms] = []
        with torch.no_grad():
            while slopes:  # what a layer was given and made is let go of as soon as its terms are there
                terms += forward.sites.pop(0).terms(slopes.pop(0))
            squares = torch.stack([one.squares for one in terms]).sum(0)
            kept = slots.kept & (squares <= LARGEST**2)  # false for NaN
            scales = torch.where(kept, (clip / squares.sqrt()).clamp_(max=1.0), 0.0)
        return terms, scales.to(outputs.dtype), kept


@torch.no_grad()
def _add(terms: list[LayerTerms], scales: Tensor, kept: Tensor, rows: slice, total: Tensor, *, begins: bool) -> None:
    """Add some records' weighted gradients of all layers, or write them where a part begins."""
    if begins:
        begin(terms, total, scales[rows], kept[rows], rows)
        return
    for one in terms:
        one.add(total, scales[rows], kept[rows], rows)
