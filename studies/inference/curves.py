"""E15: the losses of figure 7, by the code that sums them."""

import torch

from core.losses.records import per_record
from core.losses.registry import Loss
from core.losses.robust import Huber, LogCosh, OstrovskiiBach, SmoothedHuber
from studies.inference.charts import Axis, Series, line_chart
from studies.inference.results import Result, Row

AT_TWO: dict[str, tuple[Loss, float, float]] = {
    "Huber": (Huber(scale=1.0), 1.78549, 1.345),
    "smoothed Huber": (SmoothedHuber(scale=1.0, h=0.5), 1.91174, 1.595),
    "log-cosh": (LogCosh(scale=1.0), 1.52624, 1.21422),
    "Ostrovskii-Bach": (OstrovskiiBach(scale=1.0), 1.27593, 0.96674),
}
EXACT = 1e-5


def losses(*, full: bool) -> Result:
    """E15: values at t = 2 and the curves on [-2, 2]."""
    del full  # nothing is drawn at random
    grid = torch.linspace(-2, 2, 201, dtype=torch.float64)
    nought = torch.zeros_like(grid)
    rows: list[Row] = []
    series: list[Series] = []
    for number, (name, (loss, value, slope)) in enumerate(AT_TWO.items()):
        records = per_record(loss)
        values, slopes = records.value(nought, grid), -records.score(nought, grid)
        rows += [
            Row(f"{name}: rho(2)", value, float(values[-1]), EXACT),
            Row(f"{name}: psi(2)", slope, float(slopes[-1]), EXACT),
        ]
        series += [
            Series(f"{name}", grid.tolist(), values.tolist(), colour=number),
            Series(f"{name}, psi", grid.tolist(), slopes.tolist(), dashed=True, colour=number),
        ]
    axes = Axis("t", -2, 2), Axis("rho, and psi dashed", -2, 2)
    return Result(
        "E15",
        "Losses (figure 7)",
        "c = 1.345, h = .5.",
        tuple(rows),
        "Exact.",
        {"losses": line_chart("E15: losses and their derivatives", *axes, series)},
    )
