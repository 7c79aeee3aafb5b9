"""Hops of an answer: Python calls and files that an `ask` passes, and those between it and the chain's entry.

A frame is a call of one of the project's functions, as `sys.setprofile` reports it; the resumption of a generator is
one. Comprehensions belong to the function around them. Libraries, tests and `KERNELS` count for nothing. Files are the
modules of these functions. The ceilings are what was measured on SQLite, and may only fall.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import pytest
import torch

import core
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.tables import Job
from core.jobs import jobs
from core.ledger import chain
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.mechanisms.generator import SystemGenerator
from core.oracle.full import FullOracle
from core.privacy.events import Repeated
from core.queries.gradients import Gradient
from core.training.ledger_filter import LedgerFilter
from core.training.ledger_writer import FencedLedgerWriter
from core.training.order import Payer
from tests.support.problems import facts, problem
from tests.support.store import TERMS, make_place, submit

CORE = f"{Path(core.__path__[0])}/"
KERNELS = tuple(f"{CORE}{room}/" for room in ("losses", "mechanisms", "native", "queries/sums"))
"""Rooms whose functions are arithmetic: they sum records, and draw and add noise."""

COMPREHENSIONS = ("<dictcomp>", "<genexpr>", "<listcomp>", "<setcomp>")
UNITS, DIMENSION, ASKED = 200, 3, Gradient(sigma=20.0)
CHUNK = Repeated(event=ASKED.event(), times=3)


@dataclass
class Trace:
    """The project's calls while it is open, by function, and the way to the last call of the chain's."""

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    way: tuple[str, ...] = ()

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Count a call; of one that appends to the chain, keep the functions that led there."""
        code = frame.f_code
        if event != "call" or not _counts(frame):
            return
        self.calls[code.co_filename, code.co_qualname] += 1
        if code is chain.append.__code__:
            self.way = tuple(reversed([one.f_code.co_qualname for one in _own(frame)]))

    def of(self, act: Callable[[], object]) -> "Trace":
        """Return this, with what an act calls."""
        sys.setprofile(self.note)
        try:
            act()
        finally:
            sys.setprofile(None)
        return self

    @property
    def frames(self) -> int:
        """The number of calls."""
        return self.calls.total()

    @property
    def files(self) -> int:
        """The number of modules."""
        return len({file for file, _ in self.calls})


def _counts(frame: FrameType) -> bool:
    """Say whether a frame is of a function of the project that is no kernel."""
    file, name = frame.f_code.co_filename, frame.f_code.co_name
    return file.startswith(CORE) and not file.startswith(KERNELS) and name not in COMPREHENSIONS


def _own(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the project's frames from one outwards."""
    while frame is not None:
        if _counts(frame):
            yield frame
        frame = frame.f_back


@pytest.fixture
def ask(database: Database, tmp_path: Path) -> Callable[[], object]:
    """The question that a job of three answers a chunk asks, of a scope that its witness knows."""
    settings = ServiceSettings(home=tmp_path)
    assert guard(database, Witness(settings.witness_path)) == []
    place, schedule = make_place(database), (CHUNK,) * 3
    with database.write() as session:
        name = submit(session, place, schedule, retry_allowance=1).id
    claim = database.transaction(jobs.claim, "w", 60.0)
    assert claim is not None
    with database.read() as session:
        frozen = session.get_one(Job, name).chunks.values()
        prices = [tuple(tuple(one[: len(TERMS.orders)]) for one in totals) for totals in frozen]
    writer = FencedLedgerWriter(database, claim, settings)
    payments = LedgerFilter(writer, [Payer(TERMS.orders, one) for one in prices], schedule)
    oracle = FullOracle(problem(UNITS, DIMENSION), facts(UNITS, DIMENSION), payments, SystemGenerator())
    theta = torch.zeros(DIMENSION, dtype=torch.float64)
    return lambda: oracle.ask(ASKED, theta)


CEILINGS = {"first": (197, 27), "paid": (39, 8), "later": (113, 23)}
"""Calls and files of the first paying answer, of one from a chunk that is paid, and of a later paying one."""

WAY = ("RecordsOracle.ask", "LedgerFilter.pay", "FencedLedgerWriter.pay", "Database.transaction", "pay", "append")
"""The hops of a payment."""


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_answer_passes_few_functions(ask: Callable[[], object]) -> None:
    first, paid, _, later = (Trace().of(ask) for _ in range(4))
    found = {name: (one.frames, one.files) for name, one in (("first", first), ("paid", paid), ("later", later))}
    assert all(one <= most for name in CEILINGS for one, most in zip(found[name], CEILINGS[name], strict=True)), found
    assert first.way == later.way == WAY
    assert paid.way == ()
