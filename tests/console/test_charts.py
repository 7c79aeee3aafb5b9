"""Geometry and figures of pages, without a service."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from api.pages import charts, line_charts
from api.pages.new_job import METHODS, request_of
from core.inference.forest import Effect
from farthing.schemas import figures
from farthing.schemas.curves import CurvePointView
from farthing.schemas.history import PointView

NB = "\N{NO-BREAK SPACE}"


def effect(middle: float, *ends: tuple[float, float], name: str = "x", **changes: bool) -> Effect:
    flags = {"is_intercept": False, "is_withheld": False, **changes}
    return Effect(name=name, step=None, middle=middle, ends=ends, flags=(), notes=(), **flags)


@pytest.mark.parametrize(
    ("share", "whole", "left", "spent"),
    [
        ("0.183559", f"18.3559{NB}%", f"18.3{NB}%", f"18.4{NB}%"),
        ("0.499999", f"49.9999{NB}%", f"50.0{NB}%", f"50.0{NB}%"),
        ("0.49998", f"49.998{NB}%", f"49.9{NB}%", f"50.0{NB}%"),
        ("1", f"100{NB}%", f"100.0{NB}%", f"100.0{NB}%"),
        ("0", f"0{NB}%", f"0.0{NB}%", f"0.0{NB}%"),
        ("0.2", f"20{NB}%", f"20.0{NB}%", f"20.0{NB}%"),
        ("0.0000001", f"0.00001{NB}%", f"0.0{NB}%", f"0.1{NB}%"),
        ("1e-9", f"0.0000001{NB}%", f"0.0{NB}%", f"0.1{NB}%"),
        ("1.293098", f"129.3098{NB}%", f"129.3{NB}%", f"129.4{NB}%"),
    ],
)
def test_shares_are_written_in_per_cent(share: str, whole: str, left: str, spent: str) -> None:
    assert (figures.per_cent(share), figures.left_per_cent(share), figures.spent_per_cent(share)) == (
        whole,
        left,
        spent,
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-2000, "\N{MINUS SIGN}2,000"),
        (45211, "45,211"),
        (0.5, "0.5"),
        (None, ""),
        (1e-7, "0.0000001"),
        (1e21, "1" + ",000" * 7),
    ],
)
def test_numbers_have_commas_and_a_real_minus(value: float | None, text: str) -> None:
    assert figures.number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(4.0418e-5, "4.042e\N{MINUS SIGN}5"), (-3.331, "\N{MINUS SIGN}3.331"), (None, "")]
)
def test_statistics_have_four_digits(value: float | None, text: str) -> None:
    assert figures.statistic(value) == text


def test_times_are_relative() -> None:
    now = datetime(2026, 11, 26, 12, tzinfo=UTC)
    ago = {3: "now", 59: "59 seconds ago", 60: "1 minute ago", 7200: "2 hours ago", 86_400 * 3: "3 days ago"}
    for seconds, text in ago.items():
        assert figures.ago(now - timedelta(seconds=seconds), now) == text
    assert figures.ago(now + timedelta(hours=5), now) == "in 5 hours"
    assert figures.ago(datetime(2026, 1, 3, tzinfo=UTC), now) == "3 Jan"
    assert figures.ago(datetime(2024, 1, 3, tzinfo=UTC), now) == "3 Jan 2024"


def test_a_forest_holds_zero_and_all_intervals() -> None:
    drawn = charts.forest(
        [effect(-3.0, is_intercept=True), effect(0.5, (0.1, 0.9), (0.3, 0.7)), effect(2.0, (1.5, 2.5))]
    )
    assert drawn.rows[0].arrow == "left"
    places = [float(drawn.zero[:-1])]
    for row in drawn.rows[1:]:
        assert row.dot is not None
        assert row.thin is not None
        low, high = (float(end[:-1]) for end in row.thin)
        assert low < float(row.dot[:-1]) < high
        places += [low, high]
    assert all(0 <= place <= 100 for place in places)
    ticks = [float(tick.at[:-1]) for tick in drawn.ticks]
    assert ticks == sorted(ticks)
    assert len(ticks) <= 8
    assert min(places) >= ticks[0]
    assert max(places) <= ticks[-1] + 0.1


@pytest.mark.parametrize("values", [[0.0], [1e-300, -1e-300], [1e300], [-5.0, -4.0]])
def test_a_forest_of_odd_figures_is_drawn(values: list[float]) -> None:
    drawn = charts.forest([effect(value) for value in values])
    assert len(drawn.rows) == len(values)
    assert all(row.dot or row.arrow for row in drawn.rows)


def test_withheld_intervals_do_not_stretch_the_axis() -> None:
    drawn = charts.forest([effect(0.5, (0.0, 1.0)), effect(400.0, is_withheld=True)])
    assert drawn.rows[1].arrow == "right"


def test_bars_stay_within_their_track() -> None:
    shares = SimpleNamespace(spent="1.2", reserved="0.3", remaining="0")
    bar = charts.bar(shares)
    assert (bar.spent, bar.fill) == ("100.0000%", "g-low")
    assert charts.paid_bar("0", "0", "0", 5).cuts == ()
    paid = charts.paid_bar("0.1", "0.2", "0.05", 4)
    assert (paid.paid, paid.held_from, paid.held) == ("40.00%", "80.00%", "20.00%")
    assert paid.cuts == ("20.00%", "40.00%", "60.00%", "80.00%")


def _point(at: str, charged: str, remaining: str, reserved: str = "0") -> PointView:
    told = {"seq": 1, "at": at, "kind": "settle", "job": "job_1", "dataset": "ds_1", "principal": "pr_1"}
    amounts = {"held": charged, "charged": charged, "spent": "0", "reserved": reserved, "remaining": remaining}
    return PointView.model_validate(told | {"name": None, "method": None} | amounts)


def test_a_burn_down_steps_to_what_was_left() -> None:
    points = [_point("2026-11-03T09:00:00Z", "0.25", "0.75"), _point("2026-11-09T09:00:00Z", "0.5", "0.15", "0.1")]
    drawn = line_charts.burndown(points, "1", "0.15", "0.1", "2026-11-02T09:00:00Z")
    assert drawn.line.startswith("M4.00 0.00 H")
    assert [float(part.split()[0]) for part in drawn.line.split(" V")[1:]] == [25.0, 75.0]
    assert [pin.number for pin in drawn.pins] == ["1", "2"]
    assert (drawn.reserved_y, drawn.reserved_height) == ("175.0", "22.0"), "hatched between the line and what is free"
    assert drawn.free.startswith("15.0")


def test_a_burn_down_without_its_beginning_starts_at_what_was_left_then() -> None:
    drawn = line_charts.burndown(
        [_point("2026-11-03T09:00:00Z", "0.1", "0.3")], "0.4", "0.3", "0", "2025-01-01T00:00:00Z"
    )
    assert drawn.line.startswith("M4.00 60.00 H")


def _offered(share: str, ratio: float | None, *, asked: bool = False, fits: bool = True) -> CurvePointView:
    told = {"mu": "1", "epsilon_alone": "1", "budget_share": share, "asked": asked, "fits": fits}
    return CurvePointView.model_validate(told | {"ratio": ratio, "lowest": ratio, "highest": None})


def test_a_curve_shows_the_asked_price_and_marks_what_does_not_fit() -> None:
    points = [
        _offered("0.05", 2.0),
        _offered("0.1", 1.5, asked=True),
        _offered("0.2", 1.2, fits=False),
        _offered("0.9", 1.01, fits=False),
    ]
    drawn = line_charts.curve(points, "0.15")
    assert drawn is not None
    assert drawn.x_ticks[-1].text == "20", "five times the asked price at most: the dearest is in the table"
    assert drawn.dot_x == "50.00%"
    assert (drawn.off_from, drawn.off) == ("75.00%", "25.00%")
    assert drawn.line.count("L") == 2
    assert line_charts.curve([_offered("0.1", None, asked=True)], "1") is None
    capped = line_charts.curve(points, "0.85")
    assert capped is not None
    assert capped.off_from == "75.00%", "between the last price that the cap admits and the first that it does not"
    tighter = [one.model_copy(update={"fits": one.budget_share == "0.05"}) for one in points]
    capped = line_charts.curve(tighter, "0.85")
    assert capped is not None
    assert (capped.off_from, capped.off) == ("37.50%", "62.50%")


@pytest.mark.parametrize(
    ("choice", "kind", "inference"),
    [
        ("", None, None),
        ("noisy_newton", "noisy_newton", {"intervals": False}),
        ("noisy_gd unchecked", "noisy_gd", {"accept_unchecked": True}),
        ("clipped_sgd", "clipped_sgd", {"intervals": False}),
    ],
)
def test_the_form_of_a_job_accepts_unchecked_intervals_by_a_choice_of_its_own(
    choice: str, kind: str | None, inference: dict[str, bool] | None
) -> None:
    asked = request_of({"method": [choice], "target": ["y"], "amount": ["0.5"]})
    assert choice in dict(METHODS)
    assert (asked.get("optimizer", {}).get("kind"), asked.get("inference")) == (kind, inference)
