"""Answers as people look at them: the tables of the command line, on a terminal and in a notebook."""

import io

from rich.console import Console, RenderableType
from rich.jupyter import JUPYTER_HTML_FORMAT

from farthing import estimate_tables, job_tables, ledger_tables
from farthing.schemas.base import View
from farthing.schemas.budgets import BudgetView
from farthing.schemas.estimates import EstimateView
from farthing.schemas.jobs import JobView

_WIDTH = 120
"""Of a table in a notebook, in letters."""


def tables_of(view: View) -> RenderableType:
    """Return the tables of a budget, an estimate or a job.

    Raises:
        TypeError: it is another answer.
    """
    match view:
        case BudgetView():
            return ledger_tables.budget(view)
        case EstimateView():
            return estimate_tables.estimate(view)
        case JobView():
            return job_tables.job(view)
    raise TypeError(f"{type(view).__name__} has no tables")


def html_of(view: View) -> str:
    """Return the same tables as HTML, every text escaped."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_jupyter=False, force_terminal=False)
    console.print(tables_of(view))
    return console.export_html(inline_styles=True, code_format=JUPYTER_HTML_FORMAT)
