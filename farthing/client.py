"""A typed, synchronous client. Creating calls carry an idempotency key, so a repeated send is answered once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os import environ
from types import TracebackType
from typing import Any, Self, overload
from uuid import uuid4

from farthing.asking import declaring, over
from farthing.descriptions import describing
from farthing.drafts import DraftResources
from farthing.errors import FarthingError, JobFailed
from farthing.figures import exact
from farthing.handles import Levels
from farthing.hypotheses import Hypotheses
from farthing.ledger_calls import LedgerCalls
from farthing.models import Model, Table
from farthing.networks import Pretrained
from farthing.notices import NoticeResources
from farthing.oversight import OversightCalls
from farthing.parts import UploadResources
from farthing.people import PeopleResources
from farthing.reporting import ReportResources
from farthing.results import Contrast, Interval, OddsRatio, Summary, WaldTest
from farthing.schemas.activity import AuditView
from farthing.schemas.budgets import AccessView, BudgetView
from farthing.schemas.datasets import Dataset, IdentityView, RemovalView, ValidationView
from farthing.schemas.estimates import EstimateView
from farthing.schemas.jobs import EventView, JobView
from farthing.schemas.service import WorkerView
from farthing.signed import SignedResources
from farthing.sweeping import SweepCalls
from farthing.wire import Wire

Spec = Mapping[str, Any]
Names = Sequence[str] | None

LONG_POLL_SECONDS = 30


class Client(
    UploadResources,
    DraftResources,
    LedgerCalls,
    SweepCalls,
    NoticeResources,
    SignedResources,
    PeopleResources,
    ReportResources,
    OversightCalls,
):
    """Talks to one Farthing service.

    Every method raises `FarthingError` where the service refuses, and `Unreachable` where no answer comes.

    Args:
        url: where the service listens.
        key: an API key.
        timeout_seconds: of one request; uploads and waits take longer by themselves.
    """

    def __init__(self, url: str = "http://127.0.0.1:8000", key: str = "", timeout_seconds: float = 60.0) -> None:
        """Open a connection pool; nothing is sent yet."""
        self._wire = Wire(url, key, timeout_seconds)
        self.pretrained = Pretrained(self._wire)

    @property
    def url(self) -> str:
        """The address of the service."""
        return self._wire.url

    @classmethod
    def from_environment(cls, url: str = "http://127.0.0.1:8000") -> Self:
        """Return a client by FARTHING_KEY, and by FARTHING_URL unless `url` says where the service listens."""
        return cls(environ.get("FARTHING_URL", url), environ.get("FARTHING_KEY", ""))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._wire.http.close()

    def ready(self) -> bool:
        """Say whether the service answers and is ready for work."""
        try:
            return self._wire.send("GET", "/readyz", sends=1).is_success
        except FarthingError:
            return False

    # Data ----------------------------------------------------------------------------------------------------------

    def datasets(self) -> Iterator[Dataset]:
        """Yield the datasets that this key may see, newest first."""
        return map(Dataset.model_validate, self._wire.pages("/v1/datasets"))

    def dataset(self, dataset: str) -> Dataset:
        """Return a dataset's public facts."""
        return Dataset.model_validate(self._wire.get(f"/v1/datasets/{dataset}"))

    def validation(self, dataset: str) -> ValidationView:
        """Return the owner's report: the numbers of cells that were clamped, unknown or missing."""
        return ValidationView.model_validate(self._wire.get(f"/v1/datasets/{dataset}/validation"))

    def identity(self, dataset: str) -> IdentityView:
        """Return what an upload had in common with its owner's earlier ones: for the owner alone."""
        return IdentityView.model_validate(self._wire.get(f"/v1/datasets/{dataset}/identity"))

    def mock(self, dataset: str, rows: int = 10) -> list[dict[str, Any]]:
        """Return synthetic rows made from the declared columns alone."""
        return list(self._wire.get(f"/v1/datasets/{dataset}/mock", rows=rows)["data"])

    def share(
        self, dataset: str, principal: str, budget_cap: str | Mapping[str, Any], *, version: str | None = None
    ) -> AccessView:
        """Let another principal see a dataset and use its budget up to a cap, or change the cap.

        Args:
            dataset: of yours.
            principal: the one who gets access.
            budget_cap: "all", or a part of the budget: ``{"budget_share": "0.1"}``, ``{"epsilon": "1"}`` or
                ``{"rho": "0.1"}``, the latter two with a ``"delta"`` or the scope's. The cap is one per scope and
                principal: for a second dataset of the scope, state the same one.
            version: of the cap that is to be changed, as `accesses` tells it; None: there is none, or it is this one.
        """
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        body = exact({"budget_cap": budget_cap})
        answer = self._wire.send("PUT", f"/v1/datasets/{dataset}/access/{principal}", json=body, headers=headers)
        return AccessView.model_validate(answer.json())

    def accesses(self, dataset: str) -> list[AccessView]:
        """Return who may use a dataset, under which cap, and what each has used: as its owner all, else one's own."""
        return [AccessView.model_validate(item) for item in self._wire.pages(f"/v1/datasets/{dataset}/access")]

    def unshare(self, dataset: str, principal: str) -> None:
        """Take a principal's access to a dataset away, and with the last one in the scope its cap."""
        self._wire.send("DELETE", f"/v1/datasets/{dataset}/access/{principal}")

    def erase(self, dataset: str) -> Dataset:
        """Erase the records; the ledger stays. They are gone once the state is `erased`."""
        return Dataset.model_validate(self._wire.send("DELETE", f"/v1/datasets/{dataset}").json())

    def remove_record(self, dataset: str, row: int) -> RemovalView:
        """Remove the record of a row of its file, the first row of data being 1, for good; nobody else sees that."""
        return RemovalView.model_validate(self._wire.post(f"/v1/datasets/{dataset}/removals", {"row": row}))

    # Budget --------------------------------------------------------------------------------------------------------

    def budget(self, dataset: str) -> BudgetView:
        """Return what is left of the budget of the people behind a dataset."""
        return BudgetView.model_validate(self._wire.get(f"/v1/datasets/{dataset}/budget"))

    def adjust(self, scope: str, job: str, reason: str) -> None:
        """Give back the charge of a job that never opened the records, by a visible entry; once for each charge."""
        # One send only: a second one would be refused as a second correction.
        self._wire.send("POST", f"/v1/scopes/{scope}/adjustments", sends=1, json={"job": job, "reason": reason})

    # Jobs ----------------------------------------------------------------------------------------------------------

    def estimate(
        self, job: Spec, *, datasets: Names = None, models: Names = None, declaration: Spec | None = None
    ) -> EstimateView:
        """Return price, plan and prediction of a job; no record is read.

        Args:
            job: as for `submit`; with a declaration it names no dataset.
            datasets: as for `submit`.
            models: as for `submit`.
            declaration: of data that are not uploaded yet: the metadata of the upload, with a budget and `rows`.
        """
        asked = declaring(over(job, datasets, models=models), declaration)
        return EstimateView.model_validate(self._wire.post("/v1/estimates", asked))

    def power(self, job: Spec, coefficient: str, size: float, power: float = 0.8) -> EstimateView:
        """Return what it takes to find an effect; `goal` has the smallest mu and number of units, and the power.

        Args:
            job: as for `estimate`; without a privacy target the smallest one that finds it is planned.
            coefficient: as estimates and summaries name it.
            size: in declared units.
            power: the wanted probability that a two-sided test at the job's level finds it.
        """
        effect = {"coefficient": coefficient, "size": size, "power": power}
        return self.estimate({**job, "goal": {"effect": effect}})

    def submit(
        self,
        job: Spec,
        *,
        datasets: Names = None,
        quorum: int | None = None,
        models: Names = None,
        key: str | None = None,
        mock: bool = False,
    ) -> JobView:
        """Queue a job and reserve the most it may cost.

        Args:
            job: dataset, model, optimizer, privacy, and what else a job may say.
            datasets: of a federated job, one a site, in place of the job's own; each site's scope pays.
            quorum: sites that must be left for a federated job to go on when one is lost; None: all.
            models: released ones that the job is about, for methods that take some.
            key: idempotency key; the same key and job again return the same job. Made here unless given.
            mock: trains on rows drawn from the declaration, and costs nothing; `rows` of the job says how many.
        """
        asked = over(job, datasets, quorum, models)
        route = "/v1/mock-jobs" if mock else "/v1/jobs"
        return JobView.model_validate(self._wire.post(route, asked, key=key or str(uuid4())))

    def job(self, job: str, *, wait_seconds: int = 0) -> JobView:
        """Return a job, or wait up to that long, at most a minute, for it to end."""
        headers = {"Prefer": f"wait={wait_seconds}"} if wait_seconds else {}
        # The answer may take as long as the wait, so the time-out begins where that ends.
        answer = self._wire.send("GET", f"/v1/jobs/{job}", headers=headers, timeout=30.0 + wait_seconds)
        return JobView.model_validate(answer.json())

    def jobs(self, **filters: str) -> Iterator[JobView]:
        """Yield jobs, newest first; filters: state, dataset, optimizer, federation, label (key:value), approval."""
        return map(JobView.model_validate, self._wire.pages("/v1/jobs", **filters))

    def mock_jobs(self) -> Iterator[JobView]:
        """Yield mock jobs, newest first."""
        return map(JobView.model_validate, self._wire.pages("/v1/mock-jobs"))

    def watch(self, job: str, *, every_seconds: float = 1.0) -> Iterator[JobView]:
        """Yield the job each time it is looked at, until it has ended."""
        while True:
            seen = self.job(job)
            yield seen
            if seen.ended:
                return
            self._wire.pause(every_seconds)

    def wait(self, job: str, *, progress: Callable[[JobView], None] | bool = False) -> JobView:
        """Wait until a job has succeeded. An interrupt ends the wait, and the job goes on.

        Args:
            job: its id.
            progress: True: show a bar with the time left, on a terminal or in a notebook; a function is called with the
                job about once a second.

        Raises:
            JobFailed: it ended without a result.
        """
        if progress is True:
            # A script without bars does not wait for rich.
            from farthing.bars import following  # noqa: PLC0415

            with following() as look:
                return self.wait(job, progress=look)
        try:
            return self._waited(job, progress or None)
        except KeyboardInterrupt as interrupt:
            interrupt.add_note(f"{job} goes on: client.wait({job!r}) waits again, client.cancel({job!r}) ends it")
            raise

    def _waited(self, job: str, progress: Callable[[JobView], None] | None) -> JobView:
        wait_seconds = 0 if progress else LONG_POLL_SECONDS
        while not (seen := self.job(job, wait_seconds=wait_seconds)).ended:
            if progress is not None:
                progress(seen)
            self._wire.pause(1.0 if progress else 0.1)  # a service that shuts down answers long polls at once
        if progress is not None:
            progress(seen)
        if seen.state != "succeeded":
            raise JobFailed(seen.id, seen.state, seen.error.code if seen.error else None, seen.failed_for)
        return seen

    def train(
        self,
        job: Spec,
        *,
        wait_for_approval_seconds: float | None = None,
        mock: bool = False,
        progress: Callable[[JobView], None] | bool = False,
    ) -> Model:
        """Submit a job, wait until it has succeeded, and return its model.

        Args:
            job: as for `submit`.
            wait_for_approval_seconds: the longest wait for the owner's word where the dataset asks for it; None: no
                wait. The job is paid for in any case, and `released` waits again.
            mock: as of `submit`.
            progress: as for `wait`.

        Raises:
            FarthingError: as of `submit`; nothing was paid.
            JobFailed: as of `wait`.
            ReleaseWithheld: the job succeeded, and its release waits for the owner's approval or was rejected.
        """
        return self.released(self.wait(self.submit(job, mock=mock).id, progress=progress), wait_for_approval_seconds)

    def describe(
        self, dataset: str, privacy: Spec, what: Spec | None = None, *, shares: Mapping[str, float] | None = None
    ) -> Model:
        """Describe columns: submit the job, wait, and return what was released; `.description()` reads it.

        Args:
            dataset: `ds_...`.
            privacy: one target, such as `{"mu": "0.3"}`.
            what: made by `farthing.describing`; None: frequencies, quantiles and means of all columns.
            shares: of mu squared, by statistic; None: planned.
        """
        optimizer = {"kind": "describe"} | ({} if shares is None else {"shares": dict(shares)})
        asked = {
            "dataset": dataset,
            "model": dict(what or describing()),
            "optimizer": optimizer,
            "privacy": dict(privacy),
        }
        return self.train(asked)

    def cancel(self, job: str) -> JobView:
        """Cancel a job; its unspent reservation is given back."""
        return JobView.model_validate(self._wire.post(f"/v1/jobs/{job}/cancel"))

    def clone(self, job: str, *, key: str | None = None) -> JobView:
        """Submit the same job again: a new job with a new charge; `key` as for `submit`."""
        return JobView.model_validate(self._wire.post(f"/v1/jobs/{job}/clone", key=key or str(uuid4())))

    def events(self, job: str) -> Iterator[EventView]:
        """Yield a job's history so far."""
        return map(EventView.model_validate, self._wire.pages(f"/v1/jobs/{job}/events"))

    # Models --------------------------------------------------------------------------------------------------------

    def summary(self, model: str, *, level: Levels = None) -> Summary:
        """Return the coefficient table with private intervals, at the job's own level unless one is given."""
        return self.model(model).table(level)

    def summary_text(self, model: str, *, level: Levels = None) -> str:
        """Return the coefficient table as plain text."""
        return self.model(model).summary(level)

    def intervals(self, model: str, *, level: Levels = None) -> list[Interval]:
        """Return each coefficient's interval."""
        return self.model(model).intervals(level)

    def odds_ratios(self, model: str, *, level: Levels = None) -> list[OddsRatio]:
        """Return a logistic model's odds ratios with their intervals."""
        return self.model(model).odds_ratios(level)

    def contrast(self, model: str, weights: Mapping[str, float], *, level: float | None = None) -> Contrast:
        """Return a linear combination of coefficients with its interval."""
        return self.model(model).contrast(weights, level=level)

    def wald_test(self, model: str, hypotheses: Hypotheses, values: Iterable[float] | None = None) -> WaldTest:
        """Test jointly that coefficients, or linear combinations of them, equal given values; as `Model.wald_test`."""
        return self.model(model).wald_test(hypotheses, values)

    def methods(self, model: str) -> str:
        """Return a paragraph that a paper's methods section may quote."""
        return self.model(model).methods()

    @overload
    def predict(self, model: str, rows: Table, *, level: float | None = None) -> Table: ...

    @overload
    def predict(self, model: str, rows: Iterable[Spec], *, level: float | None = None) -> list[dict[str, Any]]: ...

    def predict(self, model: str, rows: Any, *, level: float | None = None) -> Any:
        """Return predictions for rows in declared units; as `Model.predict`."""
        return self.model(model).predict(rows, level=level)

    def export(self, model: str, kind: str = "json") -> bytes:
        """Return the model as `json` or `safetensors`, a network also as `onnx`."""
        return self.model(model).export(kind)

    # The audit log -----------------------------------------------------------------------------------------------

    def audit(self) -> Iterator[AuditView]:
        """Yield who asked for what, newest first: all of it for admins and auditors.

        Others have their own lines, and those about their own scopes, datasets, jobs, models and keys.
        """
        return map(AuditView.model_validate, self._wire.pages("/v1/audit"))

    def workers(self) -> Iterator[WorkerView]:
        """Yield the supervisors of the last day, the last seen first; for admins and auditors."""
        return map(WorkerView.model_validate, self._wire.pages("/v1/workers"))

    def audit_export(self, kind: str = "jsonl") -> Iterator[str]:
        """Yield the lines of the audit log, oldest first, as `jsonl` or `csv`; for an owner those that `audit` has."""
        with self._wire.http.stream("GET", "/v1/audit/export", params={"format": kind}) as answer:
            if not answer.is_success:
                # A streamed answer has no content until it is read.
                answer.read()
                raise FarthingError(answer.status_code, answer.json())
            yield from answer.iter_lines()
