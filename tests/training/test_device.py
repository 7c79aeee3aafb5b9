"""What a trainer's processor does with the smallest numbers: nothing that takes longer for some records."""

import subprocess
import sys

import pytest

from tests.support.embedded import ROOT

PROGRAM = """
import sys
import torch
from pydantic import TypeAdapter
from core.catalogue.columns import Columns
from core.catalogue.jobs import JobSpec
from core.catalogue.planning import plan_job
from core.privacy.budget import plan_orders
from core.privacy.facts import Adjacency
from core.training.device import flush_denormals
from decimal import Decimal

columns = TypeAdapter(Columns).validate_python([
    {"name": "x", "type": "number", "lower": -3, "upper": 3}, {"name": "y", "type": "binary", "values": ["a", "b"]}
])
model = {"kind": sys.argv[1], "target": "y"}
if sys.argv[1] == "network":
    model["layers"] = [{"kind": "linear", "units": 2}]
optimizer = {"kind": "clipped_sgd", "steps": 3, "batch": 40, "clip": 1.0}
spec = {"dataset": "ds_1", "model": model, "optimizer": optimizer, "privacy": {"epsilon": "1"},
        "inference": {"intervals": False}}
terms = plan_orders(Decimal(8), Decimal("1e-6"))
planned = plan_job(JobSpec.model_validate(spec), columns=columns, units=1000, adjacency=Adjacency.ZERO_OUT, terms=terms)
torch.set_num_threads(2)
flush_denormals(planned)
print(int((torch.full((4_000_000,), 1e-40) * 0.5).count_nonzero()))
"""


@pytest.mark.parametrize(
    ("kind", "left"), [("network", "0"), pytest.param("logistic", "4000000", marks=pytest.mark.slow)]
)
def test_denormal_numbers_are_zero_where_networks_are_trained_and_kept_elsewhere(kind: str, left: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", PROGRAM, kind], cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    )
    assert told.stdout.split() == [left]
