"""Compiled passes over many parts: the same bytes for every number of threads, in one process or several, in a fork."""

import os
import select
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import inf, nan

import pytest
import torch
from torch import Tensor

from core.oracle.noise import grid_for
from core.privacy.facts import PART_UNITS, Facts
from core.queries.gradients import Curvature, Gradient, GradientDifference, GradientNorm, Question, Secant
from core.queries.hessians import Hessian, HessianProduct
from core.queries.sums import passes, rows
from core.queries.sums.linear import LinearProblem
from core.queries.sums.rows import kernels_of
from core.queries.sums.sharded import shard_of
from tests.support.compiled import compiled_kernels, needs_compiler
from tests.support.problems import LOGISTIC, WEIGHTS, facts

pytestmark = needs_compiler

UNITS, WIDTH = 5 * PART_UNITS + 1003, 7
QUESTIONS: list[Question] = [
    Gradient(sigma=1.0),
    Gradient(sigma=1.0, clip=0.3),
    GradientNorm(sigma=1.0, clip=0.3),
    GradientDifference(sigma=1.0, cap=0.2, clip=0.5),
    Secant(sigma=1.0),
    Curvature(of="hessian", sigma=1.0),
    Curvature(of="score", sigma=1.0),
    Curvature(of="cubic", sigma=1.0),
    Hessian(sigma=1.0, clip=0.2),
    HessianProduct(sigma=1.0, clip=0.2),
]
THETA, OTHER = torch.linspace(-1, 1, 2 * WIDTH, dtype=torch.float64).view(2, WIDTH)
named = pytest.mark.parametrize("question", QUESTIONS, ids=lambda one: f"{one.kind} {getattr(one, 'of', '')}")


@pytest.fixture(autouse=True)
def many_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have threads for little, and this checkout's kernels."""
    monkeypatch.setattr(passes, "THREAD_NUMBERS", PART_UNITS)
    monkeypatch.setattr(rows, "KERNELS", kernels_of(compiled_kernels()))


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def data() -> tuple[Tensor, Tensor, Tensor]:
    """Rows of every size, some of them null, and some no numbers."""
    units, draws = UNITS, torch.Generator().manual_seed(11)
    x = torch.randn(units, WIDTH, generator=draws, dtype=torch.float64)
    x *= torch.exp2(torch.randint(-30, 20, (units, 1), generator=draws).double())
    x[::97], x[5::101] = 0.0, torch.inf
    y = (torch.rand(units, generator=draws) < 0.5).double()
    return x, y, torch.rand(units, generator=draws) < 0.9


def made(some: slice = slice(None), offset: Tensor | None = None) -> LinearProblem:
    given = (one[some].clone() for one in data())
    return LinearProblem(*given, LOGISTIC, WEIGHTS, offset=None if offset is None else offset[some].clone())


def public_facts() -> Facts:
    return facts(UNITS, WIDTH, LOGISTIC, weights=WEIGHTS).model_copy(update={"cubic_bound": 1.0})


def ask(records: LinearProblem, question: Question, **read: Tensor) -> Tensor:
    step = grid_for(question, public_facts(), UNITS).part_step
    other = OTHER if question.places == "pair" else None
    return records.integer_sum(question, public_facts(), THETA, step, other=other, **read)


def reads() -> list[dict[str, Tensor]]:
    """Everything, under a mask, a list and a list of which some is left out."""
    draws = torch.Generator().manual_seed(3)
    listed = torch.randperm(UNITS, generator=draws)[: 3 * PART_UNITS + 17]
    kept = torch.rand(UNITS, generator=draws) < 0.4
    return [{}, {"included": kept}, {"rows": listed}, {"rows": listed, "included": kept[: len(listed)]}]


@pytest.mark.parametrize(
    ("place", "read"), [(place, (place + k) % 4) for place in range(len(QUESTIONS)) for k in (0, 1)]
)
def test_bytes_are_the_same_for_every_number_of_threads_and_of_processes(place: int, read: int) -> None:
    """Each question of two ways to read: all, under a mask, a list, a list under a mask."""
    question = QUESTIONS[place]
    offset = torch.linspace(-1, 1, UNITS, dtype=torch.float64)
    for records, shift in ((made(), None), (made(offset=offset), offset)):
        selection = reads()[read]
        with threads(1):
            expected = ask(records, question, **selection)
        assert expected.any()
        assert expected.dtype == torch.int64
        for count in (2, 3):
            with threads(count):
                assert torch.equal(ask(records, question, **selection), expected), count
        if "rows" in selection:
            several = [
                {k: one[cut] for k, one in selection.items()} for cut in (slice(0, PART_UNITS), slice(PART_UNITS, None))
            ]
            assert torch.equal(sum(ask(records, question, **one) for one in several), expected)
            continue
        for size in (2, 8):
            total = torch.zeros_like(expected)
            for rank in range(size):
                held = shard_of(UNITS, rank, size)
                some = slice(held.start, held.stop)
                with threads(1 + rank % 2):
                    total += ask(made(some, shift), question, **{k: one[some] for k, one in selection.items()})
            assert torch.equal(total, expected), size


@named
def test_parts_err_by_no_more_than_is_charged(question: Question, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the walk in torch, on everything, masks and lists."""
    grid = grid_for(question, public_facts(), UNITS)
    for selection in reads():
        compiled = ask(made(), question, **selection)
        with monkeypatch.context() as without:
            without.setattr(rows, "KERNELS", None)
            walked = ask(made(), question, **selection)
        assert (compiled - walked).double().norm() * grid.part_step <= 2 * grid.error


def test_how_rows_are_cut_into_blocks_moves_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = []
    for numbers in (4 * WIDTH, 100 * WIDTH, 2**16, 2**22):
        monkeypatch.setattr(rows, "BLOCK_NUMBERS", numbers)
        sums += [ask(made(), Gradient(sigma=1.0, clip=0.3), **selection) for selection in reads()]
    assert all(torch.equal(one, sums[at % 4]) for at, one in enumerate(sums))


@pytest.mark.parametrize(("count", "numbers", "others"), [(2, PART_UNITS, 1), (3, PART_UNITS, 2), (8, PART_UNITS, 5)])
def test_threads_are_as_many_as_torch_may_have_and_parts_there_are(
    count: int, numbers: int, others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = counted(monkeypatch)
    monkeypatch.setattr(passes, "THREAD_NUMBERS", numbers)
    with threads(count):
        ask(made(), Gradient(sigma=1.0))
    assert started == [others]
    assert not any(one.name.startswith("farthing-parts") for one in threading.enumerate()), "none outlives a sum"


@pytest.mark.parametrize(("count", "numbers"), [(1, 1), (2, 2**30)])
def test_one_thread_starts_no_other_and_neither_does_little_work(
    count: int, numbers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = counted(monkeypatch)
    monkeypatch.setattr(passes, "THREAD_NUMBERS", numbers)
    with threads(count):
        ask(made(), Gradient(sigma=1.0))
    assert started == []


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many threads each sum will start, as they are started."""
    started: list[int] = []

    class Counted(ThreadPoolExecutor):
        def __init__(self, workers: int, name: str) -> None:
            started.append(workers)
            super().__init__(workers, name)

    monkeypatch.setattr(passes, "ThreadPoolExecutor", Counted)
    return started


@pytest.mark.parametrize("clip", [None, 0.3])
def test_past_its_public_bound_any_thread_s_part_ends_the_sum(clip: float | None) -> None:
    with threads(3), pytest.raises(AssertionError, match="public bound"):
        made().integer_sum(Gradient(sigma=1.0, clip=clip), public_facts(), THETA, 2.0**-80)
    assert not any(one.name.startswith("farthing-parts") for one in threading.enumerate())


@pytest.mark.parametrize("spoilt", [nan, inf, 1e300])
def test_a_record_moves_its_part_alone(spoilt: float) -> None:
    """A value that is no number is zero by selection: the sum is that without the record, to the last bit."""
    place = 3 * PART_UNITS + 77
    for question in QUESTIONS:
        sums = []
        for change in (0.0, spoilt):
            x, y, present = data()
            x[place] = change
            with threads(2):
                sums.append(ask(LinearProblem(x, y, present, LOGISTIC, WEIGHTS), question))
        bound = question.bound(public_facts()) if not isinstance(question, GradientNorm) else 0.3
        grid = grid_for(question, public_facts(), UNITS)
        if spoilt == 1e300:  # a row that counts, far as it is
            assert (sums[0] - sums[1]).double().norm() * grid.part_step <= bound * 1.001 + 2 * grid.error
        else:
            assert torch.equal(*sums)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_fork_sums_as_its_parent_did() -> None:
    """Trainers are forked: a process that has summed with threads leaves its children nothing to wait for."""
    records, question = made(), Gradient(sigma=1.0, clip=0.3)
    with threads(2):
        expected = ask(records, question)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover - another process
            told = b"?"
            try:
                torch.set_num_threads(2)
                told = b"1" if torch.equal(ask(records, question), expected) else b"0"
            finally:
                os.write(writing, told)
                os._exit(0)
        os.close(writing)
        try:
            assert select.select([reading], [], [], 30)[0], "it came to an end"
            assert os.read(reading, 1) == b"1"
        finally:
            os.close(reading)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_parts_that_are_not_rounded_each_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted bug: threads that add up floats over their parts, and round once: their bytes depend on who had which."""
    genuine = passes.add_rounded
    question = Gradient(sigma=1.0)

    class Late(passes.BlockSums):
        def add(self, start: int, stop: int) -> None:
            with pytest.MonkeyPatch.context() as inside:
                inside.setattr(passes, "add_rounded", lambda *_: None)
                super().add(start, stop)

        @property
        def total(self) -> Tensor:
            genuine(self._block.kernels, self._room.sums, self._step, self._total)
            return self._total

    with threads(1):
        expected = ask(made(), question)
        monkeypatch.setattr("core.queries.sums.linear.BlockSums", Late)
        assert not torch.equal(ask(made(), question), expected)
