"""Questions that wait at the same time are answered together: one hop to a thread, one transaction, one sync of a disk.

The first question of an idle service goes at once, with all that arrived in the same turn of the event loop. Those that
arrive during a round make up the next one. Sixteen connections submit and poll four times as many jobs a second so as
one by one (decision 87).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from typing import Final, Generic, TypeVar

from core.base.errors import DatabaseAway, LedgerBusy

Question = TypeVar("Question")
Answer = TypeVar("Answer")

MOST: Final = 64
"""Questions of one round, so that a round is short whatever waits."""


class Batcher(Generic[Question, Answer]):
    """Answers questions in rounds, one round at a time, in the order in which they came.

    Args:
        answer_all: called in a thread with the questions of a round; returns an answer to each, in order, or the
            exception that its asker is to see. Where it raises, each question is put to it again, alone, so that one
            which cannot be answered harms no other. A busy or absent database would keep each caller waiting as long as
            all of them, so all get the error.
        name: of the thread.
    """

    def __init__(
        self,
        answer_all: Callable[[Sequence[Question]], Sequence[Answer | Exception]],
        name: str,
    ) -> None:
        self._answer_all = answer_all
        self._waiting: deque[tuple[Question, asyncio.Future[Answer]]] = deque()
        self._thread = ThreadPoolExecutor(1, name)  # its own: the pool of the endpoints may all be taken
        self._at_work: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Answer:
        """Return the answer to one question, or raise what was returned in its place."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((question, answer))
        if self._at_work is None or self._at_work.done():
            self._at_work = loop.create_task(self._work(loop), context=Context())  # of no single request
        return await answer

    async def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        # No await lies between a false test and the task's end, so `ask` never misses a round.
        while self._waiting:
            taken = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
            answers = await loop.run_in_executor(self._thread, self._answers, [question for question, _ in taken])
            for (_, waiting), answer in zip(taken, answers, strict=True):
                if waiting.done():  # whoever asked has gone
                    continue
                if isinstance(answer, Exception):
                    waiting.set_exception(answer)
                else:
                    waiting.set_result(answer)

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
