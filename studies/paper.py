"""The command that a paper's experiments share: run some, print what was compared, store it, and fill the page."""

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from studies.inference.page import fill
from studies.inference.results import Result


@dataclass(frozen=True)
class Paper:
    """A paper's experiments, and the page that lists them; results lie in `studies/results`."""

    name: str
    """Of the part of `studies`."""
    page: Path
    experiments: Mapping[str, Callable[..., Result]]
    description: str

    @property
    def folder(self) -> Path:
        """The folder of JSON, figures and the report of all experiments."""
        return Path(__file__).parent / "results" / self.page.stem

    @property
    def report(self) -> Path:
        """The report of all experiments."""
        return self.folder / "README.md"

    def main(self, arguments: list[str]) -> int:
        """Run what is asked for; return how many compared numbers differ by more than was expected."""
        parser = argparse.ArgumentParser(prog=f"python -m studies.{self.name}", description=self.description)
        parser.add_argument("experiments", nargs="+", choices=[*self.experiments, "all", "page"])
        size = parser.add_mutually_exclusive_group()
        size.add_argument("--quick", action="store_true", help="fewer sizes, steps and runs; the default")
        size.add_argument("--full", action="store_true", help="as many as the page has; minutes an experiment")
        parser.add_argument("--to", type=Path, default=self.folder, help="where JSON and figures go")
        asked = parser.parse_args(arguments)
        differing = 0
        for name in [name for name in self.experiments if {name, "all"} & set(asked.experiments)]:
            differing += self._run(name, asked.to, full=asked.full)
        if asked.to == self.folder:
            fill(self.page, self.folder, self.name)
        return differing

    def _run(self, name: str, folder: Path, *, full: bool) -> int:
        """Run one, print and store it; return how many of its numbers differ."""
        began = time.monotonic()
        result = self.experiments[name](full=full)
        seconds = time.monotonic() - began
        result.write(folder, "full" if full else "quick", seconds)
        print(f"{result.key}. {result.title} ({seconds:.1f} s)", flush=True)
        for row in result.rows:
            verdict = {None: "", True: "agrees", False: "DIFFERS"}[row.agrees]
            print(f"  {row.what:75} {row.reference!s:>10} {row.ours:10.4g}  {verdict}", flush=True)
        return sum(row.agrees is False for row in result.rows)
