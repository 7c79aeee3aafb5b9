"""A gradient through the oracle with one process and with two: `python -m benchmarks.distributed`.

581,012 x 54 float64 that two processes hold between them; then a network of two convolutions and 26,010 parameters on
images of 28 x 28. Its Poisson samples of 2,048 of 16,384 records are shared by two processes, each holding all.
Synthetic, one thread a process, gloo over the loopback interface. Whole answers are compared: the sums, adding them up,
rounding and noise. Both are measured in turns, so that a busy machine slows them alike. On fewer cores than processes
nothing can be gained: the leader's share, its processor time over that of one process alone, says what idle cores would
gain. The goal is that two processes lose no more than a tenth, and on two idle cores they win. The integers must be
equal.
"""

import os
import subprocess
import sys
import tempfile
from functools import partial
from time import process_time

import torch

from benchmarks.gradient import DIMENSION, UNITS, WEIGHTS, facts_for, interleaved
from core.losses.categorical import Logistic
from core.mechanisms.generator import SystemGenerator
from core.mechanisms.sampling import rate_parts
from core.models.network.layers import Activation, Conv2d, Flatten, Linear, Pool2d, Reshape
from core.oracle import Oracle
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.noise import grid_for
from core.oracle.samples import PoissonOracle
from core.planning.networks import PART_ROWS
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Curvature, Gradient, Question
from core.queries.sums import Problem
from core.queries.sums.linear import LinearProblem
from core.queries.sums.network.problem import NetworkProblem
from core.queries.sums.process_group import ProcessGroup, meet
from core.queries.sums.sharded import ShardedProblem, Sum, member_of, shard_of

PROCESSES = 2
PATIENCE_SECONDS = 120.0
MOST = 1.1
"""Times the step of one process."""
NEXT = "next"
QUESTIONS: tuple[Question, ...] = (Gradient(sigma=30.0), Curvature(of="hessian", sigma=30.0))
IMAGES, BATCH = 16_384, 2_048
LAYERS = (
    Reshape(shape=(1, 28, 28)),
    Conv2d(channels=16, kernel=8, stride=2, padding=3),
    Activation(of="tanh"),
    Pool2d(kernel=2, stride=1),
    Conv2d(channels=32, kernel=4, stride=2),
    Activation(of="tanh"),
    Pool2d(kernel=2, stride=1),
    Flatten(),
    Linear(units=32),
    Activation(of="tanh"),
    Linear(units=10),
)
PIXELS = 784
PARAMETERS = 26_010


def make_linear(rows: range) -> LinearProblem:
    """Return the regression of some rows, the same in every process."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(UNITS, DIMENSION, generator=generator, dtype=torch.float64)
    target = (torch.rand(UNITS, generator=generator) < 0.5).double()
    own = slice(rows.start, rows.stop)
    present = torch.ones(len(rows), dtype=torch.bool)
    return LinearProblem(features[own].clone(), target[own].clone(), present, Logistic(), WEIGHTS)


def make_network() -> NetworkProblem:
    """Return the network, the same in every process."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(IMAGES, PIXELS, generator=generator)
    target = torch.randint(0, 10, (IMAGES,), generator=generator).double()
    start = 0.05 * torch.randn(PARAMETERS, generator=generator)
    present = torch.ones(IMAGES, dtype=torch.bool)
    return NetworkProblem(features, target, present, LAYERS, "cross_entropy", (PIXELS,), start)


def follow(rank: int, place: str) -> None:
    """Sum until the group sends `NEXT`: the regression, then the network."""
    group = join(rank, place)
    for own, units in ((make_linear(shard_of(UNITS, rank, PROCESSES)), UNITS), (make_network(), IMAGES)):
        member = member_of(own, units, group)
        while (told := group.hear()) != NEXT:
            member.join(Sum.model_validate_json(told))


def join(rank: int, place: str) -> ProcessGroup:
    """Meet the others."""
    torch.set_num_threads(1)
    return meet(rank, PROCESSES, place, key=bytes(32), patience_seconds=PATIENCE_SECONDS, device=torch.device("cpu"))


def compare(
    name: str, question: Question, public: Facts, problems: tuple[Problem, Problem], oracles: tuple[Oracle, Oracle]
) -> float:
    """Print a line; return the ratio.

    Args:
        name: of the line.
        question: to the oracles.
        public: facts.
        problems: one process's, and several processes'.
        oracles: to them.
    """
    theta = torch.full((public.dimension,), 0.05, dtype=torch.float64)
    step = grid_for(question, public, public.units).part_step
    integers = [problem.integer_sum(question, public, theta, step) for problem in problems]
    assert torch.equal(*integers), "the integers are those of one process"

    def ask(oracle: Oracle) -> None:
        """Ask somewhere else than before: an oracle remembers the last sum at one point."""
        oracle.ask(question, 0.05 * torch.rand(public.dimension, dtype=torch.float64))

    def busy(oracle: Oracle) -> float:
        """Return the processor time that the leader takes for a few answers."""
        start = process_time()
        for _ in range(5):
            ask(oracle)
        return process_time() - start

    alone, together = interleaved(*(partial(ask, oracle) for oracle in oracles))
    share = busy(oracles[1]) / busy(oracles[0])
    print(f"{name:<22}{alone * 1e3:>14.1f}{together * 1e3:>14.1f}{together / alone:>8.2f}{share:>12.2f}")
    return together / alone


def compare_all(place: str) -> list[float]:
    """Print all lines; return the ratios of gradients."""
    group = join(0, place)
    public, one = facts_for(Logistic(), UNITS, DIMENSION), make_linear(range(UNITS))
    pair = one, ShardedProblem(make_linear(shard_of(UNITS, 0, PROCESSES)), UNITS, group)
    full = (
        FullOracle(pair[0], public, UnlimitedFilter(), SystemGenerator()),
        FullOracle(pair[1], public, UnlimitedFilter(), SystemGenerator()),
    )
    ratios = [compare(question.kind, question, public, pair, full) for question in QUESTIONS]
    group.tell(NEXT)
    known = Facts(
        units=IMAGES, dimension=PARAMETERS, adjacency=Adjacency.ZERO_OUT, gradient_bound=1.0, part_rows=PART_ROWS
    )
    network = make_network()
    both = network, ShardedProblem(network, IMAGES, group)
    parts = rate_parts(BATCH / IMAGES)
    sampled = (
        PoissonOracle(both[0], known, UnlimitedFilter(), SystemGenerator(), parts),
        PoissonOracle(both[1], known, UnlimitedFilter(), SystemGenerator(), parts),
    )
    ratios.append(compare("a network's gradient", Gradient(sigma=1.0), known, both, sampled))
    group.tell(NEXT)
    group.part()
    return [ratios[0], ratios[-1]]


def main() -> None:
    """Print the table."""
    if len(sys.argv) > 1:
        follow(int(sys.argv[1]), sys.argv[2])
        return
    print(f"{UNITS} x {DIMENSION} float64, a network; milliseconds an answer, medians; {os.cpu_count()} cores")
    print(f"{'':<22}{'1 process':>14}{f'{PROCESSES} processes':>14}{'ratio':>8}{'its share':>12}   goal {MOST}")
    with tempfile.TemporaryDirectory() as folder:
        place = f"file://{folder}/meeting"
        command = [sys.executable, "-m", "benchmarks.distributed"]
        followers = [subprocess.Popen([*command, str(rank), place]) for rank in range(1, PROCESSES)]
        try:
            ratios = compare_all(place)
            assert [follower.wait(timeout=60) for follower in followers] == [0] * len(followers)
        finally:
            for follower in followers:
                follower.kill()
    if max(ratios) > MOST:
        raise SystemExit("the goal is missed")


if __name__ == "__main__":
    main()
