"""Gauss-PSGD on a network, as a job, and the certificate of that network by digits that it has not seen."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from sklearn.datasets import load_digits

from farthing import Client, network
from farthing.networks import activation, linear
from tests.support.embedded import KEY, Embedded

pytestmark = pytest.mark.slow
"""The quick variants: `tests/training/test_network.py` and `tests/oracle/test_shared_networks.py`."""

COLUMNS: list[dict[str, Any]] = [
    {"name": "image", "type": "array", "shape": [64], "lower": 0, "upper": 16},
    {"name": "digit", "type": "category", "values": [str(value) for value in range(10)]},
]
MODEL = network("digit", [linear(16), activation("tanh"), linear(10)])
HELD_OUT = 597
FIGURES = {
    "mode": "given",
    "smoothness": 10.0,
    "hessian_smoothness": 10.0,
    "restart_drift": 0.05,
    "step_size": 0.05,
    "error_radius": 0.25,
    "escape_distance": 0.4,
    "round_steps": 6,
    "rounds": 2,
}
"""Declared and given by hand, as of any network: nothing of this is known of its loss."""


@pytest.fixture(scope="module")
def client(service: Embedded) -> Iterator[Client]:
    with Client(service.url, KEY) as made:
        yield made


def upload(client: Client, images: Any, labels: Any) -> str:
    """Upload some of the digits that scikit-learn ships, 8 x 8 numbers from 0 to 16 each."""
    records = {"image": images.astype(np.uint8), "digit": labels.astype(str)}
    budget = {"epsilon": "35", "delta": "1e-5", "accept_weak_privacy": True}
    return client.upload(records, {"name": "digits", "columns": COLUMNS, "budget": budget}).id


def job(dataset: str, kind: str, **figures: Any) -> dict[str, Any]:
    optimizer = {"kind": kind, **FIGURES, **figures}
    none = {"intervals": False}
    return {"dataset": dataset, "model": MODEL, "optimizer": optimizer, "inference": none, "privacy": {"mu": "4"}}


def test_a_network_is_trained_with_rounds_and_looked_at_by_others_records(client: Client, service: Embedded) -> None:
    """Each digit is read once at the price of one answer, and the network that is certified is the very same one."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = images[order], labels[order]
    trained_on = upload(client, images[HELD_OUT:], labels[HELD_OUT:])
    asked = job(trained_on, "gauss_psgd", batch=120, difference_batch=6)
    done = client.wait(client.submit(asked).id)
    assert done.cost.spent.mu == client.estimate(asked).cost.mu == "4", "one answer's price"
    release = service.get(f"/v1/models/{done.released}")["release"]
    assert release["trained_parameters"] == 64 * 16 + 16 + 16 * 10 + 10
    found = release["error_bound"]["second_order"]
    assert found["restarts"] * 120 + found["differences"] * 6 <= len(images) - HELD_OUT, "each digit once at most"
    assert release["steps"] > 10
    assert found["outcome"] in {"no_escape_observed", "data_exhausted"}

    held_out = upload(client, images[:HELD_OUT], labels[:HELD_OUT])
    about = job(held_out, "check_bound", batch=100, difference_batch=6)
    seen = client.wait(client.submit(about, models=[str(done.released)]).id)
    shown = service.get(f"/v1/models/{seen.released}")["release"]["error_bound"]
    assert shown["models"] == [done.released]
    assert shown["ended_by"] in {"no_escape_observed", "escaped", "gradient_not_short", "data_exhausted"}
    assert shown["second_order"]["phases"] == (shown["ended_by"] != "gradient_not_short")
    before, after = (load(client.export(str(one), "safetensors")) for one in (done.released, seen.released))
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert str(done.released) in " ".join(client.summary_text(str(seen.released)).split())
    assert "sampled records" not in client.methods(str(seen.released)), "a stream has no samples"
