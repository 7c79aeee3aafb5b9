"""Privacy reports: one document as page, PDF and JSON, for those who may read what it is about."""

import io

import httpx
import pytest
from pypdf import PdfReader

from api.pages.standalone import report_page
from api.pages.typesetting import pdf_of
from farthing.schemas.documents import DocumentView
from farthing.schemas.figures import per_cent
from tests.api.test_models import finish
from tests.support.api import Service, job, submit, upload

HOSTILE = (
    '#panic("no") $x^2$ *b* _i_ `code` \\ // @ref <label>',
    "<script>window.hit=1</script>",
    "\u202e\u0642\u0627\u0639\u062f\u0629",
    "病院 🏥",
    "a" * 10_000,
)


def text_of(pdf: bytes) -> str:
    return " ".join(" ".join(page.extract_text() for page in PdfReader(io.BytesIO(pdf)).pages).split())


class Made:
    def __init__(self, service: Service) -> None:
        self.owner, _ = service.someone("owner", "office of reports")
        self.dataset = str(upload(self.owner, shift=91_000, name="reported")["id"])
        self.job = submit(self.owner, job(self.dataset, labels={"name": "first look"})).json()["id"]
        finish(service, self.job)
        self.budget = self.owner.get(f"/v1/datasets/{self.dataset}/budget").json()
        self.paths = (f"/v1/jobs/{self.job}/report", f"/v1/datasets/{self.dataset}/report")

    def get(self, path: str, kind: str) -> httpx.Response:
        answer = self.owner.get(path, params={"format": kind})
        assert answer.status_code == 200, answer.text
        return answer


@pytest.fixture(scope="module")
def made(service: Service) -> Made:
    return Made(service)


@pytest.mark.parametrize("place", [0, 1])
def test_a_stranger_reads_none(service: Service, made: Made, place: int) -> None:
    other, _ = service.someone("analyst", "stranger to reports")
    for kind in ("json", "html", "pdf"):
        assert other.get(made.paths[place], params={"format": kind}).status_code == 404


def test_a_datasets_report_has_the_figures_of_its_budget(made: Made) -> None:
    document = DocumentView.model_validate(made.get(made.paths[1], "json").json())
    told = {fact.name: fact.value for section in document.sections for fact in section.facts}
    budget = made.budget
    assert told["Epsilon"] == f"{budget['epsilon']['total']} at delta {budget['delta']}"
    assert told["Spent"].startswith(per_cent(budget["budget_share"]["spent"]))
    assert told["Left"] == per_cent(budget["budget_share"]["remaining"])
    assert told["Head"] == budget["head"]
    tables = [section.table for section in document.sections if section.table is not None]
    assert [row[0] for row in tables[0].rows] == ["age", "job", "y"]
    assert tables[1].rows[0][0] == "first look"
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)


def test_a_jobs_report_has_the_figures_of_its_guarantee(made: Made) -> None:
    promise = made.get(made.paths[0], "json").json()["privacy"]["promise"]
    page, pdf = made.get(made.paths[0], "html").text, text_of(made.get(made.paths[0], "pdf").content)
    for text in (page, pdf):
        assert f"{promise['epsilon']} at delta {promise['delta']}" in text
        assert promise["mu"] in text
        assert made.job in text
        assert "Not promised" in text


def test_the_promise_to_a_group_follows_from_the_jobs_own(made: Made) -> None:
    """Twice the mu is what the promise under the other adjacency is, to the rounding of both."""
    told = made.get(made.paths[0], "json").json()["privacy"]
    page = made.get(made.paths[0], "html").text
    row = '<th scope="row"><bdi class="name">{}</bdi></th><td class="num">'
    assert f"{row.format(1)}{told['promise']['epsilon']}</td>" in page
    twice = float(told["implies"]["replace_one"]["epsilon"])
    shown = float(page.split(row.format(2))[1].split("<")[0])
    assert twice <= shown <= 1.002 * twice


@pytest.mark.parametrize("place", [0, 1])
def test_page_and_pdf_say_the_same(made: Made, place: int) -> None:
    page, pdf = made.get(made.paths[place], "html"), made.get(made.paths[place], "pdf")
    assert page.headers["content-type"].startswith("text/html")
    assert pdf.headers["content-type"] == "application/pdf"
    assert "attachment" in pdf.headers["content-disposition"]
    reader = PdfReader(io.BytesIO(pdf.content))
    assert reader.trailer["/Root"]["/MarkInfo"]["/Marked"], "tagged, so that it can be read aloud"
    assert reader.trailer["/Root"]["/Lang"] == "en"
    text = text_of(pdf.content)
    for heading in ("Parameters", "Unit of privacy", "Bounds", "Composition", "Model of trust", "Check this yourself"):
        assert heading in page.text
        assert heading in text


@pytest.mark.parametrize("name", HOSTILE, ids=["markup", "script", "right to left", "without a glyph", "long"])
def test_no_text_of_a_report_is_markup(made: Made, name: str) -> None:
    document = DocumentView.model_validate(made.get(made.paths[1], "json").json())
    spoilt = document.model_copy(update={"title": name, "lead": name})
    assert pdf_of(spoilt, name).startswith(b"%PDF")
    page = report_page(spoilt)
    assert "<script" not in page
    if name.startswith("#panic"):
        assert '#panic("no") $x^2$' in text_of(pdf_of(spoilt, "here"))


def test_before_there_are_records_there_is_no_report(service: Service) -> None:
    owner, _ = service.someone("owner", "declares alone")
    from tests.support.api import metadata  # noqa: PLC0415 - only here

    found = owner.post("/v1/datasets", json=metadata(name="declared"))
    assert found.status_code == 201, found.text
    answer = owner.get(f"/v1/datasets/{found.json()['id']}/report")
    assert answer.status_code == 409
    assert "before it has records" in answer.json()["detail"]
