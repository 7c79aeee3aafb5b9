"""Networks end to end, through HTTP and real worker processes: images, tables, public weights, kills, bad input."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import load, save
from sklearn.datasets import load_digits

from core.inference.network import ReleasedNetwork
from farthing import Client, FarthingError, Model, cli, network
from farthing.networks import activation, conv2d, flatten, linear
from tests.support.embedded import KEY, Embedded
from tests.support.windows import window_of

DIGITS: list[dict[str, Any]] = [
    {"name": "image", "type": "array", "shape": [1, 8, 8], "lower": 0, "upper": 16},
    {"name": "digit", "type": "category", "values": [str(value) for value in range(10)]},
]
CNN = [conv2d(8, 3), activation("tanh"), flatten(), linear(10)]
MLP = [flatten(), linear(32), activation("relu"), linear(10)]
STEPS = {"kind": "clipped_sgd", "batch": 512, "steps": 120, "step_size": 1.0, "rule": {"kind": "sgd", "momentum": 0.8}}
SHORT = {**STEPS, "steps": 10}
NONE = {"intervals": False}
HELD_OUT = 397


@pytest.fixture(scope="module")
def client(service: Embedded) -> Iterator[Client]:
    with Client(service.url, KEY) as made:
        yield made


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    """The digits that scikit-learn ships, in an order of our own: images of 8 x 8 numbers from 0 to 16, and labels."""
    images, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    return images[order].reshape(-1, 1, 8, 8).astype(np.uint8), labels[order]


@pytest.fixture(scope="module")
def dataset(client: Client, digits: tuple[Any, Any]) -> str:
    images, labels = digits
    records = {"image": images[HELD_OUT:], "digit": labels[HELD_OUT:].astype(str)}
    budget = {"epsilon": "20", "delta": "1e-5"}
    return client.upload(records, {"name": "digits", "columns": DIGITS, "budget": budget}).id


def accuracy(model: Model, digits: tuple[Any, Any]) -> float:
    """Return which part of the held-out digits a model names rightly."""
    images, labels = (part[:HELD_OUT] for part in digits)
    told = model.predict({"image": image} for image in images)
    named = [max(one["probabilities"], key=one["probabilities"].get) for one in told]
    return float(np.mean(np.array(named) == labels.astype(str)))


def learn(client: Client, dataset: str, layers: list[Any], processes: int = 1) -> Model:
    """Return a network that was trained at epsilon 3 and cost what was said."""
    body = {"dataset": dataset, "model": network("digit", layers), "optimizer": STEPS, "inference": NONE}
    job = {**body, "privacy": {"epsilon": "3"}, "resources": {"processes": processes}}
    quoted, before = client.estimate(job).cost.budget_share, client.budget(dataset).budget_share.spent
    done = client.wait(client.submit(job).id)
    assert done.cost.spent.budget_share == quoted, "it costs what was said"
    after = client.budget(dataset).budget_share.spent
    assert float(after) == pytest.approx(float(before) + float(quoted), abs=1e-3)
    return client.model(done.released)


@pytest.fixture(scope="module")
def trained(client: Client, dataset: str) -> Model:
    """Return a small convolutional network."""
    return learn(client, dataset, CNN)


@pytest.mark.slow
def test_digits_are_learnt_at_epsilon_three(trained: Model, digits: tuple[Any, Any]) -> None:
    """It names 0.89 of them rightly, give or take 0.01 from noise, and a guess one in ten."""
    assert accuracy(trained, digits) > 0.8
    assert float(trained.table().privacy["epsilon"]) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_network_without_convolutions_learns_them_too(
    client: Client, dataset: str, digits: tuple[Any, Any], processes: int
) -> None:
    """It names 0.87 of them rightly, give or take 0.01, whoever sums."""
    assert accuracy(learn(client, dataset, MLP, processes), digits) > 0.8


def test_what_is_shown_and_exported_is_parameters_alone(
    service: Embedded, client: Client, trained: Model, digits: tuple[Any, Any]
) -> None:
    shown = service.get(f"/v1/models/{trained.id}")["release"]
    assert (shown["parameters"], shown["trained_parameters"]) == (2970, 2970)
    assert shown["model"]["layers"][0]["kind"] == "conv2d"
    assert shown["training"]["batch"] == 512
    assert shown["training"]["sigma"] > 0
    tensors = load(trained.export("safetensors"))
    names = {"0.weight": (8, 1, 3, 3), "0.bias": (8,), "3.weight": (10, 288), "3.bias": (10,)}
    assert {name: at.shape for name, at in tensors.items()} == names, "no moments, no buffers"
    assert {at.dtype for at in tensors.values()} == {np.dtype(np.float32)}
    row = ReleasedNetwork.model_validate(json.loads(trained.export("json"))["released"])
    assert all(np.array_equal(row.tensors[name], at) for name, at in tensors.items())
    images = digits[0][:5]
    session = onnxruntime.InferenceSession(trained.export("onnx"), providers=["CPUExecutionProvider"])
    (chances,) = session.run(["probabilities"], {"values": images.astype(np.float32)})
    told = [list(one["probabilities"].values()) for one in client.predict(trained.id, ({"image": i} for i in images))]
    assert np.abs(chances - told).max() < 1e-6
    text = trained.summary()
    assert "conv2d (channels 8, kernel 3)" in text
    assert "2,970" in text
    layer = '<bdi class="name">3 linear (units 10)</bdi></th><td class="num">10</td><td class="num">2,890</td>'
    with closing(window_of(service.url, KEY)) as window:
        assert all(layer in page for page in (trained.page(), window.get(f"/models/{trained.id}").text))
    assert "sampled records independently, 512 expected" in trained.methods()
    for part in ("intervals", "odds-ratios"):
        answer = service.http.get(f"/v1/models/{trained.id}/{part}")
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")


@pytest.mark.slow
def test_a_job_goes_on_where_it_was_when_its_supervisor_was_killed(service: Embedded, dataset: str) -> None:
    body = {"model": network("digit", MLP), "optimizer": {**SHORT, "steps": 97}, "privacy": {"epsilon": "1"}}
    job = service.submit(dataset, **body, inference=NONE, retry_allowance=3)
    service.wait_until(job, lambda view: view["progress"]["step"] >= 5)
    assert service.kill("supervisor")
    done = service.wait(job)
    assert (done["state"], done["attempt"], done["progress"]["step"]) == ("succeeded", 2, 97)
    spent, reserved, beside = (
        float(done["cost"][name]["budget_share"]) for name in ("spent", "reserved", "retry_allowance")
    )
    assert reserved <= spent <= reserved + beside, "every chunk once, and again those that were lost with the worker"


@pytest.mark.parametrize(
    ("train", "count", "processes"),
    [
        ("last", 2890, 1),
        pytest.param("last", 2890, 2, marks=pytest.mark.slow),
        pytest.param({"lora": {"rank": 2}}, 2890, 1, marks=pytest.mark.slow),
    ],
)
def test_training_goes_on_from_public_weights(
    client: Client, dataset: str, trained: Model, train: Any, count: int, processes: int
) -> None:
    """The last layer's may be missing, as where there were other classes; untrained tensors stay as they were."""
    given = {name: at for name, at in load(trained.export("safetensors")).items() if name.startswith("0.")}
    weights = client.pretrained.upload(save(given), "digits")
    assert weights.tensors == {"0.weight": [8, 1, 3, 3], "0.bias": [8]}
    assert [one.id for one in client.pretrained.list()] == [weights.id]
    body = {"dataset": dataset, "optimizer": SHORT, "privacy": {"epsilon": "0.5"}, "inference": NONE}
    body["resources"] = {"processes": processes}
    model = client.train({**body, "model": network("digit", CNN, pretrained=weights.id, train=train)})
    tensors = load(model.export("safetensors"))
    assert all(np.array_equal(tensors[name], at) for name, at in given.items())
    table = model.table()
    assert (table.model_dump()["trained_parameters"], table.model_dump()["start"]) == (
        count,
        f"public weights {weights.id}",
    )
    client.pretrained.delete(weights.id)
    with pytest.raises(FarthingError, match="no such weights"):
        client.pretrained.get(weights.id)


@pytest.mark.slow
def test_a_table_feeds_a_network_too(service: Embedded, client: Client) -> None:
    table = service.upload(budget={"epsilon": "8", "delta": "1e-5"})
    body = {"dataset": table, "optimizer": {**SHORT, "steps": 40}, "privacy": {"epsilon": "3"}, "inference": NONE}
    row = {"age": 80, "job": "a", "balance": 3}
    two = client.train({**body, "model": network("y", [linear(8), activation("tanh"), linear(2)])})
    (told,) = two.predict([row])
    assert 0.5 < told["probability"] < 1, "the logit of y is (age - 50)/20"


@pytest.mark.slow
def test_a_number_is_predicted_in_its_own_units(service: Embedded, client: Client) -> None:
    table = service.upload(budget={"epsilon": "8", "delta": "1e-5"})
    body = {"dataset": table, "optimizer": {**SHORT, "steps": 40}, "privacy": {"epsilon": "3"}, "inference": NONE}
    row = {"age": 80, "job": "a", "balance": 3}
    one = client.train({**body, "model": network("balance", [linear(4), activation(), linear(1)], features=["age"])})
    (told,) = one.predict([row])
    assert 0 < told["value"] < 30
    session = onnxruntime.InferenceSession(one.export("onnx"), providers=["CPUExecutionProvider"])
    encoded = np.array([[(80 - 56.5) / 38.5]], dtype=np.float32)
    assert session.run(["value"], {"values": encoded})[0][0, 0] == pytest.approx(told["value"], rel=1e-5)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"model": network("digit", [flatten(), linear(9)])}, "/model/layers/1/units"),
        ({"model": network("digit", [conv2d(4, 9), flatten(), linear(10)])}, "/model/layers/0"),
        ({"model": network("digit", MLP, loss="squared")}, "/model/loss"),
        ({"model": network("digit", [flatten(), linear(65536), linear(999), linear(10)])}, "/model/layers/2"),
        ({"model": network("digit", [{"kind": "batch_norm"}, flatten(), linear(10)])}, "/model/layers/0/kind"),
        ({"model": network("digit", MLP, pretrained="wts_0")}, "/model/pretrained"),
        ({"model": network("digit", MLP, train={"lora": {"rank": 2, "layers": ["0"]}})}, "/model/train/lora/layers/0"),
        ({"optimizer": {"kind": "noisy_gd"}}, "/optimizer/kind"),
        ({"optimizer": {**SHORT, "start": "random"}}, "/optimizer/start"),
        ({"inference": {"intervals": True}}, "/inference/intervals"),
    ],
)
def test_what_is_wrong_is_named(service: Embedded, dataset: str, change: dict[str, Any], pointer: str) -> None:
    body = {"dataset": dataset, "model": network("digit", MLP), "optimizer": SHORT, "inference": NONE} | change
    answer = service.http.post("/v1/estimates", json={**body, "privacy": {"epsilon": "1"}})
    assert answer.status_code == 422, answer.text
    assert pointer in [error["pointer"] for error in answer.json()["errors"]], answer.text


def test_weights_that_do_not_fit_are_named_by_their_tensor(service: Embedded, client: Client, dataset: str) -> None:
    weights = client.pretrained.upload(save({"1.weight": np.zeros((31, 64), np.float32), "9": np.ones(1, np.float32)}))
    body = {"dataset": dataset, "model": network("digit", MLP, pretrained=weights.id), "optimizer": SHORT}
    answer = service.http.post("/v1/jobs", json={**body, "privacy": {"epsilon": "1"}, "inference": NONE},
                               headers={"Idempotency-Key": "misfit"})  # fmt: skip
    told = [error["detail"] for error in answer.json()["errors"]]
    assert told == [
        "`1.bias` is missing",
        "`1.weight` has the shape 31 x 64, where the layers have 32 x 64",
        "`9` is none of the network's parameters: leave it out",
    ]


@pytest.mark.parametrize(
    ("row", "pointer"),
    [
        ({}, "/rows/0/image"),
        ({"image": [[1, 2], [3, 4]]}, "/rows/0/image"),
        ({"image": [[[0.0] * 8] * 7 + [[0.0] * 7 + ["a"]]]}, "/rows/0/image/0/7/7"),
    ],
)
def test_images_that_cannot_be_read_are_named(client: Client, trained: Model, row: Any, pointer: str) -> None:
    with pytest.raises(FarthingError) as refusal:
        client.predict(trained.id, [row])
    assert refusal.value.status == 422
    assert pointer in str(refusal.value.problem)


def test_the_command_line_uploads_weights_and_shows_networks(
    service: Embedded, trained: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--url", service.url, "--key", KEY]
    cli.app(["export", trained.id, "--to", str(tmp_path / "digits.safetensors"), *asked], standalone_mode=False)
    cli.app(["export", trained.id, "--to", str(tmp_path / "digits.onnx"), *asked], standalone_mode=False)
    assert onnxruntime.InferenceSession(tmp_path / "digits.onnx").get_inputs()[0].name == "values"
    cli.app(["pretrained", "upload", str(tmp_path / "digits.safetensors"), *asked], standalone_mode=False)
    weights = capsys.readouterr().out.split()[-1]
    cli.app(["pretrained", "list", *asked], standalone_mode=False)
    assert all(text in capsys.readouterr().out.replace("\n", " ") for text in (weights[:20],))
    cli.app(["pretrained", "delete", weights, *asked], standalone_mode=False)
    cli.app(["summary", trained.id, *asked], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "conv2d" in shown
    assert "all parameters, 2,970" in " ".join(shown.split())
