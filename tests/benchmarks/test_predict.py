"""Predictions of a file beside scikit-learn's, in one process and one run."""

import io
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from pydantic import TypeAdapter

from benchmarks.predict import COLUMNS, GOAL, records, scikit
from core.data.columns import Column
from core.models.design import make_design
from core.models.kinds import LogisticModel
from core.records.answering import RowsToPredict
from core.records.decoding.decode import Limits
from core.records.predicting import predict_file
from tests.support.released import released, rows_of, spread
from tests.support.sealed import seal


def took(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@pytest.mark.timing
@pytest.mark.parametrize("level", [None, 0.95])
def test_a_file_takes_at_most_three_times_as_long_as_scikit_learn(level: float | None, tmp_path: Path) -> None:
    design = make_design(TypeAdapter(tuple[Column, ...]).validate_python(COLUMNS), LogisticModel(target="y"))
    size = design.dimension
    model = released(design=design, theta=(0.1,) * size, covariance=rows_of(spread(size)))
    content = io.BytesIO()
    pacsv.write_csv(pa.Table.from_pandas(records(100_000, 2).drop(columns="y")), content)
    beside = scikit(records(5_000, 1))

    def ours() -> bytes:
        target = seal(tmp_path / "answer", b"")
        target.path.unlink()
        request = RowsToPredict(
            source=seal(tmp_path / "rows", content.getvalue()), target=target, media="csv", kind="csv", model="m",
            released=model.model_dump(mode="json"), level=level, limits=Limits(), answer_bytes=2**30,
        )  # fmt: skip
        predict_file(request)
        with target.open() as file:
            return file.read()

    times = [(took(ours), took(lambda: beside(content.getvalue()))) for _ in range(5)]
    own, other = (median(each) for each in zip(*times, strict=True))
    assert own < GOAL * other, (own, other)
