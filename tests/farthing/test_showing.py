"""Answers that people look at: one line in a log, tables on a terminal and in a notebook."""

import io
from typing import Any

import pytest
from IPython.core.formatters import HTMLFormatter
from rich.console import Console

from farthing import Client
from farthing.schemas.estimates import EstimateView
from farthing.schemas.jobs import JobView
from tests.farthing.conftest import Released, body


@pytest.fixture
def answers(client: Client, released: Released) -> dict[str, Any]:
    analyst = client.create_key("Ann", "analyst").principal
    access = client.share(released.dataset, analyst, "all")
    client.unshare(released.dataset, analyst)
    return {
        "access": access,
        "dataset": client.dataset(released.dataset),
        "validation": client.validation(released.dataset),
        "verification": client.verify(released.scope),
        "budget": client.budget(released.dataset),
        "estimate": client.estimate(body(released.dataset, mu="0.1")),
        "job": released.job,
    }


@pytest.mark.parametrize(
    ("kind", "line", "table"),
    [
        ("access", "AccessView(name='Ann', principal='pr_", "analyst"),
        ("dataset", "Dataset(id='ds_", "fingerprint"),
        ("validation", "ValidationView(dataset='ds_", "balance"),
        ("verification", "VerificationView(scope='sc_", "entries"),
        ("budget", "BudgetView(scope='sc_", "remaining"),
        ("estimate", "EstimateView(method='noisy_newton', budget_share='0.", "noisy_newton"),
        ("job", "JobView(id='job_", "succeeded"),
    ],
)
def test_one_line_in_a_log_and_tables_elsewhere(answers: dict[str, Any], kind: str, line: str, table: str) -> None:
    found = answers[kind]
    assert repr(found).startswith(line)
    assert len(repr(found)) < 200
    written = io.StringIO()
    Console(file=written, width=120).print(found)
    assert table in written.getvalue()
    shown = HTMLFormatter()(found)
    assert shown.startswith("<pre")
    assert table in shown


def test_names_of_others_are_escaped(released: Released) -> None:
    hostile = "<script>alert(1)</script>[bold red]"
    job = released.job.model_copy(update={"labels": {"study": hostile}, "owner": hostile})
    shown = job._repr_html_()
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert "[bold red]" in shown


def test_answers_without_costs_are_shown_too(answers: dict[str, Any]) -> None:
    """Those of federated jobs have a price a site."""
    estimate: EstimateView = answers["estimate"].model_copy(update={"cost": None, "sites": []})
    job: JobView = answers["job"].model_copy(update={"cost": None, "dataset": None})
    for found in (estimate, job):
        assert repr(found)
        assert found._repr_html_()
