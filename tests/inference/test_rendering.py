"""A model as text and as a page: aligned, escaped, the same for the same release, and needing nothing else."""

import re
from html.parser import HTMLParser
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from core.data.columns import BinaryColumn, NumberColumn
from core.inference.checks import Checks, ColumnLook, Learned
from core.inference.comparison import compare
from core.inference.pages import MOST_LINES, plot_levels, summary_page
from core.inference.released import Released
from core.inference.rendering import columns, comparison_text, number, plain, summary_text, wide
from core.inference.results import summary, table
from core.inference.wording import notes
from core.losses.losses import Clip
from core.methods.registry import source_of
from core.models.design import make_design
from core.models.kinds import LogisticModel
from tests.support.released import KINDS, UNTOUCHED, of_kind, released, rows_of, spread

HOSTILE = "<script>alert('\"&age')</script>"
IDS = {"model": "mdl_1", "job": "job_1"}
GOLDEN = """\
               Logistic regression of y, differentially private
==============================================================================
Target:                             y
Records: 1,000 declared; excluded ones are not counted
Method:                  noisy newton   Steps:                   8 (finished)
Loss:                   logistic loss   Correction:                stationary
Weights:    Mallows weights (bound 2)   Parameters:                         4
==============================================================================
                 coef    std err          z      P>|z|     [0.025     0.975]
------------------------------------------------------------------------------
intercept       1.876     0.6009      3.121      0.002      0.698      3.054
age             -0.04   0.005081     -7.872      0.000   -0.04996   -0.03004
job[b]         0.7071      0.314      2.252      0.024    0.09175      1.322
job[c]         0.1414     0.3639      0.389      0.698    -0.5717     0.8546
==============================================================================
Method: Noisy Newton. Source: Avella-Medina, Bradshaw, Loh: Differentially
  private inference via noisy optimization (2023).
Privacy (informational): mu 0.5, epsilon 2.255 at delta 1e-6, adjacency
  zero_out.
Under replace_one: mu 1, epsilon 4.887 at delta 1e-6.
Eigenvalues floored: 1 of the Hessian, 0 of the scores, 0 in the last step.
  Slow directions: 0.
Note: 1 eigenvalue of the covariance's noised matrices fell below a public
  floor (1 of the Hessian, 0 of the score matrix): what is said along such
  directions rests on the floor, not on the records.
Model mdl_1, job job_1.
"""
VOID = {"meta", "line", "circle", "br"}


class Strict(HTMLParser):
    """Keeps elements, attributes and text; fails where a tag is closed that is not open."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} is closed and was never opened"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def parsed(page: str) -> Strict:
    reader = Strict()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def shown(model: Released, *levels: float) -> dict[str, Any]:
    return {**IDS, **summary(model, levels), "method": source_of(model.optimizer).model_dump()}


def page(model: Released, *levels: float) -> str:
    told = shown(model, *levels)
    return summary_page(model, told, table(model, plot_levels(told["levels"])))


def hostile() -> Released:
    columns = (NumberColumn(name=HOSTILE, lower=0, upper=2), BinaryColumn(name="y", values=("no", "yes")))
    design = make_design(columns, LogisticModel(target="y"))
    return released(design=design, theta=(0.1, 0.2), covariance=rows_of(spread(2)))


def test_the_text_is_as_it_was_agreed() -> None:
    assert summary_text(shown(released())) == GOLDEN
    assert summary_text(shown(released())) == summary_text(shown(released())), "no clock is in it"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("levels", [(), (0.5001, 0.9, 0.99999)])
def test_columns_are_aligned(kind: str, levels: tuple[float, ...]) -> None:
    lines = summary_text(shown(of_kind(kind), *levels)).splitlines()
    start = next(at for at, line in enumerate(lines) if "P>|z|" in line)
    body = [lines[start], *lines[start + 2 : lines.index(lines[1], start)]]
    assert len(body) == 1 + len(of_kind(kind).names) + (kind == "joint")
    coefficients = [line for line in body if not line.startswith("(residual")]
    assert len({wide(line) for line in coefficients}) == 1
    ends = [[found.end() for found in re.finditer(r"\S+$|\S+(?= )", line)][-4:] for line in coefficients]
    assert all(one == ends[0] for one in ends), "numbers end where their headings do"
    assert {wide(line) for line in lines if set(line) in ({"="}, {"-"})} == {max(78, wide(body[0]))}


def test_wide_letters_and_marks_keep_their_place() -> None:
    assert wide("年齢") == 4
    assert wide("e\u0301") == 1
    first, second = columns([["年齢", "1"], ["age", "22"]])
    assert wide(first) == wide(second)


def test_what_would_turn_a_line_around_is_shown_as_its_code() -> None:
    assert plain("a\u202eb\u2028c\nd") == r"a\u202eb\u2028c\u000ad"
    assert number(None) == ""
    assert number(1234567.0) == "1.235e+06"


@pytest.mark.parametrize("kind", KINDS)
def test_without_intervals_nothing_is_said_that_follows_from_them(kind: str) -> None:
    model = of_kind(kind, covariance=None)
    for told in (summary_text(shown(model)), page(model)):
        assert not re.search(r"std err|P>|P&gt;|Correction|Eigenvalues|intervals at", told)
        assert all(name in " ".join(parsed(told).texts) for name in model.names)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intervals", [True, False])
def test_a_page_is_whole_and_needs_nothing_else(kind: str, intervals: bool) -> None:
    model = of_kind(kind) if intervals else of_kind(kind, covariance=None)
    text = page(model)
    reader = parsed(text)
    assert text.startswith("<!doctype html>")
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base"} & set(reader.tags)
    assert not [name for name, _ in reader.attributes if name.startswith("on") or name in {"href", "src", "style"}]
    assert "://" not in text
    assert "url(" not in text
    assert "@import" not in text
    said = " ".join(reader.texts)
    for name in model.names:
        assert name in said
    assert "prefers-color-scheme" in text


@pytest.mark.parametrize("kind", KINDS)
def test_the_plot_has_a_title_a_description_and_two_levels(kind: str) -> None:
    model = of_kind(kind)
    (drawing,) = re.findall(r"<svg.*?</svg>", page(model), re.DOTALL)
    root = ET.fromstring(drawing)
    labels = set(root.attrib["aria-labelledby"].split())
    assert {one.attrib.get("id") for one in root.iter() if one.tag in ("title", "desc")} >= labels
    assert root.attrib["role"] == "img"
    groups = root.findall("g")
    slopes = [name for name, column in zip(model.names, model.columns, strict=True) if column is not None]
    assert [one.findtext("title") for one in groups] == slopes
    for group in groups:
        thin, thick = group.findall("line")
        dot = group.find("circle")
        assert dot is not None
        low, high, left, right = (float(line.attrib[end]) for line in (thin, thick) for end in ("x1", "x2"))
        assert 0 < low < left < float(dot.attrib["cx"]) < right < high < 760
    zero = root.find("line[@class='zero']")
    assert zero is not None


def test_a_withheld_estimate_has_no_dot_and_its_words_claim_no_more_than_the_answers() -> None:
    """Of 99 records without the outcome and 22 with it, a flag said that nearly all had one outcome."""
    eye, far = np.eye(4), (0.3, 40.0, 0.5, 0.1)
    learned = Learned(columns=(ColumnLook(centre=0, scale=1),) * 4, encoding=rows_of(eye), weight_bound=3.0)
    figures = {"gradient_excess": 0.1, "hessian_noise": 0.1, "unidentified": (0.0,) * 4, "learned": learned}
    flagged = released(checks=Checks(coefficients=((), ("separated",), (), ()), **figures), theta=far)
    text = page(flagged)
    (drawing,) = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    age, *others = ET.fromstring(drawing).findall("g")
    assert (age.findtext("title"), age.find("circle"), age.findall("text")[1].text) == ("age", None, "withheld")
    assert all(one.find("circle") is not None for one in others)
    assert max(float(one.text) for one in ET.fromstring(drawing).findall("text")) < 10, "nor does it stretch the axis"
    assert "thin bars are 95 % intervals" in text
    (note,) = (note for note in notes(flagged) if "The interval of age" in note)
    assert "do not exclude" in note
    assert "nearly all" not in note
    everything = released(checks=Checks(job=("too few events",), coefficients=((),) * 4, **figures), covariance=None)
    assert "<svg" not in page(everything)
    assert "were counted, with noise" in " ".join(notes(everything))


def test_where_zero_lies_in_the_plot_is_where_the_table_says() -> None:
    """An interval without zero in it does not cross the line of zero."""
    model = released()
    (drawing,) = re.findall(r"<svg.*?</svg>", page(model), re.DOTALL)
    root = ET.fromstring(drawing)
    zero = float(root.find("line[@class='zero']").attrib["x1"])  # type: ignore[union-attr]  # it is there
    rows = {row["name"]: row["interval"] for row in summary(model)["coefficients"]}
    for group in root.findall("g"):
        thin = group.findall("line")[0]
        low, high = rows[str(group.findtext("title"))]
        assert (float(thin.attrib["x1"]) < zero) == (low < 0)
        assert (float(thin.attrib["x2"]) < zero) == (high < 0)


def test_tables_are_marked_up_for_those_who_hear_them() -> None:
    reader = parsed(page(released(), 0.9, 0.99))
    assert reader.tags.count("caption") == 1
    assert [value for name, value in reader.attributes if name == "scope"].count("col") == 9
    assert [value for name, value in reader.attributes if name == "scope"].count("row") == 4
    assert ("lang", "en") in reader.attributes


def test_names_are_texts_never_markup() -> None:
    model = hostile()
    text = page(model)
    reader = parsed(text)
    assert "<script" not in text
    assert "script" not in reader.tags
    assert HOSTILE in [one.strip() for one in reader.texts], "shown as it is"
    assert HOSTILE in summary_text(shown(model))


def test_a_page_without_escaping_would_be_seen() -> None:
    """The planted bug: the same page with the name put in as it is."""
    naive = page(hostile()).replace("&lt;", "<").replace("&gt;", ">")
    with pytest.raises(AssertionError):
        assert "script" not in parsed(naive).tags


def test_two_levels_of_the_plot_are_those_shown() -> None:
    assert plot_levels([0.95]) == [0.95, 0.8]
    assert plot_levels([0.8]) == [0.8, 0.9]
    assert plot_levels([0.9, 0.9, 0.99, 0.7]) == [0.9, 0.99]
    said = page(released(), 0.9, 0.99)
    assert "thin bars are 99 % intervals, thick ones 90 %" in said


def test_many_coefficients_are_all_in_the_table() -> None:
    features = tuple(NumberColumn(name=f"x{at}", lower=0, upper=1) for at in range(MOST_LINES + 5))
    design = make_design((*features, BinaryColumn(name="y", values=("0", "1"))), LogisticModel(target="y"))
    size = MOST_LINES + 6
    big = released(design=design, theta=(0.1,) * size, covariance=rows_of(spread(size)), flags=UNTOUCHED)
    text = page(big)
    assert "5 more coefficients are in the table" in text
    assert text.count('class="dot"') == MOST_LINES
    alone = released(
        design=make_design((features[0], BinaryColumn(name="y", values=("0", "1"))), LogisticModel(target="y")),
        theta=(0.0, 0.0),
        covariance=None,
    )
    assert "no intervals" in page(alone)


def test_an_intercept_alone_has_no_plot() -> None:
    design = make_design((BinaryColumn(name="y", values=("0", "1")),), LogisticModel(target="y"))
    text = page(released(design=design, theta=(0.2,), covariance=rows_of(spread(1))))
    parsed(text)
    assert "<svg" not in text
    assert "intercept" in text


def test_two_models_as_text_say_what_is_assumed() -> None:
    clipped = released(covariance=None, weights=Clip(bound=1.0), theta=(0.5, -0.9, 0.2, 0.0), flags=UNTOUCHED)
    told = compare(released(), clipped, "same_dataset")
    for model, name in zip(told["models"], ("mdl_1", "mdl_2"), strict=True):
        model["model"] = name
    text = comparison_text(told)
    assert "no test of the difference is justified" in " ".join(text.split())
    assert "gradient clipped at 1" in text
    assert re.search(r"^age +-0\.04 +0\.005081 +-0\.03 +0\.01 +1\.97", text, re.MULTILINE)
    both = compare(released(), released(theta=(0.4, -1.0, 0.5, 0.2)), "different_people")
    for model in both["models"]:
        model["model"] = "mdl_1"
    assert re.search(r"chi2\(4\) = [\d.]+, P = 0\.\d+", comparison_text(both))
