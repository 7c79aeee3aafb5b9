"""Questions that wait at the same time are answered together: one hop to a thread, one transaction, one sync of a disk.

A round begins once the event loop has gone through the arrived requests. The first question of an idle service goes at
once. Where others are about to ask, it goes with them: a round of one takes nearly as long as one of sixteen. It waits
for them no longer than half the time that the last round took, and .05 s. Those that arrive during a round make up the
next one. An idle service thus answers at once, and a busy one in few rounds.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Any, Final, Generic, TypeVar

from core.base.errors import DatabaseAway, LedgerBusy

Question = TypeVar("Question")
Answer = TypeVar("Answer")

MOST: Final = 64
"""Questions of one round, so that a round is short whatever waits."""
_DRY_SECONDS: Final = 100e-6
"""Of processor time: a turn of the event loop that took less had nothing to do."""
_SHARE: Final = 0.5
"""Share of the last round's time that a round waits at most for those who are about to ask."""
LONGEST_SECONDS: Final = 0.05
"""And no longer than this, however long the last one took: it may have waited for a lock."""


class Batcher(Generic[Question, Answer]):
    """Answers questions in rounds, one round at a time, in the order in which they came.

    Args:
        answer_all: called in a thread with the questions of a round; returns an answer to each, in order, or the
            exception that its asker is to see. Where it raises, each question is put to it again, alone, so that one
            which cannot be answered harms no other. A busy or absent database would keep each caller waiting as long as
            all of them, so all get the error.
        name: of the thread.
        behind: the batcher that answered these callers just before; while it works, more are about to ask here.
    """

    def __init__(
        self,
        answer_all: Callable[[Sequence[Question]], Sequence[Answer | Exception]],
        name: str,
        behind: "Batcher[Any, Any] | None" = None,
    ) -> None:
        self._answer_all = answer_all
        self._waiting: deque[tuple[Question, asyncio.Future[Answer]]] = deque()
        self._thread = ThreadPoolExecutor(1, name)  # its own: the pool of the endpoints may all be taken
        self._at_work: asyncio.Task[None] | None = None
        self._behind = behind
        self._patience_seconds = 0.0

    async def ask(self, question: Question) -> Answer:
        """Return the answer to one question, or raise what was returned in its place."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((question, answer))
        if self._working is None:
            self._at_work = loop.create_task(self._work(loop), context=Context())  # of no single request
        return await answer

    @property
    def _working(self) -> asyncio.Task[None] | None:
        """The task that answers, None where nobody waits."""
        return None if self._at_work is None or self._at_work.done() else self._at_work

    async def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        # No await lies between a false test and the task's end, so `ask` never misses a round.
        while self._waiting:
            await self._let_others_come()
            started = time.monotonic()
            # Taken after the wait, so that those who came meanwhile share the round.
            taken = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
            answers = await loop.run_in_executor(self._thread, self._answers, [question for question, _ in taken])
            for (_, waiting), answer in zip(taken, answers, strict=True):
                if waiting.done():  # whoever asked has gone
                    continue
                if isinstance(answer, Exception):
                    waiting.set_exception(answer)
                else:
                    waiting.set_result(answer)
            self._patience_seconds = min(_SHARE * (time.monotonic() - started), LONGEST_SECONDS)

    async def _let_others_come(self) -> None:
        """Wait until the event loop has nothing to do, and nobody waits for what comes before a question here."""
        until = time.monotonic() + self._patience_seconds
        while (left := until - time.monotonic()) > 0 and len(self._waiting) < MOST:
            # Processor time: while other threads hold the interpreter, the clock goes on, but the loop does not work.
            before = time.thread_time()
            await asyncio.sleep(0)
            if time.thread_time() - before > _DRY_SECONDS:
                continue
            working = None if self._behind is None else self._behind._working  # noqa: SLF001 - of this very class
            if working is None:
                return
            # asyncio.wait leaves the task alone at the timeout; wait_for would cancel the other batcher's round.
            await asyncio.wait([working], timeout=left)

    def _answers(self, questions: Sequence[Question]) -> Sequence[Answer | Exception]:
        try:
            return self._answer_all(questions)
        # Asked again one by one, each would wait as long as the whole round did.
        except (LedgerBusy, DatabaseAway) as error:
            return [error] * len(questions)
        except Exception as error:  # noqa: BLE001 - handed on to whoever asked
            if len(questions) == 1:
                return [error]
        return [answer for question in questions for answer in self._answers([question])]
