"""A real follower and the messages that it accepts: it opens once, makes sums that are paid for, and nothing else."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest
import torch
from pydantic import BaseModel, TypeAdapter
from safetensors.numpy import save_file

from core.base.files import digest_of
from core.base.settings import ServiceSettings
from core.data.columns import Columns
from core.mechanisms.sampling import public_order
from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescentPlan
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.oracle.noise import grid_for
from core.oracle.samples import PoissonOracle, StreamOracle
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.facts import PART_UNITS, Adjacency
from core.privacy.renyi import prefix_costs
from core.queries.gradients import Gradient, GradientDifference, Question
from core.queries.sampling import PoissonSampling
from core.queries.sums.process_group import ProcessGroup, meet
from core.queries.sums.sharded import ShardedProblem, Sum, shard_of
from core.records.encryption import SealedFile
from core.records.master_key import load_master_keys
from core.records.records import StoredRecords
from core.records.storage import open_storage
from core.records.weights import KeptWeights, read_weights
from core.training.order import Payer
from core.training.ranks import Closed, Opened, Paid, _own_rows
from tests.support.followers import PATIENCE_SECONDS, forget_groups
from tests.support.problems import repeatable_generator
from tests.support.unchecked import accepting
from workers.gather import start_follower
from workers.incident import hear
from workers.outcome import Outcome
from workers.wire import RankMessage

UNITS = 2 * PART_UNITS + 100
MASTER_KEY = "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3I="
TERMS = plan_orders(Decimal(8), Decimal("1e-6"))
COLUMNS = TypeAdapter(Columns).validate_python(
    [
        {"name": "x", "type": "number", "lower": -3, "upper": 3},
        {"name": "y", "type": "binary", "values": ["no", "yes"]},
    ]
)


class Scene:
    """Stored records, a planned job about them, and a follower of it.

    Attributes:
        group: led by the test.
        follower: the process.
        pipe: where it tells of a failure.
    """

    def __init__(self, home: Path) -> None:
        self.settings = ServiceSettings(home=home, master_key=MASTER_KEY)
        self.records = store(self.settings)
        self.planned = plan()
        self.weights: KeptWeights | None = None
        self.job = ""
        self.group: ProcessGroup
        self.follower: subprocess.Popen[bytes]
        self.pipe: int

    @property
    def opened(self) -> Opened:
        totals = tuple(tuple(total) for total in prefix_costs(self.planned.schedule, TERMS.orders))
        payers = (Payer(TERMS.orders, totals),)
        return Opened(
            planned=self.planned,
            records=self.records,
            payers=payers,
            kept_chunks=0,
            weights=self.weights,
            job=self.job,
        )

    def tell(self, *messages: BaseModel) -> None:
        for message in messages:
            self.group.tell(message.model_dump_json())

    def lead(self) -> ShardedProblem:
        """Open, and return all records as a leader sees them."""
        self.tell(self.opened)
        own = _own_rows(self.planned, self.records, self.settings, shard_of(UNITS, 0, 2), {})
        return ShardedProblem(own, UNITS, self.group)

    def sum(self, problem: Any) -> torch.Tensor:
        """Ask the job's first question."""
        question, facts = self.planned.spec.optimizer.questions()[0], self.planned.facts
        theta = torch.linspace(-1, 1, facts.dimension, dtype=torch.float64)
        return problem.integer_sum(question, facts, theta, grid_for(question, facts, UNITS).part_step)

    @property
    def status(self) -> int:
        return self.follower.wait(timeout=PATIENCE_SECONDS)


def store(settings: ServiceSettings) -> StoredRecords:
    """Put records where they would be."""
    draws = np.random.default_rng(3)
    schema = pa.schema([("x", pa.float64()), ("y", pa.int8())])
    settings.records_path.mkdir(parents=True)
    file = SealedFile(path=settings.records_path / "rec_1", context="ds_1")
    with file.writing() as sink, pa.ipc.new_file(pa.PythonFile(sink, "w"), schema) as writer:
        for length in (7000, UNITS - 7000):
            cells = [draws.normal(size=length).clip(-3, 3), draws.integers(0, 2, length).astype(np.int8)]
            writer.write_batch(pa.record_batch(cells, schema=schema))
    wrapped = load_master_keys(settings).current.wrap("ds_1", file.key)
    with file.path.open("rb") as source:
        return StoredRecords("ds_1", "rec_1", digest_of(source), wrapped)


def plan(**changes: dict[str, Any]) -> PlannedJob:
    spec = {
        "dataset": "ds_1",
        "model": {"kind": "logistic", "target": "y"},
        "optimizer": {"kind": "noisy_gd", "steps": 5},
        "privacy": {"mu": "0.5"},
        "resources": {"processes": 2},
    } | changes
    return plan_job(
        JobSpec.model_validate(accepting(spec)), columns=COLUMNS, units=UNITS, adjacency=Adjacency.ZERO_OUT, terms=TERMS
    )


@contextmanager
def followed(folder: Path, patience_seconds: float = PATIENCE_SECONDS, key: bytes = bytes(32)) -> Iterator[Scene]:
    scene, place = Scene(folder / "home"), f"file://{folder / 'meeting'}"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    order = RankMessage(
        rank=1,
        size=2,
        place=place,
        key=bytes(32).hex(),
        settings=scene.settings,
        memory_bytes=16 * 2**30,
        patience_seconds=patience_seconds,
    )
    scene.pipe, told = os.pipe()
    scene.follower = start_follower(order, pipe=told)
    os.close(told)
    try:
        scene.group = meet(0, 2, place, key=key, patience_seconds=patience_seconds, device=torch.device("cpu"))
        yield scene
        scene.group.part()
    finally:
        scene.follower.kill()
        scene.follower.communicate()
        forget_groups()
        torch.set_num_threads(threads)


def test_what_is_paid_is_summed_and_the_integers_are_those_of_one_process(tmp_path: Path) -> None:
    with followed(tmp_path) as scene:
        problem = scene.lead()
        scene.tell(Paid(chunks=1))
        whole = _own_rows(scene.planned, scene.records, scene.settings, None, {})
        assert torch.equal(scene.sum(problem), scene.sum(whole))
        scene.follower.send_signal(signal.SIGTERM)  # the leader's to act on
        scene.tell(Paid(chunks=2))
        scene.sum(problem)
        scene.tell(Closed())
        assert scene.status == Outcome.PUBLISHED
        assert hear(scene.pipe) is None


@pytest.mark.parametrize("payments", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_what_is_not_paid_is_not_summed(tmp_path: Path, payments: int) -> None:
    """A payment is worth one question here: the next one is refused."""
    with followed(tmp_path) as scene:
        problem = scene.lead()
        if payments:
            scene.tell(Paid(chunks=1))
            scene.sum(problem)
        with pytest.raises(RuntimeError, match=r"closed|reset|[Pp]eer"):
            scene.sum(problem)
        assert scene.status not in (0, -signal.SIGKILL)
        told = hear(scene.pipe)
        assert told is not None
        assert (told.error, told.rank) == ("PrivacyInvariantError", 1), "it is told as a trainer's failure is"
        assert told.at[-1].startswith("core.training.ranks:"), "where nobody said that it was paid"


@pytest.mark.slow
def test_a_follower_sums_for_norms_changes_and_choices_and_never_for_a_remembered_sum(
    tmp_path: Path,
) -> None:
    """A follower keeps the accounts of what it reads, which is no more than what the leader pays for."""
    with followed(tmp_path) as scene:
        scene.planned = plan(optimizer={"kind": "adaptive_gd", "select": "exponential"}, inference={"intervals": False})
        method, facts = scene.planned.spec.optimizer, scene.planned.facts
        assert isinstance(method, AdaptiveGradientDescentPlan)
        own = scene.lead()
        scene.tell(*(Paid(chunks=chunk + 1) for chunk in range(len(scene.planned.schedule))))
        whole = _own_rows(scene.planned, scene.records, scene.settings, None, {})
        oracles = [FullOracle(one, facts, UnlimitedFilter(), repeatable_generator()) for one in (own, whole)]
        norm, choice = method.norm_question(), method.selection_question()
        assert choice is not None
        points = torch.stack([torch.full((facts.dimension,), at, dtype=torch.float64) for at in (-1.0, 0.0, 0.5)])
        asked: list[tuple[Question, torch.Tensor, torch.Tensor | None]] = [
            (norm, points[0], None),
            (Gradient(sigma=40.0), points[0], None),
            (GradientDifference(sigma=40.0, cap=0.1), points[0], points[1]),
            (choice, points, None),
        ]
        for question, theta, other in asked:
            first, second = (oracle.ask(question, theta, other) for oracle in oracles)
            assert torch.equal(first.value, second.value)
        scene.tell(Closed())
        assert scene.status == Outcome.PUBLISHED


SAMPLED = {"kind": "clipped_sgd", "steps": 3, "batch": 400, "clip": 1.0}


@pytest.mark.slow
def test_samples_are_summed_at_their_price_and_the_integers_are_those_of_one_process(tmp_path: Path) -> None:
    """A sample's price is a small part of a full answer's: a follower that took it for one would refuse."""
    with followed(tmp_path) as scene:
        scene.planned = plan(optimizer=SAMPLED, inference={"intervals": False})
        method, facts = scene.planned.spec.optimizer, scene.planned.facts
        sampling = method.sampling(facts)
        assert isinstance(sampling, PoissonSampling)
        own = scene.lead()
        whole = _own_rows(scene.planned, scene.records, scene.settings, None, {})
        generators = (repeatable_generator(), repeatable_generator())
        oracles = [
            PoissonOracle(one, facts, UnlimitedFilter(), generator, sampling.parts, by_rows=False)
            for one, generator in zip((own, whole), generators, strict=True)
        ]
        theta = torch.zeros(facts.dimension, dtype=torch.float64)
        for chunk in range(3):
            scene.tell(Paid(chunks=chunk + 1))
            first, second = (oracle.ask(method.questions()[0], theta) for oracle in oracles)
            assert torch.equal(first.value, second.value)
        with pytest.raises(RuntimeError, match=r"closed|reset|[Pp]eer"):
            oracles[0].ask(method.questions()[0], theta)
        assert scene.status not in (0, -signal.SIGKILL)


STREAM = {"kind": "one_pass_clipped_sgd", "batch": 5000, "clip": 1.0}
"""Three batches, each a chunk; of two blocks each, so that either process sums some."""


def stream_oracles(scene: Scene, name: str = "job_1") -> tuple[list[StreamOracle], Question, torch.Tensor]:
    """Open a stream, and return its oracles for a leader and for one process, their question, and where it is asked."""
    scene.planned, scene.job = plan(optimizer=STREAM, inference={"intervals": False}), "job_1"
    method, facts = scene.planned.spec.optimizer, scene.planned.facts
    scene.tell(scene.opened)
    whole = _own_rows(scene.planned, scene.records, scene.settings, None, {})
    led = ShardedProblem(whole, UNITS, scene.group, whole=True)
    order = public_order(name, UNITS)[:15_000]
    oracles = [StreamOracle(one, facts, UnlimitedFilter(), repeatable_generator(), order) for one in (led, whole)]
    return oracles, method.questions()[0], torch.linspace(-1, 1, facts.dimension, dtype=torch.float64)


def test_a_streams_batches_are_summed_as_one_process_does_and_only_once_paid(tmp_path: Path) -> None:
    """A follower knows the order itself, and sums a batch only after the message that its chunk is paid."""
    with followed(tmp_path) as scene:
        oracles, question, theta = stream_oracles(scene)
        for chunk in range(2):
            scene.tell(Paid(chunks=chunk + 1))
            first, second = (oracle.ask(question, theta) for oracle in oracles)
            assert (torch.equal(first.value, second.value), first.scale) == (True, second.scale)
        with pytest.raises(RuntimeError, match=r"closed|reset|[Pp]eer"):
            oracles[0].ask(question, theta)
        assert scene.status not in (0, -signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["another order", "read again"])
def test_a_follower_sums_no_batch_that_is_not_the_streams_next(tmp_path: Path, wrong: str) -> None:
    with followed(tmp_path) as scene:
        oracles, question, theta = stream_oracles(scene, "job_2" if wrong == "another order" else "job_1")
        scene.tell(*(Paid(chunks=chunk + 1) for chunk in range(3)))
        if wrong == "read again":
            oracles[0].ask(question, theta)
            oracles[0]._streams[""].behind = 0  # a leader that has lost its place
        with pytest.raises(RuntimeError, match=r"closed|reset|[Pp]eer"):
            oracles[0].ask(question, theta)
        assert scene.status not in (0, -signal.SIGKILL)


def give_weights(settings: ServiceSettings) -> KeptWeights:
    """Put public weights of a first layer where they would be."""
    path = settings.home / "weights"
    save_file({"0.weight": np.float32([[0.5], [-1.0], [2.0]]), "0.bias": np.float32([0.1, 0.2, 0.3])}, path)
    open_storage(settings).put(path, "weights-1")
    return KeptWeights("weights-1", f"sha256:{sha256(path.read_bytes()).hexdigest()}")


def test_networks_start_from_the_same_public_weights_and_share_each_sample(tmp_path: Path) -> None:
    layers = [{"kind": "linear", "units": 3}, {"kind": "activation", "of": "relu"}, {"kind": "linear", "units": 2}]
    model = {"kind": "network", "target": "y", "layers": layers, "pretrained": "wts_1"}
    with followed(tmp_path) as scene:
        scene.planned = plan(model=model, optimizer={**SAMPLED, "batch": 3000}, inference={"intervals": False})
        scene.weights = give_weights(scene.settings)
        method, facts = scene.planned.spec.optimizer, scene.planned.facts
        sampling = method.sampling(facts)
        assert isinstance(sampling, PoissonSampling)
        scene.tell(scene.opened)
        given = read_weights(scene.settings, scene.weights)
        whole = _own_rows(scene.planned, scene.records, scene.settings, None, given)
        problem = ShardedProblem(whole, UNITS, scene.group)
        oracles = [
            PoissonOracle(one, facts, UnlimitedFilter(), repeatable_generator(), sampling.parts)
            for one in (problem, whole)
        ]
        theta = torch.linspace(-1, 1, facts.dimension, dtype=torch.float64)
        for chunk in range(3):
            scene.tell(Paid(chunks=chunk + 1))
            first, second = (oracle.ask(method.questions()[0], theta) for oracle in oracles)
            assert torch.equal(first.value, second.value)
        drawn = ShardedProblem(_own_rows(scene.planned, scene.records, scene.settings, None, {}), UNITS, scene.group)
        with pytest.raises(RuntimeError, match=r"closed|reset|[Pp]eer"):
            scene.sum(drawn)  # all records are not paid for
        assert scene.status not in (0, -signal.SIGKILL)


@pytest.mark.slow
def test_all_records_are_not_summed_where_samples_are_paid_for(tmp_path: Path) -> None:
    with followed(tmp_path) as scene:
        scene.planned = plan(optimizer=SAMPLED, inference={"intervals": False})
        problem = scene.lead()
        scene.tell(Paid(chunks=1))
        with pytest.raises(RuntimeError, match=r"closed|reset|[Pp]eer"):
            scene.sum(problem)
        assert scene.status not in (0, -signal.SIGKILL)


@pytest.mark.slow
def test_payments_are_told_in_their_order(tmp_path: Path) -> None:
    with followed(tmp_path) as scene:
        scene.tell(scene.opened, Paid(chunks=2))
        assert scene.status not in (0, -signal.SIGKILL)


def test_nothing_comes_before_the_records_are_opened(tmp_path: Path) -> None:
    with followed(tmp_path) as scene:
        question = scene.planned.spec.optimizer.questions()[0]
        scene.tell(Sum(question=question, facts=scene.planned.facts, step=2.0**-40, masked=False))
        assert scene.status not in (0, -signal.SIGKILL)


def test_a_stranger_cannot_lead(tmp_path: Path) -> None:
    """A leader without the key fails to meet, and the follower ends before it receives any message."""
    with pytest.raises(AssertionError, match="key"), followed(tmp_path, key=bytes(31) + b"x") as scene:
        raise AssertionError(scene)
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_what_the_leader_does_not_tell_is_not_done(tmp_path: Path) -> None:
    """The same message twice: only the leader's current message counts."""
    with followed(tmp_path) as scene:
        scene.tell(scene.opened)
        scene.group._told -= 1  # as if the last message was sent again
        scene.tell(Paid(chunks=1))
        assert scene.status not in (0, -signal.SIGKILL)


@pytest.mark.slow
def test_a_follower_without_its_parent_ends(tmp_path: Path) -> None:
    with followed(tmp_path) as scene:
        assert scene.follower.stdin is not None
        scene.follower.stdin.close()
        assert scene.status == Outcome.ORPHANED


@pytest.mark.slow
def test_nobody_waits_for_ever_for_a_follower_that_stands_still(tmp_path: Path) -> None:
    with followed(tmp_path, patience_seconds=60) as scene:
        problem = scene.lead()
        scene.tell(Paid(chunks=1))
        scene.sum(problem)
        scene.follower.send_signal(signal.SIGSTOP)
        started = time.monotonic()
        with pytest.raises(RuntimeError, match=r"[Tt]imed out"):
            scene.sum(problem)
        assert time.monotonic() - started < 180


def test_a_follower_tells_no_secret_and_leaves_no_core(tmp_path: Path) -> None:
    with followed(tmp_path) as scene:
        process = psutil.Process(scene.follower.pid)
        assert MASTER_KEY not in " ".join([*process.cmdline(), *process.environ(), *process.environ().values()])
        assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0)
        assert process.rlimit(psutil.RLIMIT_AS)[0] == 16 * 2**30


@pytest.mark.parametrize(
    ("status", "outcome"), [(0, 99), (14, Outcome.OUT_OF_MEMORY), (20, Outcome.FAILED_TRAINING), (30, 21)]
)
def test_a_leader_ends_as_its_follower_did(status: int, outcome: int) -> None:
    """A follower that was dismissed ends nobody: the leader goes on, here to status 99."""
    program = (
        "import os, subprocess, sys; from workers.gather import _fall_with;"
        f"_fall_with(subprocess.Popen([sys.executable, '-c', 'import os; os._exit({status})'])); os._exit(99)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == outcome


def test_everything_told_survives_the_wire(tmp_path: Path) -> None:
    opened = Scene(tmp_path).opened
    assert Opened.model_validate_json(opened.model_dump_json()) == opened
    assert "resources" in json.loads(opened.model_dump_json())["planned"]["spec"]
