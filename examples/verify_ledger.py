"""Recompute hashes, prices, caps and balances of an exported ledger, by docs/reference/ledger-format.md alone.

    farthing entries sc_... --json > ledger.jsonl
    python verify_ledger.py ledger.jsonl [sha256:... of a head that was noted earlier]

It needs mpmath and nothing of Farthing. Status 1: an entry does not follow from those before it, or the head that was
noted is none of its hashes. Numbers of sections are the page's.
"""

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import cache
from hashlib import sha256
from itertools import pairwise
from math import ceil, log, log1p
from pathlib import Path
from typing import Any

from mpmath import mp, mpf

Test = Callable[[Any], bool]
Form = Test | dict[str, Any]
"""The form that a member has to have: a test, or an object of such members."""
Body = dict[str, Any]
Moves = dict[str, tuple[list[int], list[int]]]
"""Spent and reserved that an entry adds, by account."""


def fits(form: Form, value: Any) -> bool:  # noqa: ANN401 - any JSON
    """Say whether a value is of a form: no text is a number, no true is a 1, no 1.0 is a 1."""
    if isinstance(form, dict):
        return type(value) is dict and set(value) == set(form) and all(fits(form[name], value[name]) for name in form)
    return form(value)


def typed(kind: type, low: float = float("-inf"), high: float = float("inf")) -> Test:
    """Return the form of a value of one type; numbers are from `low` to `high`."""

    def holds(x: Any) -> bool:  # noqa: ANN401 - any JSON
        return type(x) is kind and (not isinstance(x, int | float) or low <= x <= high)

    return holds


def many(form: Form, count: int | None = None) -> Test:
    """Return the form of a list, or of an object's values."""

    def holds(x: Any) -> bool:  # noqa: ANN401 - any JSON
        inner = list(x.values()) if type(x) is dict and count is None else x
        return type(inner) is list and count in (None, len(inner)) and all(fits(form, one) for one in inner)

    return holds


def or_null(form: Form) -> Test:
    """Return the form of what may be null."""
    return lambda x: x is None or fits(form, x)


TEXT, FLAG, TIME, COUNT = typed(str), typed(bool), typed(float, 0, 253_402_300_799), typed(int, 1)
FOUR, DRAWS = many(typed(int, 1 - 2**63, 2**63 - 1), 4), typed(int, 0, 2**63 - 1)
DECIMAL: Test = lambda x: type(x) is str and str(Decimal(x)) == x  # noqa: E731 - a form as the others
DIGEST: Test = lambda x: bool(re.fullmatch("sha256:[0-9a-f]{64}", x))  # noqa: E731
RUNS: Test = lambda x: many(many(lambda _: True, 2))(x) and all(fits(COUNT, times) for times, _ in x)  # noqa: E731
TERMS = {"epsilon": DECIMAL, "delta": DECIMAL, "orders": many(typed(int)), "weights": many(DECIMAL)}
TERMS |= {"caps_nano": many(typed(int)), "declared": typed(dict)}
SEEN = {"seq": typed(int, 0), "head": TEXT, "taken": many(FOUR), "draws": many(DRAWS)}
WHY: dict[str, Form] = {"reason": TEXT, "actor": TEXT}
COMMON = {"v": typed(int), "scope": TEXT, "seq": COUNT, "kind": TEXT, "job": or_null(TEXT), "at": TIME}
COMMON |= {"attempt": or_null(typed(int, 0)), "chunk": or_null(typed(int, 0))}
COMMON |= {"accounts": many({"spent": FOUR, "reserved": FOUR})}
MEMBERS: dict[str, dict[str, Form]] = {
    "open": {
        "account": TEXT,
        "terms": TERMS,
        "actor": TEXT,
        "adjacency": TEXT,
        "unit": lambda _: True,
        "units": COUNT,
    },
    "upload": {"dataset": TEXT, "fingerprint": TEXT, "rows": COUNT, "actor": TEXT},
    "grant": {"account": TEXT, "terms": TERMS, "principal": TEXT, "actor": TEXT, "closed": FLAG},
    "reserve": {"schedule": RUNS, "retry_allowance": typed(int, 0), "draws": DRAWS, "dataset": TEXT, "actor": TEXT},
    "read": {},
    "spend": {"event": RUNS, "again": FLAG},
    "charge": {"event": RUNS, "reason": TEXT},
    "settle": {"reason": TEXT, "draws": DRAWS},
    "compensate": {"fraction": lambda x: bool(re.fullmatch("[0-9]{1,18}(/[0-9]{1,18})?", x)), **WHY},
    "withhold": {},
    "decide": {"outcome": lambda x: x in ("approved", "rejected"), **WHY},
    "freeze": WHY,
    "unfreeze": WHY,
    "reconcile": {"seen": or_null(SEEN), **WHY},
    "unwitnessed": {"since": TIME, "until": TIME, **WHY},
    "accept": {"entry": COUNT, **WHY},
    "recovery": {"key": TEXT, "principal": TEXT, "starts_at": TIME, **WHY},
}
SINCE_2: dict[str, dict[str, Form]] = {
    "upload": {"columns": DIGEST, "approval": FLAG},
    "reserve": {"spec": DIGEST},
    "settle": {"release": or_null(DIGEST)},
}
"""Members that version 1 has not."""
MAYBE: dict[str, dict[str, Form]] = {"reserve": {"runs": typed(int, 1, 10)}}
"""Members of version 2 that may be left out."""
FIGURE = "[0-9]{1,6}([.][0-9]{1,12})?(e-[0-9]{1,2})?"
LEAVES = {"gaussian": "sigma", "zcdp": "rho", "pure": "epsilon", "bounded_range": "epsilon", "sampled": "sigma"}
WEIGHTS = ("0.699", "0.1", "0.1", "0.1")
NOTHING = {"kind": "composed", "events": []}
ZERO = [0, 0, 0, 0]
ADJACENCIES = ("zero_out", "replace_one")
STILL = MEMBERS.keys() - {"reserve", "read", "spend", "charge", "settle", "compensate", "withhold", "decide"}
"""Kinds that are about no job."""


class Broken(Exception):
    """An entry does not follow from those before it."""


def need(holds: object, why: str) -> None:
    """Stop where something does not hold."""
    if not holds:
        raise Broken(why)


def canonical(value: object) -> str:
    """Section 3."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def add(one: list[int], other: list[int], sign: int = 1) -> list[int]:
    """Add two amounts, or take the second away."""
    return [x + sign * y for x, y in zip(one, other, strict=True)]


# Section 5: prices ---------------------------------------------------------------------------------------------------


@cache
def units(text: str, a: int) -> int:
    """Price an event at an integer order, in units of 1e-30 nats, rounded up."""
    event = json.loads(text)
    kind, inner = event["kind"], {"repeated": {"event", "times"}, "composed": {"events"}, "disjoint": {"events"}}
    inner["selected"] = {"event", "means", "slots"}
    own = inner.get(kind) or {LEAVES[kind]} | ({"numerator"} if kind == "sampled" else set())
    need(set(event) == {"kind"} | own, "its event has other members than its kind")
    if kind == "repeated":
        need(type(event["times"]) is int and event["times"] >= 1, "its event is repeated no whole number of times")
        return int(event["times"]) * units(canonical(event["event"]), a)
    if kind == "selected":
        groups = [*zip(event["means"], event["slots"], strict=True)]
        fit = all(type(m) is float and m > 0 and type(k) is int and 1 <= k <= 2**16 for m, k in groups)
        need(groups and fit, "its event has groups without a mean or slots")
        return selected(canonical(event["event"]), groups, a)
    if kind in inner:
        need(type(event["events"]) is list, "its event has no list of parts")
        parts = [units(canonical(part), a) for part in event["events"]]
        return sum(parts) if kind == "composed" else max(parts, default=0)
    need(type(event[LEAVES[kind]]) is float and event[LEAVES[kind]] > 0, "its event has no such figure")
    x = Fraction(event[LEAVES[kind]])
    if kind == "sampled":
        need(type(event["numerator"]) is int and 0 <= event["numerator"] <= 2**64, "its event samples at no rate")
        if event["numerator"] < 2**64:
            return sampled(event["numerator"], event["sigma"], a) if event["numerator"] else 0
    nats = {
        "gaussian": a / (2 * x * x),
        "sampled": a / (2 * x * x),
        "zcdp": x * a,
        "pure": min(x, a * x * x / 2),
        "bounded_range": min(x, a * x * x / 8),
    }
    return ceil(nats[kind] * 10**30)


def sampled(numerator: int, sigma: float, a: int) -> int:
    """Price a sampled answer: with so many digits that the error decides nothing."""
    digits = 100
    while True:
        with mp.workdps(digits):
            q, s = mpf(numerator) / 2**64, mpf(sigma)
            terms = (
                mp.binomial(a, k) * (1 - q) ** (a - k) * q**k * mp.exp((k * k - k) / (2 * s * s)) for k in range(a + 1)
            )
            price = mp.log(mp.fsum(terms)) / (a - 1) * mpf(10) ** 30
            error = (price + mpf(10) ** 30) * mpf(10) ** (20 - digits)
            low, high = int(mp.ceil(price - error)), int(mp.ceil(price + error))
        if low == high:
            return low
        digits *= 2


def selected(text: str, groups: list[Any], a: int) -> int:
    """Price the best of several runs, likewise."""
    own = units(text, a)
    if own >= 2**62 * 10**21:
        return 2**62 * 10**21
    orders = [*range(2, 17), *(i * 2**k for k in range(1, 9) for i in range(9, 17))]
    digits = 100
    while True:
        with mp.workdps(digits):
            nat = mpf(10) ** 30
            delta = min(
                mp.exp((b - 1) * units(text, b) / nat) * (mpf(a - 1) / a) ** (b - 1) * (1 - mpf(1) / b) ** (b - 1) / b
                for b in orders
            )
            nothing, late = mpf(1), mpf(0)
            for m, most in groups:
                terms = [mpf(1)]
                for k in range(1, most + 1):
                    terms.append(terms[-1] * mpf(m) / k)
                nothing /= mp.fsum(terms)
                late += m * terms[-2] / mp.fsum(terms[:-1])
            mean = mp.fsum(mpf(m) for m, _ in groups)
            power = (a - 1) * (own / nat + mean * min(delta, mpf(1))) + a * late
            price = mp.log(nothing + mean * mp.exp(power)) / (a - 1) * nat
            error = (price + nat) * mpf(10) ** (20 - digits)
            low, high = int(mp.ceil(price - error)), int(mp.ceil(price + error))
        if low == high or digits >= 1000:  # noqa: PLR2004 - as section 5 says
            return min(high, 2**62 * 10**21)
        digits *= 2


def parts_of(event: Any) -> list[Any]:  # noqa: ANN401 - any JSON
    """Return the events inside an event; none inside a leaf."""
    return [event["event"]] if "event" in event else event.get("events", [])


def is_sampled(event: Any) -> bool:  # noqa: ANN401 - as above
    """Say whether any part of an event is of a sample."""
    return event["kind"] == "sampled" or any(map(is_sampled, parts_of(event)))


def answers(event: Any) -> int:  # noqa: ANN401 - as above
    """Section 6: the least units of draws that an event takes."""
    inner = [answers(part) for part in parts_of(event)]
    if event["kind"] in LEAVES or event["kind"] == "selected":
        return 1
    return max(inner, default=0) if event["kind"] == "disjoint" else sum(inner) * event.get("times", 1)


def nano(total: int) -> int:
    """Round up to nano-nats."""
    return min(-(-total // 10**21), 2**62)


def slots(amounts: Iterable[int]) -> list[int]:
    """Pad amounts to four slots."""
    return [*amounts, *ZERO][:4]


def price(events: list[str], orders: list[int]) -> list[int]:
    """Price events together, in four slots."""
    return slots(nano(sum(units(event, a) for event in events)) for a in orders)


# Section 4: terms ----------------------------------------------------------------------------------------------------


def cap(epsilon: Decimal, delta: Decimal, a: int) -> int:
    """Return the cap of an order, delta its part."""
    with mp.workdps(60):
        nats = mpf(str(epsilon)) - mp.log1p(-mpf(1) / a) + mp.log(mpf(str(delta)) * a) / (a - 1)
        return int(mp.floor(nats * 10**9)) - 1


def room(account: Body) -> int:
    """Return the units of draws that terms have room for."""
    with mp.workdps(100):
        epsilon, left = mpf(str(account["epsilon"])), mpf(str(account["delta"]))
        for a, most in zip(account["orders"], account["caps_nano"], strict=True):
            left -= mp.exp((a - 1) * (mpf(most) / 10**9 - epsilon)) * (1 - mpf(1) / a) ** (a - 1) / a if most else 0
        return max(0, min(2**62, int(mp.floor(left / (1 + mp.exp(epsilon)) * mpf(2) ** 108))))


def epsilon_of(rho: Decimal, delta: Decimal) -> Decimal:
    """Return the epsilon of a budget that was declared as rho."""
    with mp.workdps(40):
        r, d = mpf(str(rho)), mpf(str(delta))
        low, high = mpf(1) + mpf(10) ** -30, 2 + 2 * mp.sqrt(-mp.log(d) / r)
        for _ in range(200):
            a = (low + high) / 2
            low, high = (a, high) if r + mp.log(d * a) / (a - 1) ** 2 < 0 else (low, a)  # the slope
        least = r * a + mp.log1p(-1 / a) - mp.log(d * a) / (a - 1)
        return Decimal(int(mp.floor(least * (1 - mpf(10) ** -12) * 10**6))) / 10**6


def figure_of(text: str) -> Decimal:
    """Return a figure as its owner wrote it."""
    need(re.fullmatch(FIGURE, text) and Decimal(text).adjusted() >= -99, "a figure of its budget is none")  # noqa: PLR2004 - the page's
    return Decimal(text)


def terms_of(declared: Body, n: int) -> Body:
    """Return the terms that follow from a declared budget and the number of units."""
    digits = len(str(n - 1)) if n > 1 else 0
    words = {"epsilon", "rho", "delta"}
    need(set(declared) <= words | {"accept_delta", "accept_weak_privacy"}, "its budget is declared by unknown words")
    need(all(type(declared[name]) is bool for name in set(declared) - words), "what it accepts is not true or false")
    told = {name: figure_of(declared[name]) for name in words & set(declared) if declared[name] is not None}
    need(("rho" in told) != ("epsilon" in told) and all(told.values()), "its budget is no epsilon and no rho")
    delta = told.get("delta", Decimal(f"1e-{max(5, digits + 2)}"))
    need(delta <= Decimal("0.01"), "its delta is too large")
    epsilon = epsilon_of(told["rho"], delta) if "rho" in told else told["epsilon"]
    need(epsilon > 0, "its budget is too small")
    e, d = float(epsilon), float(delta)
    leading = max(range(2, 10_001), key=lambda a: (e - log1p(-1 / a) + log(d * a) / (a - 1)) / a)
    weights: dict[int, Decimal] = {}
    wanted = (leading, round(Fraction(3 * leading, 4)), round(Fraction(3 * leading, 5)), 2 * leading)
    for order, weight in zip(wanted, WEIGHTS, strict=True):
        weights[max(order, 2)] = weights.get(max(order, 2), Decimal(0)) + Decimal(weight)
    caps = {a: cap(epsilon, w * delta, a) for a, w in weights.items()}
    orders = [a for a in weights if caps[a] > 0]
    need(orders, "its budget is too small")
    shape = {"orders": orders, "weights": [weights[a] for a in orders], "delta": delta}
    return {**shape, "epsilon": epsilon, "caps_nano": [caps[a] for a in orders]}


def read_terms(told: Body) -> Body:
    """Return terms as an entry tells them, to compare."""
    figures = {name: Decimal(told[name]) for name in ("epsilon", "delta")}
    weights = [Decimal(weight) for weight in told["weights"]]
    return {"orders": told["orders"], "weights": weights, **figures, "caps_nano": told["caps_nano"]}


# Sections 2, 3 and 6: entries ----------------------------------------------------------------------------------------


class Ledger:
    """The state that the entries of a scope add up to."""

    def __init__(self) -> None:
        self.head, self.seq, self.at, self.v = "sha256:" + 64 * "0", 0, 0.0, 1
        self.heads = {self.head}
        self.scope, self.owner, self.units, self.adjacency = "", "", 0, ""
        self.unit: Any = None
        self.accounts: dict[str, Body] = {}
        self.jobs: dict[str, Body] = {}
        self.frozen, self.waits = False, 0
        self.datasets: set[str] = set()
        self.approval: bool | None = None
        self.withheld: dict[str, bool] = {}
        self.given_back: list[float] = []
        self.charged: Counter[str] = Counter()

    def follow(self, line: str) -> None:
        """Take the next entry of the export."""
        entry = json.loads(line)
        text, previous, self.seq = entry["body"], self.head, self.seq + 1
        self.head = "sha256:" + sha256(f"{previous}\n{text}".encode("ascii")).hexdigest()
        self.heads.add(self.head)
        need((entry["prev_hash"], entry["hash"]) == (previous, self.head), "its hash does not follow")
        body = json.loads(text)
        need(canonical(body) == text, "its body is not in the canonical form")
        json.dumps(body, ensure_ascii=False).encode()  # no half of a surrogate pair
        need(
            type(body["v"]) is int and body["v"] in (1, 2),
            f"it is of version {body['v']}, and this program reads 1 and 2",
        )
        need(body["v"] >= self.v, "its version is lower than that of the entry before")
        self.v = body["v"]
        shown = ("seq", "kind", "job", "attempt", "chunk")
        need([entry[name] for name in shown] == [body[name] for name in shown], "it is shown as something else")
        self.scope = self.scope or body["scope"]
        need((body["scope"], body["seq"]) == (self.scope, self.seq), "it is missing, or of another scope")
        beside: dict[str, Form] = {"identity": DIGEST} if body["kind"] == "upload" and "identity" in body else {}
        if self.v > 1:
            maybe = MAYBE.get(body["kind"], {})
            beside |= SINCE_2.get(body["kind"], {}) | {name: maybe[name] for name in maybe.keys() & body.keys()}
        need(fits(COMMON | MEMBERS[body["kind"]] | beside, body), "its members are not those of its kind")
        shown_at = datetime.fromtimestamp(body["at"], UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        need(entry["created_at"] == shown_at, "it is shown as of another time")
        need((body["kind"] == "open") == (self.seq == 1), "the first entry opens the scope, and no other")
        need(body["at"] == int(body["at"]) and body["at"] >= self.at, "its time goes back, or is no whole second")
        due: Moves = getattr(self, body["kind"])(body) or {}
        moved = {name: (one["spent"], one["reserved"]) for name, one in body["accounts"].items()}
        need(canonical(moved) == canonical(due), f"it moves {moved}, and {due} follows")
        if body["kind"] in STILL:
            need((body["job"], body["attempt"], body["chunk"]) == (None, None, None), "it names a job")
        for name, (spent, reserved) in due.items():
            account = self.accounts[name]
            account["spent"], account["reserved"] = add(account["spent"], spent), add(account["reserved"], reserved)
            self.within(account)
        self.at = body["at"]

    def within(self, account: Body) -> None:
        """Section 6: no total below 0, and within the cap at some order."""
        need(min(account["spent"] + account["reserved"]) >= 0, "a total falls below 0")
        taken = add(account["spent"], account["reserved"])
        need(any(x <= y for x, y in zip(taken, account["caps_nano"], strict=False)), "it passes the cap at every order")
        need(
            account["principal"] or account["draws"] <= room(account),
            "its jobs may draw more than its terms have room for",
        )

    def open(self, body: Body) -> None:
        """Open the scope's account."""
        self.owner, self.units, self.unit = body["actor"], body["units"], body["unit"]
        self.adjacency = body["adjacency"]
        by_user = fits({"user_column": TEXT, "max_records": COUNT}, self.unit)
        need(self.v == 1 or self.adjacency in ADJACENCIES, "there is no such adjacency")
        need(self.v == 1 or self.unit == "record" or by_user, "there is no such unit")
        need(body["account"] == self.scope, "the scope's account has another name")
        self.set_terms(body, None)

    def grant(self, body: Body) -> None:
        """Make, change or close a grant, or open it again."""
        owner = {one["principal"]: name for name, one in self.accounts.items()}
        need(owner.get(body["principal"], body["account"]) == body["account"], "this principal has another grant")
        before = self.accounts.get(body["account"], {}).get("declared")
        need(not body["closed"] or before == body["terms"]["declared"], "it closes a grant, and changes it")
        self.set_terms(body, body["principal"])
        self.accounts[body["account"]] |= {"closed": body["closed"], "declared": body["terms"]["declared"]}

    def terms_due(self, declared: Body) -> Body:
        """Section 4: a budget's terms, or those of a part of the scope's."""
        share = Fraction(1) if declared == {"cap": "all"} else None
        if set(declared) == {"share"}:
            share = Fraction(figure_of(declared["share"]))
        if share is None:
            return terms_of(declared, self.units)
        scope = self.accounts[self.scope]
        kept = {name: scope[name] for name in ("orders", "weights", "delta", "epsilon")}
        need(share <= 1 and any(int(share * one) for one in scope["caps_nano"]), "its share is none")
        return kept | {"caps_nano": [int(share * one) for one in scope["caps_nano"]]}

    def set_terms(self, body: Body, principal: str | None) -> None:
        """Section 4: derive terms, and put them on an account."""
        told, due = read_terms(body["terms"]), self.terms_due(body["terms"]["declared"])
        fresh = {"spent": ZERO, "reserved": ZERO, "draws": 0, "principal": principal}
        account = self.accounts.setdefault(body["account"], fresh | due)
        need(account["principal"] == principal, "the account is another principal's")
        if any(add(account["spent"], account["reserved"])):
            need(due["delta"] == account["delta"], "a grant that was used gets another delta")
            if (due["orders"], due["weights"]) != (account["orders"], account["weights"]):
                need({"epsilon", "rho"} & set(body["terms"]["declared"]), "a grant that was used gets other orders")
                due = {name: account[name] for name in ("orders", "weights", "delta")} | {"epsilon": due["epsilon"]}
                pairs = zip(due["orders"], due["weights"], strict=True)
                due["caps_nano"] = [max(0, cap(due["epsilon"], w * due["delta"], a)) for a, w in pairs]
        need(told == due, f"its terms do not follow from the declared budget: {due}")
        account |= due
        self.within(account)

    def reserve(self, body: Body) -> Moves:
        """Reserve a job's worst case."""
        need(body["job"] is not None and body["job"] not in self.jobs, "its job was reserved for before, or is none")
        need((body["attempt"], body["chunk"]) == (0, 0) and not self.frozen and not self.waits, "the scope was frozen")
        has = body["dataset"] in self.datasets or (self.v == 1 and not self.datasets)
        need(has, "the records that it reads never came into the scope")
        runs = body["schedule"]
        need(all(one[1] != two[1] for one, two in pairwise(runs)), "two runs of its schedule are alike")
        need(1 <= sum(times for times, _ in runs) <= 100, "a job has 1 to 100 chunks")  # noqa: PLR2004 - the page's
        events = [canonical(event) for times, event in runs for _ in range(times)]
        if self.v > 1:
            sampled_at = self.adjacency != "zero_out" and any(is_sampled(event) for _, event in runs)
            need(not sampled_at, "samples have no price under this adjacency")
            least = sum(times * answers(event) for times, event in runs)
            need(body["draws"] >= least, "it reserves fewer draws than it has answers")
        payers = {name for name in body["accounts"] if name != self.scope}
        need(self.scope in body["accounts"], "the scope's account pays nothing")
        need(not any(self.accounts[name]["closed"] for name in payers), "it pays from a grant that was closed")
        own = {name for name, one in self.accounts.items() if one["principal"] == body["actor"] and not one["closed"]}
        need(payers == own, "it pays from another's grant, or not from its own")
        held, left, totals = {}, {}, {}
        for name in body["accounts"]:
            orders = self.accounts[name]["orders"]
            totals[name] = [price(events[:k], orders) for k in range(len(events) + 1)]
            once = [price([event], orders) for event in dict.fromkeys(events)]
            left[name] = [body["retry_allowance"] * max(amounts) for amounts in zip(*once, strict=True)]
            held[name] = add(totals[name][-1], left[name])
        job = {
            "events": events,
            "totals": totals,
            "left": left,
            "held": dict(held),
            "over": False,
            "compensated": False,
            "reader": 0,
            "readings": 0,
            "kept": False,
        }
        job |= {"charged": dict.fromkeys(held, ZERO), "drawn": Counter(), "paid": 0, "attempt": 0, "due": 0}
        job |= {"draws": body["draws"], "runs": body.get("runs", 1)}
        need(body["draws"] % body.get("runs", 1) == 0, "its runs draw unequally")
        self.jobs[body["job"]] = job
        self.count(job, body["draws"])
        return {name: (ZERO, amount) for name, amount in held.items()}

    def count(self, job: Body, draws: int) -> None:
        """Section 4: units of draws, which a job reserves at each of its accounts, or gives back."""
        for name in job["held"]:
            self.accounts[name]["draws"] += draws

    def live(self, body: Body) -> Body:
        """Return the job that an entry is about, which is not over."""
        need(body["job"] in self.jobs and not self.jobs[body["job"]]["over"], "its job is not live")
        return self.jobs[body["job"]]

    def pay(self, job: Body, amounts: dict[str, list[int]], drawn: list[str]) -> Moves:
        """Move amounts from what a job has reserved to what is spent."""
        for name, amount in amounts.items():
            job["held"][name] = add(job["held"][name], amount, -1)
            job["charged"][name] = add(job["charged"][name], amount)
            need(min(job["held"][name]) >= 0, "it spends more than was reserved for its job")
        job["drawn"].update(drawn)
        self.charged.update(drawn)
        return {name: (amount, add(ZERO, amount, -1)) for name, amount in amounts.items()}

    def read(self, body: Body) -> None:
        """Let an attempt read records: its job's charge is kept from here on."""
        job, attempt = self.live(body), body["attempt"]
        need(self.v > 1, "version 1 has no such kind")
        need(body["chunk"] == 0 and attempt > job["reader"] and attempt >= max(1, job["attempt"]), "it is out of turn")
        job |= {"reader": attempt, "readings": job["readings"] + 1, "kept": True}

    def spend(self, body: Body) -> Moves:
        """Pay for a chunk before it is read."""
        job, k, attempt = self.live(body), body["chunk"], body["attempt"]
        need(0 <= k < len(job["events"]) and attempt >= max(1, job["attempt"]), "it is of no such chunk or attempt")
        if attempt == job["attempt"]:
            need(k == job["due"], f"chunk {job['due']} of this attempt is due")
        need(
            k <= job["paid"] and (attempt == job["attempt"] or k == job["paid"] or not is_stream(job["events"])),
            "it is not due",
        )
        need(self.v == 1 or attempt == job["reader"], "no entry says that its attempt may read")
        need(body["again"] is (k < job["paid"]), "whether it pays again is told wrongly")
        need(canonical(body["event"]) == f"[[1,{job['events'][k]}]]", "its event is not that of its chunk")
        amounts = {}
        for name, totals in job["totals"].items():
            amounts[name] = add(totals[k + 1], totals[k], -1)
            if body["again"]:
                amounts[name] = price([job["events"][k]], self.accounts[name]["orders"])
                job["left"][name] = add(job["left"][name], amounts[name], -1)
                need(min(job["left"][name]) >= 0, "the allowance does not pay for it")
        job |= {"attempt": attempt, "due": k + 1, "paid": max(job["paid"], k + 1), "kept": True}
        return self.pay(job, amounts, [job["events"][k]])

    def charge(self, body: Body) -> Moves:
        """Spend all that a job has left."""
        job = self.live(body)
        events, orders = job["events"], self.accounts[self.scope]["orders"]
        need(body["chunk"] == len(events) and body["attempt"] >= job["attempt"], "it is not of the schedule's end")
        kinds = list(dict.fromkeys(events))
        dearest = (
            kinds[0] if len(kinds) == 1 else canonical({"kind": "disjoint", "events": [json.loads(e) for e in kinds]})
        )
        pairs = zip(job["left"][self.scope], price([dearest], orders), strict=True)
        drawn = events[job["paid"] :] + [dearest] * min((rest // once for rest, once in pairs if once), default=0)
        told = [canonical(event) for times, event in body["event"] for _ in range(min(times, 999))]
        need(told == drawn and all(x[1] != y[1] for x, y in pairwise(body["event"])), "its events are not those left")
        job |= {"over": True, "paid": len(events), "kept": job["kept"] or self.v == 1}
        return self.pay(job, dict(job["held"]), drawn)

    def settle(self, body: Body) -> Moves:
        """Give back what a job has left."""
        job = self.live(body)
        need((body["attempt"], body["chunk"]) == (0, 0), "it is of a chunk")
        job["over"] = True
        named = self.v == 1 or (body["release"] is not None) == (body["reason"] == "succeeded")
        need(named, "it names a release where there is none, or none where there is one")
        left = (
            job["draws"] // job["runs"] * max(0, job["runs"] - max(1, job["readings"])) if job["paid"] else job["draws"]
        )
        need(body["draws"] == left, "it gives back draws that may have been made, or keeps others")
        self.count(job, -body["draws"])
        return {name: (ZERO, add(ZERO, held, -1)) for name, held in job["held"].items()}

    def compensate(self, body: Body) -> Moves:
        """Give back a share of a charge, once."""
        job = self.jobs.get(body["job"], {})
        need(job and job["over"] and job["paid"] and not job["compensated"], "its job has no charge to give back")
        need(self.v == 1 or not job["kept"], "its job may have read records")
        part = Fraction(body["fraction"])
        need(0 < part <= 1 and (body["attempt"], body["chunk"]) == (0, 0), "its share is none")
        need(sum(at > body["at"] - 86_399 for at in self.given_back) < 10, "ten were made within a day")  # noqa: PLR2004 - the page's
        self.given_back.append(body["at"])
        job["compensated"] = True
        if part == 1:
            self.charged -= job["drawn"]
        return {name: ([-int(part * x) for x in amount], ZERO) for name, amount in job["charged"].items()}

    def upload(self, body: Body) -> None:
        """Note records that came into the scope."""
        need(body["dataset"] not in self.datasets, "its dataset came into the scope before")
        is_first = self.v > 1 and self.unit == "record" and not self.datasets
        need(
            not is_first or body["rows"] == self.units,
            "the scope's first records are of another number than its budget",
        )
        need(self.approval in (None, body.get("approval")), "its rule of approval is not that of the records before")
        self.approval = body.get("approval")
        self.datasets.add(body["dataset"])

    def withhold(self, body: Body) -> None:
        """Have a job's release wait for the owner."""
        self.beside(body)
        need(body["job"] not in self.withheld, "its release was withheld before")
        self.withheld[body["job"]] = True

    def decide(self, body: Body) -> None:
        """Note the owner's word on it."""
        self.beside(body)
        need(body["actor"] == self.owner and self.withheld.get(body["job"]), "no release waits for this word")
        self.withheld[body["job"]] = False

    def beside(self, body: Body) -> None:
        """Section 6: an entry about a job that may have ended."""
        need(self.v > 1, "version 1 has no such kind")
        need(body["job"] is not None and (body["attempt"], body["chunk"]) == (0, 0), "it names no job")

    def freeze(self, _: Body) -> None:
        """Stop."""
        need(not self.frozen, "the scope was frozen before")
        self.frozen = True

    def unfreeze(self, _: Body) -> None:
        """Go on."""
        need(self.frozen, "the scope was not frozen")
        self.frozen = False

    def unwitnessed(self, body: Body) -> None:
        """Go on without a witness, once the owner accepts."""
        need(
            (body["since"], body["until"]) == (self.at, body["at"]),
            "its range of time is not that since the last entry",
        )
        self.waits = self.seq

    def accept(self, body: Body) -> None:
        """Accept that."""
        need(self.waits and (body["actor"], body["entry"]) == (self.owner, self.waits), "nothing waits for this word")
        self.waits = 0

    def recovery(self, body: Body) -> None:
        """Note a key that the operator made for the owner."""
        need(body["principal"] == self.owner, "it is not the owner's key")

    def reconcile(self, body: Body) -> Moves:
        """Raise what is spent to what was witnessed."""
        need(all(job["over"] for job in self.jobs.values()), "a job is live")
        raised = {}
        for name, account in self.accounts.items():
            taken = add(account["spent"], account["reserved"])
            seen = (body["seen"] or {"taken": {}})["taken"].get(name, taken)
            more = add(seen, taken, -1)
            missing = [max(0, x) if j < len(account["caps_nano"]) else 0 for j, x in enumerate(more)]
            free = [x - y for x, y in zip(account["caps_nano"], taken, strict=False)]
            slot = min((missing[j] - left, j) for j, left in enumerate(free) if left >= 0)[1]
            if any(missing):
                missing[slot] = min(missing[slot], free[slot])
                raised[name] = (missing, ZERO)
            draws = (body["seen"] or {"draws": {}})["draws"].get(name, 0)
            account["draws"] = max(account["draws"], min(draws, room(account)))
        if any(raised.get(self.scope, (ZERO,))[0]):
            self.charged["forgotten"] += 1
        return raised


def is_stream(events: list[str]) -> bool:
    """Section 5: the first chunk of each pass pays for all of it."""
    priced = [place for place, event in enumerate(events) if event != canonical(NOTHING)]
    length = len(events) // max(len(priced), 1)
    return length > 1 and priced == list(range(0, len(events), length)) and len(events) == len(priced) * length


# Section 7: what people are shown ------------------------------------------------------------------------------------


def figure(value: Decimal) -> str:
    """Write a figure the short way."""
    value = value.normalize()
    digits, exponent = value.as_tuple().digits, int(value.as_tuple().exponent)
    if not value or (exponent >= -12 and len(digits) + exponent > -4):  # noqa: PLR2004 - the page's
        return format(value, "f")
    text = "".join(map(str, digits))
    return text[0] + (f".{text[1:]}" if text[1:] else "") + f"e{exponent + len(digits) - 1}"


def percent(amounts: list[int], caps: list[int]) -> Decimal:
    """Return the least share of a cap, in per cent, rounded up."""
    least = min(
        (Fraction(100 * amount, top) for amount, top in zip(amounts, caps, strict=False) if top), default=Fraction(100)
    )
    places = max(4, 3 - (Decimal(least.numerator) / least.denominator).adjusted()) if least else 4
    return Decimal(ceil(least * 10**places)).scaleb(-places)


def shown(value: Any, rounding: str) -> str:  # noqa: ANN401 - a number of mpmath, which has no types
    """Write four digits of a figure, kept 1e-12 of it to the other side."""
    exact = Decimal(mp.nstr(value * (1 + mpf(10) ** -12 * (1 if rounding == ROUND_FLOOR else -1)), 30))
    return figure(Context(prec=max(4, exact.adjusted() + 1), rounding=rounding).plus(exact))


def epsilon_at(mu_squared: Fraction, delta: Decimal) -> Any:  # noqa: ANN401 - as above
    """Return the least epsilon at delta of Gaussian answers."""
    with mp.workdps(50):
        mu = mp.sqrt(mpf(mu_squared.numerator) / mu_squared.denominator)
        if not mu:
            return mpf(0)
        low, high = mpf(0), mu * mu + 2 * mu * mp.sqrt(-mp.log(mpf(str(delta))))
        for _ in range(150):
            e = (low + high) / 2
            over = mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu) > mpf(str(delta))
            low, high = (e, high) if over else (low, e)
        return high


def budget(ledger: Ledger, name: str) -> dict[str, Any]:
    """Return what people are shown of an account."""
    account = ledger.accounts[name]
    caps, taken = account["caps_nano"], add(account["spent"], account["reserved"])
    spent, used = percent(account["spent"], caps), percent(taken, caps)
    most = max(Fraction(top - x, a) for top, x, a in zip(caps, taken, account["orders"], strict=False))
    left = epsilon_at(max(Fraction(0), most) * 2 / 10**9, account["delta"])
    events = [
        (json.loads(text), times) for text, times in ledger.charged.items() if text.startswith('{"kind":"gaussian"')
    ]
    mu_squared = sum((times / Fraction(event["sigma"]) ** 2 for event, times in events), Fraction(0))
    known = len(events) == len(ledger.charged) and name == ledger.scope
    return {
        "budget_share": {
            "spent": figure(spent.scaleb(-2)),
            "reserved": figure((used - spent).scaleb(-2)),
            "remaining": figure(max(100 - used, Decimal(0)).scaleb(-2)),
        },
        "epsilon": {
            "total": figure(account["epsilon"]),
            "spent": shown(epsilon_at(mu_squared, account["delta"]), ROUND_CEILING) if known else None,
            "remaining": shown(left, ROUND_FLOOR),
        },
        "delta": figure(account["delta"]),
        "spent_nano": account["spent"],
        "reserved_nano": account["reserved"],
        "caps_nano": caps,
    }


def verify(lines: Iterable[str]) -> Ledger:
    """Follow a ledger from its first entry."""
    ledger = Ledger()
    for line in lines:
        try:
            ledger.follow(line)
        except (Broken, KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as fault:
            raise Broken(f"entry {ledger.seq}: {fault or type(fault).__name__}") from fault
    need(ledger.seq, "there is no entry")
    return ledger


if __name__ == "__main__":
    if sys.argv[1:2] in ([], ["-h"], ["--help"]):
        sys.exit(__doc__)
    try:
        found = verify(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())
        need(found.heads.issuperset(sys.argv[2:]), "the head that was noted is none of its hashes")
    except Broken as broken:
        sys.exit(str(broken))
    print(f"{found.scope}: {found.seq} entries follow from each other; head {found.head}")
    for account_name in found.accounts:
        print(account_name, json.dumps(budget(found, account_name)))
