"""Summaries as files of HTML: escaped, with the figures of the API, and needing nothing else."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from api.pages.standalone import summary_page
from core.data.columns import BinaryColumn, NumberColumn
from core.inference.checks import Checks, ColumnLook, Learned
from core.inference.coefficient_document import document
from core.inference.released import Released
from core.inference.rendering import text_of
from core.inference.results import caveats, summary
from core.inference.settings import UNCHECKED
from core.inference.wording import notes
from core.models.design import make_design
from core.models.kinds import LogisticModel
from core.service.readings import whole_of
from farthing.schemas.figures import interval_words, statistic
from tests.support.released import KINDS, UNTOUCHED, of_kind, released, rows_of, shown_of, spread

HOSTILE = "<script>alert('\"&age')</script>"
VOID = {"meta", "line", "circle", "path", "br"}


class Row:
    """A row of a table: its name, its cells in words, and the attributes of all that stands in it."""

    def __init__(self) -> None:
        self.name = ""
        self.cells: list[str] = []
        self.attributes: list[dict[str, str]] = []

    def of_class(self, name: str) -> list[dict[str, str]]:
        return [one for one in self.attributes if name in one.get("class", "").split()]


class Strict(HTMLParser):
    """Keeps elements, attributes, texts and rows; fails where a tag is closed that is not open."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.rows: list[Row] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        found = {name: value or "" for name, value in attrs}
        self.attributes += found.items()
        if tag == "tr":
            self.rows.append(Row())
        if tag in {"td", "th"}:
            self.rows[-1].cells.append("")
        if "tr" in self.open:
            self.rows[-1].attributes.append(found)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"{tag} is closed and was never opened"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1].cells[-1] += data
        if "tr" in self.open and self.open[-1] == "bdi":
            self.rows[-1].name += data

    @property
    def drawn(self) -> dict[str, Row]:
        """The rows of the plot, by name."""
        return {row.name: row for row in self.rows if row.of_class("c-axis")}


def parsed(page: str) -> Strict:
    reader = Strict()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


def page(model: Released, *levels: float) -> str:
    return summary_page(whole_of(model, shown_of(model, levels)))


def body(text: str) -> str:
    """Return a page without its stylesheet."""
    return text.split("</style>", 1)[1]


def at(element: dict[str, str], name: str) -> float:
    """Return where something is drawn, in per cent of the plot's width."""
    return float(element[name].removesuffix("%"))


def hostile(name: str) -> Released:
    columns = (NumberColumn(name=name, lower=0, upper=2), BinaryColumn(name="y", values=("no", "yes")))
    design = make_design(columns, LogisticModel(target="y"))
    return released(design=design, theta=(0.1, 0.2), covariance=rows_of(spread(2)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("intervals", [True, False])
def test_a_file_is_whole_and_needs_nothing_else(kind: str, intervals: bool) -> None:
    model = of_kind(kind) if intervals else of_kind(kind, covariance=None)
    text = page(model)
    reader = parsed(text)
    assert text.startswith("<!doctype html>")
    assert not {"script", "link", "img", "iframe", "object", "embed", "form", "base", "use"} & set(reader.tags)
    assert not [name for name, _ in reader.attributes if name.startswith("on") or name in {"href", "src", "style"}]
    assert "://" not in text
    assert not re.search(r"url\((?!#)", text), "a stylesheet refers to its own page alone"
    assert "@import" not in text
    assert "@font-face" not in text
    for name in model.names:
        assert name in reader.texts
    assert "color-scheme: light dark" in text
    assert ("lang", "en") in reader.attributes


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_has_the_figures_of_the_api(kind: str) -> None:
    model = of_kind(kind)
    shown = summary(model, (0.9, 0.99))
    rows = {row.name: row.cells for row in parsed(page(model, 0.9, 0.99)).rows}
    lines = shown["coefficients"] + ([{"name": "(residual scale)", **shown["scale"]}] if shown["scale"] else [])
    assert len(rows) == len(lines) + 1, "and the heads"
    for line in lines:
        cells = rows[line["name"]]
        assert cells[1:3] == [statistic(line["estimate"]), statistic(line["std_error"])]
        assert cells[5:7] == [interval_words(one["interval"]) for one in line["intervals"]]


@pytest.mark.parametrize("kind", KINDS)
def test_each_coefficient_is_drawn_with_two_intervals_beside_its_figures(kind: str) -> None:
    model = of_kind(kind)
    rows = parsed(page(model)).drawn
    assert [name for name in rows if name in model.names] == list(model.names)
    for name, column in zip(model.names, model.columns, strict=True):
        if column is None:
            continue
        row = rows[name]
        (thin,), (thick,), (dot,) = row.of_class("c-thin"), row.of_class("c-thick"), row.of_class("c-dot")
        assert 0 < at(thin, "x1") < at(thick, "x1") < at(dot, "cx") < at(thick, "x2") < at(thin, "x2") < 100


def test_where_zero_lies_in_the_plot_is_where_the_table_says() -> None:
    """An interval without zero in it does not cross the line of zero."""
    model = released()
    rows = {row["name"]: row["interval"] for row in summary(model)["coefficients"]}
    for name, row in parsed(page(model)).drawn.items():
        (zero,), thin = row.of_class("c-axis"), row.of_class("c-thin")
        if name == "intercept":
            continue
        low, high = rows[name]
        assert (at(thin[0], "x1") < at(zero, "x1")) == (low < 0)
        assert (at(thin[0], "x2") < at(zero, "x1")) == (high < 0)


def test_a_withheld_interval_is_not_drawn_and_its_words_claim_no_more_than_the_answers() -> None:
    """Of 99 records without the outcome and 22 with it, a flag said that nearly all had one outcome."""
    eye, far = np.eye(4), (0.3, 40.0, 0.5, 0.1)
    learned = Learned(columns=(ColumnLook(centre=0, scale=1),) * 4, encoding=rows_of(eye), weight_bound=3.0)
    figures = {"gradient_excess": 0.1, "hessian_noise": 0.1, "unidentified": (0.0,) * 4, "learned": learned}
    flagged = released(checks=Checks(coefficients=((), ("separated",), (), ()), **figures), theta=far)
    text = page(flagged)
    reader = parsed(text)
    age, *others = (row for name, row in reader.drawn.items() if name != "intercept")
    assert age.name == "age"
    assert not age.of_class("c-thick")
    assert not age.of_class("bare")
    assert "no standard error, interval or test" in age.cells
    assert "the answers do not exclude" in age.cells[0], "what is wrong stands beside it"
    assert all(one.of_class("bare") and one.of_class("c-thick") for one in others)
    ticks = re.findall(r'<text class="c-text"[^>]*>[^0-9<]?([^<]+)<', text)
    assert 0 < max(map(float, ticks)) < 10, "nor does it stretch the axis"
    (note,) = (note for note in notes(flagged) if "The interval of age" in note)
    assert "do not exclude" in note
    assert "nearly all" not in note
    everything = released(checks=Checks(job=("too few events",), coefficients=((),) * 4, **figures), covariance=None)
    assert not parsed(page(everything)).drawn
    assert "were counted, with noise" in " ".join(notes(everything))


@pytest.mark.parametrize("kind", KINDS)
def test_unchecked_intervals_say_so_in_every_view(kind: str) -> None:
    model = of_kind(kind)
    shown = shown_of(model)
    for view in (text_of(document(shown)), page(model), " ".join(caveats(model)["notes"])):
        assert UNCHECKED in " ".join(view.split())
    assert page(model).count("<h2>Unchecked intervals</h2>") == 1
    assert "Unchecked intervals (95 %) use" in shown["methods"]
    assert "; unchecked intervals at 95 %" in str(document(shown)), "as a PDF heads its table"
    none = of_kind(kind, covariance=None)
    assert "unchecked" not in (page(none) + shown_of(none)["methods"]).lower()


@pytest.mark.parametrize("kind", KINDS)
def test_without_intervals_nothing_is_said_that_follows_from_them(kind: str) -> None:
    text = body(page(of_kind(kind, covariance=None)))
    assert not re.search(r"[Ss]td|>z<|>p<|Correction|Eigenvalues|intervals at| interval<|errors and intervals", text)
    assert 'class="c-thick"' not in text
    assert 'class="c-dot bare"' in text


def test_the_levels_are_those_that_were_asked_for() -> None:
    said = " ".join(parsed(page(released(), 0.9, 0.99)).texts)
    assert "thick lines are 90\N{NO-BREAK SPACE}% intervals, thin ones 99\N{NO-BREAK SPACE}%" in said
    heads = parsed(page(released(), 0.9, 0.99)).rows[0].cells
    assert heads[5:7] == ["90\N{NO-BREAK SPACE}% interval", "99\N{NO-BREAK SPACE}% interval"]


def test_tables_are_marked_up_for_those_who_hear_them() -> None:
    reader = parsed(page(released(), 0.9, 0.99))
    scopes = [value for name, value in reader.attributes if name == "scope"]
    assert (scopes.count("col"), scopes.count("row")) == (8, 4)
    ids = {value for name, value in reader.attributes if name == "id"}
    assert {value for name, value in reader.attributes if name == "aria-labelledby"} <= ids


@pytest.mark.parametrize("name", [HOSTILE, "</style><script>", "{{ 7 * 7 }}", "\u0642\u0627\u0639\u062f\u0629"])
def test_names_are_texts_never_markup(name: str) -> None:
    text = page(hostile(name))
    reader = parsed(text)
    assert "<script" not in text
    assert "script" not in reader.tags
    assert reader.tags.count("style") == 1
    assert [row.name for row in reader.rows[1:]] == ["intercept", name], "shown as it is"


def test_a_file_without_escaping_would_be_seen() -> None:
    """The planted bug: the same page with the name put in as it is."""
    naive = page(hostile(HOSTILE)).replace("&lt;", "<").replace("&gt;", ">")
    with pytest.raises(AssertionError):
        assert "script" not in parsed(naive).tags


def test_many_coefficients_are_all_in_the_table_and_drawn() -> None:
    features = tuple(NumberColumn(name=f"x{at}", lower=0, upper=1) for at in range(65))
    design = make_design((*features, BinaryColumn(name="y", values=("0", "1"))), LogisticModel(target="y"))
    big = released(design=design, theta=(0.1,) * 66, covariance=rows_of(spread(66)), flags=UNTOUCHED)
    assert len(parsed(page(big)).drawn) == 66


def test_an_intercept_alone_has_no_plot() -> None:
    design = make_design((BinaryColumn(name="y", values=("0", "1")),), LogisticModel(target="y"))
    reader = parsed(page(released(design=design, theta=(0.2,), covariance=rows_of(spread(1)))))
    assert not reader.drawn
    assert [row.name for row in reader.rows] == ["", "intercept"]
    assert "The plot" not in " ".join(reader.texts)
