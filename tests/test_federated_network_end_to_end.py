"""A network that three owners train together from public weights, by real processes."""

import numpy as np
import pytest
from safetensors.numpy import load, save

from farthing import network
from farthing.networks import activation, linear
from tests.support.embedded import Embedded
from tests.support.federated import SIZES, check, states, submit
from tests.test_second_order_network_end_to_end import FIGURES

pytestmark = pytest.mark.slow
"""Quick tests of its parts: `tests/workers/test_federation.py`, `tests/training/test_network.py`."""

LAYERS = [linear(6), activation("tanh"), linear(1)]
OPTIMIZER = {"kind": "gauss_psgd", **FIGURES, "batch": 60, "difference_batch": 6, "clip": 1.0}


def test_what_is_not_trained_stays_as_it_was_given_and_each_ledger_pays_once(service: Embedded) -> None:
    draws = np.random.default_rng(4)
    given = {"0.weight": draws.normal(size=(6, 3)), "0.bias": draws.normal(size=6)}
    given = {name: at.astype(np.float32) for name, at in given.items()}
    model = network("balance", LAYERS, features=["age", "job"], loss="squared", train="last")
    job = submit(service, None, weights=save(given), model=model, optimizer=OPTIMIZER, privacy={"mu": "0.5"})
    ended = job.wait()
    assert (ended["state"], states(ended)) == ("succeeded", [("succeeded", None)] * 3), ended
    check(job, stream=True)
    row = service.get(f"/v1/models/{ended['result']['model']}")
    assert row["release"]["units"] == sum(SIZES)
    tensors = load(service.http.get(f"/v1/models/{row['id']}/export?format=safetensors").content)
    assert all(np.array_equal(tensors[name], at) for name, at in given.items()), "the layers that nobody trained"
    assert any(tensors[name].any() for name in ("2.weight", "2.bias"))
