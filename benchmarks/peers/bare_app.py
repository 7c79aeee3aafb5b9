"""A bare FastAPI + Celery job service: `python -m benchmarks.peers.bare_app postgresql|redis`.

`postgresql` checks a bearer key, reads and writes as many rows as its settings say, each in a table of its own, and
notifies Celery; `redis` keeps the job in Redis alone. Neither has a ledger, prices, idempotency, roles, an audit log,
logs or metrics. Settings: BARE_PORT, BARE_BROKER, BARE_DATABASE, and rows per request as BARE_POST_READS,
BARE_POST_INSERTS, BARE_POST_UPDATES, BARE_GET_READS.
"""

import os
import sys
import time
from typing import Annotated, Any
from uuid import uuid4

import redis
import uvicorn
from celery import Celery
from fastapi import FastAPI, Header, HTTPException
from pydantic import BaseModel
from sqlalchemy import JSON, Column, Float, MetaData, String, Table, create_engine, insert, select, update
from sqlalchemy.types import TypeEngine

KEY = "a-key"
TABLES = 16


class Spec(BaseModel):
    """A job, as such a service would declare it."""

    dataset: str
    model: dict[str, Any]
    optimizer: dict[str, Any]
    privacy: dict[str, str]


def make_celery(broker: str) -> Celery:
    """Return a Celery application that only sends."""
    app = Celery("bare", broker=broker)
    app.conf.update(task_ignore_result=True, task_serializer="json")
    return app


def with_redis() -> FastAPI:
    """Return the service that keeps jobs in Redis."""
    app = FastAPI()
    celery = make_celery(os.environ["BARE_BROKER"])
    store = redis.Redis.from_url(os.environ["BARE_BROKER"])

    @app.post("/v1/jobs", status_code=202)
    def submit(spec: Spec) -> dict[str, Any]:
        job = f"job_{uuid4().hex}"
        store.hset(job, mapping={"state": "queued", "spec": spec.model_dump_json(), "at": time.time()})
        celery.send_task("bare.run", args=[job], queue="cpu")
        return {"id": job, "state": "queued"}

    @app.get("/v1/jobs/{job}")
    def show(job: str) -> dict[str, Any]:
        found: Any = store.hgetall(job)
        return {"id": job, "state": found[b"state"].decode(), "at": float(found[b"at"])}

    return app


def with_postgresql() -> FastAPI:
    """Return the service that keeps jobs in PostgreSQL."""
    app = FastAPI()
    celery = make_celery(os.environ["BARE_BROKER"])
    reads, inserts, updates, looks = (
        int(os.environ[f"BARE_{name}"]) for name in ("POST_READS", "POST_INSERTS", "POST_UPDATES", "GET_READS")
    )
    engine = create_engine(os.environ["BARE_DATABASE"], pool_size=24, max_overflow=26)
    metadata = MetaData()
    columns: list[tuple[str, TypeEngine[Any] | type[TypeEngine[Any]]]] = [
        ("id", String(60)),
        ("state", String(20)),
        ("body", JSON),
        ("at", Float),
    ]
    tables = [
        Table(f"bare_{number}", metadata, *(Column(name, kind, primary_key=name == "id") for name, kind in columns))
        for number in range(TABLES)
    ]
    metadata.create_all(engine)
    with engine.begin() as connection:
        for table in tables:
            connection.execute(insert(table).values(id=KEY, state="there", body={}, at=0.0))

    def check(authorization: str) -> None:
        with engine.connect() as connection:
            key = authorization.removeprefix("Bearer ")
            if connection.execute(select(tables[0]).where(tables[0].c.id == key)).first() is None:
                raise HTTPException(401)

    @app.post("/v1/jobs", status_code=202)
    def submit(spec: Spec, authorization: Annotated[str, Header()]) -> dict[str, Any]:
        check(authorization)
        job = f"job_{uuid4().hex}"
        row = {"id": job, "state": "queued", "body": spec.model_dump(mode="json"), "at": time.time()}
        with engine.begin() as connection:
            for number in range(1, reads):
                table = tables[number % TABLES]
                connection.execute(select(table).where(table.c.id == KEY)).first()
            for number in range(inserts):
                connection.execute(insert(tables[number]).values(row))
            for number in range(updates):
                connection.execute(update(tables[number]).where(tables[number].c.id == job).values(state="queued"))
        celery.send_task("bare.run", args=[job], queue="cpu")
        return row

    @app.get("/v1/jobs/{job}")
    def show(job: str, authorization: Annotated[str, Header()]) -> dict[str, Any]:
        check(authorization)
        with engine.connect() as connection:
            found = connection.execute(select(tables[0]).where(tables[0].c.id == job)).mappings().one()
            for number in range(1, looks - 1):
                table = tables[number % TABLES]
                connection.execute(select(table).where(table.c.id == KEY)).first()
        return dict(found)

    return app


if __name__ == "__main__":
    made = with_redis() if sys.argv[1] == "redis" else with_postgresql()
    uvicorn.run(made, port=int(os.environ["BARE_PORT"]), log_level="warning", access_log=False)
