"""A model's pages: the figures of the API, questions and predictions by form, and nothing for others."""

import csv
import io
import re
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect

from core.inference.swept import SweepOutcome
from farthing.schemas.figures import MINUS, statistic
from tests.api.test_models import finish
from tests.support.api import Service, job, submit, upload
from tests.support.browser import look
from tests.support.released import checked
from tests.support.windows import csrf

TABS = ("", "/questions", "/predictions", "/compare", "/certificate")
ROW = {"c0": "40", "c1": "technician"}


class Made:
    """An owner with two models of one target, and a window of the owner's and of a stranger's."""

    def __init__(self, service: Service) -> None:
        self.client, key = service.someone("owner", "owner of models")
        self.window = service.window(key["key"])
        _, other = service.someone("analyst", "stranger")
        self.stranger = service.window(other["key"])
        self.key = str(key["key"])
        self.dataset = dataset = str(upload(self.client, shift=7000, name="of models")["id"])
        self.jobs = [submit(self.client, job(dataset, labels={"name": name})).json()["id"] for name in ("one", "two")]
        self.first, self.second = (finish(service, made) for made in self.jobs)

    def ask(self, path: str, **fields: str) -> httpx.Response:
        return self.window.post(f"/models/{self.first}/{path}", data={"csrf": csrf(self.window), **fields})


@pytest.fixture(scope="module")
def made(service: Service) -> Iterator[Made]:
    made = Made(service)
    yield made
    made.window.close()
    made.stranger.close()


@pytest.mark.parametrize("tab", TABS)
def test_every_tab_opens_for_those_who_may_read_the_model_alone(made: Made, tab: str) -> None:
    path = f"/models/{made.first}{tab}"
    assert made.window.get(path).status_code == 200
    refused = made.stranger.get(path)
    assert refused.status_code == 404
    assert "one" not in refused.text.split("<main", 1)[1]


def test_a_sweeps_model_names_the_candidate_that_won(made: Made, service: Service) -> None:
    candidates = [{"optimizer": {"kind": "noisy_gd", "steps": steps}} for steps in (3, 9)]
    optimizer = {"kind": "sweep", "candidates": candidates, "way": "composition"}
    asked = job(made.dataset, optimizer=optimizer, inference={"intervals": False})
    won = SweepOutcome(
        candidate=1,
        candidates=2,
        optimizer={"kind": "noisy_gd", "steps": 9},
        ridge=0.1,
        score=0.21,
        score_scale=0.01,
        way="composition",
    )
    model = finish(service, submit(made.client, asked).json()["id"], sweep=won)
    shown = made.window.get(f"/models/{model}").text
    assert "The sweep" in shown
    assert "Candidate 1 of 2, numbered from 0, has the least mean error" in shown
    assert "steps 9, ridge 0.1" in shown
    assert "The sweep" not in made.window.get(f"/models/{made.first}").text


@pytest.mark.parametrize("path", ["contrasts", "tests", "predict"])
def test_strangers_ask_nothing(made: Made, path: str) -> None:
    data = {"csrf": csrf(made.stranger), "weight1": "1", "tick1": "1", **ROW}
    assert made.stranger.post(f"/models/{made.first}/{path}", data=data).status_code == 404


def test_a_combination_has_the_figures_of_the_api(made: Made) -> None:
    fields = {"weight1": "10", "weight2": f"{MINUS}1", "level": "90", "alternative": "greater", "value": "0.5"}
    shown = made.ask("contrasts", margin="1", **fields)
    body = {"weights": {"age": 10, "job[technician]": -1}, "level": 0.9, "alternative": "greater", "value": 0.5}
    told = made.client.post(f"/v1/models/{made.first}/contrasts", json=body | {"margin": 1}).json()
    assert shown.status_code == 200, shown.text
    assert f"10 \N{MULTIPLICATION SIGN} age {MINUS} job[technician]" in shown.text
    for figure in (told["estimate"], told["std_error"], *told["interval"], told["z"]):
        assert statistic(figure) in shown.text
    assert f"{told['p_value']:.4f}".removeprefix("0") in shown.text
    assert "It is greater than 0.5" in shown.text
    assert "two one-sided tests" in shown.text


def test_a_joint_test_has_the_figures_of_the_api(made: Made) -> None:
    shown = made.ask("tests", tick1="1", tick3="1")
    told = made.client.post(f"/v1/models/{made.first}/tests", json={"coefficients": ["age", "job[other]"]}).json()
    assert shown.status_code == 200, shown.text
    assert statistic(told["statistic"]) in shown.text
    assert f"p</dt><dd>{told['p_value']:.4f}".replace("0.", ".") in shown.text


@pytest.mark.parametrize(
    ("path", "fields", "said"),
    [
        ("contrasts", {"weight1": "much"}, 'id="weight1-e"'),
        ("contrasts", {}, "give a coefficient a weight"),
        ("contrasts", {"weight1": "1", "level": "0.95"}, "above 50 and below 100"),
        ("contrasts", {"weight1": "1", "margin": "-1"}, 'id="margin-e"'),
        ("contrasts", {"weight1": "1", "alternative": "odd"}, "must be"),
        ("tests", {}, "tick the coefficients"),
    ],
)
def test_a_question_that_cannot_be_asked_says_why(made: Made, path: str, fields: dict[str, str], said: str) -> None:
    answer = made.ask(path, **fields)
    assert answer.status_code == 422
    assert said in answer.text
    for name, text in fields.items():
        assert text in answer.text or name == "alternative", f"{name} is kept"


def test_one_row_is_predicted_as_by_the_api(made: Made) -> None:
    body = {"rows": [{"age": 40, "job": "technician"}], "level": 0.95}
    (told,) = made.client.post(f"/v1/models/{made.first}/predict", json=body).json()["predictions"]
    shown = made.ask("predict", **ROW)
    assert shown.status_code == 200, shown.text
    for figure in (told["probability"], *told["interval"]):
        assert statistic(figure) in shown.text


def test_a_row_is_shown_with_its_flags(made: Made, service: Service) -> None:
    checks = checked("logistic", job=("too many coefficients",), flagged={2: ("not identified",)}).checks
    model = finish(service, submit(made.client, job(made.dataset)).json()["id"], checks=checks)
    told = made.client.post(f"/v1/models/{model}/predict", json={"rows": [{"age": 40, "job": "technician"}]}).json()
    assert (told["flags"], told["predictions"][0]["flags"]) == (
        ["too many coefficients"],
        ["job[technician]: not identified"],
    )
    for level, flags in (("technician", ["job[technician]: not identified"]), ("other", [])):
        shown = made.window.post(f"/models/{model}/predict", data={"csrf": csrf(made.window), "c0": "40", "c1": level})
        text = " ".join(re.sub(r"<[^>]*>", "", shown.text).split())
        assert f"Flags of this row: {'; '.join(['too many coefficients', *flags])}." in text
    assert "Flags of this row" not in made.ask("predict", **ROW).text


def test_a_file_is_predicted_row_by_row(made: Made) -> None:
    text = 'id,age,job\r\na,40,technician\r\nb,19,"other"\r\n'
    answer = made.ask("predict", csv="\ufeff" + text)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    body = {"rows": [{"age": 40, "job": "technician"}, {"age": 19, "job": "other"}], "level": 0.95}
    told = made.client.post(f"/v1/models/{made.first}/predict", json=body).json()["predictions"]
    assert [row["id"] for row in rows] == ["a", "b"]
    for row, one in zip(rows, told, strict=True):
        found = [float(row[name]) for name in ("predicted_probability", "predicted_lower", "predicted_upper")]
        assert found == [one["probability"], *one["interval"]]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"c0": "", "c1": "technician"}, '<a href="#c0"><bdi class="name">age</bdi>: must be a number</a>'),
        ({"csv": "age,job\n40\n"}, "Row 1: has 1 cells, where the first line names 2 columns."),
        ({"csv": "age,job\n40,technician\nold,other\n"}, "Row 2, column age: must be a number."),
        ({"csv": "age\n40\n"}, "The file: the file has no column `job`."),
        ({"csv": "age,job"}, "The file: send at least one row below the header."),
        ({"csv": 'age,job\n"40'}, "Row 1: has 1 cells, where the first line names 2 columns."),
    ],
)
def test_rows_that_cannot_be_read_are_named(made: Made, fields: dict[str, str], said: str) -> None:
    answer = made.ask("predict", **fields)
    assert answer.status_code == 422
    assert said in answer.text
    assert "/rows" not in answer.text, "fields have their names on pages, never a pointer"


def test_two_models_side_by_side(made: Made) -> None:
    page = made.window.get(f"/models/{made.first}/compare")
    assert f'<option value="{made.second}">two</option>' in page.text
    chosen = made.window.get(f"/models/{made.first}/compare?other={made.second}")
    assert chosen.headers["location"] == f"/models/{made.first}/compare/{made.second}"
    shown = made.window.get(chosen.headers["location"])
    told = made.client.get(f"/v1/models/{made.first}/compare/{made.second}").json()
    assert told["assumes"] in shown.text
    for line in told["coefficients"]:
        assert statistic(line["std_error_bound"]) in shown.text
    assert made.stranger.get(f"/models/{made.first}/compare/{made.second}").status_code == 404


def test_the_certificate_is_the_signed_one(made: Made) -> None:
    page = made.window.get(f"/models/{made.first}/certificate").text
    signed = made.window.get(f"/jobs/{made.jobs[0]}/certificate.jws")
    assert signed.headers["content-type"].startswith("application/jose")
    told = signed.text.split(".")[1]  # the head of each has the time of its own signature
    assert told == made.client.get(f"/v1/jobs/{made.jobs[0]}/certificate").text.split(".")[1]
    assert f".{told}." in page
    assert made.stranger.get(f"/jobs/{made.jobs[0]}/certificate.jws").status_code == 404


def test_the_list_has_the_models_that_one_may_read_and_its_filters_narrow_it(made: Made) -> None:
    shown = made.window.get("/models")
    assert shown.status_code == 200, shown.text
    assert f"/models/{made.first}" in shown.text
    assert 'aria-current="page"' in shown.text.split('href="/models"', 1)[1].split(">", 1)[0]
    for query, first, second in (
        ("name=one", True, False),
        ("name=two&dataset=&approval=not-needed", False, True),
        ("approval=pending", False, False),
        (f"dataset={made.dataset}", True, True),
    ):
        text = made.window.get(f"/models?{query}").text.split("<main", 1)[1]
        assert (f"/models/{made.first}" in text, f"/models/{made.second}" in text) == (first, second), query
    assert made.first not in made.stranger.get("/models").text
    assert made.window.get("/models?approval=maybe").status_code == 422


def test_a_model_is_retracted_by_a_form_of_those_who_may(made: Made, service: Service) -> None:
    made_job = submit(made.client, job(made.dataset, labels={"name": "short-lived"})).json()["id"]
    model = finish(service, made_job)
    path = f"/models/{model}/retract"
    assert path in made.window.get(f"/models/{model}").text
    assert made.stranger.get(path).status_code == 404
    assert made.stranger.post(path, data={"csrf": csrf(made.stranger)}).status_code == 404
    _, key = service.someone("auditor", "reads alone")
    auditor = service.window(key["key"])
    assert path not in auditor.get(f"/models/{model}").text
    assert auditor.post(path, data={"csrf": csrf(auditor)}).status_code == 403
    auditor.close()
    assert "This cannot be undone" in made.window.get(path).text
    assert made.window.post(path, data={"csrf": "0"}).status_code == 403
    assert made.client.get(f"/v1/models/{model}").status_code == 200
    done = made.window.post(path, data={"csrf": csrf(made.window)})
    assert (done.status_code, done.headers["location"]) == (303, "/models?approval=retracted")
    assert "short-lived" in made.window.get(done.headers["location"]).text
    assert made.window.get(f"/models/{model}").status_code == 410
    assert model not in made.window.get("/models").text


def test_the_list_has_no_fault_in_a_browser(made: Made, service: Service, chromium: Browser) -> None:
    for path in ("/models", "/models?approval=retracted&name=nothing", f"/models/{made.first}/retract"):
        with look(chromium, service.url) as seen:
            seen.sign_in(made.key)
            for width in (1280, 390):
                seen.page.set_viewport_size({"width": width, "height": 900})
                seen.go(path)
                seen.refuse_violations()
            seen.refuse_reports()


def test_the_page_of_a_job_hears_of_the_approval(service: Service) -> None:
    """The stream of an ended job goes on while its release waits, and ends with the verdict."""
    client, key = service.someone("owner", "approves")
    dataset = upload(client, shift=7100, name="approved first", approval=True)["id"]
    made = submit(client, job(dataset)).json()["id"]
    model = finish(service, made, "pending")
    window = service.window(key["key"])
    with window.stream("GET", f"/jobs/{made}/live") as live:
        lines = live.iter_lines()
        assert "waits for approval" in next(line for line in lines if "job-state" in line)
        assert client.post(f"/v1/models/{model}/approve").status_code == 200
        assert "waits for approval" not in next(line for line in lines if "job-state" in line)
        assert "event: end" in lines
    assert "sse-connect" not in window.get(f"/jobs/{made}").text


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_browser_sees_the_verdict_without_a_reload(service: Service, chromium: Browser, verdict: str) -> None:
    client, key = service.someone("owner", "watches a verdict")
    dataset = upload(client, shift=7200, name="watched", approval=True)["id"]
    made = submit(client, job(dataset)).json()["id"]
    model = finish(service, made, "pending")
    with look(chromium, service.url) as seen:
        seen.sign_in(key["key"])
        seen.go(f"/jobs/{made}")
        state = seen.page.locator("#job-state")
        expect(state).to_contain_text("waits for approval")
        seen.page.evaluate("window.notReloaded = true")
        body = {"reason": "too few rows"} if verdict == "reject" else None
        assert client.post(f"/v1/models/{model}/{verdict}", json=body).status_code == 200
        expect(state).to_contain_text("succeeded", timeout=60_000)
        assert seen.page.evaluate("window.notReloaded"), "the page is the same one"
        expect(seen.page.locator("#live")).to_contain_text(
            "Reading the model costs nothing" if verdict == "approve" else "rejected"
        )
        seen.refuse_violations()
        seen.refuse_reports()
