"""The ledger's meter for a stream: its first chunk pays for all of it, and the others say which batches may be read.

A stream's batches share no unit, so all of them together cost what one answer does, in however many attempts they are
read. Its schedule is that price, then chunks that draw nothing. Each chunk stands for as many questions, by their
places in the stream, and is paid before any of its batches is read: for nothing but the first, and with the state so
far all the same.

Nothing is read twice. A chunk that is paid may have been read, whoever paid it, and one that is not was read by nobody.
So a new attempt begins with the first batch of the first chunk that no attempt has paid. What an earlier one has lost
is one chunk's batches at most: they are skipped, which costs nothing, and the method takes fewer steps. No chunk is
paid twice, so that such jobs need no retry allowance.
"""

from collections.abc import Callable, Mapping, Sequence

from core.privacy.events import NOTHING, Event
from core.training.meter import LedgerMeter, Till
from core.training.order import Payer


class StreamMeter(LedgerMeter):
    """Covers questions about batches by the chunks they are in; see `LedgerMeter` for what it shares.

    Args:
        till: where chunks are paid.
        payers: the accounts, with cumulative prices of the chunks.
        schedule: the event of the whole stream, then nothing for each further chunk.
        chunk: questions that a chunk stands for.
        kept: what an earlier attempt left, `Notes` packed.
        paid_chunks: how many chunks were paid by earlier attempts, kept or lost.
        charged: the events that earlier attempts paid for.
        stop: says whether this attempt was asked to stop; looked at before each chunk, where stopping loses nothing.

    Attributes:
        skipped: batches at the start of the stream that this attempt may not read.
    """

    def __init__(
        self,
        till: Till,
        payers: Sequence[Payer],
        schedule: Sequence[Event],
        *,
        chunk: int,
        kept: bytes | None,
        paid_chunks: int,
        charged: Mapping[Event, int],
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        assert all(event == NOTHING for event in schedule[1:]), "the first chunk pays for the whole stream"
        super().__init__(till, payers, schedule, kept=kept, kept_chunks=paid_chunks, charged=charged, stop=stop)
        self._before = NOTHING
        self._chunk = chunk
        self._next = self.skipped = paid_chunks * chunk

    def cover(self, total: Event, position: int) -> None:
        """Pay for the chunk of this attempt's next batch, before it is read.

        Raises:
            StaleAttempt: the job is no longer ours.
            Drained: this attempt was asked to stop; the chunk is not paid, and what it was told is kept.
            AssertionError: the total passes what the stream costs, or the stream has no such batch.
        """
        assert not self._recalled, "what an earlier attempt was told comes before anything new"
        assert self.skipped + position == self._next + 1, "batches are read one after the other"
        assert self._within(self._price(total), 1), "what is drawn never passes what was priced"
        needed = self._next // self._chunk + 1
        self._pay_until(lambda chunks: chunks >= needed)
        self._next += 1

    def affords(self, total: Event) -> bool:
        """Say whether the stream's price covers `total`, and a chunk is left for its batch."""
        left = bool(self._recalled) or self._next < len(self._schedule) * self._chunk
        return left and super().affords(total)
