"""The rules of plain words: length, openers, retired words, history; and the figures that are held to ceilings."""

import io
import re
import subprocess
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import fmean
from typing import Final

from tests.support.prose.texts import PRODUCT, ROOT, Kind, Paragraph, kind_of, pages

LONGEST: Final = 35
MEAN: Final = 18
_SPLIT: Final = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9X])")
_SHORT: Final = re.compile(
    r"\b(e\.g|i\.e|vs|cf|al|Sec|Thm|Fig|Eq|No|Prop|Alg|Tab|approx|(?:by|and) [A-Z]|[A-Z]\. [A-Z])\.$"
)
_OPENER: Final = re.compile(
    r"(?:^|[;:] )[\"'(]*(who|whom|whose|whoever|what|whatever|how|so|that which|all that)\b", re.IGNORECASE
)
RETIRED: Final = {
    "told": "say which: answered, received, logged, given",
    "null record": "excluded row",
    "pace": "learning_rate_schedule",
    "seats?": "session of a site",
    "(federated|each|every|honest|lying) clients?": "site",
    "clients'": "sites'",
    "the witness (knows|sees)|noise (knows|sees)|the (ledger|code|clock) (knows|tells|sees)": "say who does it",
}
"""Words of prose that have gone, and what to write instead. Identifiers have a list in `tests/test_glossary.py`."""
_RETIRED: Final = re.compile(rf"\b({'|'.join(RETIRED)})(?=\W|$)", re.IGNORECASE)
_HISTORY: Final = re.compile(
    r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,8}\b|\b20\d\d-\d\d-\d\d\b|\bmended\b|\bformerly\b|\bused to be\b"
    r"|\buntil (now|today|this release)\b|\b(an|the|second|first) audit (found|broke)\b|\bno longer\b|\bbefore this\b"
)
_SUBJECT: Final = re.compile(r"^[A-Z][\w.,/ -]{1,40}: \S|^Merge |^Revert ")
LINES: Final = {"README.md": 120, "docs/papers/": 400, "docs/": 200}


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a paragraph."""
    begun = ""
    for part in _SPLIT.split(text):
        begun = f"{begun} {part}".strip()
        if not _SHORT.search(begun):
            yield begun
            begun = ""
    if begun:
        yield begun


def length(sentence: str) -> int:
    """Return the number of words; a formula's signs are none."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def opens_badly(sentence: str) -> bool:
    """Return whether a clause has a question word for its subject; a question may open with one."""
    found = _OPENER.search(sentence)
    return found is not None and not sentence.rstrip("\"')").endswith("?")


def retired(text: str) -> list[str]:
    """Return the retired words of a text."""
    return [found[0] for found in _RETIRED.finditer(text)]


def history(text: str) -> list[str]:
    """Return what speaks of the past: names of commits, dates, what was mended."""
    return [found[0] for found in _HISTORY.finditer(text)]


def bad_subject(subject: str) -> bool:
    """Say whether a commit's subject is over 72 letters or does not name its part first."""
    return len(subject) > 72 or not _SUBJECT.match(subject)


class Findings:
    """The findings of each rule in the project: places, and the figures made of them."""

    def __init__(self, paragraphs: Iterable[Paragraph]) -> None:
        """Read every paragraph once."""
        self.places: dict[str, list[str]] = defaultdict(list)
        self._lengths: dict[Kind, list[int]] = defaultdict(list)
        for one in paragraphs:
            self._read(one)

    def _read(self, one: Paragraph) -> None:
        for sentence in sentences(one.text):
            words = length(sentence)
            if one.whole and words > 1:
                self._lengths[one.kind].append(words)
            if words > LONGEST:
                self._found(one, "long", f"{words} words: {sentence}")
            if opens_badly(sentence):
                self._found(one, "openers", sentence)
            for word in retired(sentence):
                self._found(one, "retired", f"{word}: {sentence}")
            for word in history(sentence) if one.kind == "pages" else ():
                self._found(one, "history", f"{word}: {sentence}")

    def _found(self, one: Paragraph, rule: str, what: str) -> None:
        self.places[f"{rule} in {one.kind}"].append(f"{one.place}: {what}")

    def means(self) -> dict[str, float]:
        """Return the mean words of a sentence, by kind of text."""
        return {f"words a sentence in {kind}": round(fmean(found), 1) for kind, found in sorted(self._lengths.items())}


def goals() -> dict[str, float]:
    """Return the goal of each figure; `figures` has the same keys."""
    kinds: tuple[Kind, ...] = ("pages", "decisions", "docstrings", "messages", "console")
    found: dict[str, float] = {f"words a sentence in {kind}": MEAN for kind in kinds}
    found |= {f"{rule} in {kind}": 0 for rule in ("long", "openers", "retired") for kind in kinds}
    return found | {
        "history in pages": 0,
        "lines over a page's limit": 0,
        "words of docs": 72_000,
        "lines a comment": 67,
    }


def figures(findings: Findings) -> dict[str, float]:
    """Return today's figures, each the better the lower."""
    found = {key: float(len(findings.places[key])) for key in goals()} | findings.means()
    found["lines over a page's limit"] = sum(_over(page) for page in pages())
    found["words of docs"] = sum(len(page.read_text().split()) for page in pages() if _counts(page))
    found["lines a comment"] = lines_a_comment(path for top in PRODUCT for path in (ROOT / top).rglob("*.py"))
    return found


def _over(page: Path) -> int:
    name = page.relative_to(ROOT).as_posix()
    limit = next((most for start, most in LINES.items() if name.startswith(start)), None)
    over = len(page.read_text().splitlines()) - (limit or 10**9)
    return max(over, 0) if kind_of(page) == "pages" else 0


def _counts(page: Path) -> bool:
    return kind_of(page) == "pages" and page.is_relative_to(ROOT / "docs")


def lines_a_comment(paths: Iterable[Path]) -> float:
    """Return how many lines of code stand beside one comment, a switch of a tool not counted."""
    lines = comments = 0
    for path in paths:
        text = path.read_text()
        lines += len(text.splitlines())
        found = (
            one.string for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type == tokenize.COMMENT
        )
        comments += sum(not re.match(r"# (type:|noqa|fmt:|pragma)", one) for one in found)
    return round(lines / max(comments, 1))


def new_subjects() -> list[str]:
    """Return the subjects of this branch's commits that main has not; none on main and without git."""
    done = subprocess.run(
        ["git", "log", "--format=%s", "main..HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.splitlines()
