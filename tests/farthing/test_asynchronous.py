"""The client on an event loop: the same methods, awaited, without a thread."""

import asyncio
import contextvars
import threading
from pathlib import Path

import numpy as np
import pytest

from farthing import AsyncClient, AsyncModel, Client, FarthingError, JobFailed, Unreachable
from farthing.wire import Wire
from tests.farthing.conftest import Released, body
from tests.support.async_stub import STUB, stub
from tests.support.embedded import COLUMNS, KEY, Embedded


def test_its_types_are_those_of_the_client() -> None:
    assert STUB.read_text() == stub(), "python -m tests.support.async_stub"


def test_a_job_from_upload_to_prediction(service: Embedded, records: Path, tmp_path: Path) -> None:
    async def day() -> None:
        async with AsyncClient(service.url, KEY) as client:
            assert await client.ready()
            metadata = {"name": "toy", "columns": COLUMNS, "budget": {"epsilon": 20, "delta": "1e-6"}}
            made = await client.upload(records, metadata)
            assert made.id in [one.id async for one in client.datasets()]
            seen: list[str] = []
            model = await client.train(body(made.id), progress=lambda job: seen.append(job.state))
            assert seen[-1] == "succeeded"
            assert isinstance(model, AsyncModel)
            assert repr(model) == f"AsyncModel({model.id!r})"
            with Client(service.url, KEY) as plain:
                expected = plain.model(model.id)
                assert (await model.params).to_dict() == expected.params.to_dict()
                assert await model.summary() == expected.summary()
                (row,) = await model.predict([{"age": 30, "job": "a", "balance": 100}])
                assert [row] == expected.predict([{"age": 30, "job": "a", "balance": 100}])
            with pytest.raises(FarthingError, match="This is one model twice"):
                await model.compare(model)
            lines = tmp_path / "rows.csv"
            lines.write_text("age,job,balance\n30,a,100\n")
            await model.predict_file(lines, tmp_path / "out.csv")
            assert len((tmp_path / "out.csv").read_text().splitlines()) == 2
            draft = await client.upload(records, metadata | {"seal": False})
            assert (await client.send_records(draft.id, records)).state == "draft"

    asyncio.run(day())


def test_calls_wait_beside_one_another_without_threads(service: Embedded, released: Released) -> None:
    before = threading.active_count()

    async def day() -> None:
        async with AsyncClient(service.url, KEY) as client:
            jobs = await asyncio.gather(*(client.job(released.job.id) for _ in range(30)))
            assert {job.id for job in jobs} == {released.job.id}
            assert threading.active_count() == before

    asyncio.run(day())


def test_what_a_task_sets_is_its_own(service: Embedded) -> None:
    mark = contextvars.ContextVar("mark", default="")

    async def day() -> None:
        async with AsyncClient(service.url, KEY) as client:
            # The callback runs inside the call, and so in the task that made it.
            async def one(name: str, start: float) -> list[str]:
                mark.set(name)
                seen: list[str] = []
                data = {"x": start + np.arange(5.0), "y": np.arange(5.0) % 2}
                columns = [
                    {"name": "x", "type": "number", "lower": 0, "upper": 6},
                    {"name": "y", "type": "number", "lower": 0, "upper": 1},
                ]
                metadata = {"name": name, "columns": columns, "budget": {"epsilon": "1", "delta": "1e-6"}}
                await client.upload(data, metadata, progress=lambda *_: seen.append(mark.get()))
                return seen

            assert await asyncio.gather(one("first", 0), one("second", 0.5)) == [["first"], ["second"]]

    asyncio.run(day())


def test_refusals_and_failed_jobs_are_raised_as_from_the_client(service: Embedded, released: Released) -> None:
    async def day() -> None:
        async with AsyncClient(service.url, KEY) as client:
            with pytest.raises(FarthingError, match="not-found"):
                await client.dataset("ds_none")
            job = await client.submit(body(released.dataset, mu="0.01"))
            await client.cancel(job.id)
            with pytest.raises(JobFailed) as ended:
                await client.wait(job.id)
            assert ended.value.code == "cancelled"

    asyncio.run(day())


def test_a_cancelled_wait_ends_and_the_client_goes_on(service: Embedded, released: Released) -> None:
    async def day() -> None:
        async with AsyncClient(service.url, KEY) as client:
            waiting = asyncio.create_task(anext(client.watch(released.job.id, every_seconds=60)))
            assert (await waiting).ended
            stream = client.audit_export()
            assert await anext(stream)
            await stream.aclose()
            asleep = asyncio.create_task(unanswered(client))
            await asyncio.sleep(0.2)
            asleep.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asleep
            assert await client.ready()

    async def unanswered(client: AsyncClient) -> None:
        async with AsyncClient("http://127.0.0.1:1", KEY) as other:
            assert other.url != client.url
            await other.me()

    asyncio.run(day())


def test_its_handles_belong_to_the_loop(service: Embedded, released: Released) -> None:
    async def day() -> None:
        async with AsyncClient(service.url, KEY) as client:
            model = await client.model(released.model)
            with pytest.raises(RuntimeError, match="await the client's own methods"):
                model._inside.table()

    asyncio.run(day())


def test_where_nothing_listens_it_says_so_after_its_last_send() -> None:
    pauses: list[float] = []
    wire = Wire("http://127.0.0.1:1", KEY, 5.0, pause=pauses.append)
    with pytest.raises(Unreachable, match="farthing up"):
        wire.get("/v1/me")
    assert pauses == [0.5, 1.0, 2.0, 4.0]
