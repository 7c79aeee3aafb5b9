"""The cost of a payment's record at the witness, with 1, 100 and 1,000 scopes: `python -m benchmarks.witness`.

One job's scope moves on and `Witness.keep` writes it down, on SQLite and a local file, as a trainer does before each
chunk that it reads. Beside it, in turn: an append of a line of the same length and one fsync to a file of the same
folder, which is the least that a durable witness can do. Also in turn: `Witness.keep` without the job's name, which has
to look at every scope. The target: with 1,000 scopes a payment costs at most three times what it costs with one.
"""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from core.db.database import Database
from core.ledger.witness.comparing import guard
from core.ledger.witness.witness import Witness
from core.privacy.events import Gaussian
from tests.support.store import make_place, submit

SIZES, ROUNDS, TARGET = (1, 100, 1000), 100, 3.0
LINE = b"x" * 250 + b"\n"


def timed(act: Callable[[], object]) -> float:
    """Return the milliseconds that something takes."""
    began = time.perf_counter()
    act()
    return 1000 * (time.perf_counter() - began)


def append(path: Path) -> None:
    """Append a line, durably."""
    with path.open("ab") as file:
        file.write(LINE)
        file.flush()
        os.fsync(file.fileno())


def measure(folder: Path, scopes: int) -> dict[str, float]:
    """Return median milliseconds of each, with that many scopes."""
    database = Database(f"sqlite+pysqlite:///{folder / 'farthing.sqlite'}")
    database.migrate()
    place = [make_place(database) for _ in range(scopes)][scopes // 2]
    witness = Witness(folder / "witness.jsonl")
    guard(database, witness)
    found: dict[str, list[float]] = {"append": [], "keep": [], "keep all": []}
    paying: str | None = None
    for _ in range(ROUNDS):
        for kind in ("keep", "keep all"):
            with database.write() as session:
                job_id = submit(session, place, [Gaussian(sigma=5000.0)]).id
            paying = paying or job_id
            hint = paying if kind == "keep" else None
            found[kind].append(timed(partial(witness.keep, database, hint)))
        found["append"].append(timed(lambda: append(folder / "plain")))
    database.dispose()
    return {kind: median(times) for kind, times in found.items()}


def main() -> None:
    """Print the table."""
    rows = {}
    for scopes in SIZES:
        with tempfile.TemporaryDirectory() as name:
            rows[scopes] = measure(Path(name), scopes)
    print(f"{'scopes':>8}{'append and fsync, ms':>23}{'keep, ms':>11}{'keep of all, ms':>18}")
    for scopes, row in rows.items():
        print(f"{scopes:8}{row['append']:23.2f}{row['keep']:11.2f}{row['keep all']:18.2f}")
    if rows[SIZES[-1]]["keep"] > TARGET * rows[1]["keep"]:
        raise SystemExit("the target is missed")


if __name__ == "__main__":
    main()
