"""The command line's tables of ledgers, keys, estimates and jobs."""

import json
from typing import Any

from farthing import estimate_tables, job_tables, ledger_tables, tables
from farthing.console import plain_table
from farthing.results import OddsRatio
from farthing.schemas.estimates import EstimateView
from farthing.schemas.jobs import JobCost
from farthing.schemas.keys import KeyView
from farthing.schemas.ledger import EntryView
from tests.farthing.conftest import shown
from tests.support.filled import filled


def test_an_entry_that_pays_again_says_so() -> None:
    chunk = {"kind": "spend", "job": "job_1", "chunk": 4}
    once = filled(EntryView, chunk | {"seq": 3, "body": '{"kind":"spend"}'})
    again = filled(EntryView, chunk | {"seq": 4, "body": '{"again":true}'})
    _, first, second = shown(ledger_tables.entries([once, again]))
    assert first.split()[:4] == ["3", "spend", "job_1", "4"]
    assert second.split()[:5] == ["4", "spend", "again", "job_1", "4"]
    assert first.split()[-3:] == ["-", "-", "-"], "the entry that says the caps is not among them"


def test_entries_say_what_each_moved_and_add_up_to_the_budget() -> None:
    caps = [1000, 400]
    bodies: list[dict[str, Any]] = [
        {"kind": "open", "scope": "sc_1", "terms": {"caps_nano": caps}, "accounts": {}},
        {"kind": "reserve", "scope": "sc_1", "accounts": {"sc_1": {"spent": [0, 0, 0], "reserved": [100, 30, 9]}}},
        {"kind": "spend", "scope": "sc_1", "accounts": {"sc_1": {"spent": [60, 20, 9], "reserved": [-60, -20, -9]}}},
        {"kind": "settle", "scope": "sc_1", "accounts": {"sc_1": {"spent": [0, 0], "reserved": [-40, -10]}}},
    ]
    found = [
        filled(EntryView, {"seq": seq, "kind": body["kind"], "body": json.dumps(body)})
        for seq, body in enumerate(bodies, start=1)
    ]
    lines = shown(ledger_tables.entries(found))
    assert [line.split()[-3:] for line in lines[1:]] == [
        ["-", "-", "0.0000"],
        ["-", "+7.5000", "7.5000"],  # 30 of 400, where 100 of 1000 is more
        ["+5.0000", "-5.0000", "7.5000"],
        ["-", "-2.5000", "5.0000"],
    ]
    assert max(map(len, lines)) <= 120
    assert len(shown(ledger_tables.entries([]))) == 1


def test_keys_show_when_they_end() -> None:
    ends = {"principal": "pr_1", "expires_at": "2027-01-01T00:00:00Z"}
    known = ({"principal": "pr_1"}, ends, ends | {"revoked_at": "2026-11-22T00:00:00Z"})
    keys = [filled(KeyView, one) for one in known]
    lines = shown(tables.keys(keys))
    assert [line.split("pr_1")[1].split() for line in lines[1:]] == [
        ["-", "-"],
        ["-", "2027-01-01", "00:00:00Z"],
        ["-", "revoked", "2026-11-22", "00:00:00Z"],
    ]


def test_times_stay_in_one_piece_on_a_narrow_terminal() -> None:
    row = ("job_" + "1" * 26, "2026-11-28T09:33:12.123456Z", "a name of some length", "-")
    lines = shown(plain_table("", [row, row], left=("id", "at", "name", "other")), width=40)
    assert sum("2026-11-28 09:33:12Z" in line for line in lines) == 2
    assert "".join(line.split()[0] for line in lines[1:] if line[:1].strip()).count("1") == 2 * 26, "no letter is lost"


def test_an_estimate_shows_what_is_reserved_beside_the_price() -> None:
    found = filled(EstimateView, {"cost": {"retry_allowance": {"budget_share": "0.002"}}})
    (line,) = (line for line in shown(estimate_tables.estimate(found)) if "allowance" in line)
    assert line.split("  ", 1)[1].strip() == "0.2 %"


def test_widths_of_counts_without_a_rate_are_shown_as_ranges_with_the_targets_name() -> None:
    prediction = {"coefficients": [{"name": "age", "lowest": 0.01, "highest": 0.3}], "unknown_rate": "visits"}
    found = filled(EstimateView, {"prediction": prediction})
    lines = [" ".join(line.split()) for line in shown(estimate_tables.estimate(found))]
    assert "age - 0.01 .. 0.3 - -" in lines
    assert sum(line.startswith("visits: nobody has said what its mean is") for line in lines) == 1


def test_an_estimate_shows_predicted_widths_and_what_a_goal_takes() -> None:
    width = {"name": "age", "width": 0.02, "nonprivate_width": 0.016, "ratio": 1.25, "lowest": 0.01, "highest": None}
    goal = {"coefficient": "age", "at_most": 0.01, "predicted": 0.02, "met": False, "nonprivate_width": 0.016}
    quoted = {
        "prediction": {"level": 0.95, "coefficients": [width], "useful_from": {"mu": "0.03", "units": 2500}},
        "goal": goal | {"mu": None, "units": 12_345},
    }
    quoted["prediction"] |= {"spread": ["age", "income"], "flags": [{"flag": "too few events", "when": "at worst"}]}
    lines = [" ".join(line.split()) for line in shown(estimate_tables.estimate(filled(EstimateView, quoted)))]
    for said in (
        "predicted widths of 95 % intervals",
        "age 0.02 0.01 .. ? 0.016 1.25",
        "at worst: too few events; all intervals would be withheld.",
        "at this n, from mu 0.03",
        "at this mu, from n 2,500",
        "predicted 0.02, not met",
        "smallest mu none: sampling alone is wider",
        "smallest n 12,345",
        "within twice the non-private width",
    ):
        assert said in lines


def test_an_estimate_shows_what_is_promised_of_the_excess_risk_and_what_a_goal_takes() -> None:
    quoted = {
        "cost": {"mu": None},
        "plan": {"kind": "adaptive_gd", "extremes": [{"sigma": 1.0}]},
        "excess": {
            "value": 0.2,
            "trivial": 0.69,
            "lower": {"value": 1e-4, "exact": False},
            "regimes": {"noise_on_norms": 0.2},
        },
        "goal": {"at_most": 0.1, "predicted": 0.2, "met": False, "mu": "3.5", "rho": "6.125", "units": None},
    }
    lines = [" ".join(line.split()) for line in shown(estimate_tables.estimate(filled(EstimateView, quoted)))]
    for said in (
        "mu -",
        "at most 0.2",
        "without training 0.69",
        "nobody beats 0.0001, in order of magnitude",
        "noise on norms 0.2",
        "wanted excess risk 0.1",
        "promised 0.2, not met",
        "smallest mu 3.5",
        "smallest n -",
    ):
        assert said in lines
    assert not any("extremes" in line for line in lines)


def test_a_ratio_near_one_is_told_from_it() -> None:
    one = OddsRatio(name="balance", odds_ratio=1.0000506, interval=(1.0000281, 1.0000731))
    assert shown(tables.ratios([one], []))[1].split() == ["balance", "1.00005", "[1.00003,", "1.00007]"]


def test_a_title_is_as_long_as_it_is() -> None:
    assert shown(plain_table("a title much longer than its table", [("a", "b")])) == [
        "a title much longer than its table",
        "a  b",
    ]


def test_a_job_that_drew_less_says_what_it_gave_back() -> None:
    def said(returned: str | None) -> str:
        figures = {name: {"budget_share": share} for name, share in (("reserved", "0.04"), ("spent", "0.01"))}
        cost = {**figures, "returned": None if returned is None else {"budget_share": returned}}
        return " ".join(" ".join(shown(job_tables.cost("job_1", filled(JobCost, cost)))).split())

    assert said("0.03").endswith("4 % was reserved, and 3 % was given back")
    assert "given back" not in said("0")
    assert "given back" not in said(None), "it has not ended"
