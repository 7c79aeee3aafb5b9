"""The outsider's program and the service's verification say the same, good or bad, of whatever ledger they are given.

One test drives both over exports that were changed at random, most of them hashed anew, so that only their meaning can
give them away. Where one is laxer than the other, somebody's forged ledger passes with one of them.
"""

import json
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from core.ledger import chain
from core.ledger.tally import Tally
from core.ledger.verification import follow
from examples import verify_ledger as outsider
from tests.test_ledger_format import Story, bodies, exported, hashed_anew

QUICK, LONG = 300, 3000
FUZZ = settings(deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate], derandomize=True)
VALUES: Sequence[Any] = (
    *(
        None,
        True,
        False,
        0,
        1,
        -1,
        2,
        2**62,
        2**63 - 1,
        2**63,
        -(2**63),
        2**64,
        10**30,
        0.0,
        1.0,
        -0.0,
        0.5,
        1e16,
        1e300,
    ),
    *(
        "",
        " ",
        "3",
        "3 ",
        "3.0",
        "03",
        "1e-6",
        "1E-6",
        "0.000001",
        "NaN",
        "Infinity",
        "-1",
        "1/2",
        "2/4",
        "0/1",
        "1/0",
        "²",
    ),
    *("\u0663", "\ud800", "all", [], {}, [0], [[]], [0, 0, 0, 0], [1, {}], {"kind": "composed", "events": []}),
    *(
        {"cap": "all"},
        {"share": "2"},
        {"share": "0"},
        {"share": "0.1"},
        {"epsilon": "3", "rho": None},
        {"kind": "zcdp", "rho": 1},
    ),
    *(
        {"kind": "gaussian", "sigma": 1e-200},
        {"kind": "pure", "epsilon": True},
        {"kind": "repeated", "event": {}, "times": 0},
    ),
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dict[str, Any]]]:
    story = Story(tmp_path_factory.mktemp("story"))
    yield bodies(exported(story.database, story.place.scope_id))
    story.database.dispose()


def by_the_service(lines: Sequence[str]) -> str | None:
    """Return why the service refuses an export; None where it verifies."""
    tally, head = None, chain.GENESIS
    try:
        for line in lines:
            entry = json.loads(line)
            entry["job_id"], at = entry["job"], datetime.fromisoformat(entry["created_at"]).timestamp()
            tally = tally or Tally(json.loads(entry["body"])["scope"])
            head = follow(tally, head, SimpleNamespace(**entry | {"created_at": at}))
    except Exception as error:  # noqa: BLE001 - as `Verifier.verify` has it
        return f"entry {tally.seq + 1 if tally else 1}: {type(error).__name__}: {error}"
    return None if tally else "there is no entry"


def by_the_outsider(lines: Sequence[str]) -> str | None:
    try:
        outsider.verify(lines)
    except outsider.Broken as broken:
        return str(broken)
    return None


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container in a value, with each key that it has."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        yield value, name
        yield from places_in(inner)


def near(value: Any, draw: st.DrawFn) -> Any:
    """Return a value like another one: of the next type, or a little more or less."""
    if isinstance(value, bool) or value is None:
        return draw(st.sampled_from([True, False, None, 0, 1, 0.0]))
    if isinstance(value, int):
        return draw(
            st.sampled_from([value + 1, value - 1, float(value), str(value), -value, value == 1, value + 2**63])
        )
    if isinstance(value, float):
        return draw(st.sampled_from([value + 1, value / 2, int(value), str(value), -value, value + 0.5]))
    if isinstance(value, str):
        changed = [
            value + " ",
            " " + value,
            value + "\u00e9",
            value.upper(),
            value[:-1],
            value + "0",
            value * 2,
            [value],
        ]
        return draw(st.sampled_from([*changed, *([float(value)] if re.fullmatch(r"\d+(\.\d+)?", value) else [])]))
    if isinstance(value, list):
        changed = [value[:-1], [*value, *value[-1:]], value[::-1], [*value, 0], value[1:], dict(enumerate(value[:1]))]
        return draw(st.sampled_from(changed))
    return draw(st.sampled_from([value | {"note": "x"}, list(value.items()), {}, dict(list(value.items())[1:])]))


def change_a_value(told: list[dict[str, Any]], draw: st.DrawFn) -> None:
    """Put something else in some place of a body, or of several that say the same there."""
    body = told[draw(st.integers(0, len(told) - 1))]
    where, name = draw(st.sampled_from(list(places_in(body))))
    how = draw(st.sampled_from(["near", "near", "near", "known", "elsewhere", "gone"]))
    if how == "gone":
        del where[name]
        return
    alike = [there[key] for there, key in places_in(told) if key == name] if how == "elsewhere" else list(VALUES)
    fresh = near(where[name], draw) if how == "near" else draw(st.sampled_from(alike))
    was = where[name]
    where[name] = deepcopy(fresh)  # or a later change may put a value into itself
    if draw(st.booleans()):  # the same wherever the same was said of this job: it may still add up
        for other in told:
            for there, key in list(places_in(other)) if other.get("job") == body.get("job") is not None else ():
                if key == name and outsider.canonical(there[key]) == outsider.canonical(was):
                    there[key] = deepcopy(fresh)


def move_an_entry(told: list[dict[str, Any]], draw: st.DrawFn) -> None:
    """Take an entry out, have it twice, change two, or have a job's entries again as another's."""
    one, other = (draw(st.integers(0, len(told) - 1)) for _ in range(2))
    how = draw(st.sampled_from(["drop", "double", "swap", "again", "cut", "kind"]))
    if how == "drop":
        del told[one]
    elif how == "double":
        told.insert(other, json.loads(json.dumps(told[one])))
    elif how == "swap":
        told[one], told[other] = told[other], told[one]
    elif how == "cut":
        del told[max(one, 1) :]
    elif how == "kind":
        told[one]["kind"] = told[other]["kind"]
    elif told[one]["job"]:
        mine = [body for body in told if body["job"] == told[one]["job"]]
        text = json.dumps(mine).replace(told[one]["job"], "job_copy")
        told += [body | {"at": told[-1]["at"]} for body in json.loads(text)]


def declare_anew(told: list[dict[str, Any]], draw: st.DrawFn) -> None:
    """Declare another budget, and derive its terms from it as the page says, wherever they can be."""
    body = draw(st.sampled_from([one for one in told if "terms" in one]))
    figures = st.sampled_from(
        ["3", "0.3", "8", "1e-6", "0.00001", "1e-9", "0.5", "0", "1e-40", "3.", "+3", "999999", "1e9", "0.01"]
    )
    words = draw(
        st.dictionaries(st.sampled_from(["epsilon", "rho", "delta", "delta"]), figures | st.none(), max_size=3)
    )
    more = {"accept_delta": draw(st.sampled_from([True, False, 1, None]))} if draw(st.integers(0, 3)) == 0 else {}
    share = draw(st.sampled_from([{}, {}, {"share": "0.3"}, {"share": "1"}, {"share": "1.5"}, {"share": "1e-20"}]))
    body["terms"]["declared"] = share or words | more
    ledger = outsider.Ledger()
    ledger.units, ledger.scope = told[0]["units"], "own"
    try:
        ledger.accounts["own"] = outsider.read_terms(told[0]["terms"])
        due = ledger.terms_due(body["terms"]["declared"])
    except (outsider.Broken, KeyError, TypeError, ValueError, ArithmeticError):
        return
    caps = {"orders": due["orders"], "caps_nano": due["caps_nano"], "weights": [str(one) for one in due["weights"]]}
    body["terms"] |= caps | {name: str(due[name]) for name in ("epsilon", "delta")}
    if draw(st.booleans()):
        del told[told.index(body) + 1 :]


def changed_export(draw: st.DrawFn, told: list[dict[str, Any]]) -> list[str]:
    """Return an export that was changed once or twice, most often hashed anew."""
    changed = json.loads(json.dumps(told))
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        if not changed:
            break
        draw(st.sampled_from([change_a_value] * 6 + [move_an_entry] * 2 + [declare_anew] * 2))(changed, draw)
    try:
        lines = hashed_anew(changed, renumber=draw(st.integers(0, 5)) > 0)
    except (KeyError, OSError, OverflowError, TypeError, ValueError):  # a body that no line can be made of
        return []
    if lines and draw(st.integers(0, 9)) == 0:
        place = draw(st.integers(0, len(lines) - 1))
        entry = json.loads(lines[place])
        entry[draw(st.sampled_from(sorted(entry)))] = draw(st.sampled_from(VALUES))
        lines[place] = json.dumps(entry)
    return lines


def drive(told: list[dict[str, Any]], cases: int) -> None:
    """Have both look at so many changed exports, and compare what they say."""
    found = {True: 0, False: 0}
    exports = st.composite(lambda draw: changed_export(draw, told))

    @settings(FUZZ, max_examples=cases)
    @given(lines=exports())
    def compare(lines: list[str]) -> None:
        service, other = by_the_service(lines), by_the_outsider(lines)
        assert (service is None) == (other is None), f"the service: {service}; the outsider: {other}"
        found[service is None] += 1

    compare()
    assert found[False] > cases // 3, f"{found} of {cases}"
    assert found[True] > cases // 50, f"{found} of {cases}: nothing that is good was among them"


def test_both_say_the_same_of_changed_ledgers(told: list[dict[str, Any]]) -> None:
    drive(told, QUICK)


@pytest.mark.slow
def test_both_say_the_same_of_many_changed_ledgers(told: list[dict[str, Any]]) -> None:
    drive(told, LONG)
