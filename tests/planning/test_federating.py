"""One plan for all clients: equal but for batches, as noisy as the strictest target, and the same when asked again."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from core.base.errors import Invalid
from core.data.columns import Column
from core.planning.federating import PlannedFederation, PublicSite, plan_federation
from core.planning.job import JobSpec
from core.planning.planner import plan_job
from core.privacy.budget import plan_orders
from core.privacy.facts import Adjacency
from tests.support.api import COLUMNS, job

DECLARED = TypeAdapter(list[Column]).validate_python(COLUMNS)
GAUSS = {"kind": "gauss_psgd", "estimator": "period"}


def client(place: int, units: int, epsilon: str = "3", delta: str = "1e-6") -> PublicSite:
    terms = plan_orders(Decimal(epsilon), Decimal(delta))
    return PublicSite(f"ds_{place}", DECLARED, units, "record", Adjacency.ZERO_OUT, terms)


def asked(clients: int, optimizer: dict[str, Any], privacy: dict[str, str]) -> JobSpec:
    body = job("ds_none", optimizer=optimizer, privacy=privacy, inference={"intervals": False})
    del body["dataset"]
    names = [f"ds_{place}" for place in range(clients)]
    return JobSpec.model_validate(body | {"federation": {"datasets": names}})


def sigmas(planned: PlannedFederation) -> list[set[float]]:
    return [{question.sigma for question in one.spec.optimizer.questions()} for one in planned.clients]


@pytest.mark.parametrize("privacy", [{"epsilon": "1"}, {"mu": "0.5"}, {"budget_share": "0.10"}], ids=str)
@pytest.mark.parametrize(
    "optimizer",
    [
        {"kind": "noisy_gd"},
        {"kind": "clipped_sgd"},
        {"kind": "clipped_sgd", "batch": 40, "steps": 30},
        {"kind": "one_pass_clipped_sgd"},
        GAUSS,
    ],
    ids=str,
)
def test_a_plan_is_the_strictest_and_stays_itself(optimizer: dict[str, Any], privacy: dict[str, str]) -> None:
    clients = [client(0, 1000), client(1, 2500, "2", "1e-7"), client(2, 800)]
    spec = asked(3, optimizer, privacy)
    planned = plan_federation(spec, clients)
    assert len({frozenset(found) for found in sigmas(planned)}) == 1, "the same multiplier everywhere"
    for place, (one, facts) in enumerate(zip(planned.clients, clients, strict=True)):
        stored = JobSpec.model_validate(one.spec.model_dump(mode="json"))
        again = plan_job(stored, columns=facts.columns, units=facts.units, adjacency=facts.adjacency, terms=facts.terms)
        assert (again.spec, again.schedule) == (one.spec, one.schedule), "a trainer plans what was reserved"
        assert stored.dataset == f"ds_{place}"
    twice = plan_federation(JobSpec.model_validate(planned.spec.model_dump(mode="json")), clients)
    assert twice == planned, "a clone is the same job"


def test_somebody_asks_for_all_of_the_noise() -> None:
    clients = [client(0, 1000), client(1, 2500, "2", "1e-9"), client(2, 800)]
    for kind in ("noisy_gd", "clipped_sgd", "one_pass_clipped_sgd"):
        together = plan_federation(asked(3, {"kind": kind, "steps": 40}, {"epsilon": "1"}), clients)
        ((common,), *_) = sigmas(together)
        sizes = [getattr(one.spec.optimizer, "batch", None) for one in together.clients]
        alone = []
        for facts, size in zip(clients, sizes, strict=True):
            own = {"kind": kind, "steps": 40} | ({} if size is None else {"batch": size})
            spec = asked(3, own, {"epsilon": "1"}).model_copy(update={"dataset": facts.dataset, "federation": None})
            found = plan_job(
                spec, columns=facts.columns, units=facts.units, adjacency=facts.adjacency, terms=facts.terms
            )
            alone += [question.sigma for question in found.spec.optimizer.questions()]
        assert common == pytest.approx(max(alone), rel=1e-6)
        assert min(alone) < max(alone) * (1 - 1e-4), "the targets differ"


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(300, 100_000), min_size=2, max_size=5), st.integers(1, 250))
def test_batches_are_in_proportion(units: list[int], batch: int) -> None:
    clients = [client(place, size) for place, size in enumerate(units)]
    spec = asked(len(units), {"kind": "one_pass_clipped_sgd", "batch": batch}, {"mu": "0.5"})
    planned = plan_federation(spec, clients)
    for one, size in zip(planned.clients, units, strict=True):
        settled = one.spec.optimizer
        assert settled.kind == "one_pass_clipped_sgd"
        assert settled.batch == max(1, batch * size // min(units))
        assert settled.steps is not None
        assert settled.steps * settled.batch <= size, "no client runs out before the others"


def test_a_method_that_counts_clients_is_told_how_many() -> None:
    clients = [client(0, 1000), client(1, 900)]
    planned = plan_federation(asked(2, GAUSS, {"mu": "0.5"}), clients)
    assert planned.spec.optimizer.kind == "gauss_psgd"
    assert planned.spec.optimizer.sites == 2
    with pytest.raises(Invalid) as refused:
        plan_federation(asked(2, GAUSS | {"sites": 3}, {"mu": "0.5"}), clients)
    assert refused.value.fields[0].pointer == "/optimizer/sites"


def test_a_client_that_does_not_fit_is_named() -> None:
    small = [client(0, 1000), client(1, 20)]
    with pytest.raises(Invalid) as refused:
        plan_federation(asked(2, {"kind": "clipped_sgd", "batch": 30}, {"mu": "0.5"}), small)
    assert "ds_1" in refused.value.detail
    assert {field.pointer for field in refused.value.fields} == {"/optimizer/batch", "/federation/datasets/1"}
