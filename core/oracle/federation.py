"""An oracle over oracles: sites answer from their own records, each with its own noise, and continue with the mean.

Source: algorithm 3 of Tao, Zhang, Yu, Cheng, Dressler and Wang (Second-order convergence in private stochastic
non-convex optimization). There a server averages. Here every site does, and runs the same method on the same means, so
that no party receives anything else.

Privacy, for each site alone and against all others (inter-client record-level privacy). Its oracle pays from its own
ledger and adds the full noise of its own question; only then does the answer leave. The others' messages, however they
were chosen, are public inputs to its next question. Its transcript is therefore that of a centralised job on its
records, and so is its price, whatever the others do. The noise of the mean is smaller by the square root of the number
of sites; that of each answer is not.

Lockstep. Before any site pays for a question, the first site sends its point, from which another's may differ by
rounding (`core.oracle.points`). Each site confirms that it has the same question, in the same round, and can afford it.
They agree on all other steps of an attempt in the same way. A message of an earlier round is dropped, and one about
anything else ends the attempt.

Transcripts. Sites keep the means that they received, with the state that the method made of them. Their methods are the
same, so of two transcripts the longer one begins with the other. A site that has kept less continues from another's
transcript.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from hashlib import sha256
from struct import Struct
from typing import Final, NoReturn, Protocol, TypeVar, final

import torch
from torch import Tensor

from core.base.errors import PeerLost, ensure
from core.oracle import (
    EVERYTHING,
    Answer,
    AnswerLog,
    Oracle,
    Part,
    PrivacyFilter,
    PublicRandomness,
    Release,
    Status,
    means,
    points,
)
from core.oracle.common_randomness import CommonRandomness, Count
from core.privacy.events import Event
from core.privacy.facts import Facts
from core.queries.gradients import Curvature, Gradient, GradientDifference, Looked, Question
from core.queries.hessians import Hessian, HessianProduct
from core.queries.sums.peer_group import PeerGroup

T = TypeVar("T")

TOLD: Final = "federation/told"
"""In a kept state: number of means that it was made of."""
_HEADER: Final = Struct(">QB32s")
_UNITS_BYTES: Final = 8
_MOST_UNITS: Final = 2**48
"""Of one client: all of them together are a number that tensors hold."""
_MOST_STALE: Final = 1000
"""Messages of one client, heard before, that are dropped in one round."""


@dataclass(frozen=True)
class Kind:
    """Subject of a round; both sides of a message name it."""

    number: int


READY: Final = Kind(1)
"""Everybody is about to pay for the same question."""
ANSWER: Final = Kind(2)
AFFORDS: Final = Kind(3)
RELEASE: Final = Kind(4)
FACTS: Final = Kind(5)
KEPT: Final = Kind(6)
"""State that an attempt may continue from; see `core.training.federated`."""
POINT: Final = Kind(7)
"""Where the next question is asked; see `core.oracle.points`."""


@final
class MessageRounds:
    """Rounds of messages: in each, everybody says one thing about one subject and hears everybody else's.

    Args:
        peers: the clients.
    """

    def __init__(self, peers: PeerGroup) -> None:
        self.peers: Final = peers
        self._number = 0

    def exchange(self, kind: Kind, subject: bytes, content: bytes) -> list[bytes]:
        """Return what everybody says, in the order of their places.

        Args:
            kind: of the round.
            subject: 32 bytes, a digest of what it is about.
            content: this site's message.

        Raises:
            PeerLost: somebody has gone, or is not in the same round about the same subject.
        """
        self._number += 1
        self.peers.send(_HEADER.pack(self._number, kind.number, subject) + content)
        places = range(self.peers.size)
        return [content if one == self.peers.place else self._hear(one, kind, subject) for one in places]

    def _hear(self, place: int, kind: Kind, subject: bytes) -> bytes:
        """Return another's message of this round; those of earlier rounds are dropped."""
        # Bounded: a faulty site must not hold this one up for good.
        for _ in range(_MOST_STALE):
            message = self.peers.receive(place)
            if len(message) < _HEADER.size:
                break
            number, about, digest = _HEADER.unpack_from(message)
            if number < self._number:
                continue
            if (number, about, digest) != (self._number, kind.number, subject):
                break
            return message[_HEADER.size :]
        raise PeerLost

    def all_say(self, kind: Kind, subject: bytes, *, true: bool) -> bool:
        """Say whether everybody says yes."""
        return all(received == b"\1" for received in self.exchange(kind, subject, bytes([true])))


class Pausing(Protocol):
    """A privacy filter that knows where to stop."""

    def may_stop(self, event: Event, part: Part = EVERYTHING) -> bool:
        """Say whether stopping before one more draw is paid loses nothing."""

    def stop_here(self) -> NoReturn:
        """Keep the means received and stop. Raises Drained."""


@final
class SiteLog:
    """The answer log of a site's own oracle: it holds states and no answer, for the federation notes the means.

    Args:
        own: the site's log, which holds both.
    """

    def __init__(self, own: AnswerLog) -> None:
        self._own = own

    def recall(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer | None:
        """Recall nothing: the federation recalls means."""

    def note(self, question: Question, theta: Tensor, answer: Answer, other: Tensor | None = None) -> None:
        """Note nothing: the federation notes means."""

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Hold a state."""
        self._own.keep(state, step)

    def resume(self) -> dict[str, Tensor] | None:
        """Return the last state."""
        return self._own.resume()


@final
class SiteFilter:
    """The privacy filter of a client's own oracle: it pays through the client's own, once everybody is ready to.

    Args:
        payments: the client's own.
        rounds: with the others.
        wanted: says whether this client was asked to stop.
        pausing: stops it; the privacy filter itself, as a rule. None: it goes on to its end.

    Attributes:
        log: states alone: sites continue from the means of all, not from their own answers.
        subject: a digest of the question that is being asked.
        peer_lost: whether it is known before the question that it cannot be answered together.
        asked: whether the client's own oracle was asked anything; before that nothing hangs on a record.
    """

    def __init__(
        self,
        payments: PrivacyFilter,
        rounds: MessageRounds,
        wanted: Callable[[], bool] = lambda: False,
        pausing: Pausing | None = None,
    ) -> None:
        self.own: Final = payments
        self.log = SiteLog(payments.log)
        self.rounds: Final = rounds
        self.subject = bytes(32)
        self.peer_lost = False
        self.asked = False
        self._wanted = wanted
        self._pausing = pausing

    def pay(self, event: Event, part: Part = EVERYTHING, length: int = 1) -> bool:
        """Pay, once everybody says that it is about to answer the same question and affords it.

        A site that was asked to stop reports it here, and all stop where it costs no site anything. A site that finds
        the others gone stops without them, where that costs it nothing.

        Raises:
            PeerLost: somebody has gone, or does not afford it, or asks something else; nothing was paid here.
            Drained: the means received are kept; nothing was paid here.
        """
        self.asked = True
        may_stop = self._pausing is not None and self._pausing.may_stop(event, part)
        try:
            stop = self._agree(affords=self.own.affords(event, part=part), may_stop=may_stop)
        except PeerLost:
            if not (stop := may_stop):
                raise
        if stop and self._pausing is not None:
            self._pausing.stop_here()
        return self.own.pay(event, part, length)

    def _agree(self, *, affords: bool, may_stop: bool) -> bool:
        """Say whether all of them stop before this question; they go on only where all afford it."""
        if self.peer_lost:
            raise PeerLost
        own = bytes((affords, self._wanted(), may_stop))
        received = self.rounds.exchange(READY, self.subject, own)
        if any(len(one) != len(own) for one in received):
            raise PeerLost
        afford, wanted, may = zip(*received, strict=True)
        if not all(afford):
            raise PeerLost
        return any(wanted) and all(may)

    def affords(self, *events: Event, part: Part = EVERYTHING) -> bool:
        """Say whether this client's reservation covers these draws besides those made."""
        return self.own.affords(*events, part=part)

    def close(self) -> Event:
        """Let nothing more be drawn and return what was."""
        return self.own.close()


@final
class FederatedOracle:
    """The mean over sites of their own noised answers; every site has one of these, and they are equal.

    The mean is unweighted, over clients: F is the mean of theirs, however many records each has. A client asks its own
    oracle a question with its own batch; sizes may differ from client to client, and so may the noise. Counts, moments
    and sums over re-encoded rows are averaged over units instead, each site's answer weighted by its public count.
    Results made of them, with their intervals, are as of all records together.

    Args:
        own: this client's oracle, on `payments`, or on another of its blocks.
        payments: of that oracle.
        name: the federation's; common randomness is made of it, so nothing secret may hang on them.

    Raises:
        PeerLost: somebody has gone, or has records that are not described alike.
    """

    def __init__(self, own: Oracle, payments: SiteFilter, name: str) -> None:
        self._own = own
        self._payments = payments
        self._rounds = payments.rounds
        self._name = name
        self._part = b""
        # An object, so that the copies that `block` makes count on it, too.
        self._answered = Count(_answered_in(payments.own.log.resume()))
        self.facts, self._shares = _common_facts(own.facts, self._rounds)
        self.randomness: PublicRandomness = CommonRandomness(name, self._answered)
        self.precision: Final = torch.float64  # what machines round otherwise shall add up to nothing: see `points`

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        """Return the mean of all sites' noised answers at theta, shape (p,), and at `other` for pairs.

        Its scale is that of the mean, from every site's own.

        Raises:
            PeerLost: somebody has gone, or asks something else. Where that is found out before paying, nobody pays.
            StaleAttempt: this client's job is no longer ours; it was not answered from its records.
        """
        sums = Gradient | GradientDifference | Curvature | Hessian | HessianProduct | Looked
        assert isinstance(question, sums), "a mean is taken of sums' answers only"
        common = _common(question)
        known = self._payments.own.log.recall(common, theta, other)
        if known is None:
            try:
                theta, other = self._agreed(common, theta, other)
            except PeerLost:
                self._payments.peer_lost = True  # which keeps what was told, where it may stop before it would pay
            # Set before the own oracle pays through this filter, which names the subject to the others.
            self._payments.subject = subject = self._subject(common, theta, other)
            own = self._own.ask(question, theta, other)
            known = self._mean(own, subject, self._shares if isinstance(question, Looked) else None)
            self._payments.own.log.note(common, theta, known, other)
        self._answered.count += 1
        return known

    def affords(self, question: Question, then: Question | None = None) -> bool:
        """Say whether all clients afford it, each its own; nobody has touched a record for that."""
        # Even a site that cannot afford it says so: the others wait for its message.
        own = self._own.affords(question, then)
        asked = [_text(_common(one)) for one in (question, then) if one is not None]
        return self._rounds.all_say(AFFORDS, _digest(self._part, *asked), true=own)

    def block(self, name: str) -> "FederatedOracle":
        """Return the federation over everybody's block of that name."""
        own, block = self._own.block(name), copy(self)
        block._own, block._part = own, name.encode()  # noqa: SLF001 - a copy of our own
        block.facts, block._shares = _common_facts(own.facts, self._rounds)  # noqa: SLF001 - as above
        return block

    def resume(self, initial: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the state that all clients go on from, or `initial` where there is none."""
        kept = self._payments.own.log.resume()
        return initial if kept is None else {name: value for name, value in kept.items() if name != TOLD}

    def keep(self, state: dict[str, Tensor], step: int) -> None:
        """Offer the state after `step` steps, as every site does."""
        ensure(TOLD not in state, "a method's state has names of its own")
        self._payments.own.log.keep({**state, TOLD: torch.tensor(self._answered.count)}, step)

    def release(self, value: T, status: Status) -> Release[T]:
        """Close this client's oracle and return the value with what was drawn there: that of all, but for rounding.

        Raises:
            PeerLost: somebody would release another value, or has gone.
        """
        released = self._own.release(value, status)
        text, numbers = points.parts_of(value)
        subject = _digest(status.value.encode(), text)
        self._first_of_all(RELEASE, subject, numbers)
        self._rounds.exchange(RELEASE, subject, b"")  # nobody has gone for what it heard
        return released

    def _agreed(self, question: Question, theta: Tensor, other: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return the first client's points in place of this one's, which must be the same to rounding."""
        own = [theta] if other is None else [theta, other]
        agreed = self._first_of_all(POINT, _digest(self._part, _text(question)), own)
        return agreed[0], None if other is None else agreed[1]

    def _first_of_all(self, kind: Kind, subject: bytes, own: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the numbers of the first client, which tells them to the others.

        Raises:
            PeerLost: they are farther from one's own than rounding, or somebody has gone.
        """
        leads = self._rounds.peers.place == 0
        received = self._rounds.exchange(kind, subject, points.told_by(own) if leads else b"")
        return own if leads else points.adopted(own, received[0])

    def _mean(self, own: Answer, subject: bytes, shares: Sequence[float] | None) -> Answer:
        """Tell everybody this client's answer and return the mean of all, alike or by their shares."""
        received = self._rounds.exchange(ANSWER, subject, means.told_by(own))
        answers = [means.heard(content, own.value.shape) for content in received]
        return means.mean(answers) if shares is None else means.weighted(answers, shares)

    def _subject(self, question: Question, theta: Tensor, other: Tensor | None) -> bytes:
        """Return a digest of what is asked, and where."""
        points = [point.contiguous().numpy().tobytes() for point in (theta, other) if point is not None]
        return _digest(self._part, _text(question), *points)


def _common(question: Question) -> Question:
    """Return what is the same of a question at all clients: everything but how many units it reads."""
    return question if question.batch is None else question.model_copy(update={"batch": 1})


def _common_facts(own: Facts, rounds: MessageRounds) -> tuple[Facts, list[float]]:
    """Return the facts of all sites together: the sum of their units, and all else as each has it.

    Beside them each site's share of the units, by place.

    Raises:
        PeerLost: somebody has gone, says of its records what others do not, or counts none.
    """
    alike = own.model_copy(update={"units": 1})
    received = rounds.exchange(
        FACTS, _digest(alike.model_dump_json().encode()), own.units.to_bytes(_UNITS_BYTES, "big")
    )
    counts = [int.from_bytes(units, "big") for units in received]
    if any(len(units) != _UNITS_BYTES for units in received) or not 0 < min(counts) <= max(counts) <= _MOST_UNITS:
        raise PeerLost
    return own.model_copy(update={"units": sum(counts)}), [count / sum(counts) for count in counts]


def _answered_in(state: Mapping[str, Tensor] | None) -> int:
    """Return how many means a kept state was made of."""
    return 0 if state is None else int(state[TOLD])


def _text(question: Question) -> bytes:
    return question.model_dump_json().encode()


def _digest(*parts: bytes) -> bytes:
    """Return 32 bytes that only these parts have, in this order."""
    return sha256(b"".join(len(part).to_bytes(8, "big") + part for part in parts)).digest()
