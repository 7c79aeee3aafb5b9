"""A planned job with one data set, encoded: problem, oracle and estimate, as trainers have them."""

from collections import Counter
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.trust.class_cells import ClassCell
from benchmarks.trust.class_jobs import encoded_classes, planned_classes
from benchmarks.trust.class_shapes import draw_classes
from benchmarks.trust.jobs import Cell, encoded, planned
from benchmarks.trust.shapes import draw
from core.inference.estimate import Estimate
from core.methods.fits import fit_and_infer
from core.methods.m_estimation.whitened_newton.spec import WhitenedNewtonPlan
from core.models.modelling import encoded_loss
from core.oracle import Oracle
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.planning.planner import PlannedJob
from core.privacy.events import compose
from core.queries.sums import make_problem
from core.queries.sums.linear import LinearProblem
from core.queries.sums.multinomial import MultinomialProblem
from core.training.ledger_filter import LedgerFilter
from tests.support.problems import repeatable_generator

Array = NDArray[np.float64]
Made = TypeVar("Made", LinearProblem, MultinomialProblem)


class PlannedScene(Generic[Made]):
    """A plan of whitened Newton with one data set.

    Args:
        plan: nothing open.
        records: encoded features and target.
        kind: of problem that they make.
    """

    def __init__(self, plan: PlannedJob, records: tuple[Array, Array], kind: type[Made]) -> None:
        self.plan, self.records = plan, records
        self._kind: type[Made] = kind

    @property
    def settings(self) -> WhitenedNewtonPlan:
        assert isinstance(self.plan.spec.optimizer, WhitenedNewtonPlan)
        return self.plan.spec.optimizer

    def problem(self, rows: tuple[Tensor, Tensor, Tensor] | None = None) -> Made:
        features, target = self.records
        given = rows or (torch.from_numpy(features), torch.from_numpy(target), torch.ones(len(target)).bool())
        model: Any = self.plan.spec.model
        loss, (values, outcome, present) = encoded_loss(model, self.plan.design), (one.clone() for one in given)
        made = make_problem(values, outcome, present, loss, model.weights)
        assert isinstance(made, self._kind)
        return made

    def oracle(self, payments: CountingFilter | LedgerFilter | None = None) -> FullOracle:
        priced = CountingFilter(compose(Counter(self.plan.schedule)))
        return FullOracle(self.problem(), self.plan.facts, payments or priced, repeatable_generator())

    def fitted(self, oracle: Oracle) -> Estimate:
        return fit_and_infer(self.settings, self.plan.spec.inference, oracle).value.estimate


class Scene(PlannedScene[LinearProblem]):
    """A cell of the grid, its plan and one data set."""

    def __init__(self, cell: Cell, seed: int = 0) -> None:
        data = draw(np.random.default_rng(seed), cell.shape, cell.units, cell.dimension - 1, cell.outcome)
        plan = planned(cell, data)
        super().__init__(plan, encoded(plan, data), LinearProblem)


class ClassScene(PlannedScene[MultinomialProblem]):
    """The same of a cell of several classes."""

    def __init__(self, cell: ClassCell, seed: int = 0) -> None:
        draws = np.random.default_rng(seed)
        data = draw_classes(draws, cell.shape, cell.units, cell.features - 1, cell.classes, cell.structure)
        plan = planned_classes(cell, data)
        super().__init__(plan, encoded_classes(plan, data), MultinomialProblem)
