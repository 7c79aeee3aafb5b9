"""Problems in blocks that also answer questions with public arguments of their own: see `core.queries.sums.looking`."""

from torch import Tensor

from core.base.errors import ensure
from core.privacy.facts import PART_UNITS, Facts
from core.queries.gradients import Looked, Question
from core.queries.sums import looking
from core.queries.sums.blocks import BlockProblem


class LookedAtProblem(BlockProblem):
    """Records behind an oracle, also of counts and of sums over re-encoded rows."""

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
        """Return the sum of clipped answers, int64, in steps; see `core.queries.sums.Problem`."""
        if isinstance(question, Looked):
            return looking.integer_sum(question, facts, theta, step, self._looked_at(rows, included))
        return super().integer_sum(question, facts, theta, step, other=other, rows=rows, included=included)

    def bounded_sum(self, question: Question, facts: Facts, theta: Tensor, *, other: Tensor | None = None) -> Tensor:
        """Return the sum of clipped answers, float64; see `core.queries.sums.SyntheticProblem`."""
        if isinstance(question, Looked):
            return looking.float_sum(question, facts, theta, self._looked_at(None, None))
        return super().bounded_sum(question, facts, theta, other=other)

    def _looked_at(self, rows: Tensor | None, included: Tensor | None) -> looking.Blocks:
        """Return records in blocks; a question with public arguments of its own is about one set of them."""
        ensure(self.replicates is None, "such questions are asked without replicates")
        return looking.Blocks(
            self._blocks(rows, included), max(1, PART_UNITS // self._rows_per_block), self._records.features.device
        )
