"""The texts that people read, taken out of their files as paragraphs of plain words."""

import ast
import inspect
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).parents[3]
TREES: Final = ("api", "benchmarks", "core", "examples", "farthing", "migrations", "studies", "tests", "workers")
PRODUCT: Final = ("api", "core", "farthing", "workers")
HISTORY: Final = ("CHANGELOG.md", "docs/decisions/")
"""The only pages that may say what was before."""
Kind = Literal["pages", "decisions", "docstrings", "messages", "console"]
_SECTION: Final = re.compile(r"^(Args|Returns|Yields|Raises|Source|Sources|Attributes|Example|Examples):\s*")
_ENTRY: Final = re.compile(r"^\*{0,2}[A-Za-z_][\w.,\[\] |*]*: ")
_MESSAGE: Final = re.compile(r"^[A-Za-z\"'`(][^\n]* [a-z]+ [^\n]* [^\n]+$")
_NOT_PROSE: Final = re.compile(r"SELECT |INSERT |CREATE |UPDATE |\\[sdwb]|\(\?|^\w+=|://\S+$")


@dataclass(frozen=True)
class Paragraph:
    """One block of prose: it is split into sentences, and none goes on in the next."""

    kind: Kind
    place: str
    """The file from the project's root, and the line."""
    text: str
    whole: bool = True
    """False for a table's cell or an entry of a list of arguments, which need not be a sentence."""


def pages() -> list[Path]:
    """Return every page of prose, decisions too."""
    found = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        ROOT / "benchmarks/README.md",
        ROOT / "tests/README.md",
    ]
    return sorted(found)


def kind_of(page: Path) -> Kind:
    """Tell a page that may have history from one that may not."""
    name = page.relative_to(ROOT).as_posix()
    return "decisions" if name.startswith(HISTORY) else "pages"


def everything() -> Iterator[Paragraph]:
    """Yield each paragraph of the project."""
    for page in pages():
        yield from of_page(page.read_text(), kind_of(page), page.relative_to(ROOT).as_posix())
    for book in sorted((ROOT / "examples/notebooks").glob("*.ipynb")):
        for cell in json.loads(book.read_text())["cells"]:
            if cell["cell_type"] == "markdown":
                yield from of_page(
                    "".join(cell["source"]), "pages", f"{book.relative_to(ROOT).as_posix()} {cell['id']}"
                )
    for tree in TREES:
        for path in sorted((ROOT / tree).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            yield from of_module(path.read_text(), name, messages=tree in PRODUCT)
    for path in sorted((ROOT / "api/pages/templates").rglob("*.html")):
        yield from of_template(path.read_text(), path.relative_to(ROOT).as_posix())


def of_page(text: str, kind: Kind, name: str) -> Iterator[Paragraph]:
    """Yield a page's paragraphs, list items and cells of tables; no heading, no block of code."""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    inside: list[str] = []
    line = 1
    for token in tokens:
        line = token.map[0] + 1 if token.map else line
        if token.nesting == 1:
            inside.append(token.tag)
        elif token.nesting == -1:
            inside.pop()
        elif token.type == "inline" and not {"h1", "h2", "h3", "h4", "thead"} & set(inside):
            yield Paragraph(kind, f"{name}:{line}", _inline(token), whole="td" not in inside)


def _inline(token: Token) -> str:
    words = []
    for one in token.children or ():
        if one.type == "code_inline":
            words.append("X")
        elif one.type in {"softbreak", "hardbreak"}:
            words.append(" ")
        elif one.type == "text":
            words.append(one.content)
    return "".join(words)


def of_module(text: str, name: str, *, messages: bool) -> Iterator[Paragraph]:
    """Yield the paragraphs of a module's docstrings, of attributes too; with `messages`, of its other strings."""
    tree = ast.parse(text)
    said = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - said
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) in said:
            yield from of_docstring(node.value, f"{name}:{node.lineno}")
        elif messages and isinstance(node, ast.JoinedStr):
            yield from _message(_filled(node), f"{name}:{node.lineno}")
        elif messages and isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield from _message(node.value, f"{name}:{node.lineno}")


def of_docstring(text: str, place: str) -> Iterator[Paragraph]:
    """Yield a docstring's paragraphs; of its sections, each entry."""
    section, kept = False, [(True, "")]
    for line in inspect.cleandoc(text).splitlines():
        stripped = line.strip()
        if heading := _SECTION.match(line):
            section = True
            kept.append((False, stripped[heading.end() :]))
        elif not stripped:
            section = False
            kept.append((True, ""))
        elif section and _ENTRY.match(stripped):
            kept.append((False, _ENTRY.sub("", stripped)))
        elif stripped.startswith(("- ", "* ", "| ")):
            kept.append((False, stripped[2:]))
        elif section or not line.startswith(("    ", ">>>")):  # what stands further in is an example's code
            whole, begun = kept[-1]
            kept[-1] = (whole, f"{begun} {stripped}")
    for whole, one in kept:
        if one.strip():
            yield Paragraph("docstrings", place, re.sub(r"``?[^`]+``?", "X", one.strip()), whole=whole)


def _filled(node: ast.JoinedStr) -> str:
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)


def _message(text: str, place: str) -> Iterator[Paragraph]:
    """Yield a string that reads like a sentence: some words, and no query, pattern or address."""
    words = text.split()
    plain = sum(bool(re.fullmatch(r"[A-Za-z'\"(]+[a-z][\w'\")-]*[,.;:?!]*", word)) for word in words)
    if len(words) > 3 and _MESSAGE.match(text.strip()) and not _NOT_PROSE.search(text) and plain > len(words) / 2:
        yield Paragraph("messages", place, re.sub(r"`[^`]+`", "X", text.strip()), whole=len(words) > 5)


class _Blocks(HTMLParser):
    """The text of a page's blocks, without scripts, styles and drawings."""

    _INLINE: Final = {"a", "abbr", "b", "code", "em", "i", "kbd", "small", "span", "strong", "time", "data"}
    _SILENT: Final = {"script", "style", "svg", "pre"}
    _VOID: Final = {"input", "br", "hr", "img", "link", "meta", "col", "wbr"}

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str]] = [(1, "")]
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002  # the parser passes it
        self._silent += tag in self._SILENT
        if tag not in self._INLINE:
            self.found.append((self.getpos()[0], ""))

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in self._SILENT
        if tag not in self._INLINE:
            self.found.append((self.getpos()[0], ""))

    def handle_data(self, data: str) -> None:
        if not self._silent:
            line, text = self.found[-1]
            self.found[-1] = (line, text + data)


def of_template(text: str, name: str) -> Iterator[Paragraph]:
    """Yield the blocks of a template's text; each filled-in value counts as a word."""
    blocks = _Blocks()
    text = re.sub(r"\{% *el(se|if)\b.*?%\}", ". ", text)  # another sentence stands in its place
    bare = re.sub(r"\{#.*?#\}|\{%.*?%\}", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL)
    blocks.feed(re.sub(r"\{\{.*?\}\}", "X", bare, flags=re.DOTALL))
    for line, found in blocks.found:
        if len(found.split()) > 3:
            yield Paragraph("console", f"{name}:{line}", " ".join(found.split()))
