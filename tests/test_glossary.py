"""One word, one meaning: each kept word is defined once, and no retired word comes back."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import pytest
from pydantic import BaseModel

import farthing
from api.app import create_app
from core.base.settings import ServiceSettings

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
KEPT = (
    "mu",
    "rho",
    "epsilon",
    "delta",
    "encoded units",
    "oracle",
    "question",
    "ledger",
    "witness",
    "fence",
    "lease",
    "sweep",
    "chunk",
    "block",
    "quorum",
    "scope",
)
RETIRED = (
    "AbstractDoor",
    "alembic_version",
    "api.door",
    "api.together",
    "api.trail",
    "ARROWS",
    "_as_before",
    "audit trail",
    "Bell",
    "bell-not-heard",
    "BrokerBell",
    "by_lane",
    "ClientMeter",
    "clients_promises",
    "CommonCoins",
    "core.catalogue",
    "core.optimizers",
    "core.methods.second_order.certify",
    "core.oracle.meters",
    "core.problems",
    "core.service.bell",
    "core.service.endings",
    "core.service.promises",
    "core.service.showing",
    "core.service.sight",
    "core.store",
    "core.training.desk",
    "core.training.meter",
    "core.training.till",
    "CountingMeter",
    "Desk",
    "digest-key",
    "DistributedCircle",
    "duplicate_bells",
    "Entrance",
    "exact_grid",
    "extra_bells",
    "farthing.ring",
    "first_form",
    "first_release_plans",
    "FIRST_WEIGHTS",
    "forsaken",
    "Forsaken",
    "FORSAKEN",
    "FullDoor",
    "gang",
    "Grown",
    "intake.vouch",
    "interaction_names",
    "Keeper",
    "Knock",
    "LaneRecords",
    "leash",
    "LedgerMeter",
    "LedgerTill",
    "make_bell",
    "make_meter",
    "meter",
    "mirror_upper",
    "modernised",
    "MOST_RUNG",
    "_newer_loss",
    "_newer_weights",
    "nursery",
    "Nursery",
    "OneLane",
    "open_books",
    "open_desk",
    "PoissonDoor",
    "promise_of",
    "RankOrder",
    "_READ_BY_EVERY_RELEASE",
    "_read_plan_of_the_first_release",
    "SecretCoins",
    "SeededCoins",
    "SilentBell",
    "StreamDoor",
    "StreamMeter",
    "TellingTill",
    "test_blame",
    "test_endings",
    "test_faults",
    "test_federated_promises",
    "test_gang",
    "test_meter",
    "test_nursery",
    "test_till",
    "test_together",
    "ThreadCircle",
    "Till",
    "ToldNorm",
    "Trail",
    "truncate_rows",
    "twins_agree",
    "uncertified_for",
    "Undertaker",
    "undertaker",
    "Unmetered",
    "was_open_before_uploads",
    "workers.gang",
    "workers.keeper",
    "workers.leash",
    "workers.nursery",
    "workers.template",
    "workers.verdict",
)
"""Identifiers that are gone from code, logs, docs and tests; each rename adds what it replaced.

Prose words are here only where they mean nothing else.
"""
RETIRED_FIELDS = frozenset({"percent", "certificates", "client", "clients", "grant", "grants", "pace", "typical"})
"""Names that fields of requests and answers no longer have. Each part of a budget is a `budget_share`, and each party
to a federated job one of its `sites`; the bounds of a model are `error_bounds`. The most that a principal may use is a
`budget_cap`. A column declares its `centre`.
"""
SIGNED = {"farthing.certificate_forms", "farthing.certificates"}
"""Modules that read signed documents, whose names never change."""
ALLOWED = {
    **{
        room: {"docs/decisions/0067-group-packages-by-subject.md"}
        for room in ("core.catalogue", "core.optimizers", "core.problems", "core.store")
    },
    "alembic_version": {
        "core/db/revisions.py",
        "docs/decisions/0060-begin-migrations-at-the-first-release-and-refuse.md",
        "tests/test_migrations.py",
    },
}
"""Files that may name one: they refuse a database from before the first release, or say why rooms moved."""
TREES = (
    "api",
    "benchmarks",
    "core",
    "docs",
    "examples",
    "farthing",
    "migrations",
    "studies",
    "tests",
)
SUFFIXES = {".py", ".md", ".c", ".h", ".yml", ".toml"}


def defined(text: str) -> list[str]:
    """Return the words that a glossary's tables define, in their order; a row may define several, with commas."""
    cells = re.findall(r"^\| ([^|]+?) \| [^|]+ \|$", text, re.MULTILINE)
    return [word for cell in cells if cell != "word" for word in cell.split(", ")]


def sources() -> Iterator[Path]:
    """Yield every text of the tree but this one."""
    for tree in TREES:
        for path in (ROOT / tree).rglob("*"):
            if path.suffix in SUFFIXES and path != Path(__file__):
                yield path
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "pyproject.toml"))


def returned(text: str, path: str) -> list[str]:
    """Return the retired words of a text, as whole words."""
    words = (word for word in RETIRED if word in text and path not in ALLOWED.get(word, set()))
    return [word for word in words if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text)]


def test_each_kept_word_is_defined_once() -> None:
    assert sorted(defined(GLOSSARY.read_text())) == sorted(KEPT)


@pytest.mark.parametrize(
    "page", ["README.md", "docs/README.md", "docs/reference/notation.md", "docs/explanation/guarantee.md"]
)
def test_the_glossary_is_linked(page: str) -> None:
    assert re.search(r"\]\(([\w./]+/)?glossary\.md\)", (ROOT / page).read_text())


def test_no_retired_word_is_back() -> None:
    found = {}
    for path in sources():
        name = str(path.relative_to(ROOT))
        if words := returned(path.read_text(), name):
            found[name] = words
    assert found == {}


def fields(schema: object) -> Iterator[str]:
    """Yield the name of each field that a JSON Schema, or a document of several, has."""
    if isinstance(schema, dict):
        properties = schema.get("properties")
        if isinstance(properties, dict):
            yield from properties
        for one in schema.values():
            yield from fields(one)
    elif isinstance(schema, list):
        for one in schema:
            yield from fields(one)


@pytest.fixture(scope="module")
def openapi(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(ServiceSettings(home=tmp_path_factory.mktemp("home"))).openapi()


def test_no_field_of_the_api_has_a_retired_name(openapi: dict[str, Any]) -> None:
    found = {*fields(openapi)}
    assert len(found) > 300, "the document was read"
    assert found & RETIRED_FIELDS == set()


def test_no_view_of_the_sdk_has_a_retired_name() -> None:
    views = [
        one
        for module in walk_packages(farthing.__path__, "farthing.")
        for one in vars(import_module(module.name)).values()
        if isinstance(one, type) and issubclass(one, BaseModel) and one.__module__ not in SIGNED
    ]
    assert len(views) > 50, "they were found"
    assert {name for one in views for name in one.model_fields} & RETIRED_FIELDS == set()


def test_a_retired_field_that_comes_back_is_seen() -> None:
    """The planted bug."""
    schema = {"components": {"schemas": {"A": {"anyOf": [{"properties": {"percent": {"type": "string"}}}]}}}}
    assert {*fields(schema)} & RETIRED_FIELDS == {"percent"}


def test_a_word_that_comes_back_or_is_defined_twice_is_seen() -> None:
    """The planted bugs."""
    assert returned("from x import truncate_rows", "core/x.py") == ["truncate_rows"]
    assert returned("truncate_rows_again", "core/x.py") == []
    assert returned("alembic_version", "core/db/revisions.py") == []
    twice = GLOSSARY.read_text() + "\n| lease | something else |\n"
    assert sorted(defined(twice)) != sorted(KEPT)
