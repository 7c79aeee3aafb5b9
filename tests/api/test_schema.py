"""Every request that the OpenAPI document allows, and many that it does not, are answered without a 5xx.

A machine that is busy enough may have the service say so: 503 with a code of its own, and when to come back, is the one
answer of that kind which is no failure.
"""

import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.failures import AcceptedNegativeData, FailureGroup
from schemathesis.openapi.checks import RejectedPositiveData

from tests.support.api import Service, job, running, submit, upload

PASSING = frozenset({"database-away", "ledger-busy"})
"""Codes of a 503 that passes by itself."""
SENT: Counter[str] = Counter()
"""Requests, by the service that they went to."""
LATE_SECONDS = 5
ANSWER_SECONDS = 60
"""For one answer; on a busy machine an upload is decoded by a process that starts slowly."""


def fell_over(answer: requests.Response) -> bool:
    """Tell a failure of the service from its word that it is busy."""
    if answer.status_code != 503:
        return answer.status_code >= 500
    told = answer.json()
    return told["code"] not in PASSING or not told["retryable"] or not answer.headers.get("Retry-After", "").isdigit()


def attack(service: Service, examples: int, below: str = "/") -> list[str]:
    """Send generated requests to every operation, by an admin and by an analyst; return what went wrong.

    They go to real resources and to invented ones. An answer is wrong if the document does not name it, if it looks
    otherwise than the document says (all of schemathesis' own checks), if it comes late, or if it is a 5xx. A request
    that the schema allows may be refused by 422: a schema cannot say that features are columns, or figures a plan.
    """
    client = service.client()
    made = upload(client, shift=examples)
    job_id = submit(client, job(made["id"])).json()["id"]
    real = {"dataset_id": made["id"], "scope_id": made["scope"], "job_id": job_id}
    _, analyst = service.someone("analyst")
    client.put(f"/v1/datasets/{made['id']}/access/{analyst['principal']}", json={"budget": "all"})
    schema = schemathesis.openapi.from_dict(httpx.get(f"{service.url}/openapi.json", timeout=60).json())
    wrong: list[str] = []
    for key in (service.key, analyst["key"]):
        with requests.Session() as session:
            session.headers["Authorization"] = f"Bearer {key}"
            for found in schema.get_all_operations():
                operation = found.ok()
                if not operation.path.startswith(below):
                    continue
                for mode in GenerationMode:
                    for known in (real, {}):
                        wrong += _attack(service, session, operation, mode, known, examples)
    return wrong


def _attack(
    service: Service,
    session: requests.Session,
    operation: Any,
    mode: GenerationMode,
    known: dict[str, str],
    examples: int,
) -> list[str]:
    wrong: list[str] = []
    named = {name: value for name, value in known.items() if f"{{{name}}}" in operation.path}
    if known and not named:
        return wrong

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(mode, path_parameters=named or None))
    def send(case: Any) -> None:
        started = time.perf_counter()
        try:
            answer = case.call(base_url=service.url, session=session, timeout=ANSWER_SECONDS)
        except (requests.exceptions.InvalidHeader, requests.exceptions.InvalidURL, UnicodeError):
            return  # no client can send this
        seconds = time.perf_counter() - started
        if seconds > LATE_SECONDS:  # once more, for the machine may have been busy with something else
            started = time.perf_counter()
            answer = case.call(base_url=service.url, session=session, timeout=ANSWER_SECONDS)
            seconds = time.perf_counter() - started
        SENT[service.url] += 1
        if fell_over(answer) or seconds > LATE_SECONDS:
            wrong.append(
                f"{operation.label} {answer.status_code} {seconds:.1f} s {answer.text[:300]} {case.body!r:.300}"
            )
        wrong.extend(f"{operation.label} {answer.status_code} {failure}" for failure in failures(case, answer))

    try:
        send()
    except Exception as error:  # noqa: BLE001 - reported with the operation's name
        if type(error).__name__ not in {"Unsatisfiable", "InvalidArgument"}:
            wrong.append(f"{operation.label} {mode} {type(error).__name__}: {error!s:.300}")
    return wrong


def failures(case: Any, answer: requests.Response) -> list[str]:
    """Return what schemathesis' checks find wrong with an answer."""
    if answer.status_code == 503 and not fell_over(answer):
        return []  # a busy service may say so of every request
    try:
        case.validate_response(answer)
    except FailureGroup as found:
        return [
            f"{type(one).__name__}: {one!s:.300}"
            for one in found.exceptions
            if not (isinstance(one, RejectedPositiveData) and answer.status_code == 422)
            and not (isinstance(one, AcceptedNegativeData) and _is_sent_as_allowed(case))
        ]
    return []


def test_a_few_of_everything(service: Service) -> None:
    assert attack(service, examples=1) == []
    assert service.process.poll() is None
    assert '"unhandled"' not in (service.home / "api.log").read_text()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_three_thousand_of_everything(service: Service) -> None:
    before = SENT[service.url]
    wrong = attack(service, examples=12)
    assert not wrong, "\n".join(wrong)
    assert SENT[service.url] - before >= 3000
    assert '"unhandled"' not in (service.home / "api.log").read_text()


@pytest.mark.parametrize(
    ("status", "code", "headers", "failure"),
    [
        (503, "ledger-busy", {"Retry-After": "1"}, False),
        (503, "database-away", {"Retry-After": "1"}, False),
        (503, "ledger-frozen", {"Retry-After": "1"}, True),
        (500, "internal", {}, True),
        (504, "ledger-busy", {"Retry-After": "1"}, True),
    ],
)
def test_only_a_busy_service_may_say_so(status: int, code: str, headers: dict[str, str], failure: bool) -> None:
    answer = requests.Response()
    answer.status_code, answer._content = status, json.dumps({"code": code, "retryable": True}).encode()
    answer.headers.update(headers)
    assert fell_over(answer) is failure


def test_a_5xx_would_be_seen(tmp_path: Path) -> None:
    """The planted bug: the API does not handle a missing resource."""
    (tmp_path / "home").mkdir()
    with running(tmp_path / "home", module="tests.support.naive_api") as naive:
        assert any(" 500 " in line for line in attack(naive, examples=2, below="/v1/jobs/{job_id}/attempts"))


def _is_sent_as_allowed(case: Any) -> bool:
    """Tell whether a list of one stands where one value belongs: in a query both are the same letters."""
    return any(isinstance(value, list) and len(value) <= 1 for value in dict(case.query or {}).values())


EXTREME = st.sampled_from([5e-324, 1e-300, 1e-12, 0.1, 1.0, 1e6, 1e150, 1e308, 10**400, -1.0, 0.0])
FIGURE = st.sampled_from(["1e-99", "1e-12", "0.001", "1", "50", "999999", "999999.999999999999", "100e-2", "1e0"])


def _some(fields: dict[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


NEWTON = _some(
    {
        "steps": st.sampled_from([1, 2, 98, 99, 10_000, 10**9]),
        "damping": EXTREME,
        "mu": EXTREME,
        "curvature_share": st.sampled_from([5e-324, 0.5, 0.9999999999999999]),
        "eigenvalue_floor": EXTREME,
        "radius": EXTREME,
        "start": st.lists(EXTREME, min_size=3, max_size=5),
    }
).map(lambda found: {"kind": "noisy_newton", **found})
DESCENT = _some(
    {"steps": st.sampled_from([1, 500, 10**9]), "step_size": EXTREME, "mu": EXTREME, "radius": EXTREME}
).map(lambda found: {"kind": "noisy_gd", **found})
MODEL = st.one_of(
    st.just({"kind": "logistic", "target": "y"}),
    st.builds(lambda t: {"kind": "logistic", "target": "y", "weights": {"kind": "mallows", "bound": t}}, EXTREME),
    st.builds(
        lambda c, scale: {"kind": "linear", "target": "age", "loss": {"kind": "huber", "c": c, "scale": scale}},
        EXTREME,
        EXTREME,
    ),
)
INFERENCE = _some(
    {
        "intervals": st.booleans(),
        "level": st.sampled_from([0.5000000000000001, 0.9999999999999999]),
        "correction": st.sampled_from(["stationary", "plain", "printed"]),
        "curvature_floor": EXTREME,
        "score_floor": EXTREME,
    }
)
PRIVACY = st.builds(
    lambda name, figure: {name: figure}, st.sampled_from(["mu", "rho", "epsilon", "budget_share"]), FIGURE
)


def names(answer: httpx.Response, body: Any) -> bool:
    """Say whether a refusal names fields at fault, each of which is in the body."""
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    return bool(pointers) and all(pointer and _holds(body, pointer.split("/")[1:]) for pointer in pointers)


def _holds(value: Any, path: list[str]) -> bool:
    for name in path:
        if isinstance(value, list) and name.isdigit() and int(name) < len(value):
            value = value[int(name)]
        elif isinstance(value, dict) and name in value:
            value = value[name]
        else:
            return False
    return True


@pytest.mark.slow
def test_extreme_settings_are_answered(service: Service) -> None:
    client = service.client()
    made = upload(client, shift=1234)
    client.timeout = httpx.Timeout(15)
    wrong: list[str] = []
    seen: set[int] = set()

    @settings(max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(NEWTON | DESCENT, MODEL, INFERENCE, PRIVACY)
    def send(optimizer: Any, model: Any, inference: Any, privacy: Any) -> None:
        body = job(made["id"], optimizer=optimizer, model=model, inference=inference, privacy=privacy)
        try:
            answers = (client.post("/v1/estimates", json=body), submit(client, body))
        except httpx.ReadTimeout:  # an answer that never comes is as wrong as a 5xx
            wrong.append(json.dumps(body))
            return
        seen.update(answer.status_code for answer in answers)
        wrong.extend(json.dumps(body) for answer in answers if answer.status_code >= 500)
        unnamed = [answer for answer in answers if answer.status_code == 422 and not names(answer, body)]
        wrong.extend(f"{json.dumps(body)} {answer.text}" for answer in unnamed)

    send()
    log = [json.loads(line) for line in (service.home / "api.log").read_text().splitlines()]
    assert [(line["error"], line["at"][-2:]) for line in log if line["event"] == "unhandled"] == []
    assert wrong == []
    assert {200, 202, 422} <= seen  # both sides of the line were met
