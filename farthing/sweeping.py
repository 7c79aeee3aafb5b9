"""Sweeps, for a client of the service: several settings of a job, of which the best by a private score is released."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from farthing.figures import exact
from farthing.model_calls import ModelCalls
from farthing.models import Model
from farthing.schemas.estimates import EstimateView
from farthing.schemas.jobs import JobView

Grid = Mapping[str, Iterable[Any]]
Spec = Mapping[str, Any]


class SweepCalls(ModelCalls):
    """The part of a client that trains several settings of a job as one job, and prices that.

    A sweep is a `job` with a `grid`, or `jobs` that differ in optimizer and ridge alone; 2 to 256 candidates.
    """

    if TYPE_CHECKING:  # the client's own

        def wait(self, job: str, *, progress: Callable[[JobView], None] | bool = False) -> JobView:
            """Wait until a job has succeeded."""

    def sweep(
        self,
        job: Spec | None = None,
        *,
        grid: Grid | None = None,
        jobs: Sequence[Spec] | None = None,
        runs: float | None = None,
        way: str | None = None,
        score_share: float | None = None,
        wait_for_approval_seconds: float | None = None,
        progress: Callable[[JobView], None] | bool = False,
    ) -> Model:
        """Submit a sweep, wait until it has succeeded, and return the model that won; its `sweep` says which it is.

        Args:
            job: as for `submit`, on one dataset and without intervals; its optimizer is noisy_gd or noisy_newton.
            grid: values by JSON pointers into the job, such as `{"/optimizer/steps": [10, 20]}`: below /optimizer, or
                /model/ridge. Every combination is a candidate.
            jobs: in place of a job and a grid.
            runs: expected number of runs, where they are drawn at random; None: of candidates.
            way: the way to price it, "selection" or "composition"; None: the cheaper one.
            score_share: part of each run's mu squared that its score takes, below 1; None: planned.
            wait_for_approval_seconds: as for `train`.
            progress: as for `wait`.

        Raises:
            FarthingError: the service refused it, with pointers such as /jobs/3/optimizer/steps; nothing was paid.
            JobFailed: as of `wait`.
            ReleaseWithheld: as of `train`.
        """
        made = self.submit_sweep(job, grid=grid, jobs=jobs, runs=runs, way=way, score_share=score_share)
        return self.released(self.wait(made.id, progress=progress), wait_for_approval_seconds)

    def submit_sweep(
        self,
        job: Spec | None = None,
        *,
        grid: Grid | None = None,
        jobs: Sequence[Spec] | None = None,
        runs: float | None = None,
        way: str | None = None,
        score_share: float | None = None,
        key: str | None = None,
    ) -> JobView:
        """Queue a sweep as one job, and reserve the most that it may cost; arguments as for `sweep`, `key` of `submit`.

        Raises:
            FarthingError: as of `sweep`.
        """
        asked = _asked(job, grid, jobs, runs=runs, way=way, score_share=score_share)
        return JobView.model_validate(self._wire.post("/v1/sweeps", asked, key=key or str(uuid4())))

    def price_sweep(
        self,
        job: Spec | None = None,
        *,
        grid: Grid | None = None,
        jobs: Sequence[Spec] | None = None,
        runs: float | None = None,
        way: str | None = None,
        score_share: float | None = None,
    ) -> EstimateView:
        """Return price and plan of a sweep; no record is read, and nothing is reserved. Arguments as for `sweep`.

        Raises:
            FarthingError: as of `sweep`.
        """
        asked = _asked(job, grid, jobs, runs=runs, way=way, score_share=score_share)
        return EstimateView.model_validate(self._wire.post("/v1/sweeps/estimates", asked))


def _asked(job: Spec | None, grid: Grid | None, jobs: Sequence[Spec] | None, **settings: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return the body of a sweep, without arguments that are None; figures are strings, NumPy's values Python's."""
    given = {
        "job": _exact(job),
        "grid": {name: _listed(values) for name, values in grid.items()} if isinstance(grid, Mapping) else grid,
        "jobs": [_exact(one) for one in jobs] if isinstance(jobs, Iterable) else jobs,
        **settings,
    }
    return {name: value for name, value in given.items() if value is not None}


def _exact(job: Any) -> Any:  # noqa: ANN401 - JSON
    """Return a job with its figures as strings; any other value stays, and the service refuses it by name."""
    return exact(job) if isinstance(job, Mapping) else job


def _listed(values: Any) -> Any:  # noqa: ANN401 - as above
    if hasattr(values, "tolist"):
        return values.tolist()
    # The letters of a text, or the names of an object, are no values.
    whole = isinstance(values, str | Mapping) or not isinstance(values, Iterable)
    return values if whole else [one.tolist() if hasattr(one, "tolist") else one for one in values]
