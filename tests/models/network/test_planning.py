"""A network's plan: facts that follow from shapes, and refusals that name the layer at fault."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from core.base.errors import Invalid
from core.data.columns import Column
from core.models.network.model import NetworkModel
from core.planning.job import JobSpec
from core.planning.networks import multiplications
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.facts import Adjacency

IMAGE = {"name": "x", "type": "array", "shape": [1, 8, 8], "lower": 0, "upper": 16}
TOKENS = {"name": "x", "type": "array", "shape": [8], "lower": 0, "upper": 99, "of": "token"}
NUMBER = {"name": "x", "type": "number", "lower": 0, "upper": 16}
DIGIT = {"name": "y", "type": "category", "values": ["0", "1", "2"]}
LINEAR = {"kind": "linear", "units": 3}
FLAT = [{"kind": "flatten"}, LINEAR]
WORDS = [{"kind": "embedding", "tokens": 100, "width": 4}, *FLAT]


def plan(
    layers: list[Any],
    of: dict[str, Any] = IMAGE,
    to: dict[str, Any] = DIGIT,
    *,
    asked: Any = None,
    privacy: Any = None,
    **model: Any,
) -> PlannedJob:
    optimizer = {"kind": "clipped_sgd", "steps": 20, **(asked or {})}
    spec = {
        "dataset": "ds_1",
        "model": {"kind": "network", "target": "y", "layers": layers, **model},
        "optimizer": {name: at for name, at in optimizer.items() if at is not None},
        "privacy": privacy or {"epsilon": "1"},
        "inference": {"intervals": False},
    }
    columns = TypeAdapter(tuple[Column, ...]).validate_python([of, to])
    terms = plan_orders(Decimal(3), Decimal("1e-6"))
    job = JobSpec.model_validate(spec)
    return plan_job(job, columns=columns, units=5000, adjacency=Adjacency.ZERO_OUT, terms=terms)


@pytest.mark.parametrize(
    ("layers", "of", "train", "numbers"),
    [
        (FLAT, IMAGE, "all", 195),
        (FLAT, IMAGE, "last", 195),
        ([LINEAR], NUMBER, "all", 6),
        (WORDS, TOKENS, "all", 400 + 99),
        (WORDS, TOKENS, "last", 99),
        ([{"kind": "flatten"}, {"kind": "linear", "units": 5}, LINEAR], IMAGE, {"lora": {"rank": 2}}, 2 * 69 + 18),
    ],
)
def test_facts_are_the_trained_numbers_and_the_clip(layers: Any, of: Any, train: Any, numbers: int) -> None:
    planned = plan(layers, of, train=train, asked={"clip": 0.5})
    assert (planned.facts.dimension, planned.facts.gradient_bound) == (numbers, 0.5)
    assert planned.facts.curvature_bound is None
    assert plan(layers, of, train=train).facts.gradient_bound == 1, "planned"


def test_the_target_says_the_loss_and_the_privacy_target_the_noise() -> None:
    assert plan(FLAT).spec.model.loss == "cross_entropy"  # type: ignore[union-attr] # a network
    number = plan([{"kind": "flatten"}, {"kind": "linear", "units": 1}], to={**NUMBER, "name": "y"})
    assert number.spec.model.loss == "squared"  # type: ignore[union-attr] # a network
    sigma = plan(FLAT).spec.optimizer.sigma  # type: ignore[union-attr] # clipped_sgd has one
    assert sigma > 0


SPIDER = {
    "kind": "kl_spider",
    "variant": "calibrated",
    "condition": {"gamma": 2.0, "kappa": 2.0},
    "smoothness": 1.0,
    "start_gap": 2.0,
}


def test_methods_under_the_kl_condition_take_networks_whose_constants_are_declared() -> None:
    planned = plan(FLAT, privacy={"mu": "40"}, asked={**SPIDER, "steps": None})
    assert planned.bound.value is not None
    claimed = planned.spec.optimizer.error_bound(planned.facts)  # type: ignore[union-attr] # KL-Spider makes one
    assert sum("nothing is clipped" in condition for condition in claimed.conditions) == 1, "a network's clip may cut"
    assert sum("-smooth" in condition for condition in claimed.conditions) == 2


@pytest.mark.parametrize(
    ("asked", "pointers"),
    [
        ({"kind": "noisy_newton", "steps": None}, ["/optimizer/kind"]),
        ({**SPIDER, "steps": None, "smoothness": None}, ["/optimizer/smoothness"]),
        ({"kind": "proximal_point", "steps": None}, ["/optimizer/condition", "/optimizer/weak_convexity"]),
        ({"kind": "adaptive_gd", "steps": None}, ["/optimizer/smoothness"]),
        ({"kind": "adaptive_gd", "steps": None, "smoothness": 1.0, "start": "random"}, ["/optimizer/start"]),
    ],
    ids=["no bounds", "spider", "proximal", "adaptive", "start"],
)
def test_what_is_not_known_of_a_network_is_asked_for_by_name(asked: Any, pointers: list[str]) -> None:
    with pytest.raises(Invalid) as refusal:
        plan(FLAT, asked=asked)
    assert [field.pointer for field in refusal.value.fields] == pointers


def test_no_iterate_of_a_large_network_is_drawn() -> None:
    large = [{"kind": "flatten"}, {"kind": "linear", "units": 200}, LINEAR]
    asked = {"kind": "adaptive_gd", "steps": None, "smoothness": 1.0, "select": "exponential"}
    assert plan(FLAT, asked=asked).spec.optimizer.kind == "adaptive_gd"
    with pytest.raises(Invalid) as refusal:
        plan(large, asked=asked)
    assert [field.pointer for field in refusal.value.fields] == ["/optimizer/select"]


DEEP: dict[str, Any] = {"kind": "activation"}
for _ in range(6):
    DEEP = {"kind": "residual", "layers": [DEEP]}


@pytest.mark.parametrize(
    ("layers", "of", "pointer"),
    [
        ([{"kind": "flatten"}, {"kind": "linear", "units": 4}], IMAGE, "/model/layers/1/units"),
        ([LINEAR], IMAGE, "/model/layers/0"),
        ([{"kind": "residual", "layers": [{"kind": "conv2d", "channels": 1, "kernel": 9}]}, *FLAT], IMAGE,
         "/model/layers/0/layers/0"),
        ([{"kind": "residual", "layers": [{"kind": "conv2d", "channels": 2, "kernel": 1}]}, *FLAT], IMAGE,
         "/model/layers/0"),
        ([{"kind": "group_norm", "groups": 2}, *FLAT], IMAGE, "/model/layers/0"),
        ([{"kind": "attention", "heads": 3}, *FLAT], IMAGE, "/model/layers/0"),
        ([{"kind": "flatten"}, {"kind": "reshape", "shape": [3]}], IMAGE, "/model/layers/1"),
        ([{"kind": "embedding", "tokens": 99, "width": 2}, *FLAT], TOKENS, "/model/layers/0/tokens"),
        ([LINEAR, *FLAT], TOKENS, "/model/layers/0"),
        ([{"kind": "flatten"}, *WORDS], IMAGE, "/model/layers/1"),
        ([{"kind": "flatten"}, {"kind": "linear", "units": 40_000}, {"kind": "linear", "units": 65_000}, LINEAR], IMAGE,
         "/model/layers/2"),
        ([{"kind": "conv2d", "channels": 4096, "kernel": 1, "padding": 32}, *FLAT], IMAGE, "/model/layers/0"),
    ],
)  # fmt: skip
def test_the_layer_at_fault_is_named(layers: list[Any], of: dict[str, Any], pointer: str) -> None:
    with pytest.raises(Invalid) as refusal:
        plan(layers, of)
    assert [field.pointer for field in refusal.value.fields] == [pointer]


@pytest.mark.parametrize(
    ("asked", "pointer"), [({"clip": 1e-9}, "/optimizer/clip"), ({"radius": 1e20}, "/optimizer/radius")]
)
def test_figures_beyond_single_precision_are_refused_before_anything_is_paid(asked: Any, pointer: str) -> None:
    with pytest.raises(Invalid) as refusal:
        plan(FLAT, asked=asked)
    assert [field.pointer for field in refusal.value.fields] == [pointer]


@pytest.mark.parametrize(
    "layers", [[DEEP, *FLAT], [{"kind": "residual", "layers": [LINEAR] * 60}] * 5], ids=["deep", "many"]
)
def test_networks_of_absurd_depth_are_no_networks(layers: list[Any]) -> None:
    with pytest.raises(ValidationError):
        NetworkModel.model_validate({"kind": "network", "target": "y", "layers": layers})


@pytest.mark.parametrize(
    ("layers", "of", "products"),
    [
        (FLAT, IMAGE, 64 * 3),
        ([{"kind": "conv2d", "channels": 2, "kernel": 3}, *FLAT], IMAGE, 2 * 6 * 6 * 9 + 72 * 3),
        ([WORDS[0], {"kind": "attention", "heads": 2}, *FLAT], TOKENS, 4 * 8 * 16 + 2 * 64 * 4 + 32 * 3),
        ([WORDS[0], {"kind": "residual", "layers": [{"kind": "linear", "units": 4}]}, *FLAT], TOKENS, 8 * 16 + 32 * 3),
    ],
)
def test_a_passs_multiplications_count_every_place_a_weight_is_met_at(
    layers: list[Any], of: dict[str, Any], products: int
) -> None:
    planned = plan(layers, of)
    assert isinstance(planned.spec.model, NetworkModel)
    assert multiplications(planned.spec.model, planned.design) == 3 * products
