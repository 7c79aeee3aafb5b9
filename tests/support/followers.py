"""Real followers for tests of sharded problems: `python -m tests.support.followers RANK SIZE PLACE`.

Each takes part of the same synthetic records, which the leader names, and sums on its message. Its bug, if any, is
named with the records.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from core.mechanisms.gaussian import noise_vector
from core.mechanisms.generator import SystemGenerator
from core.oracle.noise import grid_for
from core.queries.sums.blocks import BlockProblem
from core.queries.sums.network.problem import NetworkProblem
from core.queries.sums.process_group import ProcessGroup, meet
from core.queries.sums.sharded import Member, Shard, ShardedProblem, Sum, member_of, shard_of
from tests.support import networks
from tests.support.situations import SITUATIONS, Situation

ROOT = Path(__file__).resolve().parents[2]
CPU = torch.device("cpu")
PATIENCE_SECONDS = 180.0
"""For processes to load torch on a machine that others use too."""
KEY = bytes(range(32))


def situation_of(scene: dict[str, Any]) -> Situation:
    """Return the kind of problem that a scene names, with as many features as it says."""
    (found,) = [one for one in SITUATIONS if one.name == scene.get("loss", "logistic")]
    return replace(found, features=scene["dimension"])


def make_rows(scene: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the records of a scene: ordinary ones, ones full of ties, or some that cannot count."""
    x, y, present = situation_of(scene).rows(scene["units"], seed=scene.get("seed", 0))
    if scene.get("rows") == "ties":  # sums of halves, most of them between two steps
        x, y = x.sign() * 0.5, y.sign().abs() if scene["loss"] == "logistic" else y.sign()
    if scene.get("rows") == "odd":
        x[::7, 0], x[1::11] = torch.nan, 1e6
        present[::5] = False
    if scene.get("zeroed") is not None:
        present[scene["zeroed"]] = False
    return x, y, present


def make_problem(scene: dict[str, Any], span: range | None = None) -> BlockProblem | NetworkProblem:
    """Return the problem of some rows of a scene, by default all; of a network always all."""
    if "network" in scene:
        return networks.problem(networks.NETWORKS[scene["network"]], scene["units"], micro=scene["micro"])
    part = slice(None) if span is None else slice(span.start, span.stop)
    x, y, present = make_rows(scene)
    return situation_of(scene).problem((x[part], y[part], present[part]))


class NoisyShard(Shard):
    """Planted bug: every process noises its own sum."""

    def join(self, told: Sum, *arguments: torch.Tensor | None) -> torch.Tensor:
        genuine, generator = self._own.integer_sum, SystemGenerator()

        def noised(question: Any, facts: Any, *arguments: Any, **options: Any) -> torch.Tensor:
            grid = grid_for(question, facts, self._units)
            drawn = noise_vector(generator, grid.parameter(question.sigma), facts.dimension) << grid.part_bits
            return genuine(question, facts, *arguments, **options) + torch.from_numpy(drawn)

        self._own.integer_sum = noised  # type: ignore[method-assign]
        try:
            return super().join(told, *arguments)
        finally:
            self._own.integer_sum = genuine  # type: ignore[method-assign]


def follow(group: ProcessGroup) -> None:
    """Do what the leader says until it says no more."""
    member: Member | None = None
    while told := group.hear():
        message = json.loads(told)
        if message["kind"] == "sum":
            assert member is not None
            member.join(Sum.model_validate(message))
        elif message["kind"] == "scene":
            units = message["units"]
            own = make_problem(message, _span_of(message, group))
            whole = message.get("whole", False)
            noisy = message.get("bug") == "noise"
            member = NoisyShard(own, units, group) if noisy else member_of(own, units, group, whole=whole)
        else:
            return


def lead(group: ProcessGroup, **scene: Any) -> ShardedProblem:
    """Have everybody take their part of a scene; return it as the leader sees it."""
    told = {"kind": "scene", "loss": "logistic", **scene}
    group.tell(json.dumps(told))
    units = told["units"]
    return ShardedProblem(make_problem(told, _span_of(told, group)), units, group, whole=bool(told.get("whole")))


def _span_of(scene: dict[str, Any], group: ProcessGroup) -> range | None:
    """Return the rows that a process holds; None: all, where the scene says so."""
    return None if scene.get("whole") else shard_of(scene["units"], group.rank, group.size)


@contextmanager
def gathered(size: int, folder: Path) -> Iterator[ProcessGroup]:
    """Lead a group of real processes; all are gone afterwards."""
    place = f"file://{folder / 'meeting'}"
    command = [sys.executable, "-m", "tests.support.followers"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    followers = [
        subprocess.Popen([*command, str(rank), str(size), place], cwd=ROOT, env=environment) for rank in range(1, size)
    ]
    group = None
    try:
        group = meet(0, size, place, key=KEY, patience_seconds=PATIENCE_SECONDS, device=CPU)
        yield group
        group.tell(json.dumps({"kind": "end"}))
        assert [follower.wait(timeout=PATIENCE_SECONDS) for follower in followers] == [0] * (size - 1)
    finally:
        for follower in followers:
            follower.kill()
            follower.wait()
        if group is not None:
            group.part()
        forget_groups()
        torch.set_num_threads(threads)


def forget_groups() -> None:
    """Have this process lead its next group as if it were its first.

    Torch names a group by the count of those before it, the ones that never met among them. Followers, which are new
    processes, would look for it under another name, and one time-out would fail every test after it.
    """
    torch.distributed.distributed_c10d._world.group_count = 0


def main() -> None:
    """Meet and follow."""
    torch.set_num_threads(1)
    rank, size, place = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    follow(meet(rank, size, place, key=KEY, patience_seconds=PATIENCE_SECONDS, device=CPU))
    os._exit(0)  # as real ones do: gloo's threads may not outlive an orderly end of the interpreter


if __name__ == "__main__":
    main()
