"""The notebooks of `examples/notebooks`: stored as they ran, with nothing of the machine, and run on a real service."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

from core.access.supplied import OURS
from examples.notebooks.__main__ import HERE, ORDER
from examples.notebooks.pages import make
from tests.support.embedded import KEY, ROOT, Embedded

SECRETS = {
    "a key": rf"\b{OURS}\w+|(?<![\w-])[\w-]{{43}}(?![\w-])|Bearer ",
    "a path": r"(?<![\w.])/(tmp|home|root|work|usr|var|opt|Users)/\w|[A-Z]:\\\\",
    "a port": r"(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1\]):\d+",
    "an address of memory": r"0x[0-9a-f]{8,}",
}


def texts(book: Any) -> str:
    """Return all that a reader sees of a notebook but figures, and what no reader sees."""
    found = [str(book.metadata)]
    for cell in book.cells:
        found += [cell.source, str(cell.metadata)]
        for output in cell.get("outputs", ()):
            found += [output.get("text", ""), str(output.get("metadata", ""))]
            found += [str(value) for kind, value in output.get("data", {}).items() if not kind.startswith("image/")]
    return "\n".join(found)


def leaks(text: str) -> list[str]:
    return [f"{what}: {found[0]}" for what, form in SECRETS.items() for found in re.finditer(form, text)]


def read(name: str) -> Any:
    return nbformat.read(HERE / f"{name}.ipynb", as_version=4)


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("FARTHING_")}
    command = [sys.executable, "-m", "examples.notebooks", *arguments]
    variables = clean | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=500, check=False)


def test_each_notebook_has_a_place_in_the_order() -> None:
    assert {path.stem for path in HERE.glob("*.ipynb")} == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_it_is_stored_as_it_ran(name: str) -> None:
    book = read(name)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    assert not [one for one in outputs if one.output_type == "error" or one.get("name") == "stderr"]
    assert any("image/png" in one.get("data", {}) for one in outputs)
    assert leaks(texts(book)) == []


@pytest.mark.parametrize(
    "text",
    [
        "key: frt_01kabcdefghjk_abcdefghijklmnop",
        "9fVb3k2m1Q0w8e7r6t5y4u3i2o1pAsDfGhJkLzXcVbN",
        "/tmp/ipykernel_1/2.py:1: Pandas4Warning",
        "File '/home/ann/farthing/examples/hospital.py'",
        "http://127.0.0.1:8000/v1/jobs",
        "<Axes object at 0x7f9095865bd0>",
    ],
)
def test_what_would_name_the_machine_is_found(text: str) -> None:
    assert leaks(text)


def test_a_cell_that_fails_ends_the_command_and_stores_nothing(tmp_path: Path) -> None:
    code = (
        "import sys, nbformat; from pathlib import Path; from examples.notebooks.__main__ import execute\n"
        "cells = [nbformat.v4.new_code_cell('1 / 0')]\n"
        "book, into = Path(sys.argv[1], 'bad.ipynb'), Path(sys.argv[1], 'out')\n"
        "nbformat.write(nbformat.v4.new_notebook(cells=cells), book)\n"
        "execute([book], into)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0
    assert "ZeroDivisionError" in done.stderr
    assert not list((tmp_path / "out").iterdir())


def test_an_unknown_notebook_is_refused_by_name() -> None:
    done = run("cook")
    assert done.returncode == 1
    assert done.stderr.startswith("There is no notebook 'cook': choose from custodian")


def links(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s#]+)[^)]*\)", text) if not link.startswith("http")]


@pytest.mark.parametrize("name", ORDER)
def test_its_links_lead_somewhere(name: str) -> None:
    prose = "\n".join(cell.source for cell in read(name).cells if cell.cell_type == "markdown")
    assert links(prose)
    assert [link for link in links(prose) if not (HERE / link).exists()] == []


def test_the_site_shows_each_as_a_page_with_its_figures(tmp_path: Path) -> None:
    (tmp_path / "old.md").touch()
    make(tmp_path)
    assert not (tmp_path / "old.md").exists()
    index = (tmp_path / "README.md").read_text()
    for name in ORDER:
        page = tmp_path / "tutorials" / "notebooks" / f"{name}.md"
        text = page.read_text()
        assert f"](tutorials/notebooks/{name}.md)" in index
        assert links(text)
        assert [link for link in links(text) if not (page.parent / link).exists()] == []
        assert f"![The figure that the code above draws]({name}-1.png)" in text
        assert (page.parent / f"{name}-1.png").read_bytes().startswith(b"\x89PNG")
        assert ".ipynb" not in text
    assert "patients.to_csv" in (tmp_path / "tutorials/notebooks/custodian.md").read_text()


@pytest.mark.service
def test_all_run_in_order_on_a_service_and_again(service: Embedded, tmp_path: Path) -> None:
    def ran(*names: str) -> None:
        done = run(*names, "--into", str(tmp_path), FARTHING_URL=service.url, FARTHING_KEY=KEY)
        assert done.returncode == 0, done.stderr[-6000:]

    ran()
    for name in ORDER:
        new, stored = nbformat.read(tmp_path / f"{name}.ipynb", as_version=4), read(name)
        assert [cell.source for cell in new.cells] == [cell.source for cell in stored.cells]
        assert leaks(texts(new)) == []
        assert kinds(new) == kinds(stored), f"{name} answers otherwise than it is stored: make notebooks"
    ran("custodian", "images")  # the two that upload


def kinds(book: Any) -> list[list[str]]:
    """Return for each cell the kinds of its outputs: noise moves figures, not these."""
    return [
        [output.output_type + "".join(sorted(output.get("data", {}))) for output in cell.get("outputs", ())]
        for cell in book.cells
    ]
