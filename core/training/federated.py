"""One client's attempt at a federated job, in its own process: its records, ledger and noise, and a group of peers.

A client is a trainer like any other, with a claim, a fence, chunks and kept states of its own. It opens its own records
with its own key, the only one that it has. Its oracle pays from its own scope. It runs the method on the means that the
sites exchange. All of them end with the same release.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch

from core.base.errors import Diverged, Misled, PeerLost
from core.base.settings import ServiceSettings
from core.base.version import software
from core.db.database import Database
from core.inference.network import RELEASED, AnyReleased
from core.inference.released import Released
from core.jobs import federations, jobs, seats
from core.ledger.claims import Claim
from core.ledger.marks import MarkKey
from core.oracle import Answer
from core.oracle.federation import KEPT, TOLD, FederatedOracle, MessageRounds, SiteFilter
from core.planning.planner import PlannedJob
from core.privacy.reports import weakest_of
from core.queries.sums import Problem
from core.queries.sums.peer_group import Alone, DistributedPeerGroup, PeerGroup
from core.queries.sums.process_group import meet, receive_at
from core.records.records import open_records, read_records
from core.training.attempt import in_phase, pack_release, planned_here, unpack_release
from core.training.fitting import make_problem, train
from core.training.ledger_writer import FencedLedgerWriter
from core.training.network import PublicWeights
from core.training.notes import unpack
from core.training.oracles import make_filter, open_oracle
from core.training.order import AttemptInput, Drained, Phase, read_order
from core.training.seat import SiteConnection

MEETING_SECONDS = 120.0
"""Seconds to wait for processes that still load their libraries; longer than for a message, as a rule."""
_LOOK_SECONDS = 0.2
"""Between two looks for the place where clients of several machines meet."""
_TCP = "tcp://"
_COUNT_BYTES = 8
_WHOLE = 2**63
"""Counted by the site that has kept a complete release."""


def run(
    database: Database, settings: ServiceSettings, claim: Claim, seat: SiteConnection, stop: Callable[[], bool]
) -> None:
    """Carry out a client's attempt and hand in the release.

    Args:
        database: where the client's job is.
        settings: where the records are, and how many threads to use; they hold no key.
        claim: the attempt's right to the client's job, checked by every write.
        seat: in the peers.
        stop: says whether to stop where nobody loses anything.

    Raises:
        PeerLost: another client has gone, or says what it should not.
        Misled: another site sent an impossible message; the job has ended.
        Drained, StaleAttempt, LedgerFrozen, Diverged, Failed, MemoryError, NoGpu: as `core.training.attempt.run`.
    """
    torch.set_num_threads(settings.trainer_threads)
    torch.set_num_interop_threads(1)
    writer = FencedLedgerWriter(database, claim, settings, [MarkKey(bytes.fromhex(key)) for key in seat.mark_keys])
    with in_phase(Phase.OPENING):
        peers = take(seat, writer)
    try:
        with in_phase(Phase.OPENING):
            order = writer.ask(read_order)
            rounds = MessageRounds(peers)
            kept, teller = furthest(rounds, order.kept, most_known(order))
            released = unpack_release(kept)
        if released is None:
            released = _train(order, kept, teller, writer, settings, seat, rounds, stop)
    except Misled as misled:
        # Written through this site's own fence: the other one need not agree (decision 22).
        writer.database.transaction(federations.end_misled, claim, misled.number)
        raise
    except (Diverged, Drained):  # all of them alike: the others shall hear all that was said before
        leave(peers)
        raise
    with in_phase(Phase.PUBLISHING):
        writer.database.transaction(federations.finish, claim, released.model_dump(mode="json"))
    leave(peers)


def take(seat: SiteConnection, writer: FencedLedgerWriter) -> PeerGroup:
    """Meet the other clients of an attempt.

    Raises:
        PeerLost: somebody did not come in time, or has another key.
        Drained: the same, on several machines: networks between sites may be away, and that is no attempt to count.
        StaleAttempt: the attempt is over.
    """
    if seat.size == 1:
        return Alone()
    try:
        # Noised answers are on the CPU, whatever each client sums on.
        group = meet(
            seat.number,
            seat.size,
            seat.meeting or _far_meeting(seat, writer),
            key=bytes.fromhex(seat.key),
            patience_seconds=max(seat.patience_seconds, MEETING_SECONDS),
            device=torch.device("cpu"),
        )
    except (AssertionError, RuntimeError) as error:
        raise (PeerLost if seat.meeting else Drained) from error
    return DistributedPeerGroup(group, seat.patience_seconds)


def _far_meeting(seat: SiteConnection, writer: FencedLedgerWriter) -> str:
    """Return where clients of several machines meet: at the first one's, who notes it in the database for the others.

    Raises:
        RuntimeError: nobody has noted it in time, or it is taken.
        StaleAttempt: the attempt is over.
    """
    assert seat.host is not None, "a site with a session can be reached by the others"
    if seat.number == 0:
        address = f"{seat.host}:{receive_at(seat.port)}"
        writer.database.transaction(seats.announce, writer.claim, address)
        return f"{_TCP}{address}/0"
    deadline = time.monotonic() + MEETING_SECONDS
    while time.monotonic() < deadline:
        noted = writer.database.insist(_address, writer)
        if noted is not None:
            return f"{_TCP}{noted}/0"
        time.sleep(_LOOK_SECONDS)
    raise RuntimeError("nobody has said where to meet")


def _address(writer: FencedLedgerWriter) -> str | None:
    """Return what the first client has noted."""
    with writer.database.read() as session:
        return seats.address(session, writer.claim)


def leave(peers: PeerGroup) -> None:
    """Leave a group of peers once the others have every message; a peer that has left needs none."""
    if isinstance(peers, DistributedPeerGroup):
        try:
            peers.leave()
        except PeerLost:
            return


def most_known(order: AttemptInput) -> int:
    """Return how many means anybody can know, by this client's own ledger; a release that is complete aside.

    Its own answer is in each mean, and was paid for first. If its kept state covers all its payments, it has every
    mean. Means that it paid for and lost may be kept by others.
    """
    if not order.paid_chunks:
        return 0
    return _WHOLE if order.paid_chunks > order.kept_chunks else max(1, told_in(order.kept))


def furthest(rounds: MessageRounds, kept: bytes | None, most: int = _WHOLE) -> tuple[bytes | None, int]:
    """Return what all clients go on from, the longest of the transcripts that they have kept, and whose it is.

    Clients keep when they pay, each a little before or after the others, so that some have kept less. All received the
    same means and made the same state of them: one's kept state replaces the others' lost ones. A site that has kept
    less still pays for the chunks that its own ledger does not list as kept.

    Args:
        rounds: with the others.
        kept: by this client.
        most: means that anybody can know, see `most_known`.

    Raises:
        PeerLost: somebody has gone.
        Misled: somebody claims to know what nobody can, sends what is no transcript, or one that contradicts this
            client's.
    """
    own = rounds.peers.place
    counts = rounds.exchange(KEPT, bytes(32), told_in(kept).to_bytes(_COUNT_BYTES, "big"))
    claimed = [int.from_bytes(one, "big") for one in counts]
    for place, count in enumerate(claimed):
        # A complete release may exist wherever anything was paid: its chunks may be kept elsewhere.
        beyond = count > most and not (count == _WHOLE and most)
        if place != own and (len(counts[place]) != _COUNT_BYTES or count > _WHOLE or beyond):
            raise Misled(place)
    # Equal counts go to the first site, so that all of them choose the same one.
    best = max(range(len(claimed)), key=lambda place: (claimed[place], -place))
    if not claimed[best]:
        return None, own
    # Only the chosen site sends its transcript; the others send nothing.
    taken = rounds.exchange(KEPT, bytes(31) + b"\1", (kept or b"") if own == best else b"")[best]
    try:
        is_so = told_in(taken) == claimed[best] and agree(kept, taken)
    except Exception as error:  # another's bytes: whatever is wrong with them, it is not ours
        raise Misled(best) from error
    if not is_so:
        raise Misled(best)
    return taken, best


def agree(kept: bytes | None, taken: bytes) -> bool:
    """Say whether two transcripts tell the same of each mean that both tell of: means are the same bits everywhere."""
    own, other = _means(kept), _means(taken)
    return all(
        torch.equal(own[at].value, other[at].value) and own[at].scale == other[at].scale for at in own.keys() & other
    )


def _means(kept: bytes | None) -> dict[int, Answer]:
    """Return the means that were kept since a state, by their number; none of a release."""
    if kept is None or unpack_release(kept) is not None:
        return {}
    notes = unpack(kept)
    first = 0 if notes.state is None else int(notes.state[TOLD])
    return {first + number: noted.answer for number, noted in enumerate(notes.answers)}


def told_in(kept: bytes | None) -> int:
    """Return how many means what was kept is made of."""
    if kept is None:
        return 0
    if unpack_release(kept) is not None:
        return _WHOLE
    notes = unpack(kept)
    return len(notes.answers) + (0 if notes.state is None else int(notes.state[TOLD]))


def _train(
    order: AttemptInput,
    kept: bytes | None,
    teller: int,
    writer: FencedLedgerWriter,
    settings: ServiceSettings,
    seat: SiteConnection,
    rounds: MessageRounds,
    stop: Callable[[], bool],
) -> AnyReleased:
    """Make a release from the client's own records and the others' answers, and keep it.

    Raises:
        Misled: another site's kept state does not fit the method's questions.
    """
    with in_phase(Phase.OPENING):
        planned, weights = planned_here(order, settings)
        writer.database.transaction(jobs.mark_opened, order.claim, software())
        problem = _own_problem(planned, order, settings, seat, weights)
    with in_phase(Phase.TRAINING):
        going_on = replace(order, kept=kept)
        filters: list[SiteFilter] = []
        with blaming(None if kept is None or teller == seat.number else teller, filters):
            # Never stopped by itself: the sites stop together, through `SiteFilter`.
            payments = make_filter(planned, going_on, writer, lambda: False)
            filters.append(paying := SiteFilter(payments, rounds, stop, payments))
            alone = open_oracle(planned, going_on, problem, payments, shared=False, through=paying)
            oracle = FederatedOracle(alone, paying, seat.federation)
            own = train(planned, going_on, payments, oracle, weights)
        released = of_all(weakest(rounds, own), seat, oracle.facts.units)
    with in_phase(Phase.PUBLISHING):
        writer.keep(pack_release(released), released.steps)
    return released


@contextmanager
def blaming(teller: int | None, filters: Sequence[SiteFilter]) -> Iterator[None]:
    """Blame an error on the transcript's site, while only that site's messages have been replayed.

    Args:
        teller: the site whose messages are replayed; None: none.
        filters: this client's, once there is one; its oracle asks it first of all.

    Raises:
        Misled: another site's kept state does not fit the method's questions.
    """
    try:
        yield
    except (AssertionError, ArithmeticError, LookupError, TypeError, ValueError, RuntimeError) as error:
        # Once the site's own oracle was asked, an error may depend on its own records, and blames nobody.
        if teller is None or any(one.asked for one in filters):
            raise
        raise Misled(teller) from error


def of_all(released: AnyReleased, seat: SiteConnection, units: int) -> AnyReleased:
    """Return a release as one of so many units; nothing is claimed of one that a lost client has a part in."""
    claim = released.error_bound if seat.size == seat.asked else None
    whole = released.model_copy(update={"units": units, "error_bound": claim})
    if not isinstance(whole, Released) or whole.checks is None:
        return whole
    return whole.model_copy(update={"checks": whole.checks.model_copy(update={"foreseen": ()})})  # of one client alone


def _own_problem(
    planned: PlannedJob, order: AttemptInput, settings: ServiceSettings, seat: SiteConnection, weights: PublicWeights
) -> Problem:
    """Open the client's own records with its own key."""
    key = None if seat.dataset_key is None else bytes.fromhex(seat.dataset_key)
    # The key and the place of one moment: a record may have been removed between the claim and the order.
    kept = replace(order.records, location=seat.location or order.records.location)
    with open_records(settings, kept, key) as file:
        return make_problem(planned, read_records(file, planned.design), weights)


def weakest(rounds: MessageRounds, own: AnyReleased) -> AnyReleased:
    """Return the release as all clients hand it in: the first one's, with what each of them promises at least.

    Each site's promise to its own scope's people follows from its own ledger, see `core.service.guarantees`.

    Raises:
        PeerLost: somebody has gone, or sends what is no release.
    """
    received = rounds.exchange(KEPT, bytes(31) + b"\2", own.model_dump_json().encode())
    try:
        # Another site's bytes are not trusted to be a release.
        releases = [RELEASED.validate_json(one) for one in received]
        privacy = weakest_of([one.privacy for one in releases])
    except (ValueError, ArithmeticError) as error:
        raise PeerLost from error
    return releases[0].model_copy(update={"privacy": privacy})
