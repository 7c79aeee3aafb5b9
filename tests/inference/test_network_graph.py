"""The ONNX graph that is built from the layers says what torch says, for every layer there is."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from pydantic import TypeAdapter

from core.data.columns import Column
from core.inference.network_graph import make_graph
from core.inference.network_predictions import rows_at_once
from core.models.design import make_design
from core.models.network.layers import LAYERS, Conv2d, Linear, MeanOver, parameters_of
from core.models.network.model import NetworkModel, trace
from core.planning.networks import fill_network
from core.queries.sums.network.modules import ForwardPass

IMAGE = {"name": "x", "type": "array", "shape": [4, 9, 9], "lower": -3, "upper": 5, "centre": 0}
SEQUENCE = {"name": "x", "type": "array", "shape": [6, 8], "lower": -1, "upper": 1}
TOKENS = {"name": "x", "type": "array", "shape": [6], "lower": 0, "upper": 10, "of": "token"}
CLASSES = {"name": "y", "type": "category", "values": ["a", "b", "c"]}
NUMBER = {"name": "y", "type": "number", "lower": -10, "upper": 30}
END = [{"kind": "flatten"}, {"kind": "linear", "units": 3}]
ACTIVATIONS = ["relu", "tanh", "sigmoid", "gelu", "silu", "elu", "softplus"]
CONV = {"kind": "conv2d", "channels": 6, "kernel": 3}
BLOCK = [{"kind": "layer_norm"}, {"kind": "attention", "heads": 2}]
NETWORKS: list[tuple[str, dict[str, Any], list[dict[str, Any]]]] = [
    ("linear on positions", SEQUENCE, [{"kind": "linear", "units": 5, "bias": False}, *END]),
    ("padded, strided convolution", IMAGE, [{**CONV, "stride": 2, "padding": 1}, *END]),
    ("convolution without bias", IMAGE, [{**CONV, "bias": False}, *END]),
    ("largest of windows", IMAGE, [{"kind": "pool2d", "kernel": 3, "stride": 2, "padding": 1}, *END]),
    ("mean of padded windows", IMAGE, [{"kind": "pool2d", "of": "mean", "kernel": 4, "padding": 2}, *END]),
    ("mean over an image", IMAGE, [CONV, {"kind": "mean_over"}, {"kind": "linear", "units": 3}]),
    ("mean over a sequence", SEQUENCE, [{"kind": "mean_over"}, {"kind": "linear", "units": 3}]),
    ("another shape", SEQUENCE, [{"kind": "reshape", "shape": [3, 4, 4]}, CONV, *END]),
    *((name, SEQUENCE, [{"kind": "activation", "of": name}, *END]) for name in ACTIVATIONS),
    ("groups of channels", IMAGE, [CONV, {"kind": "group_norm", "groups": 3}, *END]),
    ("groups, bare", IMAGE, [{"kind": "group_norm", "groups": 2, "affine": False}, *END]),
    ("layer norm, bare", SEQUENCE, [{"kind": "layer_norm", "affine": False}, *END]),
    ("tokens", TOKENS, [{"kind": "embedding", "tokens": 11, "width": 4}, *END]),
    (
        "a transformer",
        TOKENS,
        [
            {"kind": "embedding", "tokens": 12, "width": 8, "positions": True},
            {"kind": "residual", "layers": BLOCK},
            {"kind": "residual", "layers": [{"kind": "linear", "units": 16}, {"kind": "activation", "of": "gelu"},
                                            {"kind": "linear", "units": 8}]},
            {"kind": "mean_over"},
            {"kind": "linear", "units": 3},
        ],
    ),
    ("causal attention", SEQUENCE, [{"kind": "attention", "heads": 4, "causal": True}, *END]),
]  # fmt: skip


def made(column: dict[str, Any], layers: list[dict[str, Any]], target: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Return a network with parameters drawn at random, its design, and its tensors."""
    columns = TypeAdapter(tuple[Column, ...]).validate_python([column, target])
    asked = NetworkModel.model_validate({"kind": "network", "target": "y", "layers": layers})
    design = make_design(columns, asked)
    model = fill_network(asked, design)
    draw = np.random.default_rng(7)
    tensors = {
        one.name: draw.normal(0.0, 0.5, one.shape).astype(np.float32)
        for one in parameters_of(model.layers, design.shape)
    }
    return model, design, tensors


def records(column: dict[str, Any], count: int = 33) -> np.ndarray[Any, Any]:
    draw = np.random.default_rng(3)
    shape = (count, *column["shape"])
    if column.get("of") == "token":
        return draw.integers(0, 11, shape)
    return draw.uniform(column["lower"], column["upper"], shape).astype(np.float32)


@pytest.mark.parametrize(("column", "layers"), [one[1:] for one in NETWORKS], ids=[one[0] for one in NETWORKS])
def test_the_graph_says_what_torch_says(column: dict[str, Any], layers: list[dict[str, Any]]) -> None:
    model, design, tensors = made(column, layers, CLASSES)
    graph = make_graph(model, design, tensors, {"model": "mdl_1"})
    onnx.checker.check_model(graph, full_check=True)
    values = records(column)
    session = onnxruntime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    scores, chances = session.run(["scores", "probabilities"], {"values": values})
    encoded = torch.from_numpy(values)
    if encoded.dtype != torch.int64:
        centre, scale = (0, 4) if column is IMAGE else (0, 1)
        encoded = (encoded - centre) / scale
    weights = {name: torch.from_numpy(at) for name, at in tensors.items()}
    said = ForwardPass(weights, {}).run(model.layers, encoded)
    assert np.abs(scores - said.numpy()).max() < 1e-5 * max(1.0, float(said.abs().max()))
    assert np.abs(chances - said.softmax(1).numpy()).max() < 1e-5


def test_every_layer_is_among_them() -> None:
    seen = {
        one.layer.kind
        for _, column, layers in NETWORKS
        for one in trace(made(column, layers, CLASSES)[0].layers, made(column, layers, CLASSES)[1].shape)
    }
    assert seen == set(LAYERS)


def test_a_number_is_told_in_its_own_units() -> None:
    model, design, tensors = made(SEQUENCE, [{"kind": "flatten"}, {"kind": "linear", "units": 1}], NUMBER)
    session = onnxruntime.InferenceSession(make_graph(model, design, tensors, {}).SerializeToString())
    scores, values = session.run(["scores", "value"], {"values": records(SEQUENCE)})
    assert np.allclose(values, 10 + 20 * scores)


def test_what_is_encoded_already_is_taken_as_it_is() -> None:
    model, design, tensors = made(IMAGE, END, CLASSES)
    values = records(IMAGE)
    plain, whole = (
        onnxruntime.InferenceSession(make_graph(model, design, tensors, {}, encoded=encoded).SerializeToString())
        for encoded in (True, False)
    )
    assert np.allclose(plain.run(["scores"], {"values": values / 4})[0], whole.run(["scores"], {"values": values})[0])


@pytest.mark.parametrize(("channels", "rows"), [(1, 64), (1024, 4), (4096, 1)])
def test_few_rows_are_computed_at_once_where_layers_are_wide(channels: int, rows: int) -> None:
    layers = (Conv2d(channels=channels, kernel=1), MeanOver(), Linear(units=2))
    assert rows_at_once(layers, (1, 32, 32)) == rows
