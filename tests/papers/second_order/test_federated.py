"""Federated second-order jobs against what is known: one client is the centralised job; errors fall with m and n.

Seeds are fixed, so a verdict repeats. Slopes are of logarithms, with a tolerance of .1: fits of squared errors whose
relative deviation is 4 % at each of three points a factor of 16 apart have a deviation of .02.
"""

from collections.abc import Callable, Sequence
from math import log, sqrt
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from core.base.errors import PeerLost
from core.mechanisms.generator import SimulationGenerator
from core.methods.second_order.ada_spider import AdaSpider, no_estimate
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan
from core.oracle import Oracle
from core.oracle.federation import FederatedOracle, MessageRounds, SiteFilter
from core.oracle.filters import CountingFilter, UnlimitedFilter
from core.oracle.samples import StreamOracle
from core.oracle.simulation import Simulation
from core.queries.sampling import StreamSampling
from core.queries.sums.peer_group import Alone, PeerGroup
from studies.second_order.clients import Clients
from studies.second_order.federated import (
    SIGMA,
    STATED_RADII,
    LevelClient,
    descent,
    found_by,
    level_clients,
    level_facts,
    points_of,
    settings_of,
)
from studies.second_order.populations import PrincipalComponent
from tests.support.peer_groups import Mail, together
from tests.support.problems import facts, problem, repeatable_generator
from tests.support.second_order import CountedRecords, StillRecords, facts_of, given

Built = Callable[[int, SiteFilter], Oracle]
ROUNDS: dict[str, Any] = {
    "batch": 60,
    "difference_batch": 10,
    "restart_drift": 0.05,
    "error_radius": 0.2,
    "escape_distance": 0.35,
    "round_steps": 5,
    "step_size": 1.0,
    "mu": 5.0,
    "steps": 60,
}


def federation(peers: PeerGroup, built: Built) -> FederatedOracle:
    """Return a client's place in a federation whose oracles pay nothing."""
    paying = SiteFilter(UnlimitedFilter(), MessageRounds(peers))
    return FederatedOracle(built(peers.place, paying), paying, "fed_paper")


def stream(place: int, payments: Any, records: Any = None, units: int = 1200) -> StreamOracle:
    """Return a client's oracle over a stream, whose noise repeats."""
    own = problem(units, 3, seed=place) if records is None else records
    generator = repeatable_generator(bytes([place + 1]) * 32)
    return StreamOracle(own, facts(units, 3), payments, generator, np.arange(units))


def counted_records(seed: int) -> CountedRecords:
    """Return records that count their readings."""
    found = CountedRecords(1200)
    found._records = problem(1200, 3, seed=seed)
    return found


class TestOneClient:
    @pytest.mark.parametrize(
        "round_mode", ["fresh", *(pytest.param(mode, marks=pytest.mark.slow) for mode in ("rewind", "continue"))]
    )
    def test_is_the_centralised_search_bit_for_bit(self, round_mode: str) -> None:
        """H1: a whole run, rounds and restarts in it."""
        settings = given(**ROUNDS, round_mode=round_mode)
        alone, status = gauss_psgd.iterate(settings, stream(0, CountingFilter()))
        one, other = gauss_psgd.iterate(settings, federation(Alone(), stream))
        assert torch.equal(alone.theta, one.theta)
        assert (alone.error_bound, alone.scale, status) == (one.error_bound, one.scale, other)
        assert alone.error_bound is not None
        assert alone.error_bound.second_order is not None
        assert alone.error_bound.second_order.rounds > 2


class TestOneAlone:
    """H5: a site's results are a function of its own records and of the messages that it received."""

    def run(self, changed: int | None = None) -> tuple[Mail, list[CountedRecords]]:
        """Run three clients; those of one of them may have other records."""
        mail, counted = Mail(3), [counted_records(place if place != changed else 9) for place in range(3)]

        def work(peers: PeerGroup) -> object:
            oracle = federation(peers, lambda place, payments: stream(place, payments, counted[place]))
            return gauss_psgd.iterate(given(**ROUNDS), oracle)

        together(mail, work)
        return mail, counted

    def test_each_record_is_in_one_question_at_most(self) -> None:
        _, counted = self.run()
        assert all(int(one.counts.max()) == 1 for one in counted)
        assert all(one.sizes == counted[0].sizes for one in counted), "everybody is asked the same"

    def test_given_what_it_was_told_a_client_says_the_same_whatever_others_hold(self) -> None:
        """The recorded messages of the others are sent again; nothing shows whose records they were made of."""
        mail, _ = self.run(changed=2)

        class Repeated:
            place, size = 0, 3

            def __init__(self) -> None:
                self.said: list[bytes] = []
                self._others = {place: iter(mail.sent_by(place)) for place in (1, 2)}

            def send(self, message: bytes) -> None:
                self.said.append(message)

            def receive(self, place: int) -> bytes:
                return next(self._others[place])

        peers = Repeated()
        gauss_psgd.iterate(
            given(**ROUNDS), federation(peers, lambda _, payments: stream(0, payments, counted_records(0)))
        )
        assert peers.said == mail.sent_by(0), "bit for bit"
        before, _ = self.run()
        assert before.sent_by(2) != mail.sent_by(2), "other records say other things"
        planted = Repeated()
        with pytest.raises(PeerLost):  # planted: it holds the other's records, and its next point is another one
            gauss_psgd.iterate(
                given(**ROUNDS),
                federation(planted, lambda _, payments: stream(0, payments, counted_records(9))),
            )


class TestHeterogeneity:
    """H4: oracle level, four clients of the rank-one problem, equal noise."""

    def path(self, clients: Sequence[LevelClient]) -> list[Tensor]:
        """Return the points of all sites' runs from the saddle, with the answers of a real federation."""
        settings = settings_of(len(clients), steps=120)

        def work(peers: PeerGroup) -> list[Tensor]:
            found: list[Tensor] = []
            oracle = federation(peers, lambda place, _: clients[place])
            estimator = AdaSpider(settings, oracle, no_estimate(start))
            gauss_psgd.walk(
                settings, oracle.facts, estimator, gauss_psgd.beginning(start), lambda at: found.append(at.theta)
            )
            return found

        start = torch.tensor(settings.start, dtype=torch.float64)
        return together(Mail(len(clients)), work)[0]

    def test_only_the_mean_of_the_clients_matters(self) -> None:
        alike, apart = self.path(level_clients(4, 1)), self.path(level_clients(4, 1, 0.5))
        assert max(float((one - other).abs().max()) for one, other in zip(alike, apart, strict=True)) < 1e-9
        assert float((alike[-1] - alike[0]).norm()) > 1e-3, "they moved"

    def test_parts_that_do_not_add_up_to_nothing_are_seen(self) -> None:
        """Planted: the mean is another function."""
        pulled = [LevelClient(1.02 * SIGMA, level_facts(), 1000 + place) for place in range(4)]
        pairs = zip(self.path(level_clients(4, 1)), self.path(pulled), strict=True)
        assert max(float((one - other).abs().max()) for one, other in pairs) > 1e-4

    def test_a_federation_tells_what_studies_compute(self) -> None:
        told = self.path(level_clients(4, 2, 0.5))
        computed = points_of(level_clients(4, 2, 0.5), settings_of(4, steps=120))
        assert all(torch.equal(one, other) for one, other in zip(told, computed, strict=True))


class TestClientsCount:
    """H6: the certified outcome and its sharpness, by the number of sites."""

    def check(self, clients: int, settings: GaussPsgdPlan, oracle: Oracle) -> None:
        """Fail unless a run certifies a minimum at the stated sharpness."""
        outcome, gradient, curvature, _ = found_by(oracle, settings)
        assert settings.error_radius is not None
        assert settings.error_radius == pytest.approx(STATED_RADII[clients], abs=6e-5)
        assert outcome == "no_escape_observed"
        assert curvature > 0.45
        assert gradient <= 4 * settings.error_radius

    @pytest.mark.parametrize("clients", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 4, 16))])
    def test_all_certify_and_alpha_falls_with_the_root(self, clients: int) -> None:
        self.check(clients, settings_of(clients), Clients(level_clients(clients, 3), 3, lambda _: None))

    @pytest.mark.slow
    @pytest.mark.parametrize("clients", STATED_RADII)
    def test_in_a_federation_too(self, clients: int) -> None:
        settings, oracles = settings_of(clients), level_clients(clients, 5)

        def work(peers: PeerGroup) -> None:
            self.check(clients, settings, federation(peers, lambda place, _: oracles[place]))

        together(Mail(clients), work)


@pytest.mark.slow
def test_drift_restarts_of_equal_records_do_as_well_as_a_good_period() -> None:
    """H7 reports this; here only that the estimates' error is no worse than that of as many restarts at a period."""
    drift, period = (
        np.mean([descent(4, seed, **kind) for seed in range(6)], axis=0)
        for kind in ({}, {"estimator": "period", "period": 100})
    )
    assert drift[2] == pytest.approx(period[2], rel=0.35), "about as many fresh gradients"
    assert drift[0] < 1.1 * period[0]


PAIRS, NOISY, SCALE = 6, 300, 16


def scripted(dimension: int) -> list[Tensor]:
    """Return a path of far jumps, each of which asks a fresh gradient, and small moves, each of which asks a change."""
    along = torch.full((dimension,), 1 / sqrt(dimension), dtype=torch.float64)
    return [(10.0 * jump + 0.01 * move) * along for jump in range(PAIRS) for move in (0, 1)]


def squared_error(
    size: int, built: Built, settings: GaussPsgdPlan, path: Sequence[Tensor], exact: Callable[[Tensor], Tensor]
) -> float:
    """Return the mean squared error of the federation's estimates along a path."""

    def work(peers: PeerGroup) -> float:
        estimator = AdaSpider(settings, federation(peers, built), no_estimate(path[0]))
        slopes = [estimator.query(at) for at in path]
        errors = [
            (slope - exact(at)).square().sum() for slope, at in zip(slopes, path, strict=True) if slope is not None
        ]
        assert len(errors) == len(path)
        return float(torch.stack(errors).mean())

    return together(Mail(size), work)[0]


def private_error(size: int, units: int, *, shared: bool = False) -> float:
    """Return the squared error of estimates about records without any variance, behind real oracles: noise alone.

    Batches are in proportion to the number of units; `shared` plants one seed for all.
    """
    batch = units // 16
    settings = given(batch=batch, difference_batch=batch // 4, restart_drift=1.0, smoothness=1.0, mu=0.5)

    def built(place: int, payments: SiteFilter) -> Oracle:
        generator = repeatable_generator(bytes([0 if shared else place + 1]) * 32)
        return StreamOracle(StillRecords(units, NOISY), facts_of(units, NOISY), payments, generator, np.arange(units))

    still = torch.zeros(NOISY, dtype=torch.float64)
    still[0] = 1.0
    return squared_error(size, built, settings, scripted(NOISY), lambda _: still)


def slope(found: dict[int, float]) -> float:
    """Return the slope of log error."""
    return float(np.polyfit([log(one) for one in found], [log(error) for error in found.values()], 1)[0])


class TestScaling:
    """M, federated: at fixed scripted paths."""

    def test_private_error_falls_as_one_over_the_clients(self) -> None:
        assert slope({size: private_error(size, 640) for size in (1, 4, 16)}) == pytest.approx(-1, abs=0.1)

    def test_private_error_falls_as_the_square_of_the_units(self) -> None:
        """Its root thus falls as 1/(sqrt(m) n), with the test above."""
        assert slope({units: private_error(2, units) for units in (640, 2560, 10_240)}) == pytest.approx(-2, abs=0.1)

    def test_one_seed_for_all_is_seen(self) -> None:
        """Planted: noise that is the same at all sites does not average out."""
        assert slope({size: private_error(size, 640, shared=True) for size in (1, 4)}) > -0.3

    @pytest.mark.parametrize(
        ("by", "expected"), [pytest.param("clients", -1.0, marks=pytest.mark.slow), ("units", -1.0)]
    )
    def test_sampling_error_falls_as_one_over_all_records(self, by: str, expected: float) -> None:
        """The other term, where there is hardly any noise: records of the rank-one law."""
        found = {}
        for factor in (1, 4, 16):
            size, batch = (factor, 40) if by == "clients" else (1, 40 * factor)
            found[factor] = sampled_error(size, batch)
        assert slope(found) == pytest.approx(expected, abs=0.1)


def sampled_error(size: int, batch: int, asked: int = 400) -> float:
    """Return the squared error of fresh gradients about new records of the rank-one law, without noise to speak of."""
    law = PrincipalComponent((1.0, 0.8, *[0.6] * 8), asked * batch, radius=1.1)
    settings = given(batch=batch, difference_batch=batch, restart_drift=1e-9, mu=1e5, smoothness=10.0, clip=100.0)
    path = [torch.full((10,), 0.25 + 0.01 * (step % 2), dtype=torch.float64) for step in range(asked)]

    def built(place: int, payments: SiteFilter) -> Oracle:
        sampling = StreamSampling(batches=(batch,))
        public = facts_of(asked * batch, 10).model_copy(update={"gradient_bound": 100.0})
        return Flat(
            Simulation(law, public, SimulationGenerator(100 * size + place), sampling=sampling, payments=payments)
        )

    return squared_error(size, built, settings, path, law.mean_gradient)


class Flat:
    """A simulation of one replicate, as an oracle that has none."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.facts, self.randomness = simulation.facts, simulation.randomness
        self.affords, self.block, self.release = simulation.affords, simulation.block, simulation.release
        self.resume, self.keep = simulation.resume, simulation.keep

    def ask(self, question: Any, theta: Tensor, other: Tensor | None = None) -> Any:
        told = self._simulation.ask(question, theta, other)
        return type(told)(told.value.reshape(-1), told.scale)
