"""Certificates of a gradient alone, as jobs: of models that rounds of escape cannot look at, by records of others.

One service, one declaration: three classes, a number and its square. The answer is compared with the same mean gradient
in plain NumPy for the multinomial model. That needs nothing but its released theta and encoding.
"""

import io
from collections.abc import Iterator
from math import log, sqrt
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from farthing import Client, network
from farthing.networks import activation, linear
from tests.support.bank_jobs import release_of, succeed, succeed_together
from tests.support.embedded import KEY, Embedded

pytestmark = pytest.mark.slow
"""Trainers are processes: a dozen jobs take a minute or two. The quick variant is
`tests/methods/test_check_bound_gradient.py`, the same settings, oracles and method."""

UNITS = 4000
COLUMNS = [
    {"name": "a", "type": "number", "lower": -1, "upper": 1},
    {"name": "b", "type": "number", "lower": -1, "upper": 1},
    {"name": "c", "type": "category", "values": ["one", "two", "three"]},
    {"name": "y", "type": "number", "lower": 0, "upper": 4},
]
NONE: dict[str, Any] = {"inference": {"intervals": False}, "privacy": {"mu": "1"}}
GRADIENT = {"kind": "check_bound", "claims": "gradient"}
FEATURES = {"features": ["a", "b"]}
SGD = {"kind": "clipped_sgd", "batch": 400, "steps": 60}
JOINT = {"kind": "linear", "target": "y", **FEATURES, "loss": {"kind": "huber", "joint": True}}
LAYERS = [linear(4), activation("tanh"), linear(3)]
NETWORK = network("c", LAYERS, train={"lora": {"rank": 1}}) | FEATURES
MODELS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "multinomial": ({"kind": "multinomial", "target": "c", **FEATURES}, {"kind": "noisy_gd"}),
    "unknown scale": (JOINT, {"kind": "noisy_gd"}),
    "kinks": (
        {"kind": "phase_retrieval", "target": "y", **FEATURES, "loss": {"kind": "robust"}},
        SGD | {"start": [0.5, 0.5], "step_size": 0.1},
    ),
    "low rank": (NETWORK, SGD | {"step_size": 0.5}),
}


def drawn(seed: int, units: int = UNITS) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    a, b = generator.uniform(-1, 1, (2, units))
    scores = np.stack([np.zeros(units), 2 * a, 1 - 2 * b]) + generator.gumbel(size=(3, units))
    target = np.clip((a + b) ** 2 + 0.1 * generator.normal(size=units), 0, 4)
    return {"a": a.round(4), "b": b.round(4), "c": scores.argmax(0), "y": target.round(4)}


def csv(seed: int) -> bytes:
    held, text = drawn(seed), io.StringIO()
    text.write("a,b,c,y\n")
    names = ("one", "two", "three")
    for a, b, c, y in zip(*held.values(), strict=True):
        text.write(f"{a},{b},{names[c]},{y}\n")
    return text.getvalue().encode()


def upload(service: Embedded, seed: int) -> str:
    return service.upload(csv(seed), columns=COLUMNS, budget={"epsilon": "20", "delta": "1e-6"})


@pytest.fixture(scope="module")
def client(service: Embedded) -> Iterator[Client]:
    with Client(service.url, KEY) as made:
        yield made


@pytest.fixture(scope="module")
def trained_on(service: Embedded) -> str:
    return upload(service, 1)


@pytest.fixture(scope="module")
def held_out(service: Embedded) -> str:
    return upload(service, 2)


def certified(client: Client, dataset: str, model: dict[str, Any], named: str) -> str:
    """Certify a model by its gradient; return the identifier of what was released."""
    asked = {"dataset": dataset, "model": model, "optimizer": GRADIENT, **NONE}
    quoted = client.estimate(asked, models=[named])
    done = client.wait(client.submit(asked, models=[named]).id)
    assert done.cost.spent.mu == quoted.cost.mu == "1", "the price of one answer"
    assert done.released is not None
    return done.released


@pytest.mark.parametrize("kind", MODELS)
def test_models_of_every_kind_are_certified_by_their_gradient(
    client: Client, service: Embedded, trained_on: str, held_out: str, kind: str
) -> None:
    model, optimizer = MODELS[kind]
    named = str(succeed(service, trained_on, model=model, optimizer=optimizer, **NONE)["result"]["model"])
    found = certified(client, held_out, model, named)
    shown, before = (service.get(f"/v1/models/{one}") for one in (found, named))
    release, claim = shown["release"], shown["release"]["error_bound"]
    told = claim["norm"]
    assert (shown["models"], claim["models"], claim["ended_by"]) == ([named], [named], "answered")
    assert claim["value"] == pytest.approx(max(0.0, told["told"]) + told["tolerance"])
    assert claim["confidence"] == 0.95
    assert claim["value"] < told["trivial"], "something is claimed"
    assert [one["quantity"] for one in before["error_bounds"]] == ["gradient_norm"]
    assert "Of curvature nothing is said" in " ".join(client.summary_text(found).split())
    if kind == "low rank":
        files = [load(client.export(one, "safetensors")) for one in (named, found)]
        assert all(np.array_equal(files[0][name], files[1][name]) for name in files[0]), "the very point"
        assert told["of"] == "trained parameters"
        return
    assert release["theta"] == before["release"]["theta"], "the very point"
    if kind == "multinomial":
        # Noise of the bound over n times 1: nine standard deviations, a false alarm in 10^18.
        assert told["told"] == pytest.approx(multinomial_norm(release), abs=9 * told["noise"])
        apart, ends = told["trivial"], log(20)
        assert told["tolerance"] <= sqrt(2 * ends * (told["noise"] ** 2 + apart**2 / UNITS)) * 1.000001
    if kind == "unknown scale":
        assert told["of"] == "coefficients and scale"


def multinomial_norm(release: dict[str, Any]) -> float:
    """Return the norm of the mean gradient of the held-out records at a released point."""
    held = drawn(2)
    x = np.column_stack((np.ones(UNITS), held["a"], held["b"]))
    weights = np.minimum(1.0, release["weights"]["bound"] ** 2 / (x**2).sum(1))
    margins = np.column_stack((np.zeros(UNITS), x @ np.array(release["theta"]).reshape(2, 3).T))
    likely = np.exp(margins) / np.exp(margins).sum(1, keepdims=True)
    residual = likely - np.eye(3)[held["c"]]
    return float(np.linalg.norm((residual[:, 1:] * weights[:, None]).T @ x / UNITS))


def test_a_released_scale_is_taken_for_known(client: Client, service: Embedded, trained_on: str, held_out: str) -> None:
    named = str(succeed(service, trained_on, model=JOINT, optimizer={"kind": "noisy_gd"}, **NONE)["result"]["model"])
    shown = service.get(f"/v1/models/{named}")
    theta = shown["release"]["theta"]
    answer = service.try_submit(
        held_out, model=JOINT | {"loss": {"kind": "huber"}}, optimizer=GRADIENT, models=[named], **NONE
    )
    assert answer.status_code == 422, answer.text
    scale = 2.0 * theta[-1]
    assert f"{scale!r}" in answer.json()["errors"][0]["detail"]
    known = JOINT | {"loss": {"kind": "huber", "scale": scale}}
    found = certified(client, held_out, known, named)
    release = service.get(f"/v1/models/{found}")["release"]
    assert release["theta"] == theta[:-1], "the coefficients"
    assert release["error_bound"]["norm"]["of"] == "coefficients"
    assert any("scale" in one for one in release["error_bound"]["conditions"])


def test_clients_certify_a_gradient_together(service: Embedded, trained_on: str) -> None:
    model, optimizer = MODELS["multinomial"]
    named = str(succeed(service, trained_on, model=model, optimizer=optimizer, **NONE)["result"]["model"])
    clients = [upload(service, seed) for seed in (3, 4)]
    done = succeed_together(service, clients, model=model, optimizer=GRADIENT, models=[named], **NONE)
    claim = release_of(service, done)["error_bound"]
    assert claim["value"] == pytest.approx(claim["norm"]["left"] + claim["norm"]["tolerance"])
    assert "each site's units" in claim["conditions"][0]


def test_selection_by_gradients_alone(service: Embedded, trained_on: str, held_out: str) -> None:
    model, optimizer = MODELS["multinomial"]
    far = succeed(service, trained_on, model=model, optimizer=optimizer | {"steps": 1, "step_size": 0.001}, **NONE)
    near = succeed(service, trained_on, model=model, optimizer=optimizer, **NONE)
    named = [str(one["result"]["model"]) for one in (far, near)]
    select = {"kind": "select_model", "mode": "gradient", "alpha": 0.05}
    done = succeed(service, held_out, model=model, optimizer=select, models=named, **NONE)
    release = release_of(service, done)
    assert release["error_bound"]["selection"]["chosen"] in {0, 1}
    assert release["error_bound"]["value"] > 0.05
    answer = service.try_submit(
        held_out, model=model, optimizer=select | {"mode": "sound", "gamma_star": 0.1}, models=named, **NONE
    )
    assert answer.status_code == 422, answer.text
    assert "take mode: gradient" in answer.json()["errors"][0]["detail"]
