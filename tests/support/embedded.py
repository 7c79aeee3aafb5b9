"""The whole embedded service on a free port with a temporary home: API, supervisor and trainers, as `farthing up` does.

With `observed` the trainers run the real code and write each payment and each reading to a file first. A test can thus
compare readings with payments, whichever process is killed in between.
"""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from math import exp
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import numpy as np
import psutil

from core.base.settings import ServiceSettings
from core.db.database import Database
from core.privacy.events import EVENT, Event
from tests.support.unchecked import accepting

ROOT = Path(__file__).resolve().parents[2]
KEY = "an-admin-key-for-tests-with-enough-characters-0123456789"
TERMINAL = ("succeeded", "failed", "cancelled", "expired")
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "type": "number", "lower": 18, "upper": 95},
    {"name": "job", "type": "category", "values": ["a", "b", "c"], "other": "c"},
    {"name": "balance", "type": "number", "lower": 0, "upper": 30},
    {"name": "y", "type": "binary", "values": ["no", "yes"]},
]
SEEDS = count(1)  # the same bytes twice are refused
LOGISTIC = {"kind": "logistic", "target": "y", "features": ["age", "job"]}
LINEAR = {"kind": "linear", "target": "balance", "features": ["age", "job"]}
CONNECTIONS = httpx.Limits(keepalive_expiry=1.0)
"""A client drops an idle connection long before the API does, after 5 s: a request may meet that end otherwise."""
LEASE_SECONDS = 8.0
"""Twenty beats: at a load of thirty a supervisor that lives has gone without one for three seconds."""
START_SECONDS = 120.0
"""Seconds that a killed API may stay away: its longest pause, and a start on a machine that is busy."""
PATIENCE_SECONDS = 240.0
"""Seconds that a job may take: many times its time on an idle machine. Only a failure takes so long."""


def toy_csv(rows: int = 2000, *, seed: int) -> bytes:
    """Return rows that suit `COLUMNS`; the logit of y is (age - 50)/20, balance is 5 + age/10 with noise of 2."""
    generator = np.random.default_rng(seed)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([column["name"] for column in COLUMNS])
    for age, job, noise, uniform in zip(
        generator.uniform(18, 90, rows),
        generator.choice(["a", "b", "c"], rows),
        generator.normal(0, 2, rows),
        generator.uniform(0, 1, rows),
        strict=True,
    ):
        yes = uniform < 1 / (1 + exp(-(age - 50) / 20))
        writer.writerow([f"{age:.2f}", job, f"{5 + age / 10 + noise:.3f}", "yes" if yes else "no"])
    return text.getvalue().encode()


@dataclass
class Running:
    """A running service, by whatever processes, and the words that tests speak to it."""

    home: Path
    url: str
    http: httpx.Client
    settings: ServiceSettings

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """Return a JSON answer that must be 200; retried while the API starts again after a kill."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            try:
                answer = self.http.get(path, params=params)
            except httpx.TransportError:
                time.sleep(0.1)
                continue
            assert answer.status_code == 200, answer.text
            return dict(answer.json())
        raise AssertionError(f"the API stayed away for {START_SECONDS} s")

    def upload(self, content: bytes | None = None, **changes: Any) -> str:
        """Upload the toy rows, or others, and return the dataset's id."""
        metadata = {
            "name": f"toy {uuid4().hex[:8]}",
            "unit": "record",
            "adjacency": "zero_out",
            "budget": {"epsilon": "8", "delta": "1e-6"},
            "columns": COLUMNS,
            **changes,
        }
        parts: list[tuple[str, Any]] = [
            ("metadata", (None, json.dumps(metadata), "application/json")),
            ("file", ("toy.csv", toy_csv(seed=next(SEEDS)) if content is None else content, "text/csv")),
        ]
        answer = self.http.post("/v1/datasets", files=parts)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def try_submit(self, dataset: str, key: str | None = None, **body: Any) -> httpx.Response:
        """Post a job; fields given replace those of a small noisy Newton job."""
        base = {"model": LOGISTIC, "optimizer": {"kind": "noisy_newton"}, "privacy": {"mu": "0.2"}}
        headers = {"Idempotency-Key": key or uuid4().hex}
        return self.http.post("/v1/jobs", json=accepting({"dataset": dataset, **base, **body}), headers=headers)

    def submit(self, dataset: str, **body: Any) -> str:
        """Post a job that must be accepted; return its id."""
        answer = self.try_submit(dataset, **body)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def wait(self, job: str, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Return a job once it has ended."""
        return self.wait_until(job, lambda view: view["state"] in TERMINAL, seconds)

    def wait_until(self, job: str, met: Any, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """Return a job once it meets a condition."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            view = self.get(f"/v1/jobs/{job}")
            if met(view):
                return view
            time.sleep(0.1)
        raise AssertionError(f"{job} did not get there in {seconds} s: {view}")

    def converged(self, model: str) -> bool:
        """Say whether a job of the default method has converged; one in 10,000 has not, by chance, and says so.

        Its last step is compared with a length that 999 in 1,000 do not pass, by the chi-squared law of three
        coefficients or more. A step of 1.3 times that length is taken for one that leads on (1e-4), and 2.2 times
        (8e-8) fail the test.
        """
        checks = self.get(f"/v1/models/{model}")["release"]["checks"]
        excess = checks["gradient_excess"] or 0.0  # least squares takes an exact last step
        assert excess < 2.2, checks
        assert ("not converged" in checks["job"]) == (excess > 1.3), checks
        return "not converged" not in checks["job"]

    def database(self) -> Database:
        """Return the service's own database."""
        return Database(self.settings.url)


@dataclass
class Embedded(Running):
    """The embedded service."""

    process: "subprocess.Popen[str]"

    def children(self, module: str) -> list[psutil.Process]:
        """Return the service's live processes that run a module named so; of trainers, those with a job."""
        found = []
        for process in psutil.Process(self.process.pid).children(recursive=True):
            try:
                command = process.cmdline()
                ours = "-m" in command and any(argument.endswith(module) for argument in command[2:4])
                if ours and (module != "trainer" or _has_a_job(process)):
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def kill(self, module: str, how: signal.Signals = signal.SIGKILL) -> bool:
        """Signal the first live process that runs a module; say whether there was one."""
        for process in self.children(module):
            try:
                process.send_signal(how)
            except psutil.Error:
                continue
            return True
        return False

    def lose_worker(self, place: str, dataset: str, **body: Any) -> dict[str, Any]:
        """Submit a job, kill its supervisor where its first attempt stands still, and return the job as it ended.

        As a machine is lost: a trainer that dies alone is no such thing. For observed trainers; `place` is one of
        theirs, such as `paid 3` (see `observed_trainer`).
        """
        halt, halted = self.home / "halt", self.home / "halted"
        halt.write_text(place)
        try:
            job = self.submit(dataset, **body)
            deadline = time.monotonic() + START_SECONDS
            while not halted.exists():
                assert time.monotonic() < deadline, self.get(f"/v1/jobs/{job}")
                time.sleep(0.05)
        finally:
            halt.unlink()
            halted.unlink(missing_ok=True)
        assert self.kill("supervisor")
        return self.wait(job)

    def stop(self) -> str:
        """Ask the service to end, and return what it said on standard output."""
        self.process.terminate()
        said, _ = self.process.communicate(timeout=60)
        self.http.close()
        return said


def _has_a_job(process: psutil.Process) -> bool:
    """Tell a trainer with a job from one that waits for it: only the former has opened the database."""
    return any("farthing.sqlite" in file.path for file in process.open_files())


@contextmanager
def embedded(
    home: Path,
    *,
    observed: Mapping[str, str] | None = None,
    workers: int = 1,
    root: Path = ROOT,
    **settings: Any,
) -> Iterator[Embedded]:
    """Run the service; every process of it is gone afterwards.

    `observed` asks for trainers that write down what they read; it holds their options, see `observed_trainer`.
    """
    home.mkdir(parents=True, exist_ok=True)
    chosen = {
        "lease_seconds": LEASE_SECONDS,
        "beat_seconds": 0.4,
        "sweep_seconds": 1.0,
        "visible_grid_seconds": 0.0,
        **settings,
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    environment |= {f"FARTHING_{name.upper()}": str(value) for name, value in chosen.items()}
    environment |= {"FARTHING_ADMIN_KEY": KEY, "PYTHONPATH": str(root), "OBSERVED": str(home / "observed.jsonl")}
    environment |= observed or {}
    module = "workers.embedded" if observed is None else "tests.support.observed_embedded"
    with (home / "stderr.txt").open("a") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--home", str(home), "--port", "0", "--workers", str(workers)],
            env=environment,
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("Farthing is ready on http://"), (line, (home / "stderr.txt").read_text()[-2000:])
        url = line.split()[-1]
        headers = {"Authorization": f"Bearer {KEY}"}
        client = httpx.Client(base_url=url, headers=headers, timeout=60, limits=CONNECTIONS)
        with client:
            yield Embedded(home, url, client, ServiceSettings(home=home, **chosen), process)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def readings(home: Path, rank: int = 0) -> dict[str, Counter[Event]]:
    """Return what the observed trainers, or other processes of theirs, read, per job, over all attempts."""
    found: dict[str, Counter[Event]] = {}
    path = home / "observed.jsonl"
    for line in path.read_text().splitlines() if path.exists() else []:
        told = json.loads(line)
        if told["rank"] == rank:
            found.setdefault(told["job"], Counter())[EVENT.validate_python(told["event"])] += 1
    return found
