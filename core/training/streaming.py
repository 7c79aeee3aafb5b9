"""The privacy filter of a stream: the first chunk of a pass pays for all of it, others say which units may be read.

A pass's batches share no unit, so all of them together cost what one answer does, in however many attempts they are
read. Its schedule is that price, then chunks that draw nothing; the next pass follows. Each chunk stands for an equal
number of units, by their places in the pass. A question pays for every chunk that its batch touches before it is read.
Only the first has a price; each payment carries the state so far.

Nothing is read twice in a pass. A chunk that is paid may have been read, whoever paid it, and one that is not was read
by nobody. A new attempt begins with the first unit of the first chunk that no attempt has paid. An earlier one has
lost its readings since the last payment and the rest of a chunk. These units are skipped at no cost, and the method
takes fewer steps. No chunk is paid twice, so that such jobs need no retry allowance. Passes of a single chunk have no
rest to go on with: of those an attempt begins after what was kept, and pays and reads again, as others do
(`core.training.oracles.begins_after`).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from operator import le

from core.base.errors import ensure
from core.oracle import EVERYTHING, Part
from core.privacy.events import NOTHING, Event, compose
from core.queries.sampling import StreamSampling
from core.training.draws import DrawCount
from core.training.ledger_filter import LedgerFilter, LedgerWriter, Price
from core.training.order import Payer


class StreamFilter(LedgerFilter):
    """Pays for questions about batches by the chunks that they touch; see `LedgerFilter` for what it shares.

    Args:
        writer: where chunks are paid.
        payers: the accounts, with cumulative prices of the chunks.
        schedule: for each pass the event of all of it, then nothing for each further chunk.
        sampling: the units of a chunk, and the number of passes.
        units: n.
        kept: the state of an earlier attempt, `Notes` packed.
        paid_chunks: after how many chunks this attempt goes on: those that earlier ones paid, kept or lost.
        charged: the events that earlier attempts paid for.
        stop: says whether this attempt was asked to stop; looked at before each chunk, where stopping loses nothing.
        draws: as `LedgerFilter`.

    Attributes:
        reach: units of a pass that have a chunk; no other is read.
        skipped: units at the start of the stream, passes one after the other, that this attempt may not read.
    """

    def __init__(
        self,
        writer: LedgerWriter,
        payers: Sequence[Payer],
        schedule: Sequence[Event],
        *,
        sampling: StreamSampling,
        units: int,
        kept: bytes | None,
        paid_chunks: int,
        charged: Mapping[Event, int],
        stop: Callable[[], bool] = lambda: False,
        draws: DrawCount | None = None,
    ) -> None:
        super().__init__(
            writer, payers, schedule, kept=kept, kept_chunks=paid_chunks, charged=charged, stop=stop, draws=draws
        )
        self._chunks, beyond = divmod(len(schedule), sampling.passes)
        ensure(beyond == 0, "passes have as many chunks each")
        ensure(
            all(event == NOTHING or not at % self._chunks for at, event in enumerate(schedule)),
            "the first chunk of a pass pays for all of it",
        )
        self._chunk = sampling.chunk
        self.reach = min(units, self._chunks * self._chunk)
        over, within = divmod(paid_chunks, self._chunks)
        self.skipped = over * self.reach + min(within * self._chunk, self.reach)
        # Of the pass under way this attempt draws again what is paid: its events stand side by side with earlier ones.
        self._before = self._price(compose(Counter(schedule[: over * self._chunks : self._chunks])))

    def _needed(self, price: Price, length: int) -> int:
        """Return up to which chunk this attempt's next batch reads.

        Raises:
            PrivacyInvariantError: the total passes what the stream costs so far, or the stream has no such batch.
        """
        # Batches of a pass share a price because no unit is in two of them.
        ensure(length > 0, "batches are read one after the other")
        # The last unit of the batch decides: a batch may end exactly where a chunk does.
        over, last = divmod(self.skipped + self._position + length - 1, self.reach)
        needed, priced = over * self._chunks + last // self._chunk + 1, over * self._chunks + 1
        within = needed <= len(self._schedule) and all(map(le, price, self._worth_of(priced)))
        ensure(within, "a draw never exceeds its price")
        return needed

    def affords(self, *events: Event, part: Part = EVERYTHING) -> bool:
        """Say whether the stream's price covers these draws, and a unit is left."""
        # A replayed answer reads no unit, so it needs none to be left.
        replays, behind = self.log.next_recalled is not None, self.skipped + self._position
        left = replays or self._paid < len(self._schedule) or behind % self.reach > 0
        return left and super().affords(*events, part=part)

    def may_stop(self, event: Event, part: Part = EVERYTHING) -> bool:
        """Say yes: the next attempt skips the rest of a paid chunk at no cost."""
        del event, part
        return True
