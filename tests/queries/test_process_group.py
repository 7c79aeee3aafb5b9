"""The carrier of a group's integers: gloo between CPUs, NCCL between GPUs, and the sum is the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from core.queries.sums.process_group import _backend
from tests.support.embedded import ROOT

GPUS = torch.cuda.device_count()
MEMBER = """
import sys
import torch
from core.queries.sums.process_group import meet

rank, size, folder, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
device = torch.device(kind)
group = meet(rank, size, f"file://{folder}/meeting", key=bytes(32), patience_seconds=180, device=device)
carrier = torch.distributed.distributed_c10d._get_default_group()._get_backend(device).name()
if rank == 0:
    group.tell("sum")
else:
    assert group.hear() == "sum"
own = torch.tensor([2**61 + rank, -(3**38) * (rank + 1), rank], device=device)
total = group.add_up(own)
assert total.device.type == kind
assert own.tolist() == [2**61 + rank, -(3**38) * (rank + 1), rank], "what was given stays as it is"
group.part()
print(carrier, *total.tolist())
"""


def need_gpus(count: int) -> pytest.MarkDecorator:
    """Skip where there are too few, and say so."""
    return pytest.mark.skipif(count > GPUS, reason=f"NCCL needs GPUs here: {count}; found: {GPUS}")


def sums(size: int, kind: str, folder: Path) -> list[str]:
    """Have so many processes, each with a GPU of its own where they have one, add up; return what each of them says."""
    members = [
        subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(rank), str(size), str(folder), kind],
            cwd=ROOT,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": str(rank) if kind == "cuda" else "", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    told = [member.communicate(timeout=240) for member in members]
    assert all(member.returncode == 0 for member in members), told
    return [said.splitlines()[-1] for said, _ in told]


@pytest.mark.parametrize(("kind", "carrier"), [("cpu", "gloo"), ("cuda", "cpu:gloo,cuda:nccl")])
def test_who_carries_what(kind: str, carrier: str) -> None:
    """Words go over gloo in either case: only sums are on a GPU."""
    assert _backend(torch.device(kind)) == carrier


@pytest.mark.parametrize(
    ("size", "kind", "carrier"),
    [
        pytest.param(1, "cpu", "gloo", marks=pytest.mark.slow),
        pytest.param(2, "cpu", "gloo"),
        pytest.param(1, "cuda", "nccl", marks=need_gpus(1)),
        pytest.param(2, "cuda", "nccl", marks=need_gpus(2)),
    ],
)
def test_integers_add_up_exactly(size: int, kind: str, carrier: str, tmp_path: Path) -> None:
    """Beyond 53 bits: a sum that went through floats anywhere would be another one."""
    said = sums(size, kind, tmp_path)
    ranks = range(size)
    total = (sum(2**61 + rank for rank in ranks), sum(-(3**38) * (rank + 1) for rank in ranks), sum(ranks))
    assert said[0] == " ".join([carrier, *map(str, total)])
    assert {line.split()[0] for line in said} == {carrier}
