"""Clients that answer for themselves and go on with the mean: laws of the mean, lockstep, and planted bugs.

Statistical thresholds: |z| > 4.5, a false alarm in 150,000 each; generators are forced or seeded, so a run repeats.
"""

from collections.abc import Callable
from math import log, sqrt
from typing import NoReturn

import numpy as np
import pytest
import torch
from torch import Tensor

from core.base.errors import PeerLost
from core.losses.squares import Squared
from core.losses.weights import Clip
from core.mechanisms.generator import SimulationGenerator, SystemGenerator
from core.methods.fits import fit
from core.methods.m_estimation.noisy_gd.spec import NoisyGradientDescentPlan
from core.oracle import EVERYTHING, Answer, Oracle, Part, PrivacyFilter, Release, Status
from core.oracle.federation import ANSWER, FACTS, POINT, READY, FederatedOracle, Kind, MessageRounds, SiteFilter
from core.oracle.filters import CountingFilter, LastState, UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.samples import StreamOracle
from core.oracle.simulation import Simulation
from core.privacy.events import Event, Gaussian, Repeated
from core.queries.gradients import Gradient, GradientDifference, GradientNorm
from core.queries.sums.linear import LinearProblem
from core.queries.sums.peer_group import Alone, PeerGroup
from core.training.order import Drained
from tests.support.peer_groups import Clients, Mail, ThreadPeerGroup, together
from tests.support.problems import facts, problem, repeatable_generator

DIMENSION, UNITS = 3, 40
HEADER_BYTES = 41
GRADIENT = Gradient(sigma=2.0)
ZERO = torch.zeros(DIMENSION, dtype=torch.float64)
SETTINGS = NoisyGradientDescentPlan(steps=6, step_size=0.3, radius=50.0, mu=1.0)
Built = Callable[[SiteFilter], Oracle]


def key(place: int) -> bytes:
    """Return what a client's noise is made of: its own."""
    return bytes([place + 1]) * 32


def full_oracle(place: int, payments: PrivacyFilter, units: int = UNITS, data: int | None = None) -> FullOracle:
    """Return a client's oracle over its own records, whose noise is its own and repeats."""
    records = problem(units, DIMENSION, seed=place if data is None else data)
    return FullOracle(records, facts(units, DIMENSION), payments, repeatable_generator(key(place)))


def federated(peers: PeerGroup, own: Built, payments: PrivacyFilter | None = None) -> FederatedOracle:
    """Return a client's place in a federation."""
    paying = SiteFilter(payments or UnlimitedFilter(), MessageRounds(peers))
    return FederatedOracle(own(paying), paying, "fed_test")


class Noting(LastState):
    """An answer log that holds what was noted."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[Answer] = []

    def note(self, question: object, theta: Tensor, answer: Answer, other: Tensor | None = None) -> None:
        del question, theta, other
        self.noted.append(answer)


class Sequenced(CountingFilter):
    """A privacy filter with such a log."""

    def __init__(self) -> None:
        self.noting = Noting()
        super().__init__(log=self.noting)


class Stopping(CountingFilter):
    """A privacy filter whose chunks end with every so many questions."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.kept = 0
        self._every = every

    def may_stop(self, event: Event, part: Part = EVERYTHING) -> bool:
        del event, part
        return bool(self.totals) and len(self.totals) % self._every == 0

    def stop_here(self) -> NoReturn:
        self.kept += 1
        raise Drained


class TestOneClient:
    def test_is_the_centralised_job_bit_for_bit(self) -> None:
        """H1: with equal seeds, everything that leaves is the same."""
        alone = fit(SETTINGS, full_oracle(0, UnlimitedFilter()))
        one = fit(SETTINGS, federated(Alone(), lambda payments: full_oracle(0, payments)))
        assert torch.equal(one.value.theta, alone.value.theta)
        assert (one.value.scale, one.status, one.event) == (alone.value.scale, alone.status, alone.event)

    def test_of_a_stream_too(self) -> None:
        pair = GradientDifference(sigma=2.0, batch=5, cap=0.3)
        moved = ZERO + 0.1

        def asked(oracle: Oracle) -> list[Tensor]:
            return [oracle.ask(Gradient(sigma=2.0, batch=5), ZERO).value, oracle.ask(pair, ZERO, moved).value]

        def stream(payments: PrivacyFilter) -> StreamOracle:
            public = facts(UNITS, DIMENSION)
            return StreamOracle(problem(UNITS, DIMENSION), public, payments, repeatable_generator(), np.arange(UNITS))

        found = zip(asked(stream(UnlimitedFilter())), asked(federated(Alone(), stream)), strict=True)
        assert all(torch.equal(one, other) for one, other in found)


def errors(size: int, built: Callable[[int, SiteFilter], Oracle], asked: int = 60) -> float:
    """Return the mean squared error of answers at zero about the mean of the sites' gradients."""
    exact = torch.stack([exact_gradient(place) for place in range(size)]).mean(0)

    def work(peers: ThreadPeerGroup) -> float:
        oracle = federated(peers, lambda payments: built(peers.place, payments))
        return float(np.mean([(oracle.ask(GRADIENT, ZERO).value - exact).square().sum() for _ in range(asked)]))

    return together(Mail(size), work)[0]


def exact_gradient(place: int, units: int = UNITS) -> Tensor:
    """Return a client's gradient at zero."""
    return problem(units, DIMENSION, seed=place).bounded_sum(GRADIENT, facts(units, DIMENSION), ZERO) / units


def shared_noise(place: int, payments: PrivacyFilter) -> FullOracle:
    """Planted bug: all clients noise with one seed."""
    oracle = full_oracle(place, payments)
    oracle._generator = repeatable_generator()
    return oracle


def slope(built: Callable[[int, SiteFilter], Oracle], sizes: tuple[int, ...] = (1, 4, 16)) -> float:
    """Return the slope of log error against log m."""
    found = [log(errors(size, built)) for size in sizes]
    return float(np.polyfit([log(size) for size in sizes], found, 1)[0])


class TestMean:
    def test_error_falls_as_one_over_the_clients(self) -> None:
        """H2: slope -1 +- .1."""
        assert slope(full_oracle) == pytest.approx(-1, abs=0.1)

    def test_one_seed_for_all_is_caught(self) -> None:
        assert slope(shared_noise, (1, 4)) > -0.5

    def test_scale_is_of_the_mean(self) -> None:
        """Of clients of several sizes, each with the noise of its own."""
        sizes = (40, 20, 80)

        def work(peers: ThreadPeerGroup) -> Answer:
            units = sizes[peers.place]
            return federated(peers, lambda payments: full_oracle(peers.place, payments, units)).ask(GRADIENT, ZERO)

        answers = together(Mail(3), work)
        own = [full_oracle(place, UnlimitedFilter(), units).ask(GRADIENT, ZERO) for place, units in enumerate(sizes)]
        assert answers[0].scale == pytest.approx(sqrt(sum(one.scale**2 for one in own)) / 3)
        assert torch.allclose(answers[0].value, sum(one.value for one in own) / 3)  # type: ignore[arg-type] # tensors
        assert all(torch.equal(answers[0].value, answer.value) for answer in answers), "everybody has the same mean"

    def test_units_are_all_clients(self) -> None:
        found = together(
            Mail(3),
            lambda peers: federated(peers, lambda payments: full_oracle(peers.place, payments)).facts,
        )
        assert {one.units for one in found} == {3 * UNITS}
        assert len(set(found)) == 1

    def test_records_that_are_described_otherwise_are_refused(self) -> None:
        def work(peers: ThreadPeerGroup) -> FederatedOracle:
            public = facts(UNITS, DIMENSION).model_copy(update={"ridge": 0.1 * peers.place})
            records = problem(UNITS, DIMENSION)
            return federated(peers, lambda payments: FullOracle(records, public, payments, SystemGenerator()))

        assert all(isinstance(ending, PeerLost) for ending in Clients(Mail(2), work).endings)

    @pytest.mark.parametrize("units", [b"", bytes(8), b"\xff" * 8, (1).to_bytes(9, "big")], ids=repr)
    def test_units_that_are_no_count_are_refused(self, units: bytes) -> None:
        mail = Mail(2, lambda message: [message[:HEADER_BYTES] + units if message[8] == FACTS.number else message])
        ended = Clients(mail, lambda peers: federated(peers, lambda payments: full_oracle(peers.place, payments)))
        assert all(isinstance(ending, PeerLost) for ending in ended.endings)

    def test_of_a_block_too(self) -> None:
        """Everybody's block of a name, and its units."""

        def work(peers: ThreadPeerGroup) -> tuple[int, Answer]:
            def blocked(payments: SiteFilter) -> FullOracle:
                records, aside = problem(UNITS, DIMENSION, seed=peers.place), torch.arange(UNITS) < 10
                public = facts(UNITS, DIMENSION)
                return FullOracle(records, public, payments, SystemGenerator(), {"holdout": aside})

            holdout = federated(peers, blocked).block("holdout")
            return holdout.facts.units, holdout.ask(GRADIENT, ZERO)

        (units, one), (_, other) = together(Mail(2), work)
        assert units == 20
        assert torch.equal(one.value, other.value)

    def test_a_norm_is_not_averaged(self) -> None:
        oracle = federated(Alone(), lambda payments: full_oracle(0, payments))
        with pytest.raises(AssertionError, match="a mean is taken"):
            oracle.ask(GradientNorm(sigma=2.0), ZERO)


def noises(mail: Mail, asked: int) -> list[Tensor]:
    """Return the noise that each site's own messages carry, in standard deviations, shape (asked, p)."""
    found = []
    for place in range(mail.size):
        answers = [message[41:] for message in mail.sent_by(place) if message[8] == 2]
        assert len(answers) == asked, "an answer a question"
        values = torch.stack([torch.frombuffer(bytearray(one[8:]), dtype=torch.float64) for one in answers])
        scale = full_oracle(place, UnlimitedFilter()).ask(GRADIENT, ZERO).scale
        found.append((values - exact_gradient(place)) / scale)
    return found


class Thinned:
    """Planted bugs: an oracle whose answers carry a part of their noise, `share` of it."""

    def __init__(self, oracle: FullOracle, exact: Tensor, share: float) -> None:
        self._oracle, self._exact, self._share = oracle, exact, share
        self.facts, self.randomness, self.precision = oracle.facts, oracle.randomness, oracle.precision
        self.affords, self.block, self.resume, self.keep = oracle.affords, oracle.block, oracle.resume, oracle.keep
        self.release = oracle.release

    def ask(self, question: Gradient, theta: Tensor, other: Tensor | None = None) -> Answer:
        told = self._oracle.ask(question, theta, other)
        return Answer(self._exact + self._share * (told.value - self._exact), told.scale)


def check_own_noise(built: Callable[[int, SiteFilter], Oracle], size: int = 4, asked: int = 150) -> None:
    """Fail unless every site's messages have its full noise, and nobody else's."""
    mail = Mail(size)

    def work(peers: ThreadPeerGroup) -> None:
        oracle = federated(peers, lambda payments: built(peers.place, payments))
        for _ in range(asked):
            oracle.ask(GRADIENT, ZERO)

    together(mail, work)
    found = noises(mail, asked)
    draws = asked * DIMENSION
    for noise in found:
        assert abs(float(noise.square().mean()) - 1) < 4.5 * sqrt(2 / draws), "full noise"
        assert abs(float(noise.mean())) < 4.5 / sqrt(draws), "noise has no mean"
    for place, noise in enumerate(found):
        for other in found[:place]:
            assert abs(float((noise * other).mean())) < 4.5 / sqrt(draws), "everybody's own"


class TestOwnNoise:
    """H3: each site's transcript alone satisfies the noise law, whatever the mean's noise is."""

    def test_every_message_has_full_noise(self) -> None:
        check_own_noise(full_oracle)

    @pytest.mark.parametrize(("share", "size"), [(1 / sqrt(4), 4), (0.0, 4)], ids=["by the root of m", "only later"])
    def test_less_is_caught(self, share: float, size: int) -> None:
        def built(place: int, payments: SiteFilter) -> Oracle:
            return Thinned(full_oracle(place, payments), exact_gradient(place), share)  # type: ignore[return-value] # enough

        with pytest.raises(AssertionError, match="full noise"):
            check_own_noise(built, size)

    def test_one_seed_is_caught(self) -> None:
        with pytest.raises(AssertionError, match="everybody's own"):
            check_own_noise(shared_noise)


class TestHeterogeneity:
    """H4: only the mean of the sites' functions matters, where nothing is clipped."""

    def trajectory(self, spread: float) -> list[Tensor]:
        """Descend on the mean of clients with moments Sigma + spread A_j, the A_j adding up to nothing."""
        sigma = torch.diag(torch.tensor([2.0, 1.0, 0.5], dtype=torch.float64))
        tilt = torch.tensor([[0.3, 0.2, 0.0], [0.2, -0.3, 0.1], [0.0, 0.1, 0.2]], dtype=torch.float64)
        signs = (1.0, -1.0, 2.0, -2.0)

        def work(peers: ThreadPeerGroup) -> list[Tensor]:
            moment = sigma + spread * signs[peers.place] * tilt
            features = sqrt(DIMENSION) * torch.linalg.cholesky(moment).mT.contiguous()
            weights = Clip(bound=1e6)
            public = facts(DIMENSION, DIMENSION, Squared(), weights=weights)
            there = torch.ones(DIMENSION, dtype=torch.bool)
            records = LinearProblem(features, torch.zeros(DIMENSION, dtype=torch.float64), there, Squared(), weights)
            question = Gradient(sigma=1e-6)
            draws = SimulationGenerator(peers.place)
            oracle = federated(peers, lambda payments: Simulation(records, public, draws, payments=payments))
            theta, path = ZERO + 1, []
            for _ in range(20):
                theta = theta - 0.2 * oracle.ask(question, theta).value
                path.append(theta)
            return path

        return together(Mail(4), work)[0]

    def test_trajectories_agree(self) -> None:
        pairs = zip(self.trajectory(0.0), self.trajectory(0.5), strict=True)
        assert max(float((one - other).abs().max()) for one, other in pairs) < 1e-9

    def test_noise_of_these_trajectories_shows(self) -> None:
        """The agreement above thus means something: the noise is far above the tolerance."""
        assert float((self.trajectory(0.0)[-1]).abs().max()) > 1e-6


class TestOthersRecords:
    """H5: a record of one client moves nothing that the others compute, given the same broadcasts."""

    def run(self, data: int) -> tuple[Mail, list[list[Tensor]]]:
        """Return all messages, and the means that each site heard, when the last site has other records."""
        mail = Mail(3)
        points = [ZERO + 0.1 * step for step in range(4)]

        def work(peers: ThreadPeerGroup) -> list[Tensor]:
            own = data if peers.place == 2 else peers.place
            oracle = federated(peers, lambda payments: full_oracle(peers.place, payments, data=own))
            return [oracle.ask(GRADIENT, point).value for point in points]

        return mail, together(mail, work)

    def test_messages_of_others_are_the_same(self) -> None:
        (mail, means), (other, moved) = self.run(2), self.run(9)
        assert mail.sent_by(2) != other.sent_by(2), "its own are not"
        assert not torch.equal(means[0][0], moved[0][0]), "and so the mean is not"
        assert [mail.sent_by(place) for place in (0, 1)] == [other.sent_by(place) for place in (0, 1)]

    def test_deciding_by_ones_own_values_ends_the_attempt(self) -> None:
        """Planted bug: a client that steps along its own answer asks at another point than the rest."""

        def work(peers: ThreadPeerGroup) -> Tensor:
            own = full_oracle(peers.place, UnlimitedFilter())
            oracle = federated(peers, lambda payments: full_oracle(peers.place, payments))
            mean = oracle.ask(GRADIENT, ZERO).value
            stepped = -(own.ask(GRADIENT, ZERO).value if peers.place == 1 else mean)
            return oracle.ask(GRADIENT, stepped).value

        assert all(isinstance(ending, PeerLost) for ending in Clients(Mail(3), work).endings)

    def test_a_branch_of_ones_own_ends_it_too(self) -> None:
        """Planted bug: one client asks another question at the same point."""
        pair = GradientDifference(sigma=2.0, cap=0.1)

        def work(peers: ThreadPeerGroup) -> Answer:
            oracle = federated(peers, lambda payments: full_oracle(peers.place, payments))
            return oracle.ask(GRADIENT, ZERO) if peers.place else oracle.ask(pair, ZERO, ZERO + 1)

        assert all(isinstance(ending, PeerLost) for ending in Clients(Mail(2), work).endings)


class TestLockstep:
    def test_nobody_pays_where_one_does_not_afford_it(self) -> None:
        filters = [Sequenced(), Sequenced(), CountingFilter(Gaussian(sigma=2.0))]

        def work(peers: ThreadPeerGroup) -> None:
            oracle = federated(peers, lambda payments: full_oracle(peers.place, payments), filters[peers.place])
            assert oracle.affords(GRADIENT)
            oracle.ask(GRADIENT, ZERO)
            assert not oracle.affords(GRADIENT), "one of them does not"
            oracle.ask(GRADIENT, ZERO)

        endings = Clients(Mail(3), work).endings
        assert all(isinstance(ending, PeerLost) for ending in endings)
        assert [len(payments.totals) for payments in filters] == [1, 1, 1]

    def test_messages_that_come_twice_are_dropped(self) -> None:
        def work(peers: ThreadPeerGroup) -> Tensor:
            return fit(SETTINGS, federated(peers, lambda payments: full_oracle(peers.place, payments))).value.theta

        once, repeated = together(Mail(3), work), together(Mail(3, lambda message: [message] * 3), work)
        assert all(torch.equal(one, other) for one, other in zip(once, repeated, strict=True))

    @pytest.mark.parametrize(
        "change",
        [
            lambda message: message[:-1],
            lambda message: message[:20],
            lambda message: message[:-8] + bytes(6) + b"\xf8\x7f",
            lambda message: (2**40).to_bytes(8, "big") + message[8:],
            lambda message: message[:HEADER_BYTES],
            lambda message: message + b"\1",
        ],
        ids=["short", "no header", "not finite", "of a later round", "empty", "long"],
    )
    @pytest.mark.parametrize("kind", [READY, ANSWER, POINT], ids=["ready", "answer", "point"])
    def test_another_message_ends_the_attempt(self, change: Callable[[bytes], bytes], kind: Kind) -> None:
        def work(peers: ThreadPeerGroup) -> Answer:
            return federated(peers, lambda payments: full_oracle(peers.place, payments)).ask(GRADIENT, ZERO)

        mail = Mail(2, lambda message: [change(message) if message[8] == kind.number else message])
        endings = Clients(mail, work).endings
        told = endings[1:] if kind is POINT else endings  # the first one tells its point, and takes nobody else's
        assert all(isinstance(ending, PeerLost) for ending in told)

    @pytest.mark.parametrize(("boundaries", "stops"), [((2, 2, 2), 2), ((2, 4, 2), 4), ((1, 3, 2), None)])
    def test_all_stop_where_it_costs_nobody_anything(self, boundaries: tuple[int, ...], stops: int | None) -> None:
        """One site is asked to stop; the chunks of each end with every `boundaries` questions."""
        filters = [Stopping(every) for every in boundaries]

        def work(peers: ThreadPeerGroup) -> int:
            own = filters[peers.place]
            paying = SiteFilter(own, MessageRounds(peers), lambda: peers.place == 1, own)
            oracle = FederatedOracle(full_oracle(peers.place, paying), paying, "fed_test")
            try:
                for _ in range(6):
                    oracle.ask(GRADIENT, ZERO)
            except Drained:
                return len(own.totals)
            return -1

        assert together(Mail(3), work) == [-1 if stops is None else stops] * 3
        assert [payments.kept for payments in filters] == [int(stops is not None)] * 3

    def test_who_is_left_alone_keeps_what_it_was_told(self) -> None:
        """Where a chunk ends, a client that finds the others gone has lost nothing."""
        filters = [Stopping(2), Stopping(2)]

        def work(peers: ThreadPeerGroup) -> None:
            own = filters[peers.place]
            paying = SiteFilter(own, MessageRounds(peers), pausing=own)
            oracle = FederatedOracle(full_oracle(peers.place, paying), paying, "fed_test")
            for asked in range(4):
                if peers.place and asked == 2:
                    return
                oracle.ask(GRADIENT, ZERO)

        endings = Clients(Mail(2), work).endings
        assert isinstance(endings[0], Drained)
        assert endings[1] is None
        assert [(payments.kept, len(payments.totals)) for payments in filters] == [
            (1, 2),
            (0, 2),
        ]

    def test_release_of_another_value_is_refused(self) -> None:
        def work(peers: ThreadPeerGroup) -> Release[Tensor]:
            oracle = federated(peers, lambda payments: full_oracle(peers.place, payments))
            return oracle.release(ZERO + (peers.place == 1), Status.FINISHED)

        assert all(isinstance(ending, PeerLost) for ending in Clients(Mail(2), work).endings)

    def test_each_oracle_tells_what_it_drew_itself(self) -> None:
        def work(peers: ThreadPeerGroup) -> Release[object]:
            return fit(SETTINGS, federated(peers, lambda payments: full_oracle(peers.place, payments)))  # type: ignore[return-value] # an estimate

        gradient = SETTINGS.questions()[0]
        assert {one.event for one in together(Mail(2), work)} == {Repeated(event=gradient.event(), times=6)}


class TestCommonRandomness:
    def draws(self, peers: ThreadPeerGroup) -> tuple[list[float], int, float]:
        oracle = federated(peers, lambda payments: full_oracle(peers.place, payments))
        first = oracle.randomness.normal(4).tolist()
        again = oracle.randomness.integer(2**60)
        oracle.ask(GRADIENT, ZERO)
        return first, again, float(oracle.randomness.normal(1))

    def test_everybody_draws_the_same(self) -> None:
        found = together(Mail(3), self.draws)
        assert found[0] == found[1] == found[2]
        first, _, later = found[0]
        assert len({*first, later}) == 5

    def test_an_attempt_that_goes_on_draws_what_would_have_come(self) -> None:
        payments = UnlimitedFilter()
        oracle = federated(Alone(), lambda paying: full_oracle(0, paying), payments)
        oracle.ask(GRADIENT, ZERO)
        oracle.keep({"theta": ZERO}, 1)
        expected = oracle.randomness.normal(3)
        resumed = federated(Alone(), lambda paying: full_oracle(0, paying), payments)
        assert list(resumed.resume({})) == ["theta"]
        assert torch.equal(resumed.randomness.normal(3), expected)


def test_means_are_what_is_noted() -> None:
    """A transcript is of means."""
    filters = [Sequenced(), Sequenced()]

    def work(peers: ThreadPeerGroup) -> Answer:
        oracle = federated(peers, lambda payments: full_oracle(peers.place, payments), filters[peers.place])
        return oracle.ask(GRADIENT, ZERO)

    found = together(Mail(2), work)
    assert [payments.noting.noted for payments in filters] == [[answer] for answer in found]
