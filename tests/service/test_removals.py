"""One record removed on request: it is gone from storage with its key, and nothing else about the dataset changes."""

import os
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from core.base.errors import Conflict, DuplicateDataset, Forbidden, Invalid, NotReady
from core.data.datasets import parse_metadata
from core.db import clock
from core.db.tables import Attempt, Dataset, Job
from core.db.upload_tables import Removal
from core.jobs import jobs as job_rows
from core.ledger.witness import comparing
from core.ledger.witness.witness import Witness
from core.planning.job import JobSpec
from core.records.records import StoredRecords, kept_of, open_records
from core.records.storage import open_storage
from core.service import datasets, removals, uploads
from core.service.context import Caller, Context
from tests.service.conftest import Someone
from tests.support import entry
from tests.support.api import COLUMNS, csv, job, metadata

pytestmark = pytest.mark.parametrize(
    "database_url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True
)
BYTES = csv(100)
ROW = 42


def upload(context: Context, caller: Caller, content: bytes = BYTES, **changes: Any) -> str:
    view, _ = uploads.create(context, caller, parse_metadata(metadata(**changes)), None, [content], None)
    return str(view["id"])


def kept(context: Context, dataset: str) -> StoredRecords:
    with context.database.read() as session:
        return kept_of(session.get_one(Dataset, dataset))


def stored(context: Context, dataset: str) -> list[dict[str, Any]]:
    """Return the stored rows of a dataset."""
    with open_records(context.settings, kept(context, dataset)) as file:
        rows: list[dict[str, Any]] = pa.ipc.open_file(pa.PythonFile(file, "r")).read_all().to_pylist()
    return rows


def files(context: Context) -> set[str]:
    return {one.name for one in open_storage(context.settings).list()}


def is_gone(context: Context, dataset: str, before: StoredRecords) -> None:
    """Fail unless a dataset's earlier file and its key are gone from everywhere."""
    after = kept(context, dataset)
    assert files(context) == {after.location}
    assert not any(context.settings.spool_path.iterdir())
    assert after.wrapped_key != before.wrapped_key
    assert after.location != before.location
    with context.database.read() as session:
        text = str([row.__dict__ for row in session.query(Dataset)])
    assert before.wrapped_key not in text


def test_a_record_is_excluded_and_its_file_and_key_are_gone(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    rows, before = stored(context, made), kept(context, made)
    report = datasets.validation(context, owner, made)
    view = removals.remove(context, owner, made, ROW)
    assert (view.dataset, view.row, view.destroyed) == (made, ROW, True)
    found = stored(context, made)
    gone = found.pop(ROW - 1)
    del rows[ROW - 1]
    assert found == rows
    assert np.isnan(gone["age"])
    assert (gone["job"], gone["y"]) == (-1, -1)
    is_gone(context, made, before)
    assert datasets.validation(context, owner, made) == report, "how the upload was read"


def test_a_file_that_is_kept_would_be_seen(context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    before = kept(context, made)
    monkeypatch.setattr(type(open_storage(context.settings)), "erase", lambda *_: None)
    removals.remove(context, owner, made, ROW)
    with pytest.raises(AssertionError):
        is_gone(context, made, before)


def test_a_key_that_is_kept_would_be_seen(context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    before = kept(context, made)
    key = removals.load_master_keys(context.settings).unwrap(made, before.wrapped_key)
    genuine = removals.SealedFile
    monkeypatch.setattr(removals, "SealedFile", lambda **given: genuine(**{"key": key} | given))
    genuine_swap = removals._swap

    def keeping(session: Any, caller: Caller, old: StoredRecords, new: StoredRecords, *rest: Any) -> bool:
        return genuine_swap(session, caller, old, StoredRecords(made, new.location, new.digest, old.wrapped_key), *rest)

    monkeypatch.setattr(removals, "_swap", keeping)
    removals.remove(context, owner, made, ROW)
    with pytest.raises(AssertionError):
        is_gone(context, made, before)


def test_a_second_request_finds_it_done(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    first = removals.remove(context, owner, made, ROW)
    after = kept(context, made)
    assert removals.remove(context, owner, made, ROW) == first
    assert kept(context, made) == after
    with context.database.read() as session:
        assert session.query(Removal).count() == 1
    removals.remove(context, owner, made, ROW + 1)
    assert [place for place, row in enumerate(stored(context, made), 1) if row["y"] < 0] == [ROW, ROW + 1]


def test_refusals_name_the_way_out(context: Context, someone: Someone, admin: Caller) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    with pytest.raises(Forbidden, match="Only the owner"):
        removals.remove(context, admin, made, ROW)
    with pytest.raises(Invalid, match="no such row") as found:
        removals.remove(context, owner, made, 101)
    assert found.value.fields[0].pointer == "/row"
    assert "from 1 to 100" in found.value.fields[0].detail
    draft = upload(context, owner, csv(100, 7), seal=False)
    with pytest.raises(Conflict, match="not sealed: empty the row"):
        removals.remove(context, owner, draft, ROW)
    away = Context(context.settings.model_copy(update={"site": "south"}), context.database)
    with pytest.raises(Conflict, match="through its own API"):
        removals.remove(away, owner, made, ROW)
    datasets.erase(context, owner, made)
    with pytest.raises(Conflict, match="all of its records go"):
        removals.remove(context, owner, made, ROW)


@pytest.mark.parametrize("where", ["remove_row", "put", "swap", "erase", "bury"])
def test_a_death_at_any_step_leaves_one_whole_version(
    context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    rows, before = stored(context, made), kept(context, made)

    class Killed(BaseException):
        """Stands for the end of the process: nothing catches it."""

    def die(*_: Any, **__: Any) -> Any:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(removals, "_discard", lambda *_: None)
        storage = type(open_storage(context.settings))
        place, name = {
            "remove_row": (removals, "remove_row"),
            "put": (storage, "put"),
            "swap": (removals.removals, "replace_file"),
            "erase": (storage, "erase"),
            "bury": (datasets.witnessing, "bury"),
        }[where]
        patch.setattr(place, name, die)
        with pytest.raises(Killed):
            removals.remove(context, owner, made, ROW)
    is_done = where in {"erase", "bury"}
    assert (kept(context, made) == before) is not is_done
    found = stored(context, made)
    assert (found == rows) is not is_done
    if is_done:
        assert found[ROW - 1]["y"] == -1
    assert datasets.validation(context, owner, made).rows == 100
    orphans = files(context) - {kept(context, made).location}
    assert len(orphans) == (where not in {"remove_row", "put"})
    for name in files(context):
        os.utime(context.settings.records_path / name, times=(0, 0))
    swept = datasets.collect_orphans(context)
    assert swept == (list(orphans) if where == "swap" else []), "a file that a job may read waits for the upkeep"
    assert datasets.finish_removals(context) == is_done
    assert removals.remove(context, owner, made, ROW).destroyed
    is_gone(context, made, before)


def test_rivals_remove_all_of_their_rows(context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    genuine, rivals = removals.remove_row, [3]

    def beaten(*args: Any, **options: Any) -> Any:
        if rivals:
            removals.remove(context, owner, made, rivals.pop())
        return genuine(*args, **options)

    monkeypatch.setattr(removals, "remove_row", beaten)
    removals.remove(context, owner, made, ROW)
    assert [place for place, row in enumerate(stored(context, made), 1) if row["y"] < 0] == [3, ROW]


def test_an_erasure_in_between_wins(context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    genuine = removals.remove_row

    def beaten(*args: Any, **options: Any) -> Any:
        datasets.erase(context, owner, made)
        return genuine(*args, **options)

    monkeypatch.setattr(removals, "remove_row", beaten)
    with pytest.raises(Conflict, match="erased"):
        removals.remove(context, owner, made, ROW)
    assert files(context) == set()
    assert not any(context.settings.spool_path.iterdir())


def claim(context: Context, caller: Caller, dataset: str) -> Any:
    entry.submit(context, caller, JobSpec.model_validate(job(dataset)), f"for {dataset} {time.time()}")
    found = context.database.transaction(job_rows.claim, "w", 60.0)
    assert found is not None
    return found


def test_the_earlier_file_waits_for_the_job_that_began_on_it(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    before = kept(context, made)
    running = claim(context, owner, made)
    assert not removals.remove(context, owner, made, ROW).destroyed
    with open_records(context.settings, before) as file:
        assert pa.ipc.open_file(pa.PythonFile(file, "r")).read_all().num_rows == 100, "its trainer has this in hand"
    assert kept(context, made).wrapped_key != before.wrapped_key, "the key is gone at once"
    assert not removals.remove(context, owner, made, ROW).destroyed
    for name in files(context):
        os.utime(context.settings.records_path / name, times=(0, 0))
    assert datasets.collect_orphans(context) == []
    context.database.transaction(job_rows.fail, running, "trainer-failed", charge="spent")
    assert datasets.finish_removals(context) == 1
    assert removals.remove(context, owner, made, ROW).destroyed
    is_gone(context, made, before)


def test_a_job_that_begins_later_holds_nothing_up(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    before = kept(context, made)
    running = claim(context, owner, made)
    removals.remove(context, owner, made, ROW)

    def later(session: Any) -> None:
        session.get_one(Attempt, (running.job_id, 1)).started_at += 3600

    context.database.transaction(later)
    assert datasets.finish_removals(context) == 1
    is_gone(context, made, before)


def test_a_job_that_is_queued_again_holds_nothing_up(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    before = kept(context, made)
    running = claim(context, owner, made)
    removals.remove(context, owner, made, ROW)
    assert datasets.finish_removals(context) == 0
    context.database.transaction(job_rows.release_claim, running)
    assert datasets.finish_removals(context) == 1
    is_gone(context, made, before)


def test_a_job_that_has_just_succeeded_holds_it_for_a_lease(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    running = claim(context, owner, made)
    removals.remove(context, owner, made, ROW)

    def succeed(session: Any, ago: float) -> None:
        ended = session.get_one(Job, running.job_id)
        ended.state, ended.finished_at = "succeeded", clock.read(session) - ago
        session.get_one(Attempt, (ended.id, 1)).ended_at = ended.finished_at

    context.database.transaction(succeed, 0.0)
    assert datasets.finish_removals(context) == 0
    context.database.transaction(succeed, context.settings.lease_seconds + 1)
    assert datasets.finish_removals(context) == 1


def test_an_erasure_takes_the_earlier_file_too(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    running = claim(context, owner, made)
    removals.remove(context, owner, made, ROW)
    datasets.erase(context, owner, made)
    context.database.transaction(job_rows.acknowledge_cancel, running)
    assert datasets.finish_erasures(context) == [made]
    assert files(context) == set()


def test_a_file_that_brings_the_record_back_is_refused(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    scope = datasets.get(context, owner, made).scope
    removals.remove(context, owner, made, ROW)
    wider = [{**COLUMNS[0], "upper": 120}, *COLUMNS[1:]]
    for again in (BYTES, b"\n".join(reversed_rows(BYTES)) + b"\n"):
        for columns in (COLUMNS, wider):
            with pytest.raises(DuplicateDataset, match="brings it back") as found:
                upload(context, owner, again, budget=None, scope=scope, columns=columns)
            assert {field.pointer for field in found.value.fields} == {"/file", "/scope"}
    lines = BYTES.split(b"\n")
    lines[ROW] = b",,"
    emptied = upload(context, owner, b"\n".join(lines), budget=None, scope=scope, columns=wider)
    assert datasets.get(context, owner, emptied).rows == 100
    assert stored(context, emptied)[ROW - 1]["y"] == -1
    other = upload(context, someone("owner"))
    assert datasets.get(context, owner, made).rows == 100
    assert other != made, "of another owner's removals nothing is said"


def reversed_rows(content: bytes) -> list[bytes]:
    head, *rows = content.strip().split(b"\n")
    return [head, *reversed(rows)]


def test_a_database_put_back_to_before_a_removal_is_frozen(context: Context, someone: Someone) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    before = kept(context, made)
    removals.remove(context, owner, made, ROW)
    witness = Witness(context.settings.witness_path)
    assert comparing.compare(context.database, witness) == []

    def back(session: Any) -> None:
        session.get_one(Dataset, made).location = before.location

    context.database.transaction(back)
    (problem,) = comparing.compare(context.database, witness)
    assert problem == f"{made}, or this file of it, was erased, and is back."


def test_the_witness_is_written_before_the_file_goes(
    context: Context, someone: Someone, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = someone("owner")
    made = upload(context, owner)
    before = kept(context, made)

    def away(*_: Any) -> None:
        raise NotReady("The witness does not answer.")

    with monkeypatch.context() as patch:
        patch.setattr(datasets.witnessing, "bury", away)
        assert not removals.remove(context, owner, made, ROW).destroyed
    assert before.location in files(context)
    assert removals.remove(context, owner, made, ROW).destroyed
