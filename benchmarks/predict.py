"""Predictions of 100,000 rows of 20 columns by a file of CSV, beside scikit-learn with CSV in and out.

`python -m benchmarks.predict [--rows 100000]`. Both sides read the same file, predict the same kind of model with the
same columns, and write all rows with the predictions beside them. The one runs in this process. Ours is a request to a
service on the same machine, from its first byte to its last. A pause before it lets a spare child start.
"""

import argparse
import io
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from farthing import Client
from tests.support.embedded import KEY, embedded

ROUNDS = 5
GOAL = 3.0
NUMBERS = [f"number{place}" for place in range(14)]
CATEGORIES = [f"category{place}" for place in range(6)]
LEVELS = ["north", "east", "south", "west", "none"]
COLUMNS: list[dict[str, Any]] = [
    *({"name": name, "type": "number", "lower": -4, "upper": 4} for name in NUMBERS),
    *({"name": name, "type": "category", "values": LEVELS} for name in CATEGORIES),
    {"name": "y", "type": "binary", "values": ["no", "yes"]},
]


def records(rows: int, seed: int) -> pd.DataFrame:
    """Return rows of 20 columns, and a target."""
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame({name: draw.normal(size=rows).round(6) for name in NUMBERS})
    for name in CATEGORIES:
        frame[name] = draw.choice(LEVELS, rows)
    frame["y"] = np.where(draw.uniform(size=rows) < 1 / (1 + np.exp(-frame["number0"])), "yes", "no")
    return frame


def scikit(frame: pd.DataFrame) -> Callable[[bytes], bytes]:
    """Return what reads CSV, predicts and writes CSV again, each by the fastest way that pandas and Arrow have."""
    columns = ColumnTransformer(
        [("numbers", StandardScaler(), NUMBERS), ("categories", OneHotEncoder(categories=[LEVELS] * 6), CATEGORIES)]
    )
    model = make_pipeline(columns, LogisticRegression(max_iter=200)).fit(frame.drop(columns="y"), frame["y"])

    def predict(content: bytes) -> bytes:
        table = pacsv.read_csv(io.BytesIO(content))
        found = model.predict_proba(table.to_pandas())[:, 1]
        sink = io.BytesIO()
        pacsv.write_csv(table.append_column("predicted_probability", pa.array(found)), sink)
        return sink.getvalue()

    return predict


def took(work: Callable[[], object]) -> float:
    """Return the seconds of one run, after a pause in which a spare child has started."""
    time.sleep(2)
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> int:
    """Print times and ratios; return how many goals are missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    options = parser.parse_args()
    trained = records(20_000, 1)
    beside = scikit(trained)
    frame = records(options.rows, 2).drop(columns="y")
    csv, parquet = io.BytesIO(), io.BytesIO()
    pacsv.write_csv(pa.Table.from_pandas(frame), csv)
    pq.write_table(pa.Table.from_pandas(frame), parquet)
    with tempfile.TemporaryDirectory() as home, embedded(Path(home)) as service:
        with Client(service.url, KEY) as admin:
            made = admin.create_key("office", "owner")
        with Client(service.url, made.key or "") as owner:
            key = owner.rotate_key(made.id).key or ""
        with Client(service.url, key, timeout_seconds=120) as client:
            declared = {"name": "bench", "columns": COLUMNS, "budget": {"epsilon": "8", "delta": "1e-6"}}
            dataset = client.upload(io.BytesIO(trained.to_csv(index=False).encode()), declared).id
            asked: dict[str, Any] = {
                "dataset": dataset,
                "model": {"kind": "logistic", "target": "y"},
                "privacy": {"mu": "1"},
            }
            model = client.released(client.wait(client.submit(asked).id))
            http = httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {key}"}, timeout=120)
            path = f"/v1/models/{model.id}/predict"

            def send(content: bytes, kind: str, query: str = "") -> Callable[[], object]:
                return lambda: http.post(
                    path + query, content=content, headers={"Content-Type": kind}
                ).raise_for_status()

            ways: dict[str, Callable[[], object]] = {
                "scikit-learn, CSV": lambda: beside(csv.getvalue()),
                "CSV": send(csv.getvalue(), "text/csv"),
                "CSV with intervals": send(csv.getvalue(), "text/csv", "?level=0.95"),
                "Parquet": send(parquet.getvalue(), "application/vnd.apache.parquet"),
            }
            times: dict[str, list[float]] = {name: [] for name in ways}
            for _ in range(ROUNDS):
                for name, work in ways.items():
                    times[name].append(took(work))
    base = median(times["scikit-learn, CSV"])
    for name, each in times.items():
        print(f"{1e3 * median(each):8.0f} ms  {median(each) / base:5.2f} x  {name}")
    return int(median(times["CSV"]) / base > GOAL)


if __name__ == "__main__":
    sys.exit(main())
