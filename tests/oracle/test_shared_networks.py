"""Networks that several real processes sum: the integers of one process, whoever sums which places of a list."""

from collections.abc import Iterator

import pytest
import torch

from core.mechanisms.sampling import public_order, rate_parts
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.noise import grid_for
from core.oracle.samples import PoissonOracle, StreamOracle
from core.queries.gradients import Gradient, GradientDifference, LeastGradient
from core.queries.sums import Problem
from core.queries.sums.network.problem import NetworkProblem
from core.queries.sums.process_group import ProcessGroup
from core.queries.sums.sharded import ShardedProblem
from tests.support.followers import gathered, lead, make_problem
from tests.support.networks import facts
from tests.support.problems import repeatable_generator

UNITS, PART = 203, 8
QUESTION = Gradient(sigma=1.0, clip=0.5)


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=pytest.mark.slow)])
def group(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessGroup]:
    with gathered(request.param, tmp_path_factory.mktemp("group")) as found:
        yield found


def _both(group: ProcessGroup, name: str, micro: int) -> tuple[ShardedProblem, NetworkProblem]:
    scene = {"network": name, "units": UNITS, "micro": micro}
    several, one = lead(group, **scene), make_problem(scene)
    assert isinstance(one, NetworkProblem)
    return several, one


def _point(dimension: int, seed: int = 3) -> torch.Tensor:
    return 0.1 * torch.randn(dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", ["perceptron", "pools", "transformer", "adapters"])
@pytest.mark.parametrize("micro", [4, 32])
@pytest.mark.parametrize("listed", [None, 1, 57, 96])
def test_the_integers_are_those_of_one_process(group: ProcessGroup, name: str, micro: int, listed: int | None) -> None:
    several, one = _both(group, name, micro)
    public = facts(UNITS, one.dimension, 0.5, PART)
    step = grid_for(QUESTION, public, UNITS).part_step
    draws = torch.Generator().manual_seed(1)
    rows = None if listed is None else torch.randperm(UNITS, generator=draws)[:listed]
    included = torch.rand(listed or UNITS, generator=draws) < 0.8
    theta = _point(one.dimension)
    sums = [held.integer_sum(QUESTION, public, theta, step, rows=rows, included=included) for held in (several, one)]
    assert torch.equal(*sums)
    assert listed == 1 or sums[0].any()


def test_changes_and_choices_are_those_of_one_process(group: ProcessGroup) -> None:
    several, one = _both(group, "perceptron", 8)
    public = facts(UNITS, one.dimension, 0.5, PART)
    theta, other = _point(one.dimension), _point(one.dimension, 4)
    change = GradientDifference(sigma=1.0, clip=0.5, cap=0.2)
    step = grid_for(change, public, UNITS).part_step
    found = [held.integer_sum(change, public, theta, step, other=other) for held in (several, one)]
    assert torch.equal(*found)
    oracles = [FullOracle(held, public, UnlimitedFilter(), repeatable_generator()) for held in (several, one)]
    told = [oracle.ask(LeastGradient(sigma=0.02, clip=0.5), torch.stack([theta, other])).value for oracle in oracles]
    assert torch.equal(*told)


@pytest.mark.parametrize("rate", [0.05, 0.7])
def test_a_poisson_sample_is_drawn_by_the_leader_and_summed_by_all(group: ProcessGroup, rate: float) -> None:
    """A small sample goes as a list, a large one as a mask."""
    several, one = _both(group, "transformer", 8)
    public = facts(UNITS, one.dimension, 0.5, PART)

    def answer(held: Problem) -> torch.Tensor:
        oracle = PoissonOracle(held, public, UnlimitedFilter(), repeatable_generator(), rate_parts(rate))
        points = [_point(one.dimension, seed).to(oracle.precision) for seed in range(3)]
        return torch.stack([oracle.ask(QUESTION, at).value for at in points])

    assert answer(several).dtype == torch.float32
    assert torch.equal(answer(several), answer(one))


def test_a_streams_batches_are_summed_by_all(group: ProcessGroup) -> None:
    several, one = _both(group, "convolution", 8)
    public, order = facts(UNITS, one.dimension, 0.5, PART), public_order("job_1", UNITS)
    oracles = [StreamOracle(held, public, UnlimitedFilter(), repeatable_generator(), order) for held in (several, one)]
    for batch in (60, 7, 100):
        question = Gradient(sigma=1.0, clip=0.5, batch=batch)
        told = [oracle.ask(question, _point(one.dimension, batch)).value for oracle in oracles]
        assert torch.equal(*told)


def test_whoever_sums_other_blocks_is_seen(group: ProcessGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted bug: the leader's edges lie elsewhere than its followers'."""
    several, one = _both(group, "perceptron", 8)
    public = facts(UNITS, one.dimension, 0.5, PART)
    step, theta = grid_for(QUESTION, public, UNITS).part_step, _point(one.dimension)
    assert torch.equal(*(held.integer_sum(QUESTION, public, theta, step) for held in (several, one)))
    monkeypatch.setattr(NetworkProblem, "block_rows", lambda *_: 12)
    assert not torch.equal(*(held.integer_sum(QUESTION, public, theta, step) for held in (several, one)))
