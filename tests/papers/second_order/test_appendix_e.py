"""Appendix E in small, on digits that come with a library: its gates, its grid, and how an interrupted run goes on."""

from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.methods.fits import iterate
from core.methods.second_order.claims import EscapePlan
from core.methods.second_order.figures import SpiderFigures
from core.methods.second_order.gauss_psgd import fit as gauss_psgd
from core.methods.second_order.gauss_psgd.spec import GaussPsgd
from core.methods.second_order.perturbed_spider.spec import PerturbedSpider
from core.oracle.federation import FederatedOracle, MessageRounds, SiteFilter
from core.oracle.filters import CountingFilter
from core.oracle.simulation import Simulation
from core.privacy.events import Gaussian
from core.privacy.facts import Facts
from examples.datasets import NotFetched
from studies.second_order import appendix_e, appendix_grid
from studies.second_order.appendix_e import Cell, Method, run, settings
from studies.second_order.appendix_grid import METHODS, go_on, grid, report, stand_in, stored
from studies.second_order.clients import Clients, Partition, shares
from tests.support.peer_groups import Mail, ThreadPeerGroup, together
from tests.support.problems import problem
from tests.support.second_order import facts_of

CELL = Cell("digits", "B", 2.0, 2, "iid", 1.0)
KNOWN = Facts.model_validate(
    {"units": 600, "dimension": 9610, "adjacency": "replace_one", "gradient_bound": 1.0, "part_rows": 128}
)


def test_the_grid_has_every_cell_of_the_appendix_once() -> None:
    asked = list(grid())
    assert len(set(asked)) == len(asked)
    cells = {(cell.data, cell.epsilon, cell.clients) for cell, _, _ in asked if cell.data != "digits"}
    assert len(cells) == 24, "two sets of images, three epsilons, four numbers of clients"
    first = [(cell, method) for cell, method, seed in asked[: 24 * 3] if seed == 0]
    assert {(cell.reading, cell.partition, cell.clip) for cell, _ in first} == {("B", "iid", 1.0)}
    assert Counter(method for _, method in first) == dict.fromkeys(METHODS, 24)
    assert not any(cell.data == "mnist" and cell.reading == "A" for cell, _, _ in asked), "there are too few images"
    assert {cell.units for cell, _, _ in asked if cell.reading == "A"} == {6000}
    assert {cell.units * cell.clients for cell, _, _ in asked if cell.reading == "B"} == {6000}
    assert {seed for _, _, seed in asked} == set(range(5))


@pytest.mark.parametrize("method", ["gauss_psgd", "perturbed_spider", "diff2"])
def test_settings_are_those_of_the_appendix(method: Method) -> None:
    planned = settings(CELL, method, KNOWN)
    assert isinstance(planned, SpiderFigures)
    assert planned.restart_drift == 0.1
    assert planned.multiplier == pytest.approx(1.9938, abs=1e-4), "z of epsilon 2, one pass"
    assert planned.step_size == (1.0 if method == "perturbed_spider" else 0.01)
    assert (planned.batch, planned.difference_batch) == (50, 5)
    if isinstance(planned, EscapePlan):
        assert (planned.error_radius, planned.round_steps, planned.rounds) == (0.01, 10, 3)


def test_a_run_reads_its_records_once_and_is_interrupted_and_goes_on(tmp_path: Path) -> None:
    """The gates of a run are asserted in it: records used, the budget, finite values."""
    path = tmp_path / "runs.jsonl"
    asked = list(islice(stand_in(), 4))
    first = go_on(asked[:2], path)
    with path.open("a") as file:
        file.write('{"cell": {"data": "dig')  # the process was killed here
    made = go_on(asked, path)
    assert len(path.read_text().splitlines()) == 5, "two were there, two were made, one line is cut off"
    assert stored(path) == made
    assert {key: made[key] for key in first} == first
    assert not go_on(asked[2:3], tmp_path / "none.jsonl", minutes=0.0)
    assert {one.counts["records"] for one in made.values()} <= set(range(900, 1201))
    found = report(made.values(), "")
    rows = {row.what: row.ours for row in found.rows}
    assert rows["runs of Gauss-PSGD in which any round of escape began"] == 0
    assert rows["cells in which Gauss-PSGD and prior work (our reconstruction) were compared"] == 1
    assert set(found.charts) == {"digits-2-accuracy", "digits-2-loss"}
    assert all(text.startswith("<svg") for text in found.charts.values())


def test_more_records_than_there_are_stop_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a client that counts a unit less than it read."""
    monkeypatch.setattr(appendix_e._Watched, "records", property(lambda _: 10**9))
    with pytest.raises(AssertionError, match="no record is read twice"):
        run(CELL, "perturbed_spider", 0)


def test_without_images_digits_stand_in_with_a_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> None:
        raise NotFetched(f"no {name}")

    monkeypatch.setattr(appendix_grid, "pictures", missing)
    monkeypatch.setattr(appendix_grid, "stand_in", lambda: iter(()))
    monkeypatch.setattr(appendix_grid, "report", lambda _, note: note)
    assert "digits stand in" in str(appendix_grid.appendix_e(full=True))
    assert "no mnist" in capsys.readouterr().out


def test_without_rounds_and_with_one_step_prior_work_is_the_same_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no estimate is ever short the two differ in nothing but their step: one curve, number by number."""
    planned = settings

    def one_step(cell: Cell, method: Method, facts: Facts) -> object:
        found = planned(cell, method, facts)
        return found.model_copy(update={"step_size": 0.01}) if isinstance(found, PerturbedSpider) else found

    monkeypatch.setattr(appendix_e, "settings", one_step)
    ours, theirs = (run(CELL, method, 3) for method in METHODS[:2])
    assert ours.curve == theirs.curve
    assert ours.counts["phases"] == theirs.counts["disturbed"] == 0


@pytest.mark.parametrize("partition", ["iid", "dirichlet", "shards"])
def test_clients_share_no_record(partition: Partition) -> None:
    labels = torch.arange(1000) % 10
    found = shares(labels, 5, 180, partition, seed=4)
    assert [len(one) for one in found] == [180] * 5
    assert len(set(torch.cat(found).tolist())) == 900
    again = shares(labels, 5, 180, partition, seed=4)
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))
    most = [int(torch.bincount(labels[one], minlength=10).max()) for one in found]
    classes = [int((torch.bincount(labels[one], minlength=10) > 0).sum()) for one in found]
    if partition == "iid":
        assert max(most) < 40
    else:
        assert max(most) > 60, "some client has far more of a class than its part"
    if partition == "shards":
        assert sum(classes) <= 10 + 2 * 5 - 1, "ten runs of sorted labels have a label in common with their neighbours"


def test_the_mean_of_clients_is_what_a_federation_tells_each_of_them() -> None:
    """Bit for bit, along a whole run of Gauss-PSGD, of two clients with noise of their own."""
    known = facts_of(300, 3)
    asked = GaussPsgd(
        mode="given",
        mu=1.0,
        smoothness=1.0,
        hessian_smoothness=1.0,
        batch=20,
        rounds=1,
        difference_batch=4,
        restart_drift=0.05,
        step_size=0.3,
        error_radius=0.02,
        radius=100.0,
        escape_distance=1.0,
        round_steps=4,
        steps=60,
    ).plan(known, 1.0)
    price = Gaussian(sigma=1.0)

    def oracle(place: int, payments: object = None) -> Simulation:
        paying = CountingFilter(price) if payments is None else payments
        generator = SimulationGenerator(40 + place)
        data = problem(300, 3, seed=place)
        return Simulation(data, known, generator, sampling=asked.sampling(known), payments=paying)  # type: ignore[arg-type] # a privacy filter

    def work(peers: ThreadPeerGroup) -> Tensor:
        paying = SiteFilter(CountingFilter(price), MessageRounds(peers))
        return gauss_psgd.iterate(asked, FederatedOracle(oracle(peers.place, paying), paying, "fed"))[0].theta

    path: list[int] = []
    mean = Clients([oracle(0), oracle(1)], 1, lambda state: path.append(int(state["step"])))
    found = iterate(asked, mean)[0].theta
    assert max(path) > 10
    for told in together(Mail(2), work):
        assert np.array_equal(found.numpy(), told.numpy())
