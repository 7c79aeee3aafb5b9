"""Audits of each site's real messages in a federated job: its noise, its questions, its readings, its payments.

From what its trainer wrote down (see `listened`), the records as they are stored, and the ledger. Each site is judged
alone and with the full noise of its own question; `check_own_noise` compares sites with each other.

False alarms, with noise from the system: 1e-7 for each site's law (variance and distribution at p < 5e-8 each), and
2.1e-8 for each z-score beyond 5.6. There are two such scores a site and one a pair: 5e-7 for an audit of three.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from scipy import stats
from torch import Tensor

from core.ledger import allowance
from core.ledger.claims import Claim
from core.methods.fits import iterate
from core.oracle import Answer
from core.oracle.federation import ANSWER
from core.oracle.noise import grid_for
from core.planning.planner import PlannedJob
from core.privacy.events import Event, Repeated, compose
from core.privacy.facts import Facts
from core.privacy.renyi import cost_nano
from core.queries.gradients import Question
from core.queries.sampling import StreamSampling
from core.queries.sums.linear import LinearProblem
from core.records.records import Encoded, open_records, read_records
from core.training.attempt import planned_of
from core.training.fitting import make_problem
from core.training.order import AttemptInput, stored_order
from tests.support.federated import Federation

LEAST_P = 5e-8
MOST_Z = 5.6
HEADER_BYTES, SCALE_BYTES = 41, 8
QUESTION: TypeAdapter[Question] = TypeAdapter(Question)


@dataclass(frozen=True)
class Asked:
    """One sum of records: the question, its points, and its rows."""

    question: Question
    theta: Tensor
    other: Tensor | None
    rows: Tensor | None


@dataclass(frozen=True)
class Transcript:
    """A client's whole transcript, and what only its own custodian can hold it against."""

    planned: PlannedJob
    order: AttemptInput
    asked: list[Asked]
    said: list[Tensor]
    """The answers that left, in the order of the sums."""
    encoded: Encoded

    def records(self, encoded: Encoded | None = None) -> LinearProblem:
        """Return the client's records, or others in their place."""
        problem = make_problem(self.planned, self.encoded if encoded is None else encoded, {})
        assert isinstance(problem, LinearProblem)
        return problem


def transcripts(job: Federation) -> list[Transcript]:
    """Return the readings and messages of each site of a job that was not disturbed."""
    told = [json.loads(line) for line in (job.service.home / "transcripts.jsonl").read_text().splitlines()]
    database, found = job.service.database(), []
    for name in job.clients:
        mine = [line for line in told if line["job"] == name]
        assert len({line["by"] for line in mine}) == 1, "one attempt of one process"
        row = job.row(name)
        claim = Claim(row.id, row.attempt, row.fence_epoch, row.fence, row.request_id)
        with database.read() as session:
            order = stored_order(session, claim, {})
        planned = planned_of(order)
        with open_records(job.service.settings, order.records) as file:
            encoded = read_records(file, planned.design)
        messages = [bytes.fromhex(line["said"]) for line in mine if "said" in line]
        answers = [one[HEADER_BYTES + SCALE_BYTES :] for one in messages if one[8] == ANSWER.number]
        said = [torch.frombuffer(bytearray(one), dtype=torch.float64) for one in answers]
        asked = [_asked(line["sum"]) for line in mine if "sum" in line]
        assert len(asked) == len(said) > 0, "an answer leaves for each sum, and for nothing else"
        found.append(Transcript(planned, order, asked, said, encoded))
    database.dispose()
    return found


def _asked(line: dict[str, object]) -> Asked:
    theta, other, rows = line["theta"], line["other"], line["rows"]
    return Asked(
        QUESTION.validate_python(line["question"]),
        torch.tensor(theta, dtype=torch.float64),
        None if other is None else torch.tensor(other, dtype=torch.float64),
        None if rows is None else torch.tensor(rows),
    )


def check_transcripts(job: Federation) -> None:
    """Fail unless every site's transcript is worth its charge, whatever the others' are."""
    found = transcripts(job)
    for one in found:
        check_single_use(one)
        check_payment(job, one)
        check_neighbours(one)
    check_own_noise(found)
    check_replay(found)


def noise(one: Transcript) -> NDArray[np.float64]:
    """Return the noise on each coordinate of all that a client said, over its own question's full sigma."""
    records, facts = one.records(), one.planned.facts
    drawn = []
    for asked, said in zip(one.asked, one.said, strict=True):
        terms, divisor = _terms(asked, facts)
        step = grid_for(asked.question, facts, terms).part_step
        exact = _sum(records, asked, facts, step).double() * step / divisor
        drawn.append((said - exact) / (asked.question.sigma * asked.question.sensitivity(facts)))
    return torch.cat(drawn).numpy()


def check_own_noise(found: Sequence[Transcript]) -> None:
    """Check the noise law of each site alone, and that no two have noise in common."""
    noises = [noise(one) for one in found]
    for drawn in noises:
        below = float(stats.chi2.cdf((drawn**2).sum(), drawn.size))
        assert 2 * min(below, 1 - below) > LEAST_P, f"full noise: {sqrt((drawn**2).mean()):.3f} of it"
        assert stats.kstest(drawn, "norm").pvalue > LEAST_P, "noise is Gaussian"
        for first in (0, 1):  # neighbours in pairs that share no draw: the z-score of each is normal
            former, later = drawn[first : first + (drawn.size - first) // 2 * 2].reshape(-1, 2).T
            assert abs(correlation(former, later)) < MOST_Z, "noise is drawn afresh"
    for place, drawn in enumerate(noises):
        for other in noises[:place]:
            assert abs(correlation(drawn, other)) < MOST_Z, "everybody's own noise"


def correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return the z-score of two streams' product: exactly normal where one is independent of the other."""
    return float(one @ other / np.linalg.norm(other))


def check_single_use(one: Transcript) -> None:
    """Each record is in at most one question of a pass."""
    sampling = one.planned.spec.optimizer.sampling(one.planned.facts)
    if not isinstance(sampling, StreamSampling):
        assert all(asked.rows is None for asked in one.asked), "everybody is read by every question"
        return
    rows = torch.cat([asked.rows for asked in one.asked if asked.rows is not None])
    counts = torch.bincount(rows, minlength=one.planned.facts.units)
    assert int(counts.max()) <= sampling.passes, "no record is read twice in a pass"
    assert all(asked.rows is not None and len(asked.rows) == asked.question.batch for asked in one.asked)


def check_payment(job: Federation, one: Transcript) -> None:
    """Its own ledger has charged what these questions cost, no more and no less, whoever else was asked."""
    row = job.row(one.order.claim.job_id)
    charged = allowance.charged(row, row.scope_id)
    orders = one.order.payers[0].orders
    assert list(cost_nano(drawn_by(one), orders)) == list(charged[: len(orders)]), "its own questions, and those alone"


def drawn_by(one: Transcript) -> Event:
    """Return what a single job with a client's questions would pay for."""
    events = Counter(asked.question.event() for asked in one.asked)
    sampling = one.planned.spec.optimizer.sampling(one.planned.facts)
    if not isinstance(sampling, StreamSampling):
        return compose(events)
    (event,) = events
    read = sum(asked.question.consumed(one.planned.facts) for asked in one.asked)
    return Repeated(event=event, times=-(-read // one.planned.facts.units))


def check_neighbours(one: Transcript, most: int = 4) -> None:
    """Were one record absent, integer sums at the very same points would differ by what is paid for at most."""
    facts, encoded = one.planned.facts, one.encoded
    longest = int(np.linalg.norm(encoded.features, axis=1).argmax())
    present = encoded.present.copy()
    present[longest] = False
    other = one.records(Encoded(encoded.features.copy(), encoded.target.copy(), present))
    records = one.records()
    chosen = [asked for asked in one.asked if asked.rows is None or bool((asked.rows == longest).any())]
    for asked in chosen[:most]:
        grid = grid_for(asked.question, facts, _terms(asked, facts)[0])
        gap = _sum(records, asked, facts, grid.part_step) - _sum(other, asked, facts, grid.part_step)
        moved = float((gap.double() / 2**grid.part_bits).norm())
        assert 0 < moved <= grid.sensitivity, "integer sums of neighbours are within what is paid for"


class Told:
    """An oracle without records: it gives recorded means again, and notes each question and its points."""

    def __init__(self, facts: Facts, means: Sequence[Answer]) -> None:
        self.facts, self._means, self.precision = facts, iter(means), torch.float64
        self._left = len(means)
        self.asked: list[Asked] = []

    def affords(self, question: Question, then: Question | None = None) -> bool:
        del question, then
        return self._left > 0

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        self.asked.append(Asked(question, theta, other, None))
        self._left -= 1
        return next(self._means)

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        return initial

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        del state, step


def check_replay(found: Sequence[Transcript]) -> None:
    """Check that each site's method asks the same questions at the same points from messages alone, without records."""
    means = list(_means(found))
    units = sum(one.planned.facts.units for one in found)
    for one in found:
        told = Told(one.planned.facts.model_copy(update={"units": units}), means)
        iterate(one.planned.spec.optimizer, told)  # type: ignore[arg-type] # all that a method without coins needs
        assert len(told.asked) == len(one.asked)
        for again, asked in zip(told.asked, one.asked, strict=True):
            assert again.question == asked.question, "what is asked is a function of what was told"
            assert torch.equal(again.theta, asked.theta), "where it is asked is a function of what was told"
            assert (again.other is None) == (asked.other is None)
            assert again.other is None or asked.other is None or torch.equal(again.other, asked.other)


def _means(found: Sequence[Transcript]) -> Iterator[Answer]:
    """Yield the means of what all clients said, added up in the order of their places."""
    for said in zip(*(one.said for one in found), strict=True):
        total = said[0]
        for more in said[1:]:
            total = total + more
        yield Answer(total / len(found), 0.0)


def _terms(asked: Asked, facts: Facts) -> tuple[int, int]:
    """Return the cap on the number of terms of a sum, and what it is divided by."""
    units = asked.question.consumed(facts)
    return units, units


def _sum(records: LinearProblem, asked: Asked, facts: Facts, step: float) -> Tensor:
    return records.integer_sum(asked.question, facts, asked.theta, step, other=asked.other, rows=asked.rows)
