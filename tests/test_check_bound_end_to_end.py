"""Certificates for released models through HTTP: DP-SGD's result, a saddle, two sites; Gauss-PSGD on the same law.

Targets are squares of a margin, (0.95 a)^2 give or take 0.08, a and b being signs. Zero is a saddle with curvature -0.9
in every direction, and the minima, plus and minus 0.95 on either axis, have 1.8. Constants are declared as they are:
the mean loss has a Hessian that changes by 12 |theta| at most, gradients lie within 0.3 of their mean near the points,
their changes within 2.
"""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from farthing import Client
from tests.support.bank_jobs import release_of, succeed, succeed_together
from tests.support.embedded import KEY, Embedded

pytestmark = pytest.mark.slow
"""The quick variants: `tests/methods/test_check_bound.py` and `tests/service/test_about.py`."""

UNITS = 200_000
ROOT = 0.95
COLUMNS = [
    {"name": "a", "type": "number", "lower": -1, "upper": 1},
    {"name": "b", "type": "number", "lower": -1, "upper": 1},
    {"name": "y", "type": "number", "lower": 0, "upper": 1},
]
MODEL = {"kind": "phase_retrieval", "target": "y", "features": ["a", "b"]}
BODY: dict[str, Any] = {"model": MODEL, "inference": {"intervals": False}, "privacy": {"mu": "2"}}
FIGURES = {
    "preset": "fast",
    "hessian_smoothness": 12.0,
    "escape_distance": 0.1,
    "spread": 0.3,
    "difference_spread": 2.0,
}
CHECK_BOUND = {"kind": "check_bound", **FIGURES}


def squares(units: int, seed: int) -> bytes:
    generator = np.random.default_rng(seed)
    signs = generator.choice((-1.0, 1.0), (units, 2))
    target = np.clip((ROOT * signs[:, 0]) ** 2 + 0.08 * generator.choice((-1.0, 1.0), units), 0, 1)
    text = io.StringIO("a,b,y\n")
    np.savetxt(text, np.column_stack((signs, target)), fmt="%.4g", delimiter=",", header="a,b,y", comments="")
    return text.getvalue().encode()


@pytest.fixture(scope="module")
def client(service: Embedded) -> Iterator[Client]:
    with Client(service.url, KEY) as made:
        yield made


def upload(service: Embedded, units: int, seed: int, **changes: Any) -> str:
    budget = {"epsilon": "26", "delta": "1e-7", "accept_weak_privacy": True}
    return service.upload(squares(units, seed), columns=COLUMNS, budget=budget, **changes)


@pytest.fixture(scope="module")
def trained_on(service: Embedded) -> str:
    return upload(service, 20_000, 1)


@pytest.fixture(scope="module")
def held_out(service: Embedded) -> str:
    return upload(service, UNITS, 2)


def released(service: Embedded, dataset: str, **optimizer: Any) -> str:
    """Return a model that plain private steps made."""
    settings = {"kind": "clipped_sgd", "batch": 2000, "steps": 100, "step_size": 0.1, **optimizer}
    done = succeed(service, dataset, **BODY, optimizer=settings)
    return str(done["result"]["model"])


@pytest.fixture(scope="module")
def minimum(service: Embedded, trained_on: str) -> str:
    return released(service, trained_on, start=[0.4, 0.2])


@pytest.fixture(scope="module")
def saddle(service: Embedded, trained_on: str) -> str:
    """A model that has made next to no step."""
    return released(service, trained_on, start=[1e-6, 0.0], steps=1, step_size=1e-9)


def certified(client: Client, service: Embedded, dataset: str, model: str) -> dict[str, Any]:
    """Return the release of a job about a model."""
    asked = {"dataset": dataset, **BODY, "optimizer": CHECK_BOUND}
    quoted = client.estimate(asked, models=[model])
    done = client.wait(client.submit(asked, models=[model]).id)
    assert done.models == [model]
    assert done.cost.spent.mu == quoted.cost.mu == "2", "one answer's price for the whole pass"
    shown = service.get(f"/v1/models/{done.released}")
    assert shown["models"] == [model]
    release: dict[str, Any] = shown["release"]
    assert release["error_bound"]["models"] == [model]
    assert release["theta"] == service.get(f"/v1/models/{model}")["release"]["theta"], "the very point"
    return release


def test_what_plain_private_steps_found_is_certified_on_records_of_others(
    client: Client, service: Embedded, held_out: str, minimum: str
) -> None:
    release = certified(client, service, held_out, minimum)
    assert np.hypot(*release["theta"]) == pytest.approx(ROOT, abs=0.05)
    claim = release["error_bound"]
    assert claim["ended_by"] == "no_escape_observed", "no theorem covers calibrated figures"
    assert (claim["value"], claim["confidence"]) == (None, None)
    assert "the model was made without the units that were read here" in claim["conditions"]
    found = claim["second_order"]
    assert (found["phases"], found["escapes"], found["rounds"]) == (1, 0, 7)
    assert found["missed"] <= 0.01
    assert 0 < found["gamma_star"] < 0.9, "a saddle as sharp as the one at zero is excluded"


def test_the_saddle_is_left_and_nothing_is_claimed_of_it(
    client: Client, service: Embedded, held_out: str, saddle: str
) -> None:
    release = certified(client, service, held_out, saddle)
    assert release["error_bound"]["ended_by"] == "escaped"
    assert release["error_bound"]["second_order"]["escapes"] == 1
    assert release["error_bound"]["conditions"] == []


def test_a_slope_begins_no_round(client: Client, service: Embedded, trained_on: str, held_out: str) -> None:
    slope = released(service, trained_on, start=[0.4, 0.2], steps=1, step_size=1e-9)
    release = certified(client, service, held_out, slope)
    assert release["error_bound"]["ended_by"] == "gradient_not_short"
    assert release["error_bound"]["second_order"]["rounds"] == 0


def test_the_records_that_a_model_has_seen_are_refused(service: Embedded, trained_on: str, minimum: str) -> None:
    answer = service.try_submit(trained_on, **BODY, optimizer=CHECK_BOUND, models=[minimum])
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == "/models/0"
    assert "has not seen" in answer.json()["errors"][0]["detail"]


def test_two_clients_certify_together(service: Embedded, minimum: str) -> None:
    clients = [upload(service, UNITS // 2, seed) for seed in (3, 4)]
    done = succeed_together(service, clients, **BODY, optimizer=CHECK_BOUND, models=[minimum])
    assert done["models"] == [minimum]
    release = release_of(service, done)
    assert release["error_bound"]["ended_by"] == "no_escape_observed"
    assert release["error_bound"]["models"] == [minimum]
    assert release["units"] == UNITS


def test_gauss_psgd_finds_and_certifies_a_point_from_nothing_but_the_model_and_the_budget(service: Embedded) -> None:
    """Start, constants, preset and batches are planned; on this law eight runs of eight end with a claim (N1).

    Figures of a million units exclude a curvature below -1.4, so zero, whose curvature is -.9, would be no false claim;
    none of those runs ended there.
    """
    dataset = upload(service, 5 * UNITS, 5)
    asked = {"model": MODEL, "inference": {"intervals": False}, "privacy": {"epsilon": "1"}}
    done = succeed(service, dataset, **asked, optimizer={"kind": "gauss_psgd"})
    assert (done["optimizer"]["preset"], done["optimizer"]["start"]) == ("curved", "random")
    release = release_of(service, done)
    found = release["error_bound"]["second_order"]
    assert found["outcome"] == "no_escape_observed", found
    assert release["error_bound"]["variant"] == "calibrated, curved"
    theta = np.array(release["theta"])
    slope = theta * (theta**2 + 3 * theta[::-1] ** 2 - ROOT**2)
    bend = np.diag(3 * (theta**2).sum() - ROOT**2 * np.ones(2)) + 6 * theta[0] * theta[1] * (1 - np.eye(2))
    assert np.hypot(*slope) <= found["alpha"], "the claim is true"
    assert np.linalg.eigvalsh(bend)[0] >= -found["gamma_star"]
    assert sorted(map(abs, release["theta"]))[1] == pytest.approx(ROOT, abs=0.06), found


def test_too_few_units_are_told_how_many_would_do(service: Embedded) -> None:
    dataset = upload(service, 20_000, 6)
    asked = {"model": MODEL, "inference": {"intervals": False}, "privacy": {"epsilon": "1"}}
    answer = service.try_submit(dataset, **asked, optimizer={"kind": "gauss_psgd"})
    assert answer.status_code == 422, answer.text
    assert "units would do" in answer.json()["detail"]
    assert "/privacy" in [one["pointer"] for one in answer.json()["errors"]]
