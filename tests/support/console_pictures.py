"""Make the pictures of docs/tutorials/console.md: `python -m tests.support.console_pictures`.

Starts the embedded service, walks the bank data through it as an owner and two analysts would, and takes a picture of
each page. Figures differ from run to run, since noise does.
"""

import io
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples import bank, bank_demo
from farthing import Client
from tests.support.browser import Look, browser, look
from tests.support.embedded import KEY, embedded
from tests.support.listener import listening

FOLDER: Final = Path(__file__).parents[2] / "docs" / "tutorials" / "console"
SIZE: Final = {"width": 1280, "height": 900}
PHONE: Final = {"width": 390, "height": 844}
NOTICES: Final[dict[str, Any]] = {"webhook_http": True, "webhook_networks": "127.0.0.0/8", "notice_seconds": 0.2}
PATIENCE_SECONDS: Final = 120.0


@dataclass
class Made:
    """The subjects of the pictures."""

    keys: dict[str, str]
    dataset: str
    draft: str
    model: str
    job: str
    webhook: str


def _key(admin: Client, name: str, role: str) -> tuple[str, str]:
    made: dict[str, Any] = admin._wire.post("/v1/keys", {"name": name, "role": role})
    if role != "owner":
        return made["key"], made["principal"]
    with Client(admin.url, made["key"]) as own:
        return own._wire.post(f"/v1/keys/{made['id']}/rotate")["key"], made["principal"]


def walk(url: str, chat: str) -> Made:
    """Upload, let two analysts in, run two jobs, the last of which waits for approval, and post events to a chat."""
    with Client(url, KEY) as admin:
        office, _ = _key(admin, "Bank data office", "owner")
        ann, ann_id = _key(admin, "Ann Bauer", "analyst")
        tomas, tomas_id = _key(admin, "Tomás Rivera", "analyst")
        auditor, _ = _key(admin, "R. Whitfield", "auditor")
    with Client(url, office) as owner, Client(url, ann) as first, Client(url, tomas) as second:
        webhook = owner._wire.post("/v1/webhooks", {"url": f"{chat}/farthing"})["id"]
        owner._wire.post(f"/v1/webhooks/{webhook}/test", {})
        dataset = owner.upload(io.BytesIO(bank.records()), bank.metadata(approval=True)).id
        owner.share(dataset, ann_id, {"budget_share": "0.8"})
        owner.share(dataset, tomas_id, {"epsilon": "1.5"})
        asked: dict[str, Any] = {"dataset": dataset, "model": {"kind": "logistic", "target": "y"}}
        asked["model"]["features"] = bank_demo.FEATURES
        done = first.wait(
            first.submit({**asked, "privacy": {"epsilon": "1.5"}, "labels": {"name": "Who subscribes"}}).id
        )
        model = str(owner.job(done.id).released)
        owner.approve(model)
        linear = {"kind": "linear", "target": "duration", "features": ["age", "campaign", "housing"]}
        waits = {
            "dataset": dataset,
            "model": linear,
            "privacy": {"epsilon": "0.8"},
            "labels": {"name": "Length of a call"},
        }
        second.wait(second.submit(waits).id)
        _wait_for_deliveries(owner, webhook)
        declared = bank.metadata(seal=False, name="exported with commas")
        draft = owner.upload(io.BytesIO(_with_commas(bank.records())), declared).id
    keys = {"owner": office, "analyst": ann, "auditor": auditor, "admin": KEY}
    return Made(keys, dataset, draft, model, done.id, webhook)


def _wait_for_deliveries(owner: Client, webhook: str) -> None:
    """Wait until a test, the ends of two jobs and the releases that wait are delivered."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = owner._wire.get(f"/v1/webhooks/{webhook}/deliveries")["data"]
        if len(found) >= len(("test", *("end", "approval") * 2)) and all(one["state"] == "delivered" for one in found):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"deliveries of {webhook}: {found}")
        time.sleep(0.2)


def _with_commas(records: bytes) -> bytes:
    """Return a file of which some hundred numbers were written as another country does."""
    first, *lines = records.decode().splitlines()
    place = first.split(",").index("duration")
    for row in range(0, len(lines), 14):
        cells = lines[row].split(",")
        cells[place] = f'"{cells[place]},0"'
        lines[row] = ",".join(cells)
    return "\n".join([first, *lines, ""]).encode()


def picture(seen: Look, path: str, name: str) -> None:
    """Take one picture of a page, from its top."""
    seen.go(path)
    seen.page.wait_for_load_state("networkidle")
    seen.page.screenshot(path=FOLDER / f"{name}.jpg", type="jpeg", quality=80)
    sys.stdout.write(f"{name}.jpg\n")


def main() -> None:
    """Take all pictures."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as home,
        embedded(Path(home), visible_grid_seconds=0.0, **NOTICES) as service,
        listening() as chat,
        browser() as chromium,
    ):
        made = walk(service.url, chat.url)
        base = f"/datasets/{made.dataset}"
        pages = {
            "owner": {"home": "/", "dataset": base, "budget": f"{base}/budget", "access": f"{base}/access"}
            | {"approvals": "/approvals", "invitations": "/invitations"}
            | {"notices": "/you/notices", "deliveries": f"/you/notices/{made.webhook}"}
            | {"new-dataset": "/datasets/new", "draft": f"/datasets/{made.draft}/draft"},
            "analyst": {"new-job": f"/jobs/new?dataset={made.dataset}", "job": f"/jobs/{made.job}"}
            | {
                "model": f"/models/{made.model}",
                "questions": f"/models/{made.model}/questions",
                "predictions": f"/models/{made.model}/predictions",
            },
            "auditor": {"ledger": f"{base}/ledger", "audit": "/audit"},
            "admin": {"service": "/service", "people": "/people"},
        }
        with look(chromium, service.url, viewport=SIZE, color_scheme="light") as seen:
            picture(seen, "/sign-in", "sign-in")
        for who, paths in pages.items():
            with look(chromium, service.url, viewport=SIZE, color_scheme="light") as seen:
                seen.sign_in(made.keys[who])
                for name, path in paths.items():
                    picture(seen, path, name)
        with look(chromium, service.url, viewport=PHONE, color_scheme="dark") as seen:
            seen.sign_in(made.keys["analyst"])
            picture(seen, f"/models/{made.model}", "model-phone")


if __name__ == "__main__":
    main()
