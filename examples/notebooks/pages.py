"""The source of the documentation's site: the pages of `docs`, and each notebook as a page beside the tutorials.

`python -m examples.notebooks.pages FOLDER` makes it anew in a folder, from which zensical builds the site. In the
checkout the pages link notebooks as files, which GitHub shows; here those links lead to the pages.
"""

import argparse
import base64
import os
import re
import shutil
from pathlib import Path
from typing import Final

import nbformat
from nbformat import NotebookNode

from examples.notebooks.__main__ import HERE, ORDER

DOCS: Final = HERE.parents[1] / "docs"
PLACE: Final = Path("tutorials/notebooks")
"""Of the notebooks' pages, within the site."""
_LINK: Final = re.compile(r"(?<=\]\()([^)\s#]+)")
_STYLE: Final = re.compile(r"<style scoped>.*?</style>\s*", re.DOTALL)


def make(folder: Path) -> None:
    """Write the pages into a folder, in place of all that is in it."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS, folder)
    for page in folder.rglob("*.md"):
        within = page.relative_to(folder)
        page.write_text(_relinked(page.read_text(), DOCS / within, within))
    (folder / PLACE).mkdir()
    for name in ORDER:
        source, page = HERE / f"{name}.ipynb", PLACE / f"{name}.md"
        text, figures = markdown(nbformat.read(source, as_version=4), name)
        (folder / page).write_text(_relinked(text, source, page))
        for file, content in figures.items():
            (folder / PLACE / file).write_bytes(content)


def markdown(book: NotebookNode, name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its figures by the names of files beside it."""
    parts: list[str] = []
    figures: dict[str, bytes] = {}
    for cell in book.cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                file = f"{name}-{len(figures) + 1}.png"
                figures[file] = base64.b64decode(data["image/png"])
                parts.append(f"![The figure that the code above draws]({file})")
            elif "text/html" in data:
                # A blank line would end a block of HTML within Markdown.
                parts.append(re.sub(r"\n\s*\n", "\n", _STYLE.sub("", data["text/html"])))
            else:
                parts.append(f"```text\n{(output.get('text') or data['text/plain']).rstrip()}\n```")
    return "\n\n".join(parts) + "\n", figures


def _relinked(text: str, source: Path, page: Path) -> str:
    """Return a page with links for its place in the site.

    Args:
        text: of the page.
        source: the file in the checkout that it comes from.
        page: its path within the site.
    """

    def moved(found: re.Match[str]) -> str:
        target = Path(os.path.normpath(source.parent / found[0]))
        if target.parent == HERE and target.suffix == ".ipynb":
            return _path(PLACE / f"{target.stem}.md", page)
        if source.parent == HERE and target.is_relative_to(DOCS):
            return _path(target.relative_to(DOCS), page)
        return found[0]

    return _LINK.sub(moved, text)


def _path(target: Path, page: Path) -> str:
    return Path(os.path.relpath(target, page.parent)).as_posix()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m examples.notebooks.pages", description=__doc__)
    parser.add_argument("folder", type=Path)
    make(parser.parse_args().folder)
