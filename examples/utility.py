"""The accuracy of released models, job by job: the measurements of examples on public data, and their page.

A measurement is one training method at one privacy target, repeated: noise and samples are drawn afresh in every job.
`docs/explanation/utility.md` has one table of all of them, made of the JSON files in `benchmarks/results/utility`.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from farthing import Client
from farthing.models import Model

PAGE: Final = Path(__file__).parents[1] / "docs" / "explanation" / "utility.md"
RESULTS: Final = Path(__file__).parents[1] / "benchmarks" / "results" / "utility"
FIRST: Final = "<!-- results -->"
LAST: Final = "<!-- end of results -->"
HEAD: Final = "| data, model | epsilon | goal | mean | least to most | jobs | noise multiplier | seconds a job |"


@dataclass(frozen=True)
class Measured:
    """One privacy target of one method; shares of test records whose class is named rightly."""

    epsilon: str
    goal: float | None
    """Somebody's published figure for this very data and target, or None."""
    shares: tuple[float, ...]
    sigma: float
    seconds: float

    def row(self, title: str) -> str:
        """Return a line of Markdown."""
        goal = "" if self.goal is None else f"{self.goal:.4f}"
        mean, spread = np.mean(self.shares), f"{min(self.shares):.4f} to {max(self.shares):.4f}"
        figures = (self.epsilon, goal, f"**{mean:.4f}**", spread, len(self.shares), f"{self.sigma:.3g}")
        return f"| {title} | {' | '.join(map(str, figures))} | {self.seconds:.0f} |"


def measured(
    client: Client, job: Mapping[str, Any], score: Callable[[Model], float], jobs: int, goal: float | None = None
) -> Measured:
    """Train the same job several times, printing each share as it comes.

    Args:
        client: of a running service.
        job: as it is posted, with a privacy target in epsilon.
        score: share of test records that a released model names rightly.
        jobs: the number of repetitions.
        goal: the share to reach.
    """
    epsilon = job["privacy"]["epsilon"]
    sigma = client.estimate(job).plan["sigma"]["gradient"]
    shares, began = [], time.monotonic()
    for _ in range(jobs):
        ended = client.wait(client.submit(job).id)
        assert ended.released is not None, f"the job ended as {ended.state}"
        shares.append(score(client.model(ended.released)))
        print(f"  epsilon {epsilon}, noise {sigma:.3g}: {shares[-1]:.4f}", flush=True)
    seconds = (time.monotonic() - began) / jobs
    return Measured(epsilon, goal, tuple(round(share, 6) for share in shares), sigma, round(seconds, 1))


def store(name: str, title: str, settings: Mapping[str, Any], lines: Sequence[Measured], page: Path = PAGE) -> None:
    """Write what was measured beside the page, and the page's table anew.

    Targets that were measured before and are not among `lines` stay.
    """
    folder = folder_of(page)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    before = json.loads(path.read_text())["lines"] if path.exists() else []
    found = {line["epsilon"]: line for line in [*before, *(asdict(line) for line in lines)]}
    ordered = [found[epsilon] for epsilon in sorted(found, key=float)]
    path.write_text(json.dumps({"title": title, "settings": settings, "lines": ordered}, indent=1) + "\n")
    fill(page)


def folder_of(page: Path) -> Path:
    """Return the folder of a page's JSON: of a page elsewhere, the one beside it of its name."""
    return RESULTS if page == PAGE else page.with_suffix("")


def fill(page: Path = PAGE) -> None:
    """Replace what stands between the page's marks by a table of all that is stored."""
    told = [json.loads(path.read_text()) for path in sorted(folder_of(page).glob("*.json"))]
    rows = [
        Measured(**{**line, "shares": tuple(line["shares"])}).row(one["title"]) for one in told for line in one["lines"]
    ]
    before, rest = page.read_text().split(FIRST)
    _, after = rest.split(LAST)
    rule = "|" + "---|" * (HEAD.count("|") - 1)
    page.write_text("\n".join([f"{before}{FIRST}\n", HEAD, rule, *rows, f"\n{LAST}{after}"]))
