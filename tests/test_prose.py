"""Plain words: each rule sees a planted sentence; `make check` holds the figures to their ceilings."""

import json
from pathlib import Path

import pytest

from tests.support.prose.__main__ import CEILINGS
from tests.support.prose.rules import (
    LINES,
    Findings,
    bad_subject,
    goals,
    history,
    length,
    lines_a_comment,
    opens_badly,
    retired,
    sentences,
)
from tests.support.prose.texts import Paragraph, of_docstring, of_module, of_page, of_template

PAGE = """# What a heading may say

A first sentence. A second one, by J. Doe (e.g. Sec. 2), ends here.

| head | what it is |
|---|---|
| `code` | a cell |

```sh
what is code
```
"""
MODULE = '''"""First line.

Args:
    rows: what a row holds.
    columns: How many there are.
"""
def refuse():
    """What it does."""
    raise ValueError(f"there is no {name} in what was sent" " by anybody")
LIMIT = 3
"""What is left."""
QUERY = "SELECT a FROM b where c is d"
'''


def test_each_figure_has_a_ceiling_down_to_its_goal() -> None:
    ceilings = json.loads(CEILINGS.read_text())
    assert ceilings.keys() == goals().keys()
    assert all(ceilings[key] >= goal for key, goal in goals().items())


def test_a_page_gives_its_prose_alone() -> None:
    found = [(one.place, one.text, one.whole) for one in of_page(PAGE, "pages", "p.md")]
    assert found == [
        ("p.md:3", "A first sentence. A second one, by J. Doe (e.g. Sec. 2), ends here.", True),
        ("p.md:7", "X", False),
        ("p.md:7", "a cell", False),
    ]
    assert len([*sentences(found[0][1])]) == 2


def test_a_module_gives_docstrings_and_messages() -> None:
    found = [*of_module(MODULE, "m.py", messages=True)]
    assert [one.text for one in found if one.kind == "docstrings"] == [
        "First line.", "what a row holds.", "How many there are.", "What is left.", "What it does.",
    ]  # fmt: skip
    assert [one.text for one in found if one.kind == "messages"] == ["there is no X in what was sent by anybody"]
    assert [one.kind for one in of_module(MODULE, "m.py", messages=False)] == ["docstrings"] * 5


def test_a_template_gives_its_blocks_without_what_fills_them() -> None:
    text = "{# a note #}<p>Hello <b>{{ name }}</b>, you are here.</p>{% if x %}<script>what is code</script>{% endif %}"
    assert [one.text for one in of_template(text, "t.html")] == ["Hello X, you are here."]


@pytest.mark.parametrize(
    ("sentence", "seen"),
    [
        ("What ends a job is a beat.", True),
        ("The job ends; whoever waits is answered.", True),
        ("So rows are read once.", True),
        ("Which rows does it read?", False),
        ("What does it read?", False),
        ("The job names what it reads.", False),
        ("Somebody reads it.", False),
    ],
)
def test_a_question_word_as_subject_is_seen(sentence: str, seen: bool) -> None:
    assert opens_badly(sentence) is seen


def test_a_planted_word_is_seen() -> None:
    assert retired("Each client is told.") == ["Each client", "told"]
    assert retired("The SDK's Client holds.") == []
    assert history("As of 9f63d67a, on 2026-01-02, it is mended.") == ["9f63d67a", "2026-01-02", "mended"]
    assert history("Use 12345678 rows; a beadfeed; 0.2.") == []
    assert length("a b - c, + `d`") == 4
    assert bad_subject("mend things")
    assert bad_subject("Part: " + "x" * 70)
    assert not bad_subject("Ledger: keep heads")


def test_findings_name_rule_kind_and_place() -> None:
    """The planted bugs: each rule counts, in the kind of its text; a page of decisions may have history."""
    long = "word " * 36 + "mended."
    found = Findings([Paragraph(kind, f"{kind}:1", long) for kind in ("pages", "decisions")])
    assert {rule: len(at) for rule, at in found.places.items()} == {
        "long in pages": 1, "long in decisions": 1, "history in pages": 1,
    }  # fmt: skip
    assert found.means() == {"words a sentence in decisions": 37.0, "words a sentence in pages": 37.0}


def test_an_entry_of_arguments_is_no_whole_sentence() -> None:
    found = [*of_docstring("Do it.\n\nRaises:\n    NotFound: none is there.\n\nA word more.", "m.py:1")]
    assert [(one.text, one.whole) for one in found] == [
        ("Do it.", True), ("none is there.", False), ("A word more.", True),
    ]  # fmt: skip


def test_comments_are_counted_without_switches(tmp_path: Path) -> None:
    module = tmp_path / "m.py"
    module.write_text("x = 1  # why\ny = 2  # type: ignore\nz = '# none'\n")
    assert lines_a_comment([module]) == 3


def test_the_readme_has_the_least_lines() -> None:
    assert min(LINES, key=LINES.__getitem__) == "README.md"
