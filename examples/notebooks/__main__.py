"""Run the notebooks in order on one service and store them with their outputs: `make notebooks`.

Without FARTHING_URL a service is started for them, and nothing of it is left.
"""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from secrets import token_urlsafe
from tempfile import TemporaryDirectory
from typing import Final

import nbformat
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from nbformat import NotebookNode

from examples.bank_demo import service

HERE: Final = Path(__file__).parent
ORDER: Final = ("custodian", "analyst", "images", "auditor")
"""The analyst reads what the custodian shared, and the auditor what both did."""
CELL_SECONDS: Final = 300
QUIET: Final = ["--log-level=ERROR"]
OF_THE_RUN: Final = ("execution", "ExecuteTime", "collapsed", "scrolled")
"""Metadata of cells that would change with each run."""
WIDGET: Final = "application/vnd.jupyter.widget-view+json"


def execute(books: Sequence[Path], into: Path) -> None:
    """Run notebooks against the service of FARTHING_URL and FARTHING_KEY, and write them with their outputs.

    Args:
        books: files, in order.
        into: the folder to write to, under the same names.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed.
    """
    into.mkdir(parents=True, exist_ok=True)
    for path in books:
        book = nbformat.read(path, as_version=4)
        # Files that a notebook writes go with this folder.
        with TemporaryDirectory() as place:
            resources = {"metadata": {"path": place}}
            runner = NotebookClient(book, timeout=CELL_SECONDS, resources=resources, extra_arguments=QUIET)
            runner.execute()
        _tidy(book)
        nbformat.validate(book)
        nbformat.write(book, into / path.name)


def write_pages(pages: Path) -> None:
    """Write the stored notebooks as Markdown pages, with their figures as files beside them."""
    pages.mkdir(parents=True, exist_ok=True)
    for name in ORDER:
        book = nbformat.read(HERE / f"{name}.ipynb", as_version=4)
        text, found = MarkdownExporter().from_notebook_node(book, {"unique_key": name})
        for file, content in found["outputs"].items():
            (pages / file).write_bytes(content)
        (pages / f"{name}.md").write_text(text)


def _tidy(book: NotebookNode) -> None:
    """Take away what names this run's machine or moment."""
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in book.cells:
        for name in OF_THE_RUN:
            cell.metadata.pop(name, None)
        if cell.cell_type == "code":
            cell.outputs = [_plain(output) for output in cell.outputs if not _moves(output)]


def _moves(output: NotebookNode) -> bool:
    """Tell a bar of progress, or the empty text that it leaves, from a result."""
    data = output.get("data", {"text/plain": "a stream"})
    return WIDGET in data or data.get("text/plain") == ""


def _plain(output: NotebookNode) -> NotebookNode:
    """Leave out the text of a figure, which has an address of memory, and blanks at the ends of lines."""
    if "image/png" in output.get("data", {}):
        output.data.pop("text/plain", None)
    if "text" in output:
        output.text = re.sub(r"[ \t]+$", "", output.text, flags=re.MULTILINE)
    return output


def main() -> None:
    """Run them all, or write their pages."""
    parser = argparse.ArgumentParser(prog="python -m examples.notebooks", description=__doc__)
    parser.add_argument("names", nargs="*", default=ORDER, help="default: all, in order")
    parser.add_argument("--into", type=Path, default=HERE, help="the folder for executed notebooks")
    parser.add_argument("--pages", type=Path, help="write Markdown pages here, and run nothing")
    given = parser.parse_args()
    books = [HERE / f"{name}.ipynb" for name in given.names]
    unknown = sorted(set(given.names) - set(ORDER))
    if unknown:
        sys.exit(f"There is no notebook {unknown[0]!r}: choose from {', '.join(ORDER)}.")
    if given.pages is not None:
        write_pages(given.pages)
    elif "FARTHING_URL" in os.environ:
        execute(books, given.into)
    else:
        with service("notebooks", key := token_urlsafe(32)) as client:
            os.environ |= {"FARTHING_URL": client.url, "FARTHING_KEY": key}
            execute(books, given.into)


if __name__ == "__main__":
    main()
