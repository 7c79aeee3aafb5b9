"""Questions that wait together are answered together, and each as if it had been asked alone."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from api.batcher import MOST, Batcher
from core.base.errors import LedgerBusy


class Scribe:
    """Doubles numbers and writes down its rounds; a round may be held up, and some numbers cannot be doubled."""

    def __init__(self) -> None:
        self.rounds: list[list[int]] = []
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.go_on.set()

    def __call__(self, numbers: Sequence[int]) -> list[int | Exception]:
        self.rounds.append(list(numbers))
        self.begun.set()
        assert self.go_on.wait(10)
        if -2 in numbers:
            raise LedgerBusy("all must wait")
        if -1 in numbers:
            raise ValueError("a number that fells its whole round")
        return [KeyError("zero") if number == 0 else 2 * number for number in numbers]


class Careless(Batcher[int, int]):
    """The planted bug: an error that ends a round is the answer to every question in it."""

    def _answers(self, questions: Sequence[int]) -> Sequence[int | Exception]:
        try:
            return self._answer_all(questions)
        except ValueError as error:
            return [error] * len(questions)


async def ask_all(batcher: Batcher[int, int], numbers: Sequence[int]) -> list[int | BaseException]:
    return list(await asyncio.gather(*map(batcher.ask, numbers), return_exceptions=True))


def kinds(answers: Sequence[int | BaseException]) -> list[int | str]:
    return [type(answer).__name__ if isinstance(answer, BaseException) else answer for answer in answers]


def test_all_that_wait_are_one_round_in_their_order() -> None:
    scribe = Scribe()
    assert asyncio.run(ask_all(Batcher(scribe, "scribe"), range(1, 9))) == list(range(2, 18, 2))
    assert scribe.rounds == [list(range(1, 9))]


def test_the_first_goes_at_once_and_the_next_round_has_those_who_came_meanwhile() -> None:
    scribe = Scribe()

    async def come_one_after_the_other() -> list[int | BaseException]:
        batcher: Batcher[int, int] = Batcher(scribe, "scribe")
        scribe.go_on.clear()
        first = asyncio.create_task(batcher.ask(1))
        assert await asyncio.to_thread(scribe.begun.wait, 10)
        others = asyncio.create_task(ask_all(batcher, [2, 3]))
        await asyncio.sleep(0.01)
        scribe.go_on.set()
        return [await first, *await others]

    assert asyncio.run(come_one_after_the_other()) == [2, 4, 6]
    assert scribe.rounds == [[1], [2, 3]]


def test_a_round_has_a_bound() -> None:
    scribe = Scribe()
    asyncio.run(ask_all(Batcher(scribe, "scribe"), range(1, MOST + 3)))
    assert [len(numbers) for numbers in scribe.rounds] == [MOST, 2]


@pytest.mark.parametrize("bad", [-1, 0])
def test_one_that_cannot_be_answered_harms_no_other(bad: int) -> None:
    answers = asyncio.run(ask_all(Batcher(Scribe(), "scribe"), [1, bad, 3]))
    assert kinds(answers) == [2, "ValueError" if bad else "KeyError", 6]


def test_where_all_must_wait_all_are_told_at_once() -> None:
    scribe = Scribe()
    assert kinds(asyncio.run(ask_all(Batcher(scribe, "scribe"), [1, -2, 3]))) == ["LedgerBusy"] * 3
    assert len(scribe.rounds) == 1


def test_others_are_harmed_where_the_rest_is_not_asked_again() -> None:
    assert kinds(asyncio.run(ask_all(Careless(Scribe(), "scribe"), [1, -1, 3]))) == ["ValueError"] * 3


def test_whoever_leaves_takes_nobody_along() -> None:
    scribe = Scribe()

    async def one_leaves() -> list[int | BaseException]:
        batcher: Batcher[int, int] = Batcher(scribe, "scribe")
        scribe.go_on.clear()
        leaving, staying = (asyncio.create_task(batcher.ask(number)) for number in (1, 2))
        assert await asyncio.to_thread(scribe.begun.wait, 10)
        leaving.cancel()
        scribe.go_on.set()
        return [await staying, await batcher.ask(3)]

    assert asyncio.run(one_leaves()) == [4, 6]


def test_it_serves_one_loop_after_another() -> None:
    batcher: Batcher[int, int] = Batcher(Scribe(), "scribe")
    assert [asyncio.run(batcher.ask(number)) for number in (1, 2)] == [2, 4]
