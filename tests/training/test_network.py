"""A network in a trainer: its public start, and the row that is made of theta."""

from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from core.data.columns import Column
from core.inference.network import ReleasedNetwork, shown
from core.inference.network_summary import methods_paragraph
from core.mechanisms.public_start import draw_start
from core.models.network.layers import Layer, parameters_of
from core.models.network.trained import start_parameters, trained_parameters
from core.planning.about import misfit
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.events import Gaussian
from core.privacy.facts import Adjacency
from core.privacy.reports import report
from core.queries.sums.network.modules import ForwardPass
from core.training.network import change_of, describe_network, low_rank, merged, start_of

LAYERS = [{"kind": "linear", "units": 7}, {"kind": "activation", "of": "tanh"},
          {"kind": "residual", "layers": [{"kind": "linear", "units": 7}]}, {"kind": "linear", "units": 2}]  # fmt: skip
COLUMNS: list[dict[str, Any]] = [
    *({"name": f"x{place}", "type": "number", "lower": -1, "upper": 1} for place in range(5)),
    {"name": "y", "type": "binary", "values": ["no", "yes"]},
]


def planned(train: Any = "all") -> PlannedJob:
    spec = {
        "dataset": "ds_1",
        "model": {"kind": "network", "target": "y", "layers": LAYERS, "train": train},
        "optimizer": {"kind": "clipped_sgd", "steps": 5},
        "privacy": {"epsilon": "1"},
        "inference": {"intervals": False},
    }
    columns = TypeAdapter(tuple[Column, ...]).validate_python(COLUMNS)
    terms = plan_orders(Decimal(3), Decimal("1e-6"))
    return plan_job(
        JobSpec.model_validate(spec), columns=columns, units=1000, adjacency=Adjacency.ZERO_OUT, terms=terms
    )


def test_the_public_start_is_the_same_for_all_and_follows_the_layers() -> None:
    layers = planned().spec.model.layers
    one, other = (
        draw_start(layers, (5,), "all"),
        draw_start(layers, (5,), planned({"lora": {"rank": 2}}).spec.model.train),
    )
    assert all(torch.equal(one[name], other[name]) for name in one), "what is trained changes nothing"
    others = TypeAdapter(tuple[Layer, ...]).validate_python([*LAYERS[:1], {"kind": "activation"}, *LAYERS[2:]])
    assert not torch.equal(one["0.weight"], draw_start(others, (5,), "all")["0.weight"])
    assert all(at.dtype == torch.float32 for at in one.values())


def test_the_public_start_has_the_spread_of_its_layers() -> None:
    """A mean of 40,000 normal draws is within 4.5 standard errors, so is their spread: a false alarm in 10^5 draws."""
    layers = TypeAdapter(tuple[Layer, ...]).validate_python([{"kind": "linear", "units": 200}, {"kind": "layer_norm"}])
    drawn = draw_start(layers, (200,), "all")
    spread = 1 / (3 * 200) ** 0.5
    assert abs(float(drawn["0.weight"].mean())) < 4.5 * spread / 200
    assert float(drawn["0.weight"].std()) == pytest.approx(spread, rel=4.5 / (2 * 40_000) ** 0.5)
    assert torch.equal(drawn["1.weight"], torch.ones(200))
    assert torch.equal(drawn["0.bias"], torch.zeros(200))


@pytest.mark.parametrize("train", ["all", "last", {"lora": {"rank": 2}}, {"lora": {"rank": 3, "layers": ["2.0"]}}])
def test_a_row_is_the_start_and_its_change_with_low_rank_changes_merged(train: Any) -> None:
    job = planned(train)
    model, shape = job.spec.model, job.design.shape
    theta = torch.from_numpy(np.random.default_rng(1).normal(0, 0.3, job.facts.dimension))
    start = start_of(job, {})
    moved = trained_parameters(model.layers, shape, model.train)
    assert sum(one.size for one in moved) == job.facts.dimension
    weights, offsets, at = dict(start), {}, 0
    for one in moved:
        change = theta[at : at + one.size].view(one.shape)
        weights[one.name] = (start[one.name].double() + change).float()
        offsets[one.name], at = at, at + one.size
    records = torch.from_numpy(np.random.default_rng(2).normal(size=(9, 5)).astype(np.float32))
    said = ForwardPass(weights, offsets).run(model.layers, records).detach()
    flat, names = merged(job, {}, theta), parameters_of(model.layers, shape)
    whole = torch.from_numpy(flat).split([one.size for one in names])
    told = {one.name: piece.view(one.shape) for one, piece in zip(names, whole, strict=True)}
    assert torch.allclose(ForwardPass(told, {}).run(model.layers, records), said, atol=1e-5)
    still = {one.name for one in start_parameters(model.layers, shape, model.train)} - {one.name for one in moved}
    adapted = {one.name.rsplit(".", 1)[0] for one in moved}
    assert all(torch.equal(told[name], start[name]) for name in still - adapted)


def test_public_weights_are_where_training_starts() -> None:
    given = {"0.weight": np.full((7, 5), 0.5, dtype=np.float32)}
    start, drawn = start_of(planned(), given), start_of(planned(), {})
    assert torch.equal(start["0.weight"], torch.full((7, 5), 0.5))
    assert torch.equal(start["3.weight"], drawn["3.weight"])


@pytest.mark.parametrize("train", ["all", "last", {"lora": {"rank": 2}}, {"lora": {"rank": 1, "layers": ["2.0"]}}])
def test_a_released_network_is_a_point_that_makes_the_same_network_again(train: Any) -> None:
    """Theta is found to single precision, for the release was rounded; from there on nothing is lost.

    Low-rank changes are kept as they were trained: of a product alone nobody could tell its two factors.
    """
    job = planned(train)
    theta = torch.linspace(-0.3, 0.3, job.facts.dimension, dtype=torch.float64)
    told = report(Gaussian(sigma=1.0), plan_orders(Decimal(3), Decimal("1e-6")), Adjacency.ZERO_OUT, declared=True)
    kept = low_rank(job, {}, theta)
    released = describe_network(job, merged(job, {}, theta), "finished", 5, None, told, kept)
    released = ReleasedNetwork.model_validate_json(released.model_dump_json())
    assert (released.adapters is None) == (kept is None) == isinstance(train, str)
    assert misfit(job, released) is None
    point = change_of(job, {}, released)
    assert torch.allclose(point, theta, atol=1e-6)
    assert np.array_equal(merged(job, {}, point), released.flat)
    assert "other train" in str(misfit(planned("last" if train == "all" else "all"), released))
    if kept is None:
        assert released.adapters is None
    else:
        assert "released without them" in str(misfit(job, released.model_copy(update={"adapters": None})))
        assert np.array_equal(low_rank(job, {}, point), kept)
        assert not {"parameters", "adapters"} & {
            name for name, at in shown(released.model_dump(mode="json")).items() if isinstance(at, str)
        }


def test_methods_of_a_streamed_network_speak_of_no_samples() -> None:
    """Planted before: a batch without a rate was reported with its sampling noise, of which a stream has none."""
    job = planned()
    told = report(Gaussian(sigma=1.0), plan_orders(Decimal(3), Decimal("1e-6")), Adjacency.ZERO_OUT, declared=True)
    released = describe_network(job, merged(job, {}, torch.zeros(job.facts.dimension)), "finished", 5, None, told)
    assert "sampled records" in methods_paragraph(released)
    streamed = released.model_copy(
        update={"training": released.training.model_copy(update={"rate": None, "sigma": None})}
    )
    assert "sampled records" not in methods_paragraph(streamed)
