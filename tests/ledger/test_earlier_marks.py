"""Marks that an earlier release left: of use after an upgrade, where they lead to the state of a whole pass."""

import ast
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from core.base.canonical import canonical
from core.base.settings import ServiceSettings
from core.db.database import Database
from core.db.service_tables import VerifiedHead
from core.db.tables import Entry, Scope
from core.jobs import jobs
from core.ledger import chain, kinds, ledger, rules
from core.ledger.marks import MarkKey, read_mark, write_mark
from core.ledger.states import UnreadableStateError, read_state
from core.ledger.verification import Verifier
from core.ledger.witness import trusting
from core.ledger.witness.trusting import mark_keys
from tests.ledger.test_forgeries import history
from tests.support.embedded import ROOT
from tests.support.release_home import load

STOPPED = ROOT / "tests" / "data" / "home-0.1.0-stopped"
KEY = MarkKey(b"k" * 32)


@dataclass
class Home:
    """A home that 0.1.0 left as its processes were killed: one job had paid for 50 chunks, one was queued."""

    settings: ServiceSettings
    database: Database
    scope_id: str
    running: str
    queued: str


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    load(STOPPED, tmp_path / "home")
    settings = ServiceSettings(home=tmp_path / "home")
    database = Database(settings.url)
    database.migrate()
    with database.read() as session:
        scope_id = session.execute(select(Scope.id)).scalar_one()
        found = {job.state: job.id for job in session.execute(select(ledger.Job)).scalars()}
    yield Home(settings, database, scope_id, found["running"], found["queued"])
    database.dispose()


def as_0_1_0_wrote(text: str) -> str:
    """Return a state as 0.1.0 wrote it."""
    told: dict[str, Any] = json.loads(text)
    del told["form"], told["version"], told["withheld"], told["approval"]
    told["uploads"] = {dataset: facts[:5] for dataset, facts in told["uploads"].items()}
    for job in told["live"].values():
        del job["reader"], job["runs"], job["readings"], job["may_have_read"], job["spec"]
    return canonical(told)


def test_a_mark_of_0_1_0_counts_and_is_the_state_of_a_whole_pass(home: Home) -> None:
    with home.database.read() as session:
        row = session.execute(select(VerifiedHead)).scalar_one()
        assert "version" not in json.loads(row.state)
        found = read_mark(session, home.scope_id, mark_keys(home.settings))
        assert found is not None
        whole = Verifier(home.scope_id)
        assert whole.advance(session, row.seq) is None, "there are entries behind it"
        assert found.text() == whole.state.text()
        assert as_0_1_0_wrote(found.text()) == row.state
    live = found.tally.live
    assert (live[home.running].may_have_read, live[home.queued].may_have_read) == (True, False)


def test_at_each_entry_the_form_of_0_1_0_leads_to_the_state_of_a_whole_pass(home: Home) -> None:
    verifier, texts = Verifier(home.scope_id), []
    with home.database.read() as session:
        while verifier.advance(session, 1) is None:
            texts.append(verifier.state.text())
        assert len(texts) > 90
        for text in texts:
            assert read_state(as_0_1_0_wrote(text)).text() == text
            goes_on = Verifier(home.scope_id, mark=read_state(as_0_1_0_wrote(text)))
            assert goes_on.verify(session).ok
            assert goes_on.state.text() == verifier.state.text()


def other_state(row: VerifiedHead) -> None:
    row.state = row.state.replace('"paid":50', '"paid":0').replace('"paid":49', '"paid":0')


def other_code(row: VerifiedHead) -> None:
    row.code = KEY.code(row.state)


def other_maker(row: VerifiedHead) -> None:
    row.maker, row.code = KEY.name, KEY.code(row.state)


@pytest.mark.parametrize("forge", [other_state, other_code, other_maker], ids=lambda forge: forge.__name__)
def test_a_forged_mark_of_the_first_form_does_not_count(home: Home, forge: Callable[[VerifiedHead], None]) -> None:
    with home.database.write() as session:
        row = session.execute(select(VerifiedHead)).scalar_one()
        before = row.state, row.code
        forge(row)
        assert (row.state, row.code) != before
    with home.database.read() as session:
        assert read_mark(session, home.scope_id, mark_keys(home.settings)) is None


def test_a_mark_of_a_build_that_is_not_listed_does_not_count(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusting, "EARLIER", ())
    with home.database.read() as session:
        assert read_mark(session, home.scope_id, mark_keys(home.settings)) is None


def correct(home: Home) -> None:
    """End the job that had paid under version 1, and write an entry that gives its charge back, past the service."""
    with home.database.write() as session:
        job = session.get_one(ledger.Job, home.running)
        scope = ledger.lock_scope(session, home.scope_id)
        ledger.settle(session, job, reason="cancelled")
        jobs.end(session, job, "cancelled", 2e9)
        spent = [json.loads(row.body) for row in session.execute(select(Entry).where(Entry.job_id == job.id)).scalars()]
        total = [sum(body["accounts"][scope.id]["spent"][slot] for body in spent) for slot in range(4)]
        back = {scope.id: {"spent": [-amount for amount in total], "reserved": [0] * 4}}
        content = {"accounts": back, "fraction": "1", "reason": "it never ran", "actor": job.owner_id}
        chain.append(session, scope, kinds.Compensate, at=2e9, job_id=job.id, attempt=0, chunk=0, content=content)


def test_a_charge_of_version_1_is_not_given_back_on_from_its_mark_either(home: Home) -> None:
    correct(home)
    with home.database.read() as session:
        mark = read_mark(session, home.scope_id, mark_keys(home.settings))
        assert mark is not None
        for verifier in (Verifier(home.scope_id), Verifier(home.scope_id, mark=mark)):
            found = verifier.verify(session)
            assert (found.ok, found.reason) == (False, f"{home.running} may have read records")


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.pop("pending"),
        lambda told: told.update(approvals={}),
        lambda told: told.update(form=3),
        lambda told: next(iter(told["live"].values())).pop("reader"),
        lambda told: next(iter(told["live"].values())).update(withheld=True),
    ],
    ids=["one less", "one more", "a later form", "one less of a job", "one more of a job"],
)
def test_a_text_of_another_form_is_no_mark(database: Database, change: Callable[[dict[str, Any]], object]) -> None:
    """It may lack what decides about the next entries: the chain is followed from its first entry."""
    place = history(database)
    verifier = Verifier(place.scope_id)
    with database.read() as session:
        assert verifier.verify(session).ok
    database.transaction(write_mark, verifier.state, KEY)
    with database.write() as session:
        row = session.execute(select(VerifiedHead)).scalar_one()
        told = json.loads(row.state)
        change(told)
        row.state = canonical(told)
        row.code = KEY.code(row.state)
        with pytest.raises(UnreadableStateError):
            read_state(row.state)
    with database.read() as session:
        assert read_mark(session, place.scope_id, [KEY]) is None


RULE = 'def follow(one):\n    """Demand it."""\n    demand(one > 0)\n'


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        (RULE.replace("Demand it.", "Ask for it."), True),
        (RULE.replace("demand(one > 0)", "demand(one > 0)  # never less"), True),
        (RULE.replace("> 0", ">= 0"), False),
        (RULE + "\nLIMIT = 3\n", False),
        (RULE + '\nTEXT = (\n    "of a statement"\n)\n', False),
        ('"""A module."""\n\n# of rules\n' + RULE, True),
        (RULE + '    """Of what was demanded."""\n', True),
        (RULE.replace("one > 0", 'one > "0"'), False),
    ],
)
def test_marks_outlive_words_and_no_change_of_a_rule(text: str, is_same: bool) -> None:
    assert (rules.statements(text) == rules.statements(RULE)) == is_same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ('TEXT = """a\n\nb"""\n', 'TEXT = """a\nb"""\n'),
        ('TEXT = """a \nb"""\n', 'TEXT = """a\nb"""\n'),
        ('X = "\u2028"\nY = 1\n"""A text."""\n', 'X = "\u2028"\nY = 2\n"""A text."""\n'),
    ],
    ids=["an empty line in a text", "a space at a line's end in a text", "a line's end that is none to Python"],
)
def test_texts_that_statements_use_are_compared_letter_by_letter(one: str, other: str) -> None:
    assert rules.statements(one) != rules.statements(other)


def test_a_process_makes_marks_of_the_rules_that_it_runs(tmp_path: Path) -> None:
    """A new checkout comes under its feet before it works the digest out for the first time."""
    for path in [*rules.sources(), ROOT / "core" / "__init__.py", ROOT / "core" / "base" / "__init__.py"]:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(path.read_text())
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from core.ledger import rules\n"
        "from pathlib import Path\n"
        "assert rules.__file__.startswith(sys.argv[1])\n"
        "for path in rules.sources(): path.write_text(path.read_text() + '\\nLATER = 1\\n')\n"
        "print(rules.rules_digest())\n"
    )
    command = [sys.executable, "-P", "-c", program, str(tmp_path)]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == rules.rules_digest()


def test_the_rules_are_all_that_decides_whether_an_entry_follows() -> None:
    """Their imports, and theirs. Rows beside the chain are compared at each reading, and errors decide nothing."""
    rows = ROOT / "core" / "db", ROOT / "core" / "records"
    waiting, seen = ["core/ledger/kinds.py", "core/ledger/states.py", "core/ledger/verification.py"], set()
    while waiting:
        path = ROOT / waiting.pop()
        if path in seen or not path.exists() or any(map(path.is_relative_to, rows)):
            continue
        seen.add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("core"):
                names = [str(node.module), *(f"{node.module}.{one.name}" for one in node.names)]
                waiting += [f"{name.replace('.', '/')}.py" for name in names]
    assert seen - set(rules.sources()) <= {ROOT / "core" / "base" / "errors.py"}
