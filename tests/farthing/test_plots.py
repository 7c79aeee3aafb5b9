"""Plots: the figures that they draw, names as they are, and what has nothing to draw."""

import sys
from collections.abc import Iterator
from itertools import pairwise

import matplotlib as mpl
import pytest
from matplotlib import pyplot as plt

from farthing import Client, FarthingError, MissingExtra, WrongInput
from farthing.plots import plot_coefficients
from farthing.results import Coefficient
from tests.farthing.conftest import Released, body


@pytest.fixture(autouse=True)
def canvas() -> Iterator[None]:
    mpl.use("Agg")
    yield
    plt.close("all")


def line(name: str, estimate: float | None, reach: float | None) -> Coefficient:
    interval = None if reach is None or estimate is None else (estimate - reach, estimate + reach)
    return Coefficient(name=name, estimate=estimate, std_error=reach, z=None, p_value=None, interval=interval)


def test_a_model_s_estimates_and_intervals_are_drawn(client: Client, released: Released) -> None:
    model = client.model(released.model)
    axes = model.plot(["job[b]", "job[c]"], level=0.9)
    ends = model.conf_int(0.1)
    drawn = [list(one.get_xdata()) for one in axes.get_lines() if len(one.get_xdata()) == 2][:2]
    assert drawn == [ends.loc[name].tolist() for name in ("job[b]", "job[c]")]
    assert "90 %" in axes.get_xlabel()
    assert [label.get_text().partition(",")[0] for label in model.plot().get_yticklabels()] == [
        "age",
        "job[b]",
        "job[c]",
    ]
    axes.figure.canvas.draw()
    _, mine = plt.subplots()
    assert model.plot(axes=mine) is mine
    with pytest.raises(WrongInput, match="wages"):
        model.plot(["wages"])


def test_units_of_any_size_and_withheld_intervals_have_their_mark() -> None:
    lines = [line("age", 2e-5, 1e-5), line("$\\frac{", 1.0, 0.2), line("none", 0.0, None), line("huge", 3e6, 1e5)]
    axes = plot_coefficients([*lines, line("gone", None, None)], 0.95)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels == ["age, per 100000", "$\\frac{", "none", "huge, per 1e-06"]
    dots = [one for one in axes.get_lines() if one.get_marker() == "o"]
    assert [dot.get_fillstyle() for dot in dots] == ["full", "full", "none", "full"]
    assert all(0.1 <= abs(dot.get_xdata()[0]) <= 10 for dot in dots if dot.get_fillstyle() == "full")
    axes.figure.canvas.draw()
    with pytest.raises(WrongInput, match="no coefficient"):
        plot_coefficients([], 0.95)


def test_a_budget_is_drawn_whole(client: Client, released: Released) -> None:
    budget = client.budget(released.dataset)
    axes = budget.plot()
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(1.0, abs=1e-3)
    assert axes.patches[0].get_width() == float(budget.budget_share.spent)
    assert budget.epsilon.spent in axes.get_title()
    axes.figure.canvas.draw()


def test_an_estimate_s_widths_are_drawn(client: Client, released: Released) -> None:
    found = client.estimate(body(released.dataset, mu="0.1"))
    assert found.prediction is not None
    axes = found.plot()
    dots = [one.get_xdata()[0] for one in axes.get_lines() if one.get_marker() == "o"]
    assert dots == pytest.approx([one.ratio for one in found.prediction.coefficients], rel=1e-3)
    axes.figure.canvas.draw()
    ticks = [label for label in axes.get_xticklabels(which="both") if label.get_text()]
    places = sorted((box.x0, box.x1) for box in (label.get_window_extent() for label in ticks))
    assert len(places) >= 2
    assert all(left[1] < right[0] for left, right in pairwise(places)), "a label is written over another"
    with pytest.raises(WrongInput, match="predicts no widths"):
        found.model_copy(update={"prediction": None}).plot()


def test_a_plot_needs_the_extra(client: Client, released: Released, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    for found in (client.model(released.model), client.budget(released.dataset)):
        with pytest.raises(FarthingError, match=r"farthing\[notebook\]") as absent:
            found.plot()
        assert isinstance(absent.value, MissingExtra)
