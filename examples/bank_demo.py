"""The main job, end to end, on the bank data: `make demo`; with KEEP=1 the service stays, to look at its console.

Starts the embedded service in a folder of its own, uploads 45,211 records with declared bounds and a budget, and prices
a job. Trains a private logistic regression and prints its coefficients with private intervals and their cost. Shows a
job that would pass the budget being refused.
"""

import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_urlsafe
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from examples import bank
from farthing import Client, FarthingError, estimate_tables, job_tables, ledger_tables, tables

out = Console(width=110)

FEATURES = ["age", "balance", "duration", "campaign", "marital", "education", "housing", "loan", "contact", "poutcome"]
ASSUMED = {
    "deviations": {"age": 10, "balance": 3000, "duration": 250, "campaign": 3},
    "means": {"duration": 250},
    "base_rate": 0.12,
}
"""Guesses that an analyst of such campaigns would make; they move predictions, never a fit."""
CUSTOMER: dict[str, str | int] = {
    "age": 40,
    "balance": 1500,
    "day": 15,
    "duration": 300,
    "campaign": 1,
    "pdays": -1,
    "previous": 0,
    "job": "technician",
    "marital": "single",
    "education": "tertiary",
    "default": "no",
    "housing": "no",
    "loan": "no",
    "contact": "cellular",
    "month": "may",
    "poutcome": "unknown",
}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def service(name: str, key: str | None = None) -> Iterator[Client]:
    """Run the embedded service in a folder that is removed afterwards; yield an administrator's client.

    Args:
        name: of the folder.
        key: the administrator's; made here unless given.
    """
    home = Path(tempfile.mkdtemp(prefix=f"farthing-{name}-"))
    before = signal.getsignal(signal.SIGTERM)
    try:
        with _service_under(home, key or token_urlsafe(32)) as client:
            yield client
    finally:
        shutil.rmtree(home, ignore_errors=True)
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, frame: FrameType | None) -> None:
    """Leave as Ctrl-C does, so that the service is stopped and its folder removed: a signal would leave both."""
    del frame
    sys.exit(128 + number)


@contextmanager
def _service_under(home: Path, key: str) -> Iterator[Client]:
    port = _free_port()
    command = [sys.executable, "-m", "farthing.cli", "up", "--home", str(home), "--port", str(port)]
    log = home / "log.txt"
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))  # what starts is stopped, so it starts first
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env=os.environ | {"FARTHING_ADMIN_KEY": key}, stdout=sink, stderr=sink)
        try:
            signal.signal(signal.SIGTERM, _leave)
            if asked:
                _leave(asked[0], None)
            with Client(f"http://127.0.0.1:{port}", key) as client:
                _wait_until_ready(client, process, log)
                yield client
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)


def _wait_until_ready(client: Client, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 60
    while not client.ready():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the service did not start:\n{log.read_text()}")
        time.sleep(0.2)


def say(text: str) -> None:
    """Print a step's heading."""
    out.print(f"\n[bold]{text}[/bold]")


def run(client: Client) -> str:
    """Walk the main job, as an owner and an analyst would; return the id of the model."""
    say("1. The owner uploads records with declared bounds and a budget: epsilon 3 at delta 1e-6, for all jobs ever")
    dataset = client.upload(io.BytesIO(bank.records()), bank.metadata())
    out.print(tables.dataset(dataset))

    job = {
        "dataset": dataset.id,
        "model": {"kind": "logistic", "target": "y", "features": FEATURES},
        "privacy": {"epsilon": "1.5"},
        "labels": {"study": "demo"},
    }
    say("2. The analyst asks what a job would cost and what the theory predicts; no record is read")
    out.print(estimate_tables.estimate(client.estimate(job | {"assume": ASSUMED})))

    say("3. The job is queued, runs in a process of its own, and is polled")
    queued = client.submit(job)
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=out
    )
    with bar:
        task = bar.add_task(queued.state, total=queued.progress.steps)
        done = client.wait(
            queued.id, progress=lambda seen: bar.update(task, description=seen.state, completed=seen.progress.step)
        )
    assert done.released is not None, "no approval is asked for in this demo"
    assert done.cost is not None, "it reads one dataset"

    say("4. Coefficients in declared units, with private 95 % intervals")
    out.print(client.summary_text(done.released), markup=False, highlight=False)
    out.print(job_tables.cost(done.id, done.cost))
    chance = client.predict(done.released, [CUSTOMER])[0]["probability"]
    out.print(
        f"A single customer of 40 with a degree, called for five minutes: subscribes with probability {chance:.2f}"
    )

    say("5. What budget remains, for everybody who asks about these people")
    out.print(ledger_tables.budget(client.budget(dataset.id)))

    say("6. A job that would pass the budget is refused, and nothing is spent")
    try:
        client.submit(job | {"privacy": {"epsilon": "2.9"}})
    except FarthingError as refusal:
        out.print(f"HTTP {refusal.status} {refusal.code}: {refusal.detail}", markup=False)
    else:
        sys.exit("the job should have been refused")

    assert dataset.scope is not None, "every dataset has a scope"
    verified = client.verify(dataset.scope)
    say(f"7. The ledger's chain is {'whole' if verified.ok else 'BROKEN'}: {verified.entries} entries recomputed")
    return done.released


def main() -> None:
    """Run the demo."""
    out.print("Starting the service (API, one trainer, SQLite) ...")
    key = token_urlsafe(32)
    with service("demo", key) as client:
        model = run(client)
        say(f"8. The console shows all of it: {client.url}/models/{model}")
        if os.environ.get("KEEP"):
            out.print(f"Sign in there with this key, which goes with the demo: {key}", soft_wrap=True)
            out.print("Ctrl-C ends the service and removes its folder.")
            with suppress(KeyboardInterrupt):
                signal.pause()
        else:
            out.print("It ends with this demo; `make demo KEEP=1` keeps it open.")


if __name__ == "__main__":
    main()
