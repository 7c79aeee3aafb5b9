"""The row that a job leaves: the fitted model, with its fields filled in."""

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter

from core.data.columns import Column
from core.inference.estimate import Estimate, Sandwich
from core.inference.released import Released, declared, residual_scale
from core.ledger.claims import Claim
from core.losses.categorical import Logistic, Multinomial
from core.losses.counts import Poisson
from core.losses.robust import Huber, LogCosh
from core.losses.squares import Squared
from core.losses.weights import Clip, Mallows, Schweppe
from core.methods.fits import Fitted
from core.oracle import Release, Status
from core.planning.job import JobSpec
from core.planning.planner import plan_job
from core.privacy.budget import plan_orders
from core.privacy.events import Event, Gaussian, compose
from core.privacy.facts import Adjacency
from core.records.records import StoredRecords
from core.training.fitting import describe
from core.training.order import AttemptInput
from tests.support.embedded import COLUMNS

TERMS = plan_orders(Decimal(3), Decimal("1e-6"))
EVENT = compose(Counter({Gaussian(sigma=8.0): 4}))
LINEAR = {"kind": "linear", "target": "balance", "features": ["age"]}
SCALE_FLOOR = 0.01


def row(
    model: dict[str, Any],
    theta: list[float],
    *,
    intervals: bool = True,
    schedule: tuple[Event, ...] = (),
    charged: Event = EVENT,
    **method: Any,
) -> Released:
    """Return the row of a job whose method ended at `theta`."""
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_1",
            "model": model,
            "optimizer": {"kind": "noisy_gd"} | method,
            "privacy": {"mu": "0.2"},
            "inference": {"intervals": intervals, "accept_unchecked": True},
        }
    )
    columns = TypeAdapter(tuple[Column, ...]).validate_python(COLUMNS)
    planned = plan_job(spec, columns=columns, units=2000, adjacency=Adjacency.ZERO_OUT, terms=TERMS)
    size = len(theta)
    estimate = Estimate(
        theta=torch.tensor(theta, dtype=torch.float64),
        start=torch.zeros(size, dtype=torch.float64),
        family="gradient",
        left=torch.tensor(False),
        scale=0.1,
        step=0.5,
        steps=7,
    )
    identity = torch.eye(size, dtype=torch.float64)
    sandwich = Sandwich(
        covariance=0.01 * identity,
        plain=0.01 * identity,
        curvature=identity,
        score=identity,
        curvature_floored=torch.tensor(2),
        score_floored=torch.tensor(1),
        slow=torch.tensor(0),
    )
    order = AttemptInput(
        claim=Claim("job_1", 1, "epoch", 1),
        spec={},
        columns=[],
        records=StoredRecords("ds_1", "nowhere", "sha256:0", "v1.a.b"),
        units=2000,
        adjacency=Adjacency.ZERO_OUT,
        approval="not-needed",
        terms=TERMS,
        schedule=schedule,
        payers=(),
        kept=None,
        kept_chunks=0,
        paid_chunks=0,
        charged=Counter(),
    )
    fitted = Release(Fitted(estimate, sandwich if intervals else None), Status.FINISHED, EVENT)
    return describe(planned, order, fitted, charged)


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        ({"kind": "logistic", "target": "y", "features": ["age"]}, Logistic),
        (LINEAR, Squared),
        (LINEAR | {"loss": {"kind": "huber"}}, Huber),
        (LINEAR | {"loss": {"kind": "log_cosh"}}, LogCosh),
        (LINEAR | {"kind": "poisson"}, Poisson),
    ],
    ids=["logistic", "squared", "huber", "log-cosh", "poisson"],
)
def test_the_row_has_the_loss_and_the_weights_of_the_filled_model(model: dict[str, Any], loss: type) -> None:
    found = row(model, [0.1, 0.2])
    assert isinstance(found.loss, loss)
    assert isinstance(found.weights, Mallows)
    assert found.weights.bound is not None
    assert found.ridge == 0.0
    assert (found.steps, found.status) == (7, "finished")
    assert (found.flags.curvature_floored, found.flags.score_floored, found.flags.eigenvalues_floored) == (2, 1, 3)
    assert Released.model_validate(found.model_dump(mode="json")) == found
    assert len(declared(found).estimate) == 2


def test_an_unknown_scale_is_the_last_parameter_and_its_floor_is_told() -> None:
    model = LINEAR | {"loss": {"kind": "huber", "joint": True, "scale": 3.0, "scale_floor": 15 * SCALE_FLOOR}}
    free, floored = (row(model, [0.1, 0.2, last]) for last in (0.2, SCALE_FLOOR))
    assert isinstance(free.loss, Huber)
    assert free.loss.scale == 3.0, "in the target's own units"
    assert (free.flags.scale_floored, floored.flags.scale_floored) == (False, True)
    found = residual_scale(free)
    assert found is not None
    assert found.estimate == pytest.approx(15 * 0.2), "half the declared range of the target"
    assert found.std_error == pytest.approx(15 * 0.1)


def test_classes_are_counted_and_weights_and_ridges_kept() -> None:
    found = row({"kind": "multinomial", "target": "job", "features": ["age"], "ridge": 0.5}, [0.1, 0.2, 0.3, 0.4])
    assert found.loss == Multinomial(classes=3)
    assert found.ridge == 0.5
    assert len(found.names) == 4
    weighted = row(LINEAR | {"loss": {}, "weights": {"kind": "schweppe", "bound": 1.5}}, [0.1, 0.2])
    assert weighted.weights == Schweppe(bound=1.5)
    cubed = row(LINEAR | {"weights": {"kind": "mallows", "bound": 1.5, "power": 3}}, [0.1, 0.2])
    assert cubed.weights == Mallows(bound=1.5, power=3)
    clipped = row(
        {"kind": "logistic", "target": "y", "features": ["age"], "weights": {"kind": "clip", "bound": 1.0}},
        [0.1, 0.2],
        intervals=False,
    )
    assert clipped.weights == Clip(bound=1.0)
    assert clipped.covariance is None
    assert clipped.flags.eigenvalues_floored == 0


@pytest.mark.parametrize(("answers", "promised"), [(3, "0.0625"), (8, "0.0625"), (9, "0.07032")])
def test_a_release_promises_all_that_its_job_might_have_drawn(answers: int, promised: str) -> None:
    """Eight answers were reserved: fewer were drawn by a stopping rule, one more to draw a lost one again."""
    answer = Gaussian(sigma=8.0)
    found = row(
        {"kind": "logistic", "target": "y", "features": ["age"]},
        [0.1, 0.2],
        schedule=(answer,) * 8,
        charged=compose(Counter({answer: answers})),
    )
    assert (found.privacy.promise.rho, found.privacy.label) == (promised, "guarantee")
