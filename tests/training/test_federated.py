"""Going on after a loss: clients that have kept unlike parts of one transcript, and pay what their own ledgers say."""

from collections import Counter
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from core.base.errors import Misled, PeerLost
from core.inference.error_bound import ErrorBound
from core.inference.estimate import Estimate
from core.inference.network import AnyReleased
from core.inference.released import Released
from core.mechanisms.generator import SystemGenerator
from core.methods.fits import fit
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.oracle import Answer, Release
from core.oracle.federation import FederatedOracle, MessageRounds, SiteFilter
from core.oracle.filters import ORDERS, UnlimitedFilter
from core.oracle.full import FullOracle
from core.planning.planner import chunks
from core.privacy.events import Event, compose
from core.privacy.renyi import cost_nano, prefix_costs
from core.queries.gradients import Question
from core.records.records import StoredRecords
from core.training import federated
from core.training.attempt import pack_release
from core.training.federated import blaming, furthest, most_known, of_all, told_in, weakest
from core.training.ledger_filter import LedgerFilter
from core.training.notes import Noted, Notes
from core.training.order import AttemptInput, Drained, Payer
from core.training.seat import SiteConnection
from tests.support.peer_groups import Clients, Mail, ThreadPeerGroup, together
from tests.support.problems import facts, problem
from tests.support.released import released

UNITS, DIMENSION, STEPS = 40, 3, 12
SETTINGS = NoisyGradientDescentPlan(steps=STEPS, step_size=0.3, radius=50.0, mu=1.0)
SCHEDULE = chunks(SETTINGS.schedule(facts(UNITS, DIMENSION)), most=4)


class Killed(Exception):
    """This client was killed."""


@dataclass
class Client:
    """A site's rows: its kept state, its charges and its draws."""

    place: int
    dies: list[tuple[str, int]] = field(default_factory=list)
    """One for each attempt: before or after the payment of a chunk."""
    state: bytes | None = None
    chunks: int = 0
    charged: Counter[Event] = field(default_factory=Counter)
    drawn: Counter[Event] = field(default_factory=Counter)
    due: int = 0

    def pay(self, chunk: int, state: bytes | None, step: int) -> None:
        del step
        assert chunk == self.due, "chunks are paid in their order"
        if ("before", chunk) in self.dies[:1]:
            raise Killed
        if state is not None:
            self.state, self.chunks = state, chunk
        self.charged[SCHEDULE[chunk]] += 1
        self.due = chunk + 1
        if ("after", chunk) in self.dies[:1]:
            raise Killed

    def keep(self, state: bytes, step: int) -> None:
        del step
        self.state, self.chunks = state, self.due

    def attempt(self, peers: ThreadPeerGroup, *, stop: bool = False) -> Release[Estimate]:
        """Carry out one attempt."""
        rounds = MessageRounds(peers)
        self.due = self.chunks
        payer = Payer(ORDERS, tuple(prefix_costs(SCHEDULE, ORDERS)))
        kept, _ = furthest(rounds, self.state)
        payments = LedgerFilter(self, [payer], SCHEDULE, kept=kept, kept_chunks=self.chunks, charged=self.charged)
        paying = SiteFilter(payments, rounds, lambda: stop and self.place == 1, payments)
        oracle = Counting(self, problem(UNITS, DIMENSION, seed=self.place), paying)
        return fit(SETTINGS, FederatedOracle(oracle, paying, "fed_test"))

    def check(self) -> None:
        """Assert that it has drawn no more than it was charged."""
        drawn, charged = (cost_nano(compose(events), ORDERS) for events in (self.drawn, self.charged))
        assert all(one <= most for one, most in zip(drawn, charged, strict=True))


class Counting:
    """A client's oracle, and what is drawn there."""

    def __init__(self, client: Client, records: object, payments: SiteFilter) -> None:
        self._client = client
        self._oracle = FullOracle(records, facts(UNITS, DIMENSION), payments, SystemGenerator())  # type: ignore[arg-type] # a problem
        self.facts, self.randomness, self.precision = (
            self._oracle.facts,
            self._oracle.randomness,
            self._oracle.precision,
        )
        self.affords, self.block, self.release = self._oracle.affords, self._oracle.block, self._oracle.release
        self.resume, self.keep = self._oracle.resume, self._oracle.keep

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        told = self._oracle.ask(question, theta, other)
        self._client.drawn[question.event()] += 1
        return told


def run(clients: list[Client], *, stop: bool = False) -> list[Release[Estimate] | Exception]:
    """Have the clients make one attempt; an ending of each."""
    endings = Clients(Mail(len(clients)), lambda peers: clients[peers.place].attempt(peers, stop=stop)).endings
    for client in clients:
        client.dies = client.dies[1:]
        client.check()
    return endings


def same(endings: list[Release[Estimate] | Exception]) -> bool:
    """Say whether all have released one value."""
    found = [ending for ending in endings if not isinstance(ending, Exception)]
    assert len(found) == len(endings), endings
    return all(torch.equal(one.value.theta, found[0].value.theta) for one in found)


@pytest.mark.parametrize("chunk", range(4))
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("place", [0, 2])
def test_all_go_on_from_the_longest_transcript(place: int, moment: str, chunk: int) -> None:
    """A client that dies about a payment has kept less, or more, than the others; nobody asks again what one knows."""
    clients = [Client(0), Client(1), Client(2)]
    clients[place].dies = [(moment, chunk)]
    endings = run(clients)
    assert isinstance(endings[place], Killed)
    longest = max(told_in(client.state) for client in clients)
    assert longest == (3 * chunk if chunk else 0), "the others have paid, or have kept where they found it gone"
    before = [sum(client.drawn.values()) for client in clients]
    assert same(run(clients))
    again = [sum(client.drawn.values()) - count for client, count in zip(clients, before, strict=True)]
    assert again == [STEPS - longest] * 3
    extra = [sum(client.charged.values()) - len(SCHEDULE) for client in clients]
    assert all(0 <= more <= 1 for more in extra), "one chunk at most is paid again"


def test_losses_one_after_the_other() -> None:
    clients = [Client(0, [("after", 1)]), Client(1, [("none", 0), ("before", 2)]), Client(2)]
    assert isinstance(run(clients)[0], Killed)
    assert isinstance(run(clients)[1], Killed)
    assert same(run(clients))


def test_those_that_are_left_go_on_without_one_that_is_lost() -> None:
    clients = [Client(0), Client(1, [("after", 2)]), Client(2)]
    run(clients)
    left = [clients[0], clients[2]]
    assert same(run(left))
    assert [sum(client.drawn.values()) for client in left] == [STEPS + 1] * 2, "all but the one that was under way"


def test_a_request_to_stop_loses_nothing() -> None:
    clients = [Client(0), Client(1), Client(2)]
    assert all(isinstance(ending, Drained) for ending in run(clients, stop=True))
    run(clients, stop=True)
    assert same(run(clients))
    for client in clients:
        assert sum(client.drawn.values()) == STEPS
        assert compose(client.charged) == compose(Counter(SCHEDULE))


def test_what_is_no_transcript_ends_the_attempt() -> None:
    kept = Notes({"federation/told": torch.tensor(5)}).pack()

    def work(peers: ThreadPeerGroup) -> tuple[bytes | None, int]:
        return furthest(MessageRounds(peers), kept if peers.place else None)

    assert together(Mail(2), work) == [(kept, 1)] * 2
    garbled = Mail(2, lambda message: [message[:-9] if message.endswith(kept) else message])
    assert blamed(Clients(garbled, work).endings[0]) == 1


def blamed(ending: object) -> int | None:
    """Return whose word a client could not believe."""
    return ending.number if isinstance(ending, Misled) else None


def told_of(count: int, value: float = 0.0, *, since: int = 0) -> bytes:
    """Return a transcript of so many means, the last of them since a state."""
    question = SETTINGS.questions()[0]
    answers = tuple(Noted(question, torch.zeros(3), Answer(torch.full((3,), value), 1.0)) for _ in range(count - since))
    return Notes({"federation/told": torch.tensor(since)} if since else None, answers).pack()


@pytest.mark.parametrize(
    ("own", "most", "claimed", "known"),
    [
        (None, 0, told_of(1), False),
        (told_of(3), 3, told_of(3), True),
        (told_of(3), 3, told_of(4), False),
        (told_of(3), 2**63, told_of(4), True),
        (told_of(3), 2**63, told_of(4, 0.5), False),
        (told_of(3, since=2), 2**63, told_of(5, 0.5, since=3), True),
        (told_of(4, since=2), 2**63, told_of(5, 0.5, since=3), False),
    ],
    ids=["unasked", "equal", "beyond", "lost", "other answers", "none in common", "others since a state"],
)
def test_what_a_client_can_see_to_be_untrue_is_blamed_on_who_told_it(
    own: bytes | None, most: int, claimed: bytes, known: bool
) -> None:
    """Nobody can know a mean without an answer of this site, nor another mean than the one that the site received."""

    def work(peers: ThreadPeerGroup) -> tuple[bytes | None, int]:
        if peers.place:
            return furthest(MessageRounds(peers), own, most)
        return furthest(MessageRounds(peers), claimed)

    ending = Clients(Mail(2), work).endings[1]
    assert blamed(ending) == (None if known else 0), ending


def test_a_release_that_nobody_was_asked_for_is_blamed() -> None:
    whole = pack_release(released())

    def work(peers: ThreadPeerGroup) -> tuple[bytes | None, int]:
        return furthest(MessageRounds(peers), *((None, 0) if peers.place else (whole, 2**63)))

    assert blamed(Clients(Mail(2), work).endings[1]) == 0


@pytest.mark.parametrize(
    ("teller", "asked", "error", "expected"),
    [
        (2, False, KeyError, Misled),
        (2, False, AssertionError, Misled),
        (2, True, KeyError, KeyError),
        (None, False, KeyError, KeyError),
        (2, False, Drained, Drained),
        (2, False, MemoryError, MemoryError),
    ],
    ids=["a state without a point", "other questions", "after a question", "its own", "asked to stop", "too large"],
)
def test_what_does_not_go_with_the_method_is_blamed_until_the_oracle_is_asked(
    teller: int | None, asked: bool, error: type[BaseException], expected: type[BaseException]
) -> None:
    """From its first question on an error may hang on records: then it is this client's trainer's failure."""
    payments = SiteFilter(UnlimitedFilter(), MessageRounds(ThreadPeerGroup(Mail(1), 0)))
    payments.asked = asked
    with pytest.raises(expected), blaming(teller, [payments]):
        raise error


@dataclass
class Ledgered:
    """The figures of a site's own ledger."""

    kept: bytes | None
    kept_chunks: int
    paid_chunks: int


@pytest.mark.parametrize(
    ("ledger", "most"),
    [
        (Ledgered(None, 0, 0), 0),
        (Ledgered(None, 0, 1), 2**63),
        (Ledgered(told_of(3), 1, 2), 2**63),
        (Ledgered(told_of(6), 2, 2), 6),
        (Ledgered(None, 0, 2), 2**63),
    ],
    ids=["never asked", "first lost", "one lost", "drained", "kept too long ago"],
)
def test_what_others_can_know_follows_from_what_a_client_has_paid_for(ledger: Ledgered, most: int) -> None:
    assert most_known(cast("AttemptInput", ledger)) == most


def test_nothing_kept_is_a_beginning() -> None:
    assert together(Mail(2), lambda peers: furthest(MessageRounds(peers), None)[0]) == [None, None]


def test_answers_since_a_state_count() -> None:
    question = SETTINGS.questions()[0]
    noted = [Noted(question, torch.zeros(3), Answer(torch.zeros(3), 1.0)) for _ in range(2)]
    assert told_in(Notes({"federation/told": torch.tensor(5)}, tuple(noted)).pack()) == 7
    assert told_in(Notes(None, (noted[0],)).pack()) == 1


def promising(*epsilons: str) -> Clients[AnyReleased]:
    """Hand in releases that promise unlike epsilons."""
    made = released()

    def work(peers: ThreadPeerGroup) -> AnyReleased:
        promise = made.privacy.promise.model_copy(update={"epsilon": epsilons[peers.place]})
        privacy = made.privacy.model_copy(update={"promise": promise})
        return weakest(MessageRounds(peers), made.model_copy(update={"privacy": privacy, "steps": peers.place}))

    return Clients(Mail(len(epsilons)), work)


def test_a_release_is_the_first_one_s_with_the_weakest_promise_of_all() -> None:
    for ending in promising("9.5", "10.25", "2").endings:
        assert isinstance(ending, Released)
        assert (ending.steps, ending.privacy.promise.epsilon) == (0, "10.25")


@pytest.mark.parametrize("epsilon", ["nan", "much"])
def test_a_promise_that_is_no_number_ends_the_attempt(epsilon: str) -> None:
    assert all(isinstance(ending, PeerLost) for ending in promising("2", epsilon).endings)


@pytest.mark.parametrize(("size", "is_claimed"), [(3, True), (2, False)])
def test_nothing_is_claimed_once_a_client_is_lost(size: int, is_claimed: bool) -> None:
    claim = ErrorBound(ended_by="rounds", quantity="gradient_norm", value=0.1, confidence=0.9, variant="given")
    seat = SiteConnection(
        federation="job",
        number=0,
        size=size,
        asked=3,
        meeting=None,
        key="",
        patience_seconds=1,
        dataset_key=None,
        location=None,
    )
    found = of_all(released(error_bound=claim), seat, 70)
    assert found.units == 70
    assert found.error_bound == (claim if is_claimed else None)


def test_a_site_opens_the_file_that_its_key_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record was removed between the claim, which has the key, and the order, which names a file of another key."""
    seen = []

    def opened(settings: object, kept: StoredRecords, key: bytes | None) -> Any:
        del settings
        seen.append((kept.location, key))
        raise FileNotFoundError

    monkeypatch.setattr(federated, "open_records", opened)
    order = SimpleNamespace(records=StoredRecords("ds_1", "rec_after.sealed", "sha256:x", "v1.x.y"))
    seat = SimpleNamespace(dataset_key="ab" * 32, location="rec_before.sealed")
    with pytest.raises(FileNotFoundError):
        federated._own_problem(None, order, None, seat, None)  # type: ignore[arg-type] # what it reads of each
    assert seen == [("rec_before.sealed", bytes.fromhex("ab" * 32))]
