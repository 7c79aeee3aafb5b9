"""Each site's own transcript, from real processes, satisfies its own noise law and its own grey-box audit.

Three owners, trainers that write down what they read and say, real records, ledgers and system noise.
`tests.support.transcripts` states what is checked, and its false-alarm rate: 5e-7 for an audit of three. The quick
variant is part of `tests.workers.test_federation`. Each planted bug is seen by the audit that is made for it.
"""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.embedded import LINEAR, embedded
from tests.support.federated import Federation, check, states, submit
from tests.support.transcripts import check_own_noise, check_single_use, check_transcripts, transcripts

QUIET: dict[str, Any] = {"lease_seconds": 20.0}
"""A loaded machine shall not cost an attempt: an audit is of undisturbed ones."""
STREAM: dict[str, Any] = {
    "optimizer": {"kind": "one_pass_clipped_sgd", "steps": 30, "batch": 20},
    "model": {**LINEAR, "loss": {"kind": "squared"}, "weights": {"kind": "clip", "bound": 1.0}},
}
GRADIENTS: dict[str, Any] = {"optimizer": {"kind": "noisy_gd", "steps": 300}}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def ended(job: Federation, *, stream: bool = False) -> Federation:
    """Return a job once it has succeeded in its first attempt."""
    view = job.wait(300)
    assert (view["state"], states(view), view["attempt"]) == ("succeeded", [("succeeded", None)] * 3, 1), view
    check(job, stream=stream)
    return job


def alone(job: Federation, place: int) -> list[str]:
    """Have one dataset asked alone what a client of the job was asked; return what each is charged, in per cent."""
    row = job.row(job.clients[place])
    spec = {name: value for name, value in row.spec.items() if name in {"model", "optimizer", "privacy", "inference"}}
    spec["optimizer"] = {**spec["optimizer"], "sites": None} if "sites" in spec["optimizer"] else spec["optimizer"]
    body = {"dataset": row.dataset_id, **spec}
    headers = {"Idempotency-Key": uuid4().hex, "Authorization": job.authorization}  # who may spend the owner's budget
    answer = job.service.http.post("/v1/jobs", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    single = job.service.wait(answer.json()["id"], 200)
    assert single["state"] == "succeeded", single
    return [
        job.service.get(f"/v1/jobs/{name}")["cost"]["spent"]["budget_share"]
        for name in (job.clients[place], single["id"])
    ]


def test_transcripts_of_real_clients(tmp_path: Path) -> None:
    """Of a method that reads everybody in each step, and of a stream; and the price of one alone."""
    with embedded(tmp_path / "home", observed={"LISTEN": "1"}, **QUIET) as service:
        full = ended(submit(service, None, **GRADIENTS))
        check_transcripts(full)
        stream = ended(submit(service, None, **STREAM), stream=True)
        check_transcripts(stream)
        own, single = alone(full, 1)
        assert own == single, "a client pays what a job with its questions alone would pay"


@pytest.mark.parametrize(
    ("bug", "seen", "changes"),
    [("thinned", "full noise", GRADIENTS), ("seeded", "everybody's own", GRADIENTS), ("reread", "read twice", STREAM)],
)
def test_a_planted_bug_is_seen(tmp_path: Path, bug: str, seen: str, changes: dict[str, Any]) -> None:
    """Noise for the mean instead of for each site; one seed for all; a batch that is read by two questions."""
    with embedded(tmp_path / "home", observed={"LISTEN": "1", "BUG": bug}, **QUIET) as service:
        found = transcripts(ended(submit(service, None, **changes), stream=changes is STREAM))
        with pytest.raises(AssertionError, match=seen):  # noqa: PT012 - whichever of them sees it
            check_own_noise(found)
            check_single_use(found[0])
