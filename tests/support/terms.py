"""Jobs on declared columns, with interactions, offsets and weights: read as trainers read, at a real oracle."""

import io
from collections import Counter
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import TypeAdapter

from core.data.columns import Coded, Columns
from core.inference.estimate import Estimate
from core.mechanisms.generator import SystemGenerator
from core.methods.fits import fit_and_infer
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.planning.job import JobSpec
from core.planning.planner import PlannedJob, plan_job
from core.privacy.budget import plan_orders
from core.privacy.events import compose
from core.privacy.facts import Adjacency
from core.queries.sums.linear import LinearProblem
from core.records.records import Encoded, read_records
from core.training.fitting import make_problem

Array = NDArray[np.float64]
Table = dict[str, NDArray[Any]]
TERMS: Final = plan_orders(Decimal(8), Decimal("1e-7"))
LOUD: Final = 2e4
"""A budget whose noise is nothing beside sampling, with weights that no row reaches."""
COLUMNS: Final = TypeAdapter(Columns).validate_python(
    [
        {"type": "number", "name": "age", "lower": 18, "upper": 95, "centre": 45},
        {"type": "number", "name": "dose", "lower": -3, "upper": 5},
        {"type": "binary", "name": "smoker", "values": ["no", "yes"]},
        {"type": "category", "name": "job", "values": ["none", "clerk", "nurse"]},
        {"type": "number", "name": "years", "lower": 0.05, "upper": 60},
        {"type": "number", "name": "shift", "lower": -4, "upper": 4},
        {"type": "number", "name": "w", "lower": 0, "upper": 25, "centre": 3.2},
        {"type": "binary", "name": "ill", "values": ["no", "yes"]},
        {"type": "integer", "name": "visits", "lower": 0, "upper": 400},
        {"type": "number", "name": "score", "lower": -60, "upper": 90},
    ]
)
MAINS: Final = ("age", "dose", "smoker", "job")
CROSSED: Final = (("age", "smoker"), ("age", "dose"), ("job", "smoker"))
SLOPES: Final = {"age": 0.02, "dose": 0.3, "smoker": 0.4, "clerk": -0.3, "nurse": 0.2, "age:smoker": 0.01}


def people(draws: np.random.Generator, units: int, *, crossed: bool = True, shifted: bool = True) -> Table:
    """Return rows as the store keeps them: numbers in declared units, codes of categories.

    Args:
        draws: of the data set.
        units: n.
        crossed: whether smokers' slope of age is another.
        shifted: whether outcomes follow `shift` (`years`, of visits).
    """
    age, dose = draws.normal(48, 13, units).clip(18, 95), draws.normal(0.5, 1, units).clip(-3, 5)
    smoker = (draws.random(units) < 0.4).astype(np.int64)
    job = draws.choice(3, units, p=[0.5, 0.3, 0.2])
    years, shift = draws.lognormal(1.2, 0.7, units).clip(0.05, 60), (draws.normal(0.4, 1, units) + dose / 4).clip(-4, 4)
    w = draws.gamma(2, 1.5, units).clip(0.01, 25)
    eta = -0.6 + SLOPES["age"] * (age - 45) + SLOPES["dose"] * dose + SLOPES["smoker"] * smoker
    eta += SLOPES["clerk"] * (job == 1) + SLOPES["nurse"] * (job == 2)
    eta += SLOPES["age:smoker"] * (age - 45) * smoker * crossed
    ill = (draws.random(units) < 1 / (1 + np.exp(-eta - shift * shifted))).astype(np.int64)
    visits = draws.poisson(np.exp(eta + np.log(years) * shifted)).clip(0, 400).astype(float)
    score = (5 + 3 * eta + shift * shifted + draws.normal(0, 2, units)).clip(-60, 90)
    return {
        "age": age, "dose": dose, "smoker": smoker, "job": job, "years": years, "shift": shift, "w": w,
        "ill": ill, "visits": visits, "score": score,
    }  # fmt: skip


def plan(units: int, mu: float, adjacency: Adjacency = Adjacency.ZERO_OUT, **body: Any) -> PlannedJob:
    """Return a job with nothing open, as the service plans it."""
    spec = JobSpec.model_validate(
        {
            "dataset": "ds_" + "0" * 26,
            "optimizer": {"kind": "whitened_newton"},
            "privacy": {"mu": Decimal(str(mu))},
            **body,
        }
    )
    return plan_job(spec, columns=COLUMNS, units=units, adjacency=adjacency, terms=TERMS)


def records(planned: PlannedJob, table: Table) -> Encoded:
    """Return rows as a trainer reads them, from a canonical file."""
    arrays = {}
    for column in COLUMNS:
        values = table[column.name]
        arrays[column.name] = pa.array(values.astype(np.int32 if isinstance(column, Coded) else np.float64))
    batch = pa.record_batch(arrays)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write(batch)
    sink.seek(0)
    return read_records(sink, planned.design)


def problem(planned: PlannedJob, read: Encoded) -> LinearProblem:
    """Return a job's problem, as a trainer makes it."""
    made = make_problem(planned, read, {})
    assert isinstance(made, LinearProblem)
    return made


def oracle(planned: PlannedJob, table: Table) -> FullOracle:
    """Return an oracle over the records with a system generator's noise, that answers what was priced and no more."""
    payments = CountingFilter(compose(Counter(planned.schedule)))
    return FullOracle(problem(planned, records(planned, table)), planned.facts, payments, SystemGenerator())


def fitted(planned: PlannedJob, table: Table) -> tuple[Array, Array, Estimate]:
    """Return coefficients and standard errors in declared units, shape (p,) each, with the estimate."""
    found = fit_and_infer(planned.spec.optimizer, planned.spec.inference, oracle(planned, table)).value
    matrix, offset = planned.design.to_declared()
    covariance = found.sandwich
    assert covariance is not None
    spread = matrix @ covariance.covariance.numpy() @ matrix.T
    return matrix @ found.estimate.theta.numpy() + offset, np.sqrt(np.diag(spread)), found.estimate
