"""MLflow: a job's request, cost, coefficients and documents as a run, and its model as a pyfunc.

>>> farthing.mlflow.log(job)  # doctest: +SKIP

The extra `farthing[mlflow]` brings what is needed. The tracking server is the one that MLflow itself is pointed at.
"""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from importlib.resources import files
from math import isfinite
from typing import Any, Final

from farthing.client import Client
from farthing.errors import ReleaseWithheld
from farthing.models import Model
from farthing.results import Summary
from farthing.schemas.datasets import Dataset
from farthing.schemas.jobs import JobView

try:
    import mlflow
    from mlflow.models import ModelSignature
    from mlflow.types.schema import AnyType, ColSpec, Schema
except ImportError as absent:
    raise ImportError("MLflow is not installed: pip install 'farthing[mlflow]'") from absent

DESCRIPTION: Final = "description"
_NOT_A_NAME: Final = re.compile(r"[^\w\-. /:]")
"""Letters that MLflow refuses in the name of a metric."""


def log(job: JobView | str, *, client: Client | None = None, name: str = "model") -> str:
    """Log a job that has succeeded, in the active run or in one of its own.

    Parameters are the fields of the request. Metrics are what was spent, and each coefficient with its standard error
    and interval. Artifacts are the summary, the privacy report, the certificate and the exported model. The pyfunc
    predicts through the service, which costs no budget: it takes FARTHING_KEY, and FARTHING_URL where that has changed.
    No key is logged.

    Args:
        job: as `client.wait` returns it, or its id.
        client: of the service; None: by FARTHING_URL and FARTHING_KEY.
        name: of the pyfunc within the run. A description of columns has none.

    Returns:
        The run's id.

    Raises:
        JobFailed: the job ended without a result.
        ReleaseWithheld: its release is not open to this key.
    """
    with ExitStack() as stack:
        if client is None:
            client = stack.enter_context(Client.from_environment())
        done = client.wait(job if isinstance(job, str) else job.id)
        if done.released is None:
            raise ReleaseWithheld(done.id, str(done.approval), str(done.withheld))
        run = mlflow.active_run() or stack.enter_context(mlflow.start_run(run_name=done.labels.get("name", done.id)))
        model = client.model(done.released)
        mlflow.log_params(dict(_flat(done.spec or {})))
        mlflow.set_tags({"farthing.job": done.id, "farthing.model": model.id, "farthing.service": client.url})
        _log_cost(done)
        _log_documents(client, done, model)
        if done.model["kind"] != DESCRIPTION:
            _log_model(client, done, model, name)
        return str(run.info.run_id)


def _log_cost(job: JobView) -> None:
    if job.cost is None:  # a federated job's sites have one each, in the report
        return
    spent = job.cost.spent
    figures = {"budget_share": spent.budget_share, "rho": spent.rho, "mu": spent.mu}
    mlflow.log_metrics({f"spent.{name}": float(text) for name, text in figures.items() if text is not None})


def _log_documents(client: Client, job: JobView, model: Model) -> None:
    mlflow.log_text(json.dumps(client.report(job.id), indent=2), "report.json")
    mlflow.log_text(client.certificate(job.id), "certificate.jws")
    mlflow.log_text(model.export().decode(), "model.json")
    if job.model["kind"] == DESCRIPTION:
        mlflow.log_text(model.description_text(), "description.txt")
        return
    table = model.table()
    mlflow.log_text(model.summary(), "summary.txt")
    mlflow.log_text(table.model_dump_json(indent=2), "summary.json")
    mlflow.log_metrics(dict(_figures(table)))


def _figures(table: Summary) -> Iterator[tuple[str, float]]:
    """Yield the figures of each coefficient that are known."""
    for one in table.coefficients:
        lower, upper = one.interval or (None, None)
        found = {"estimate": one.estimate, "std_error": one.std_error, "lower": lower, "upper": upper}
        for what, value in found.items():
            if value is not None and isfinite(value):
                yield f"{_NOT_A_NAME.sub('.', one.name)}/{what}", value


def _log_model(client: Client, job: JobView, model: Model, name: str) -> None:
    # A federated job's datasets may not be this key's to see.
    columns = () if job.dataset is None else _inputs(client.dataset(job.dataset), job.model)
    mlflow.pyfunc.log_model(
        name=name,
        python_model=str(files(__package__) / "scoring.py"),
        model_config={"url": client.url, "model": model.id},
        signature=ModelSignature(inputs=Schema(list(columns))) if columns else None,
        pip_requirements=["farthing[mlflow]"],
    )


def _inputs(dataset: Dataset, asked: Mapping[str, Any]) -> Iterator[ColSpec]:
    """Yield the columns that the model takes; the others of the dataset may be left out."""
    features = asked.get("features") or [one["name"] for one in dataset.columns if one["name"] != asked["target"]]
    for column in dataset.columns:
        if column["name"] != asked["target"]:
            # The service reads each cell as it read the upload's; MLflow's own types would refuse whole numbers.
            yield ColSpec(AnyType(), column["name"], required=column["name"] in features)


def _flat(value: Any, at: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any JSON
    """Yield the fields of a request by dotted names, without those left open."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(inner, f"{at}.{name}" if at else str(name))
    elif value is not None:
        yield at, value if isinstance(value, str) else json.dumps(value)
