"""Scripted estimators and instrumented records for the second-order methods, and modules with a bug planted in them."""

import sys
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from core.methods.second_order.ada_spider import LastEstimate
from core.methods.second_order.check_bound.spec import CheckBoundPlan
from core.methods.second_order.figures import RoundMode
from core.methods.second_order.gauss_psgd.fit import SearchWalk
from core.methods.second_order.gauss_psgd.spec import GaussPsgdPlan, PeriodPlan
from core.oracle import Answer
from core.privacy.facts import Adjacency, Facts
from core.queries.gradients import Question
from tests.support.problems import problem

State = dict[str, Tensor]
LONG, SHORT, STILL = [4.0, 0.0], [3.0, 0.0], [0.0, 0.0]
"""Estimates: longer than three radii of `given`, exactly so long, and none."""


def given(**options: Any) -> GaussPsgdPlan:
    """Return settings with every figure by hand: descent by 0.1 g, rounds of 4 steps, 3 of them, away at 1."""
    usual: dict[str, Any] = {
        "mode": "given",
        "preset": "strict",
        "start": "zeros",
        "mu": 1.0,
        "smoothness": 1.0,
        "hessian_smoothness": 1.0,
        "batch": 10,
        "difference_batch": 2,
        "restart_drift": 0.5,
        "step_size": 0.1,
        "error_radius": 1.0,
        "escape_distance": 1.0,
        "round_steps": 4,
        "rounds": 3,
        "steps": 100,
        "radius": 1000.0,
        "sites": 1,
    }
    return GaussPsgdPlan.model_validate(usual | options)


def settings_of(options: dict[str, Any]) -> GaussPsgdPlan | PeriodPlan:
    """Return the same with these options; DIFF2's where they name a period."""
    return given(**options) if "period" not in options else PeriodPlan.model_validate(given().model_dump() | options)


def facts_of(units: int, dimension: int, adjacency: Adjacency = Adjacency.REPLACE_ONE, **more: Any) -> Facts:
    """Return facts of records whose gradients are at most 1 long."""
    return Facts(units=units, dimension=dimension, adjacency=adjacency, gradient_bound=1.0, **more)


class Scripted:
    """An estimator that returns given vectors, whatever it is asked, and writes down what it is asked."""

    def __init__(self, slopes: Sequence[Sequence[float]]) -> None:
        self._slopes = list(slopes)
        self.points: list[list[float]] = []
        self.rounds: list[tuple[RoundMode, int]] = []

    def query(self, theta: Tensor) -> Tensor | None:
        self.points.append(theta.tolist())
        assert len(self.points) < 1000, "a loop has a bound"
        if not self._slopes:
            return None
        return torch.tensor(self._slopes.pop(0), dtype=torch.float64)

    def snapshot(self) -> LastEstimate:
        return LastEstimate(*[torch.tensor(float(len(self.points)))] * 4)

    def begin_round(self, mode: RoundMode, snapshot: LastEstimate) -> None:
        self.rounds.append((mode, int(snapshot.drift)))


class CountedRecords:
    """Records that count in how many questions each of them was read, and what sizes questions had."""

    replicates = None

    def __init__(self, units: int, dimension: int = 3) -> None:
        self.units, self.dimension = units, dimension
        self.counts, self.sizes = torch.zeros(units, dtype=torch.int64), list[tuple[str, int]]()
        self._records = problem(units, dimension)

    def integer_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        *,
        other: Tensor | None = None,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        assert rows is not None
        self.counts.index_add_(0, rows, torch.ones_like(rows))
        self.sizes.append((question.kind, rows.numel()))
        return self._records.integer_sum(question, facts, theta, step, other=other, rows=rows, included=included)


class StillRecords:
    """Records whose gradients are the same everywhere: the first unit vector, each of them."""

    replicates = None

    def __init__(self, units: int, dimension: int) -> None:
        self.units, self.dimension = units, dimension

    def integer_sum(
        self,
        question: Question,
        facts: Facts,
        theta: Tensor,
        step: float,
        *,
        other: Tensor | None = None,
        rows: Tensor | None = None,
        included: Tensor | None = None,
    ) -> Tensor:
        del facts, theta, other, included
        assert rows is not None
        total = torch.zeros(self.dimension, dtype=torch.int64)
        if question.kind == "gradient":
            total[0] = round(rows.numel() / step)
        return total


class Deaf:
    """An oracle that has no records: it repeats recorded answers and checks that the same is asked."""

    def __init__(self, facts: Facts, told: Sequence[tuple[Question, Answer]]) -> None:
        self.facts, self._told = facts, list(told)

    def affords(self, question: Question, then: Question | None = None) -> bool:
        del question, then
        return bool(self._told)

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        del theta, other
        asked, answer = self._told.pop(0)
        assert question == asked, "the same question, from answers alone"
        return answer

    def resume(self, initial: State) -> State:
        return initial

    def keep(self, state: State, step: int) -> None:
        del state, step


def walk(
    module: Any, settings: GaussPsgdPlan | PeriodPlan | CheckBoundPlan, slopes: Sequence[Sequence[float]], start: float
) -> tuple[SearchWalk, str, Scripted]:
    """Walk along scripted estimates from (start, start); return the last state, the outcome, and the script."""
    script = Scripted(slopes)
    begun = module.beginning(torch.full((2,), start, dtype=torch.float64))
    state = module.walk(settings, facts_of(1000, 2), script, begun, lambda _: None)
    return state, module.OUTCOMES[int(state.ended)], script


def failed(checks: Sequence[Callable[[Any], None]], wrong: Any, *errors: type[Exception]) -> list[str]:
    """Return the names of the checks that a planted bug does not pass: with an assertion, or one of these errors."""
    found = []
    for check in checks:
        try:
            check(wrong)
        except Exception as error:
            if not isinstance(error, (AssertionError, *errors)):
                raise
            found.append(check.__name__)
    return found


def planted(module: ModuleType, old: str, new: str) -> Any:
    """Return a module with one piece of its source replaced: a planted bug."""
    source = Path(str(module.__file__)).read_text()
    assert source.count(old) == 1, f"the piece is there once: {old}"
    spec = spec_from_loader(f"planted_{module.__name__.rpartition('.')[2]}", loader=None)
    assert spec is not None
    made = module_from_spec(spec)
    sys.modules[made.__name__] = made
    exec(compile(source.replace(old, new), made.__name__, "exec"), made.__dict__)
    return made
