"""Progress bars on a terminal and in a notebook, and the words after an interrupt."""

import io
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from rich.console import Console

from farthing import Client
from farthing.bars import following
from farthing.schemas.jobs import JobView
from tests.farthing.conftest import Released, body
from tests.support.embedded import COLUMNS


def terminal() -> tuple[Console, io.StringIO]:
    written = io.StringIO()
    return Console(file=written, force_terminal=True, width=160), written


def at(job: JobView, step: int, **changes: Any) -> JobView:
    progress = job.progress.model_copy(update={"step": step, "steps": 8})
    return job.model_copy(update={"state": "running", "progress": progress, **changes})


def test_steps_and_the_time_left_are_shown_and_then_gone(released: Released) -> None:
    console, written = terminal()
    with following(console) as look:
        look(released.job.model_copy(update={"state": "queued", "waits_for": "a worker with [a] GPU"}))
        look(released.job.model_copy(update={"state": "queued", "waits_for": "a worker with [a] GPU"}))
        for step in (2, 4, 8):
            look(at(released.job, step))
    text = written.getvalue()
    assert f"{released.job.id} running" in text
    assert "8/8" in text
    assert "left:" in text
    assert text.count("waits for a worker with [a] GPU") == 1, "as it is: no markup, and not again"
    assert text.rstrip("\n").endswith("\x1b[2K"), "the line is cleared"


def test_a_notebook_shows_it_in_a_widget(released: Released) -> None:
    """Warnings are errors here, and rich warns where it has no widgets."""
    InteractiveShell.instance()
    try:
        with capture_output() as captured, following(Console(force_jupyter=True)) as look:
            look(at(released.job, 4))
    finally:
        InteractiveShell.clear_instance()
    shown = "".join(str(one.data) for one in captured.outputs)
    assert f"{released.job.id} running" in shown


def test_an_upload_shows_a_bar_where_it_is_wanted(
    client: Client, records: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    declared = {"name": "toy", "columns": COLUMNS, "budget": {"epsilon": 1, "delta": "1e-6"}, "seal": False}
    draft = client.upload(records, declared, progress=True)
    size = records.stat().st_size
    assert f"{size}/{size}" in capsys.readouterr().err
    client.send_records(draft.id, records, progress=True)
    assert f"{size}/{size}" in capsys.readouterr().err
    client.send_records(draft.id, records)
    assert not capsys.readouterr().err


def test_train_shows_a_bar_where_it_is_wanted(
    client: Client, released: Released, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    model = client.train(body(released.dataset, mu="0.05"), progress=True)
    assert "left:" in capsys.readouterr().err
    assert client.train(body(released.dataset, mu="0.06")).id != model.id
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_an_interrupt_names_the_job_that_goes_on(client: Client, released: Released) -> None:
    job = client.submit(body(released.dataset, mu="0.07"))

    def interrupted(_: JobView) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        client.wait(job.id, progress=interrupted)
    assert f"client.wait('{job.id}')" in stopped.value.__notes__[0]
    assert client.wait(job.id).state == "succeeded"
