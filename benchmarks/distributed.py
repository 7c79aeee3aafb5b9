"""A gradient through the door with the records in one process and in two: `python -m benchmarks.distributed`.

581,012 x 54 float64, synthetic, one thread a process, gloo over the loopback interface. What is compared is a whole
answer: the sums, adding them up, rounding and noise. Both are measured in turns, so that a busy machine slows them
alike; on fewer cores than processes nothing can be gained. The goal is that two processes lose no more than a tenth,
and on two idle cores they win. The integers must be equal.
"""

import os
import subprocess
import sys
import tempfile
from functools import partial

import torch

from benchmarks.gradient import DIMENSION, UNITS, WEIGHTS, facts_for, interleaved
from core.catalogue.losses import Logistic
from core.catalogue.questions import Curvature, Gradient, Question
from core.mechanisms.generator import SystemGenerator
from core.oracle.door import FullDoor
from core.oracle.meters import Unmetered
from core.oracle.noise import grid_for
from core.problems.linear import LinearProblem
from core.problems.sharded import Shard, ShardedProblem, Sum, shard_of
from core.problems.team import Team, meet

PROCESSES = 2
PATIENCE_SECONDS = 120.0
MOST = 1.1
"""Times the step of one process."""
END = "end"
QUESTIONS: tuple[Question, ...] = (Gradient(sigma=30.0), Curvature(of="hessian", sigma=30.0))


def make_problem(rows: range) -> LinearProblem:
    """Return the problem of some rows, the same in every process."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(UNITS, DIMENSION, generator=generator, dtype=torch.float64)
    target = (torch.rand(UNITS, generator=generator) < 0.5).double()
    own = slice(rows.start, rows.stop)
    present = torch.ones(len(rows), dtype=torch.bool)
    return LinearProblem(features[own].clone(), target[own].clone(), present, Logistic(), WEIGHTS)


def join(rank: int, place: str) -> tuple[Team, LinearProblem]:
    """Meet the others and take this process's rows."""
    torch.set_num_threads(1)
    team = meet(rank, PROCESSES, place, key=bytes(32), patience_seconds=PATIENCE_SECONDS, device=torch.device("cpu"))
    return team, make_problem(shard_of(UNITS, rank, PROCESSES))


def follow(rank: int, place: str) -> None:
    """Sum until told to end."""
    team, own = join(rank, place)
    shard = Shard(own, UNITS, team)
    while (told := team.hear()) != END:
        shard.join(Sum.model_validate_json(told))


def ask_anew(door: FullDoor, question: Question) -> None:
    """Ask somewhere else than before: a door remembers the last sum at one point."""
    door.ask(question, 0.05 * torch.rand(DIMENSION, dtype=torch.float64))


def compare(place: str) -> float:
    """Print a line for each question; return the gradient's ratio."""
    team, own = join(0, place)
    public, theta = facts_for(Logistic(), UNITS, DIMENSION), torch.full((DIMENSION,), 0.05, dtype=torch.float64)
    several, one = ShardedProblem(own, UNITS, team), make_problem(range(UNITS))
    ratios = []
    for question in QUESTIONS:
        step = grid_for(question, public, UNITS).part_step
        integers = [problem.integer_sum(question, public, theta, step) for problem in (one, several)]
        assert torch.equal(*integers), "the integers are those of one process"
        doors = [FullDoor(problem, public, Unmetered(), SystemGenerator()) for problem in (one, several)]
        alone, together = interleaved(*(partial(ask_anew, door, question) for door in doors))
        ratios.append(together / alone)
        print(f"{question.kind:<12}{alone * 1e3:>14.1f}{together * 1e3:>14.1f}{ratios[-1]:>8.2f}")
    team.tell(END)
    team.part()
    return ratios[0]


def main() -> None:
    """Print the table."""
    if len(sys.argv) > 1:
        follow(int(sys.argv[1]), sys.argv[2])
        return
    print(f"{UNITS} x {DIMENSION} float64, milliseconds an answer, medians; {os.cpu_count()} cores; goal {MOST}")
    print(f"{'':<12}{'1 process':>14}{f'{PROCESSES} processes':>14}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as folder:
        place = f"file://{folder}/meeting"
        command = [sys.executable, "-m", "benchmarks.distributed"]
        followers = [subprocess.Popen([*command, str(rank), place]) for rank in range(1, PROCESSES)]
        try:
            ratio = compare(place)
            assert [follower.wait(timeout=60) for follower in followers] == [0] * len(followers)
        finally:
            for follower in followers:
                follower.kill()
    if ratio > MOST:
        raise SystemExit("the goal is missed")


if __name__ == "__main__":
    main()
