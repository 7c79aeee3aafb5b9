"""Jobs in MLflow, against its real server: a run's parameters, figures, documents, and the pyfunc that predicts."""

import json
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import httpx
import mlflow
import pandas as pd
import pytest

import farthing.mlflow
from farthing import Client, FarthingError
from tests.farthing.conftest import Released, body
from tests.support.cluster import until
from tests.support.embedded import KEY, Embedded

pytestmark = [pytest.mark.service, pytest.mark.filterwarnings("default")]  # MLflow warns of itself
SERVER = "mlflow~=3.17.2"
"""Its own environment: the server wants an older Arrow than this project has."""


@pytest.fixture(scope="session")
def server_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with MLflow's server, which sees the packages of this one; installing it takes a minute."""
    home = tmp_path_factory.mktemp("mlflow-server")
    python = home / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    (packages,) = (home / "lib").glob("python*/site-packages")
    (packages / "beside.pth").write_text(sysconfig.get_path("purelib"))
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", SERVER], check=True, timeout=500)
    return python


@pytest.fixture(scope="session")
def tracking(server_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running server."""
    home = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    asked = ["--port", str(port), "--backend-store-uri", f"sqlite:///{home}/runs.db", "--workers", "1"]
    command = [str(server_python), "-m", "mlflow", "server", *asked, "--artifacts-destination", str(home / "artifacts")]
    with (home / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log, cwd=home) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: _answers(url), "MLflow", process=server, log=(home / "log").read_text)
            yield url
        finally:
            server.terminate()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False


def test_a_job_is_a_run_and_its_model_predicts(
    tracking: str, service: Embedded, client: Client, released: Released, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FARTHING_URL", service.url)
    monkeypatch.setenv("FARTHING_KEY", KEY)
    mlflow.set_tracking_uri(tracking)
    run = farthing.mlflow.log(released.job.id)

    found = mlflow.get_run(run)
    assert found.data.params["dataset"] == released.dataset
    assert found.data.params["privacy.mu"] == "1"
    assert found.data.params["optimizer.kind"] == "noisy_newton"
    assert found.data.tags["farthing.model"] == released.model
    table = client.model(released.model).table()
    for one in table.coefficients:
        assert one.interval is not None
        name = one.name.replace("[", ".").replace("]", ".")
        assert found.data.metrics[f"{name}/estimate"] == one.estimate
        assert found.data.metrics[f"{name}/lower"] == one.interval[0]
    assert released.job.cost is not None
    assert found.data.metrics["spent.budget_share"] == float(released.job.cost.spent.budget_share)

    def text(path: str) -> str:
        return str(mlflow.artifacts.load_text(f"runs:/{run}/{path}"))

    assert json.loads(text("model.json"))["model"] == released.model
    assert json.loads(text("report.json"))["job"]
    assert client.check_certificate(text("certificate.jws").strip()).valid
    rows = pd.DataFrame({"age": [30, 50], "job": ["a", "b"]}, index=["ann", "bob"])
    loaded = mlflow.pyfunc.load_model(f"runs:/{run}/model")
    predicted = loaded.predict(rows)
    expected = [one["probability"] for one in client.predict(released.model, rows.to_dict("records"))]
    assert predicted["predicted_probability"].tolist() == pytest.approx(expected, rel=1e-12)
    assert predicted.index.tolist() == ["ann", "bob"]
    with pytest.raises(mlflow.exceptions.MlflowException, match="age"):
        loaded.predict(rows.drop(columns="age"))


def test_what_has_no_model_is_refused_before_a_run_is_made(tracking: str, client: Client, released: Released) -> None:
    mlflow.set_tracking_uri(tracking)
    before = len(mlflow.search_runs(output_format="list"))
    with pytest.raises(FarthingError, match="not-found"):
        farthing.mlflow.log("job_none", client=client)
    assert len(mlflow.search_runs(output_format="list")) == before
    described = client.describe(released.dataset, {"mu": "0.05"})
    run = farthing.mlflow.log(next(iter(client.jobs(optimizer="describe"))), client=client)
    assert "age" in mlflow.artifacts.load_text(f"runs:/{run}/description.txt"), described.id


def test_no_key_is_logged(tracking: str, client: Client, released: Released, tmp_path: Path) -> None:
    mlflow.set_tracking_uri(tracking)
    job = client.wait(client.submit(body(released.dataset, mu="0.1")).id)
    with mlflow.start_run() as mine:
        assert farthing.mlflow.log(job, client=client) == mine.info.run_id
    mlflow.artifacts.download_artifacts(f"runs:/{mine.info.run_id}/", dst_path=str(tmp_path))
    mlflow.artifacts.download_artifacts(f"runs:/{mine.info.run_id}/model", dst_path=str(tmp_path / "model"))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"summary.txt", "MLmodel"} <= {path.name for path in files}
    assert not [path for path in files if KEY.encode() in path.read_bytes()]
    assert KEY not in json.dumps(mlflow.get_run(mine.info.run_id).to_dictionary())
