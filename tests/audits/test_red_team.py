"""The path from submit to settle, attacked rule by rule; each rule is also seen to fail on a planted variant.

Nothing here is statistical: every check is exact. `docs/explanation/privacy-checklist.md` names the rule of each test.
"""

import builtins
import os
import signal
import stat
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from decimal import Decimal
from hashlib import sha256
from math import exp, floor
from pathlib import Path

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pytest
from safetensors.numpy import save
from sqlalchemy import select

from core.base.errors import NotFound
from core.base.settings import ServiceSettings
from core.data.columns import Column, DateColumn, IntegerColumn, NumberColumn
from core.db import reads as queries
from core.db.database import Database
from core.db.idempotency import RequestKey
from core.db.tables import Dataset, Job
from core.jobs import jobs
from core.ledger import ledger
from core.mechanisms.gaussian import DISTANCE_CAP
from core.planning.job import JobSpec
from core.privacy.budget import NANO, Terms, plan_orders
from core.privacy.conversions import renyi_budget
from core.privacy.draws import most_draws
from core.records.decoding import cells
from core.service import jobs as job_cases
from core.service import scopes as scope_cases
from core.service.context import Caller, Context
from core.service.intake import StoredAnswer, Submission
from core.service.quotes import quote
from core.training.attempt import in_phase
from core.training.order import Failed, Phase, stored_order
from tests.support import entry
from tests.support.api import Service, job, metadata, running, submit, upload
from tests.support.embedded import ROOT
from tests.support.store import STEP, Place, give, make_place
from tests.support.store import submit as submit_row
from workers.outcome import Outcome
from workers.trainer import judge

DRAWS = 10**12


def promised(terms: Terms, draws: int) -> float:
    """Return the share of delta that caps and sampler use together; the promise holds up to 1."""
    delta = float(terms.delta)
    used = draws * DISTANCE_CAP * (1 + exp(float(terms.epsilon))) / delta
    for order, weight, cap in zip(terms.orders, terms.weights, terms.caps_nano, strict=True):
        excess = Decimal(cap) / NANO - renyi_budget(terms.epsilon, weight * terms.delta, order)
        used += float(weight) * (exp(float(excess * (order - 1))) - 1)
    return used + float(sum(terms.weights)) - 1


class TestDelta:
    @pytest.mark.parametrize(
        ("epsilon", "delta", "draws"),
        [
            ("0.5", "1e-8", DRAWS),
            ("1", "1e-6", DRAWS),
            ("1", "1e-10", DRAWS),
            ("3", "1e-6", DRAWS),
            ("3", "1e-9", DRAWS),
            ("8", "1e-6", DRAWS),
            ("8", "1e-5", DRAWS),
            ("20", "1e-6", 10**9),
        ],
    )
    def test_caps_leave_room_for_the_sampler(self, epsilon: str, delta: str, draws: int) -> None:
        assert promised(plan_orders(Decimal(epsilon), Decimal(delta)), draws) <= 0

    def test_caps_that_are_a_thousandth_of_a_nat_too_large_leave_none(self) -> None:
        terms = plan_orders(Decimal(1), Decimal("1e-10"))
        assert promised(terms, 0) <= 0
        assert promised(terms.model_copy(update={"caps_nano": tuple(c + 10**6 for c in terms.caps_nano)}), 0) > 0

    def test_far_larger_epsilons_are_not_covered(self) -> None:
        terms = plan_orders(Decimal(50), Decimal("1e-6"))
        assert promised(terms, DRAWS) > 0
        assert most_draws(terms) < DRAWS, "and a job that may draw so many is refused there"

    @pytest.mark.parametrize("epsilon", ["0.5", "8", "20", "45"])
    def test_as_many_draws_as_are_admitted_keep_delta(self, epsilon: str) -> None:
        terms = plan_orders(Decimal(epsilon), Decimal("1e-6"))
        assert promised(terms, most_draws(terms)) <= 1e-12


ODD = (
    *("+5", "1e400", "-1e400", "1e-400", "nan", "inf", "-Infinity", "+inf", "0x1A", " 7", "7 ", "5.", ".5", "1E+5"),
    *(
        "1,5",
        "1_0",
        "nan(1)",
        "-",
        "e5",
        "1e",
        "\u0661",
        "00012",
        "-0",
        "\t8",
        "1e99999999999",
        ".",
        "NULL",
        "true",
        "",
    ),
    *("2024-02-30", "2024-02-29", "2024-2-3", "20240203", "2024-02-03T10:00", "\u00a05", "5f", "1d5", "true", ""),
)
BESIDE = ("1", "", "abc", " 3", "+2", "2024-01-01", "1e999", "\u0661")
READ: list[Column] = [
    NumberColumn(name="a", type="number", lower=-1e100, upper=1e100),
    IntegerColumn(name="a", type="integer", lower=-100, upper=100, missing=("-1", "NULL")),
    DateColumn(name="a", type="date", lower="2000-01-01", upper="2030-01-01"),
]


def read_beside(column: Column) -> list[tuple[str, str]]:
    """Return the pairs of a cell and a neighbour where the neighbour changes how the cell is read."""
    found = []
    for text in ODD:
        (alone,), _ = cells.convert(column, pa.array([text]))
        for other in BESIDE:
            read = cells.convert(column, pa.array([other, text]))[0][1]
            if repr(read) != repr(alone):
                found.append((text, other))
    return found


class TestRowsAlone:
    @pytest.mark.parametrize("column", READ, ids=lambda column: column.type)
    def test_a_cell_is_read_the_same_beside_any_other(self, column: Column) -> None:
        assert read_beside(column) == []

    def test_a_column_given_up_for_one_cell_is_caught(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def all_or_nothing(texts: pa.Array) -> pa.Array:
            try:
                return texts.cast(pa.float64())
            except pa.ArrowInvalid:
                return pa.nulls(len(texts), pa.float64())

        monkeypatch.setattr(cells, "_parsed", all_or_nothing)
        assert read_beside(READ[0])


@pytest.fixture
def place(database: Database) -> Place:
    return make_place(database)


def finished_job(database: Database, place: Place) -> str:
    """Run a job by the store's own functions to its end."""
    with database.write() as session:
        made = submit_row(session, place)
        rest = {"model": {}, "optimizer": {"kind": "noisy_newton"}, "privacy": {}, "inference": {}}
        made.spec = {**made.spec, **rest}
        job_id = made.id
    claim = database.transaction(jobs.claim, "w", 60.0)
    assert claim is not None
    for chunk in range(4):
        database.transaction(jobs.progress, claim, chunk + 1)
        database.transaction(ledger.pay, claim, chunk, None, chunk)
    database.transaction(jobs.finish, claim, {}, "not-needed")
    return job_id


def told_times(database: Database, place: Place, home: Path) -> list[str]:
    """Return every time that an analyst may read and that the records could have moved."""
    grid = 1.0
    context = Context(ServiceSettings(home=home, visible_grid_seconds=grid), database)
    owner = Caller(place.principal_id, "Olga", "owner", "key_x")
    job_id = finished_job(database, place)
    while not job_cases.get(context, owner, job_id).finished_at:
        pass
    seen = [job_cases.get(context, owner, job_id).finished_at]
    seen += [line.created_at for line in job_cases.events(context, owner, job_id, 1, 100) if line.kind != "running"]
    seen += [attempt.ended_at for attempt in job_cases.attempts(context, owner, job_id)]
    seen += [entry.created_at for entry in scope_cases.entries(context, owner, place.scope_id, 0, 100)]
    assert len(seen) == 1 + 5 + 1 + 9
    return [at for at in seen if at is not None]


class TestTimes:
    def test_what_computing_took_is_told_on_the_grid_only(
        self, database: Database, place: Place, tmp_path: Path
    ) -> None:
        told = told_times(database, place, tmp_path)
        assert len(told) == 16
        assert all(at.endswith(".000Z") for at in told)

    def test_exact_times_are_caught(
        self, database: Database, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(queries, "on_grid", lambda at, grid: at)  # noqa: ARG005 - the function's shape
        assert not all(at.endswith(".000Z") for at in told_times(database, place, tmp_path))

    def test_bodies_of_entries_tell_whole_seconds(self, database: Database, place: Place) -> None:
        finished_job(database, place)
        with database.read() as session:
            lines = queries.entries(session, place.scope_id, 0, 100)
            assert all(line.created_at == floor(line.created_at) for line in lines)
            assert all(f'"at":{line.created_at!r},' in line.body for line in lines)


def test_a_job_reads_as_many_rows_as_its_own_dataset_has(database: Database, place: Place) -> None:
    """A dataset that joined a scope may have other rows than the scope's first one; n is its own."""
    with database.write() as session:
        dataset = session.execute(select(Dataset)).scalar_one()
        dataset.rows, dataset.wrapped_key = 500, "v1.a.b"
        dataset.location, dataset.location_digest = "x.arrow", "sha256:x"
        submit_row(session, place, (STEP,))
    claim = database.transaction(jobs.claim, "w", 60.0)
    assert claim is not None
    with database.read() as session:
        assert stored_order(session, claim, {}).units == 500


class TestFailures:
    @pytest.mark.parametrize("phase", Phase)
    def test_an_exception_tells_its_phase_alone(self, phase: Phase) -> None:
        with pytest.raises(Failed) as caught, in_phase(phase):
            raise ValueError("row 17 holds 42")
        assert str(caught.value) == phase.value
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__

    def test_every_exception_becomes_a_word_of_the_closed_list(self) -> None:
        odd = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError, BaseExceptionGroup, ExceptionGroup)
        kinds = {kind for kind in vars(builtins).values() if isinstance(kind, type) and issubclass(kind, BaseException)}
        assert len(kinds) > 60
        words = {judge(kind("42")) for kind in kinds if kind not in odd}
        assert words == {Outcome.FAILED_OPENING, Outcome.OUT_OF_MEMORY}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("red") / "home", FARTHING_REQUESTS_PER_SECOND="10000") as found:
        yield found


@pytest.fixture(scope="module")
def secrets(service: Service) -> dict[str, str]:
    """Somebody's dataset, scope, job and model, whose existence nobody else may learn."""
    owner, made = service.someone("owner")
    dataset = upload(owner)
    job_id = submit(owner, job(dataset["id"])).json()["id"]
    database = service.database()
    claim = database.transaction(jobs.claim, "test", 600.0)
    assert claim is not None
    model = database.transaction(jobs.finish, claim, {}, "not-needed").id
    with database.read() as session:
        assert session.get_one(Job, job_id).state == "succeeded"
    database.dispose()
    draft = owner.post("/v1/datasets", json=metadata(seal=False)).json()["id"]
    opened = owner.post(f"/v1/datasets/{draft}/uploads", json={"bytes": 5}).json()["id"]
    return {
        "dataset_id": dataset["id"],
        "scope_id": dataset["scope"],
        "job_id": job_id,
        "model_id": model,
        "other_id": model,
        "weights_id": weights_of(owner),
        "principal_id": made["principal"],
        "key_id": made["id"],
        "invitation_id": owner.post("/v1/invitations", json={"role": "analyst", "note": "Ann"}).json()["id"],
        "webhook_id": owner.post("/v1/webhooks", json={"url": "https://93.184.215.14/"}).json()["id"],
        "name": "report.json",
        "upload_id": opened,
        "number": "1",
    }


def weights_of(client: httpx.Client) -> str:
    """Upload public weights; return their id."""
    content = save({"0.weight": np.zeros((2, 3), dtype=np.float32)})
    headers = {"Content-Type": "application/octet-stream"}
    answer = client.post("/v1/pretrained?name=mine", content=content, headers=headers)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def ask(client: httpx.Client, method: str, path: str) -> tuple[int, str | None]:
    """Return the status of an answer and the code of its problem."""
    body = {} if method in {"post", "put", "patch"} else None
    digest = f"sha-256=:{b64encode(sha256(b'{}').digest()).decode()}:"
    headers = {"Idempotency-Key": os.urandom(8).hex(), "Content-Digest": digest}
    answer = client.request(method, path, headers=headers, json=body)
    is_problem = answer.headers.get("content-type", "").startswith("application/problem+json")
    return answer.status_code, answer.json()["code"] if is_problem else None


class TestStrangers:
    @pytest.mark.parametrize("role", ["owner", "analyst"])
    def test_what_is_somebody_elses_answers_as_what_does_not_exist(
        self, service: Service, secrets: dict[str, str], role: str
    ) -> None:
        stranger, _ = service.someone(role)
        absent = {name: value[:-6] + "zzzzzz" for name, value in secrets.items() if name != "number"} | {"number": "1"}
        tried = 0
        for path, methods in stranger.get("/openapi.json").json()["paths"].items():
            for method in set(methods) & {"get", "post", "put", "patch", "delete"}:
                if "{" not in path or path.startswith(("/v1/optimizers", "/v1/losses")):
                    continue
                there = ask(stranger, method, path.format(**secrets))
                assert there == ask(stranger, method, path.format(**absent)), f"{method} {path} tells: {there}"
                assert there[0] >= 400
                assert method != "get" or there == (404, "not-found"), f"{method} {path}: {there}"
                tried += 1
        assert tried > 30

    def test_the_owner_is_answered(self, service: Service, secrets: dict[str, str]) -> None:
        """The same paths exist for who may see them, so that a 404 above means something."""
        for path in ("datasets/{dataset_id}/budget", "scopes/{scope_id}/entries", "jobs/{job_id}", "models/{model_id}"):
            assert service.client().get("/v1/" + path.format(**secrets)).status_code == 200

    @pytest.mark.parametrize("after", ["' OR 1=1 --", "~", "%", "\uffff", "ds_", "../../x", "-1"])
    def test_cursors_are_places_and_nothing_else(self, service: Service, secrets: dict[str, str], after: str) -> None:
        stranger, _ = service.someone("analyst")
        for path in ("datasets", "jobs", "keys", "audit"):
            answer = stranger.get(f"/v1/{path}", params={"after": after})
            assert answer.status_code < 500
            assert not any(value in answer.text for name, value in secrets.items() if name not in {"name", "number"})

    @pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "....//x", "ds_%2e%2e", "%ff", "a" * 200])
    def test_identifiers_are_no_paths(self, service: Service, name: str) -> None:
        for path in ("datasets", "jobs", "models", "scopes"):
            assert service.client().get(f"/v1/{path}/{name}").status_code in {404, 422}


def test_access_and_caps_count_when_the_job_is_made_not_when_it_was_quoted(
    service: Service, secrets: dict[str, str]
) -> None:
    database = service.database()
    context = Context(ServiceSettings(home=service.home), database)
    _, made = service.someone("analyst")
    caller = Caller(made["principal"], "someone", "analyst", made["id"])
    spec = JobSpec.model_validate(job(secrets["dataset_id"]))
    cap = database.transaction(give, secrets["dataset_id"], caller.id)
    with database.read() as session:
        quoted = quote(session, context, caller, spec)
    terms = plan_orders(Decimal("0.5"), Decimal("1e-6"))
    assert database.transaction(ledger.set_grant, secrets["scope_id"], caller.id, terms, {"epsilon": "0.5"}).id == cap
    (answer,) = entry.take(context, [Submission(caller, quoted, RequestKey(caller.id, "POST /v1/jobs", "a"), "x")])
    assert isinstance(answer, StoredAnswer)
    with database.read() as session:
        found = session.get_one(Job, answer.body["id"])
        assert found.grant_id == cap
        assert (
            ledger.balance(session, cap).reserved
            == tuple(one + more for one, more in zip(found.chunks[cap][-1], found.allowance[cap], strict=True))[
                : len(terms.orders)
            ]
        )
    _, other = service.someone("analyst")
    stranger = Caller(other["principal"], "someone", "analyst", other["id"])
    (refused,) = entry.take(context, [Submission(stranger, quoted, RequestKey(stranger.id, "POST /v1/jobs", "b"), "x")])
    assert isinstance(refused, NotFound)
    database.dispose()


def readable_by_others(home: Path) -> list[str]:
    """Return what of a home another user of the machine may open."""
    everything = [home, *home.rglob("*")]
    return [str(path) for path in everything if stat.S_IMODE(path.stat().st_mode) & 0o077]


def test_a_home_and_its_secrets_are_their_users_alone(tmp_path: Path) -> None:
    secret = "an-admin-key-nobody-else-may-see-0123456789-abcdefghij"
    home = tmp_path / "home"
    command = [sys.executable, "-m", "workers.embedded", "--home", str(home), "--port", "0", "--workers", "1"]
    environment = os.environ | {"FARTHING_ADMIN_KEY": secret, "OMP_NUM_THREADS": "1"}
    before = os.umask(0o022)  # as most machines have it
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=said, text=True)
    os.umask(before)
    try:
        assert process.stdout is not None
        lines = next(line for line in process.stdout if line.startswith("Farthing is ready"))
        url = lines.split()[-1]
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {secret}"}, timeout=60) as client:
            upload(client)
        assert readable_by_others(home) == []
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 2
        for child in family:
            assert secret not in " ".join(child.cmdline())
            assert secret not in child.environ().values()
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert secret not in (tmp_path / "said").read_text()
    assert secret.encode() not in b"".join(path.read_bytes() for path in home.rglob("*") if path.is_file())


def test_a_file_for_everybody_is_seen(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    (tmp_path / "secret").chmod(0o644)
    assert any(path.endswith("secret") for path in readable_by_others(tmp_path))


@pytest.mark.parametrize(
    "figure",
    ["\uff11", "\u0663", "1e-100", " 1", "1\n", "+1", "0x1", "1E-6", "1_0", "NaN", "1e5", "-0.1", "0", 0.1, 1],
)
def test_figures_are_plain_ascii_decimals(service: Service, secrets: dict[str, str], figure: object) -> None:
    """A budget or a price in any other writing is refused before anything is reserved."""
    admin = service.client()
    before = admin.get(f"/v1/scopes/{secrets['scope_id']}/head").json()
    answer = submit(admin, job(secrets["dataset_id"], privacy={"mu": figure}))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert admin.get(f"/v1/scopes/{secrets['scope_id']}/head").json() == before
