"""Answers as people look at them: the tables of the command line, on a terminal and in a notebook."""

import io
from collections.abc import Callable, Mapping
from typing import Any, Final

from rich.console import Console, RenderableType
from rich.jupyter import JUPYTER_HTML_FORMAT

from farthing import estimate_tables, job_tables, ledger_tables, tables
from farthing.schemas.base import View
from farthing.schemas.budgets import AccessView, BudgetView
from farthing.schemas.datasets import Dataset, ValidationView
from farthing.schemas.estimates import EstimateView
from farthing.schemas.jobs import JobView
from farthing.schemas.ledger import VerificationView

_WIDTH = 120
"""Of a table in a notebook, in letters."""


_TABLES: Final[Mapping[type[View], Callable[[Any], RenderableType]]] = {
    AccessView: lambda view: tables.accesses([view]),
    BudgetView: ledger_tables.budget,
    Dataset: tables.dataset,
    EstimateView: estimate_tables.estimate,
    JobView: job_tables.job,
    ValidationView: tables.validation,
    VerificationView: ledger_tables.verification,
}


def tables_of(view: View) -> RenderableType:
    """Return the tables of an answer that is shown by them."""
    return _TABLES[type(view)](view)


def html_of(view: View) -> str:
    """Return the same tables as HTML, every text escaped."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_jupyter=False, force_terminal=False)
    console.print(tables_of(view))
    return console.export_html(inline_styles=True, code_format=JUPYTER_HTML_FORMAT)
