"""Sweeps by the SDK, against a real service: from a grid to the model that won."""

import asyncio

import numpy as np
import pytest

from farthing import AsyncClient, Client, FarthingError
from tests.farthing.conftest import body
from tests.support.embedded import KEY, Embedded


def job(dataset: str, **changes: object) -> dict[str, object]:
    settings = {"optimizer": {"kind": "noisy_gd", "steps": 4}, "inference": {"intervals": False}}
    return {**body(dataset), **settings, "privacy": {"epsilon": 1.5}, **changes}


def test_from_a_grid_to_the_model_that_won(service: Embedded, client: Client) -> None:
    dataset = service.upload(budget={"epsilon": "20", "delta": "1e-6"})
    grid = {"/optimizer/steps": np.array([3, 6]), "/model/ridge": [np.float64(0.01), 0.1]}
    priced = client.price_sweep(job(dataset), grid=grid, way="composition")
    assert (priced.fits, priced.steps, priced.plan["way"]) == (True, 1, "composition")
    seen: list[tuple[int, int]] = []
    model = client.sweep(
        job(dataset),
        grid=grid,
        way="composition",
        progress=lambda one: seen.append((one.progress.step, one.progress.steps)),
    )
    assert {steps for _, steps in seen} == {1}
    won = model.sweep
    assert won is not None
    assert (won.candidates, won.way) == (4, "composition")
    assert won.candidate in range(4)
    assert won.optimizer is not None
    assert (won.optimizer["kind"], won.optimizer["steps"]) == ("noisy_gd", [6, 3][won.candidate % 2 == 0])
    assert won.ridge == [0.01, 0.1][won.candidate // 2]
    assert won.score is not None
    assert won.score_scale > 0
    assert f"Sweep: Candidate {won.candidate} of 4" in model.summary()
    assert "priced" not in repr(model)
    assert len(model.params) == 4


def test_where_no_run_is_drawn_the_release_alone_says_so(service: Embedded, client: Client) -> None:
    """Of 0.5 runs on average none is drawn in 6 sweeps of 10: in 25 sweeps both happen but for 4e-6."""
    dataset = service.upload(budget={"epsilon": "20", "delta": "1e-6"})
    asked = job(dataset, privacy={"epsilon": 0.5})
    ends: dict[bool, list[object]] = {}
    for _ in range(25):
        made = client.submit_sweep(asked, grid={"/optimizer/steps": [3, 6]}, way="selection", runs=0.5)
        ended = client.wait(made.id)
        model = client.released(ended)
        assert ended.cost is not None
        events = [(one.kind, sorted(one.data)) for one in client.events(made.id)]
        swept = model.sweep
        assert swept is not None
        drawn = swept.candidate is not None
        ends[drawn] = [events, ended.progress, ended.cost, ended.attempt, ended.state, client.job_plan(made.id).runs]
        if not drawn:
            assert (swept.candidates, swept.optimizer, swept.score, swept.ridge) == (2, None, None, None)
            assert "No run of the 2 candidates was drawn" in model.summary()
            assert "No run of the 2 candidates" in model.page()
        if len(ends) == 2:
            break
    assert ends[True] == ends[False]


def test_jobs_and_an_event_loop(service: Embedded) -> None:
    dataset = service.upload(budget={"epsilon": "20", "delta": "1e-6"})
    jobs = [job(dataset), job(dataset, optimizer={"kind": "noisy_newton", "steps": 2})]

    async def day() -> None:
        async with AsyncClient(service.url, KEY) as client:
            priced = await client.price_sweep(jobs=jobs)
            first = await client.submit_sweep(jobs=jobs, key="once")
            assert (await client.submit_sweep(jobs=jobs, key="once")).id == first.id
            assert first.cost is not None
            assert priced.cost is not None
            assert first.cost.reserved.budget_share == priced.cost.budget_share
            won = await (await client.released(await client.wait(first.id))).sweep
            assert won is not None
            assert won.candidates == 2

    asyncio.run(day())


def test_a_plain_model_has_no_sweep(client: Client, released: object) -> None:
    assert client.model(released.model).sweep is None  # type: ignore[attr-defined] # a fixture of its own class


@pytest.mark.parametrize(
    ("grid", "pointer"),
    [
        ({"/optimizer/steps": [3, 0]}, "/grid/~1optimizer~1steps/1"),
        ({"/privacy/mu": [1, 2]}, "/grid/~1privacy~1mu"),
        ({"/optimizer/steps": "36"}, "/grid/~1optimizer~1steps"),
    ],
)
def test_a_refused_grid_names_its_value(
    client: Client, service: Embedded, grid: dict[str, object], pointer: str
) -> None:
    dataset = service.upload()
    for call in (client.price_sweep, client.sweep):
        with pytest.raises(FarthingError) as refused:
            call(job(dataset), grid=grid)  # type: ignore[operator]
        assert pointer in [one["pointer"] for one in refused.value.problem["errors"]]
