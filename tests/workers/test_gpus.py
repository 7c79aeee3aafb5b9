"""GPUs: found by `nvidia-smi`, held by one supervisor, looked at before a claim, and refused before any record is read.

Where there is none, `nvidia-smi` is a script that tells what a file says; torch then finds no device behind it.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
import structlog

from core.base.settings import ServiceSettings
from tests.support.embedded import ROOT, Embedded, embedded
from workers.gpus import Gpu, NoAnswer, find_gpus, free_bytes, hold
from workers.process import child_environment, pin
from workers.slots import Slot, make_slots

UUID = "GPU-00000000-fa4e-0000-0000-"
LOG = structlog.get_logger()


class FakeGpus:
    """A file that the fake `nvidia-smi` prints."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.uuids = [f"{UUID}{uuid4().hex[:12]}" for _ in range(2)]

    def say(self, *free_mebibytes: str) -> None:
        lines = [f"{index}, {self.uuids[index]}, {free}\n" for index, free in enumerate(free_mebibytes)]
        self._path.write_text("".join(lines))

    def break_down(self) -> None:
        self._path.unlink()


@pytest.fixture
def gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGpus:
    folder = tmp_path / "bin"
    folder.mkdir()
    told = tmp_path / "gpus.csv"
    script = folder / "nvidia-smi"
    script.write_text(f'#!/bin/sh\nexec cat "{told}"\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    fake = FakeGpus(told)
    fake.say("81000", "400")
    return fake


class TestFinding:
    def test_every_gpu_has_its_name_and_free_memory(self, gpus: FakeGpus) -> None:
        first, second = find_gpus()
        assert [gpu.uuid for gpu in (first, second)] == gpus.uuids
        assert (free_bytes(first), free_bytes(second)) == (81000 * 2**20, 400 * 2**20)

    def test_a_driver_that_does_not_count_memory(self, gpus: FakeGpus) -> None:
        gpus.say("[N/A]")
        (only,) = find_gpus()
        assert free_bytes(only) is None

    @pytest.mark.parametrize(("visible", "found"), [("1", [1]), ("", []), ("0,1", [0, 1]), ("GPU-none", [])])
    def test_only_visible_ones(self, gpus: FakeGpus, visible: str, found: list[int]) -> None:
        assert [gpu.uuid for gpu in find_gpus({"CUDA_VISIBLE_DEVICES": visible})] == [gpus.uuids[at] for at in found]

    def test_by_uuid(self, gpus: FakeGpus) -> None:
        assert [gpu.uuid for gpu in find_gpus({"CUDA_VISIBLE_DEVICES": gpus.uuids[1]})] == [gpus.uuids[1]]

    def test_no_answer(self, gpus: FakeGpus) -> None:
        first, _ = find_gpus()
        gpus.say("1000")
        with pytest.raises(NoAnswer, match="gone"):
            free_bytes(Gpu("1", gpus.uuids[1]))
        gpus.break_down()
        with pytest.raises(NoAnswer, match="CalledProcessError"):
            free_bytes(first)

    def test_no_driver_at_all(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(NoAnswer, match="FileNotFoundError"):
            find_gpus()


HOLDER = """
import sys
from contextlib import ExitStack
from pathlib import Path
from workers.gpus import Gpu, hold

with ExitStack() as locks:
    print(hold([Gpu("0", sys.argv[1])], locks, Path(sys.argv[2])), flush=True)
    sys.stdin.read()
"""


def test_a_gpu_serves_one_process(tmp_path: Path) -> None:
    first, second = Gpu("0", f"{UUID}000000000001"), Gpu("1", f"{UUID}000000000002")
    command = [sys.executable, "-c", HOLDER, first.uuid, str(tmp_path)]
    holder = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder, ExitStack() as locks:
        assert first.uuid in holder.stdout.readline()
        assert hold([first, second], locks, tmp_path) == [second]
        holder.kill()
        holder.wait()
        assert hold([first], locks, tmp_path) == [first], "the kernel lets go with the process"


class TestSlots:
    def test_one_for_each_gpu_and_as_many_as_asked_for_on_the_cpu(self, gpus: FakeGpus) -> None:
        with ExitStack() as locks:
            slots = make_slots(ServiceSettings(queues="cpu,gpu", workers=3), locks, LOG)
        assert [slot.gpu.uuid for slot in slots if slot.gpu] == gpus.uuids
        assert [slot.takes for slot in slots] == [("auto", "cpu")] * 3 + [("auto", "cuda")] * 2

    def test_supervisors_that_share_a_folder_share_the_gpus(self, gpus: FakeGpus, tmp_path: Path) -> None:
        """As containers of one machine do by a volume: each has a folder for temporary files of its own."""
        settings = ServiceSettings(queues="gpu", gpu_locks=tmp_path)
        with ExitStack() as one, ExitStack() as other:
            assert len(make_slots(settings, one, LOG)) == len(gpus.uuids)
            with pytest.raises(SystemExit, match="free of other supervisors"):
                make_slots(settings, other, LOG)
            apart = settings.model_copy(update={"gpu_locks": tmp_path.parent})
            assert len(make_slots(apart, other, LOG)) == len(gpus.uuids), "who looks elsewhere knows of nobody"

    def test_no_folder_for_the_locks(self, gpus: FakeGpus, tmp_path: Path) -> None:
        del gpus
        settings = ServiceSettings(queues="gpu", gpu_locks=tmp_path / "none")
        with ExitStack() as locks, pytest.raises(SystemExit, match="no such folder"):
            make_slots(settings, locks, LOG)

    def test_nothing_to_serve_with(self, gpus: FakeGpus) -> None:
        gpus.break_down()
        with ExitStack() as locks, pytest.raises(SystemExit, match="nvidia-smi names no GPU"):
            make_slots(ServiceSettings(queues="gpu"), locks, LOG)
        with ExitStack() as locks, pytest.raises(SystemExit, match="FARTHING_WORKERS is 0"):
            make_slots(ServiceSettings(queues="cpu", workers=0), locks, LOG)

    def test_queues_that_are_none(self) -> None:
        with ExitStack() as locks, pytest.raises(SystemExit, match="must be cpu, gpu, or cpu,gpu"):
            make_slots(ServiceSettings(queues="cpu,tpu"), locks, LOG)

    def test_a_gpu_slot_is_not_a_cpu_slot(self) -> None:
        assert Slot(0) != Slot(0, Gpu("0", UUID))


def test_a_trainer_sees_its_own_gpu_or_none() -> None:
    environment = child_environment({"CUDA_VISIBLE_DEVICES": "0,1"}, threads=1)
    pin(None, environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    pin(UUID, environment)
    assert environment["CUDA_VISIBLE_DEVICES"] == UUID
    assert environment["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8", "its products are the same every time"


class TestAService:
    @pytest.fixture
    def service(self, gpus: FakeGpus, tmp_path: Path) -> Iterator[Embedded]:
        gpus.say("500")
        with embedded(tmp_path / "home", queues="cpu,gpu") as running:
            yield running

    @pytest.mark.slow
    def test_a_gpu_job_waits_for_memory_and_fails_unread_where_torch_finds_no_gpu(
        self, gpus: FakeGpus, service: Embedded
    ) -> None:
        deadline = time.monotonic() + 60
        while not any(worker["gpus"] for worker in service.get("/v1/workers")["data"]):
            assert time.monotonic() < deadline, "the supervisor did not register"
            time.sleep(0.1)
        dataset = service.upload()
        job = service.submit(dataset, resources={"device": "cuda"})
        while '"gpu-full"' not in (service.home / "stderr.txt").read_text():
            assert time.monotonic() < deadline, "nobody asked for the job"
            time.sleep(0.1)
        assert service.get(f"/v1/jobs/{job}")["state"] == "queued"
        gpus.say("9000")
        view = service.wait(job)
        assert (view["state"], view["error"]) == ("failed", {"code": "gpu-unavailable"})
        assert view["cost"]["spent"]["budget_share"] == "0"
        (attempt,) = service.get(f"/v1/jobs/{job}/attempts")["data"]
        assert attempt["opened_at"] is None, "no record was opened"
        assert service.get(f"/v1/datasets/{dataset}/budget")["budget_share"]["reserved"] == "0"
        either = service.submit(dataset)
        assert service.wait(either)["state"] == "succeeded", "the CPU serves those who do not mind"
