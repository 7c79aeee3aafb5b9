"""Describe jobs through HTTP: planned, priced, run by the real service, and read with their intervals."""

import csv
import io
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from farthing import Client, describing
from farthing.cli import app
from tests.support.embedded import KEY, SEEDS, Embedded
from tests.support.windows import window_of

ROWS = 4000
COLUMNS: list[dict[str, Any]] = [
    {"name": "age", "type": "integer", "lower": 0, "upper": 1000},
    {"name": "income", "type": "number", "lower": 0, "upper": 10_000_000},
    {"name": "group", "type": "category", "values": ["a", "b", "c"]},
    {"name": "since", "type": "date", "lower": "2000-01-01", "upper": "2040-01-01"},
    {"name": "y", "type": "binary", "values": ["no", "yes"]},
]
ALL = ["frequencies", "missing", "quantiles", "histograms", "means", "correlations"]
DECLARED: dict[str, Any] = {"columns": COLUMNS, "accept_excluded": True}
"""A tenth of the rows have no income, which descriptions count and other jobs leave out."""


class People:
    """Rows, a tenth of whose incomes are missing, and what is true of them."""

    def __init__(self) -> None:
        draws = np.random.default_rng(next(SEEDS))
        self.age = draws.normal(45, 12, ROWS).clip(18, 95).round()
        self.income = draws.lognormal(10, 0.6, ROWS) * (1 + self.age / 100)
        self.known = draws.random(ROWS) < 0.9
        self.group = draws.choice(["a", "b", "c"], ROWS, p=[0.7, 0.28, 0.02])
        self.yes = draws.random(ROWS) < np.where(self.group == "b", 0.6, 0.2)

    def csv(self) -> bytes:
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow([column["name"] for column in COLUMNS])
        for at in range(ROWS):
            income = f"{self.income[at]:.2f}" if self.known[at] else ""
            yes = "yes" if self.yes[at] else "no"
            writer.writerow([int(self.age[at]), income, self.group[at], f"{2005 + at % 20}-06-01", yes])
        return text.getvalue().encode()


@pytest.fixture(scope="module")
def people() -> People:
    return People()


@pytest.fixture(scope="module")
def dataset(service: Embedded, people: People) -> str:
    return service.upload(people.csv(), **DECLARED, budget={"epsilon": "19", "delta": "1e-6"})


def request(**model: Any) -> dict[str, Any]:
    return {"model": {"kind": "description", **model}, "optimizer": {"kind": "describe"}, "privacy": {"mu": "1"}}


def run(service: Embedded, dataset: str, **body: Any) -> tuple[dict[str, Any], str]:
    job = service.wait(service.submit(dataset, **body))
    assert job["state"] == "succeeded", job
    return job, job["result"]["model"]


@pytest.fixture(scope="module")
def described(service: Embedded, dataset: str) -> tuple[dict[str, Any], str]:
    return run(service, dataset, **request(statistics=ALL, tables=[["group", "y"], ["age", "y"]], bins=10))


def by_name(shown: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {column["name"]: column for column in shown["columns"]}


def holds(figure: dict[str, Any], truth: float) -> bool:
    lower, upper = figure["interval"]
    return bool(lower <= truth <= upper)


def test_the_plan_divides_the_price_and_all_of_it_is_spent(
    service: Embedded, dataset: str, described: tuple[dict[str, Any], str]
) -> None:
    body = request(statistics=ALL, tables=[["group", "y"], ["age", "y"]], bins=10)
    estimate = service.http.post("/v1/estimates", json={"dataset": dataset, **body}).json()
    shares = estimate["plan"]["shares"]
    assert sum(shares.values()) == pytest.approx(1)
    assert all(shares[name] > 0 for name in (*ALL, "look", "tables"))
    job, _ = described
    assert float(job["cost"]["spent"]["mu"]) == pytest.approx(1.0, rel=1e-6)
    assert job["cost"]["spent"]["rho"] == job["cost"]["reserved"]["rho"] == estimate["cost"]["rho"]


@pytest.mark.statistical
def test_figures_hold_what_is_so_of_the_records(
    service: Embedded, people: People, described: tuple[dict[str, Any], str]
) -> None:
    """Noise alone, at the level 1 - 1e-8: a false alarm in 5e-7 for fifty figures together."""
    job, model = described
    shown = service.get(f"/v1/models/{model}/description", level=1 - 1e-8, about="records")
    assert (shown["job"], shown["n"], shown["about"]) == (job["id"], ROWS, "records")
    columns = by_name(shown)
    income = people.income[people.known]
    assert holds(columns["age"]["mean"], people.age.mean())
    assert holds(columns["income"]["mean"], income.mean())
    cut = columns["income"]["mean_within"]
    assert holds(cut, income.clip(cut["lower"], cut["upper"]).mean())
    for name, values in (("age", people.age), ("income", income)):
        for quantile in columns[name]["quantiles"]:
            assert holds(quantile, np.quantile(values, quantile["fraction"], method="inverted_cdf")), (name, quantile)
        bins = columns[name]["histogram"]["cells"]
        assert [one["upper"] for one in bins[:-1]] == [one["lower"] for one in bins[1:]]
        for one in bins:
            last = one is bins[-1]
            inside = (values >= one["lower"]) & ((values <= one["upper"]) if last else (values < one["upper"]))
            assert holds(one, inside.mean())
    assert all(float(end).is_integer() for one in columns["age"]["quantiles"] for end in one["interval"])
    assert columns["income"]["missing"]["records_interval"][0] <= (~people.known).sum()
    assert holds(columns["income"]["missing"], (~people.known).mean())
    for one in columns["group"]["frequencies"]["cells"]:
        assert holds(one, (people.group == one["value"]).mean())
    grouped, aged = shown["tables"]
    assert grouped["rows"] == ["a", "b", "c"]
    for value, cells in zip(grouped["rows"], grouped["cells"], strict=True):
        for answer, cell in zip((False, True), cells, strict=True):
            assert holds(cell, ((people.group == value) & (people.yes == answer)).mean())
    assert len(aged["cells"]) == len(aged["rows"]) == 4
    assert columns["since"]["unit"] == "days since 2000-01-01"
    pairs = {tuple(one["columns"]): one for one in shown["correlations"]}
    assert set(pairs) == {("age", "income"), ("age", "since"), ("income", "since")}
    for one in pairs.values():
        assert one["interval"][0] < one["estimate"] < one["interval"][1]


def test_intervals_about_the_population_are_wider(service: Embedded, described: tuple[dict[str, Any], str]) -> None:
    _, model = described
    narrow = by_name(service.get(f"/v1/models/{model}/description", about="records"))
    wide = by_name(service.get(f"/v1/models/{model}/description"))
    for name in ("age", "income"):
        pair = [one[name]["mean"] for one in (narrow, wide)]
        pair += [one[name]["quantiles"][1] for one in (narrow, wide)]
        for inner, outer in ((pair[0], pair[1]), (pair[2], pair[3])):
            assert np.ptp(inner["interval"]) <= np.ptp(outer["interval"])
    assert wide["age"]["mean"]["std_error"] > narrow["age"]["mean"]["std_error"]


def test_it_reads_as_text_page_and_objects(service: Embedded, described: tuple[dict[str, Any], str]) -> None:
    _, model = described
    text = service.http.get(f"/v1/models/{model}/summary?format=text").text
    for words in ("Values of group", "Histogram of age", "group by y", "age and income", "mean within", "Privacy"):
        assert words in text, text
    page = service.http.get(f"/v1/models/{model}/summary?format=html")
    assert page.status_code == 200
    told = service.get(f"/v1/models/{model}/summary")
    assert told["kind"] == "description"
    with closing(window_of(service.url, KEY)) as window:
        pages = (page.text, window.get(f"/models/{model}").text)
    for shown in pages:
        assert '<bdi class="name">Correlations</bdi></h2>' in shown
        for column in told["columns"]:
            cells = [*(column["quantiles"] or []), *((column["histogram"] or {}).get("cells", []))]
            for figure in cells:
                row = [figure.get("estimate", figure.get("share")), *figure["interval"]]
                assert "".join(f'<td class="num">{value:.4g}</td>' for value in row) in shown
    assert service.http.get(f"/v1/models/{model}/summary?format=pdf").content.startswith(b"%PDF")
    exported = service.http.get(f"/v1/models/{model}/export")
    assert exported.json()["released"]["kind"] == "description"
    for path, method, body in (
        ("intervals", "GET", None),
        ("export?format=safetensors", "GET", None),
        ("predict", "POST", {"rows": [{"age": 50}]}),
        ("contrasts", "POST", {"weights": {"age": 1.0}}),
    ):
        refused = service.http.request(method, f"/v1/models/{model}/{path}", json=body)
        assert refused.status_code == 422, (path, refused.text)
        assert "description" in refused.text


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (request(columns=["age", "nobody"]), "/model/columns/1"),
        (request(columns=["age", "age"]), "/model/columns/1"),
        (request(columns=["age"], tables=[["age", "y"]]), "/model/tables/0/1"),
        (request(columns=["group"], statistics=["means"]), "/model/statistics"),
        (request(edges={"group": [1.0]}), "/model/edges/group"),
        (request(edges={"age": [2000.0]}), "/model/edges/age"),
        (request() | {"optimizer": {"kind": "noisy_newton"}}, "/optimizer/kind"),
        (request() | {"optimizer": {"kind": "describe", "shares": {"means": 1.0}}}, "/optimizer/shares"),
        (request() | {"optimizer": {"kind": "describe", "shares": {"means": 0.5}}}, "sum to 1"),
        (request() | {"model": {"kind": "logistic", "target": "y"}}, "/optimizer/kind"),
        (request() | {"inference": {"plausible_radius": 2.0}}, "/inference/plausible_radius"),
        (request() | {"resources": {"processes": 2}}, "/resources/processes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_not_offered_is_refused_by_name(
    service: Embedded, dataset: str, body: dict[str, Any], pointer: str
) -> None:
    answer = service.try_submit(dataset, **body)
    assert answer.status_code == 422, answer.text
    assert pointer in answer.text


def test_shares_of_the_askers_choice(service: Embedded, dataset: str) -> None:
    optimizer = {"kind": "describe", "shares": {"look": 0.2, "means": 0.8}}
    body = request(columns=["age"], statistics=["means"]) | {"optimizer": optimizer}
    job, model = run(service, dataset, **body)
    shown = service.get(f"/v1/models/{model}/description")
    assert shown["shares"] == {"look": 0.2, "means": 0.8}
    assert by_name(shown)["age"]["quantiles"] is None
    assert job["cost"]["spent"]["mu"] == "1"


def test_the_sdk_describes_and_reads(service: Embedded, dataset: str) -> None:
    with Client(service.url, KEY) as client:
        what = describing(columns=["age", "group"], tables=[("age", "group")], edges={"age": [30, 50]})
        made = client.describe(dataset, {"mu": "0.5"}, what)
        found = made.description(0.9, about="records")
        assert (found.level, found.model) == (0.9, made.id)
        assert [one.value for one in found.column("group").frequencies.cells] == ["a", "b", "c"]
        assert found.tables[0].rows == ["[0, 30)", "[30, 50)", "[50, 1000]"]
        lines = list(found.lines())
        assert {line["statistic"] for line in lines} == {"mean", "mean within", "quantile", "frequency", "table"}
        frame = pytest.importorskip("pandas").DataFrame(lines)
        assert found.frame().equals(frame)
        with pytest.raises(KeyError):
            found.column("income")


def test_the_command_line_describes(service: Embedded, dataset: str) -> None:
    asked = ["describe", dataset, "--mu", "0.5", "--column", "age", "--column", "y", "--table", "age,y"]
    reach = ["--url", service.url, "--key", KEY]
    runner = CliRunner()
    priced = runner.invoke(app, [*asked, "--price", *reach])
    assert priced.exit_code == 0, priced.output
    assert "share of mu squared" in priced.output
    done = runner.invoke(app, [*asked, *reach])
    assert done.exit_code == 0, done.output
    assert "age by y" in done.output
    model = next(word.strip(",.") for word in done.output.split() if word.startswith("mdl_"))
    shown = runner.invoke(app, ["description", model, *reach])
    assert shown.exit_code == 0, shown.output
    assert "age: 50 %" in shown.output
    wrong = runner.invoke(app, ["describe", dataset, "--mu", "0.5", "--table", "age", *reach])
    assert wrong.exit_code == 2


LOGISTIC = {"kind": "logistic", "target": "y", "features": ["age", "income", "group"]}


@pytest.mark.statistical
def test_a_later_job_takes_the_look_from_a_description(
    service: Embedded, dataset: str, described: tuple[dict[str, Any], str]
) -> None:
    """Its plan has no look, its shares sum to one without, and its view says whose look it is.

    Each estimate lies within six of its standard errors, 2e-9 each, if the job has converged. Of 120 jobs that of age
    was .0031 to .0034.
    """
    _, named = described
    model = {**LOGISTIC, "features": ["age", "income"]}  # of the 80 records of group c a job may learn too little
    body = {"model": model, "optimizer": {"kind": "whitened_newton"}, "privacy": {"mu": "1"}}
    with_look = service.http.post("/v1/estimates", json={"dataset": dataset, **body, "models": [named]}).json()
    without = service.http.post("/v1/estimates", json={"dataset": dataset, **body}).json()
    assert with_look["cost"]["rho"] == without["cost"]["rho"]
    assert with_look["plan"]["looked"] is True
    assert "magnitude_counts" not in with_look["plan"]["sigma"]
    assert with_look["plan"]["sigma"]["second_moments"] == pytest.approx(
        without["plan"]["sigma"]["second_moments"] * 0.94**0.5
    )
    job, made = run(service, dataset, **body, models=[named])
    assert job["models"] == [named]
    assert float(job["cost"]["spent"]["mu"]) == pytest.approx(1.0, rel=1e-6)
    found = service.get(f"/v1/models/{made}")
    assert found["models"] == [named]
    look = by_name(service.get(f"/v1/models/{named}/description"))
    pairs = zip(found["release"]["design"]["features"], found["release"]["checks"]["learned"]["columns"], strict=True)
    for feature, learned in list(pairs)[1:]:
        own = look[feature["name"]]["look"]
        assert learned["centre"] == pytest.approx((own["centre"] - feature["centre"]) / feature["scale"])
        assert learned["scale"] == pytest.approx(own["scale"] / feature["scale"])
    if not service.converged(made):
        return
    lines = {line["name"]: line for line in service.get(f"/v1/models/{made}/summary")["coefficients"]}
    for name in ("age", "income"):
        assert abs(lines[name]["estimate"]) < 6 * lines[name]["std_error"]
    assert lines["age"]["std_error"] < 0.005


def test_a_look_that_does_not_fit_is_refused_by_name(
    service: Embedded, dataset: str, described: tuple[dict[str, Any], str]
) -> None:
    _, whole = described
    _, part = run(service, dataset, **request(columns=["age", "group"], statistics=["means"]))
    other = service.upload(People().csv(), **DECLARED, budget={"epsilon": "8", "delta": "1e-6"})
    body = {"model": LOGISTIC, "optimizer": {"kind": "whitened_newton"}, "privacy": {"mu": "0.1"}}
    _, model = run(service, dataset, **body)
    for target, names, words in (
        (dataset, [part], "does not describe the column income"),
        (other, [whole], "of another scope"),
        (dataset, [model], "takes its look from a description"),
        (dataset, ["mdl_" + 26 * "0"], "does not exist"),
        (dataset, [whole, part], "names 2"),
    ):
        answer = service.try_submit(target, **body, models=names)
        assert answer.status_code == 422, answer.text
        assert "/models" in answer.text
        assert words in answer.text, answer.text
    only_age = body | {"model": {"kind": "logistic", "target": "y", "features": ["group"]}}
    answer = service.try_submit(dataset, **only_age, models=[part])
    assert "has no frequencies of the column group" in answer.text
    answer = service.try_submit(dataset, **body | {"optimizer": {"kind": "whitened_newton", "looked": True}})
    assert "/optimizer/looked" in answer.text


def test_a_look_that_waits_for_approval_or_was_rejected_is_refused(service: Embedded) -> None:
    """An owner who asks for approval decides if a description may be read, and named."""
    owned = service.upload(People().csv(), **DECLARED, budget={"epsilon": "8", "delta": "1e-6"}, approval=True)
    cheap = request(columns=["age"], statistics=["means"]) | {"privacy": {"mu": "0.1"}}
    jobs = [service.wait(service.submit(owned, **cheap)) for _ in range(2)]
    models = [service.get(f"/v1/jobs/{job['id']}")["result"]["model"] for job in jobs]
    body = {
        "model": {"kind": "logistic", "target": "y", "features": ["age"]},
        "optimizer": {"kind": "whitened_newton"},
        "privacy": {"mu": "0.1"},
    }
    waiting = service.try_submit(owned, **body, models=models[:1])
    assert waiting.status_code == 422, waiting.text
    assert "is pending" in waiting.text
    assert service.http.post(f"/v1/models/{models[0]}/approve").status_code == 200
    assert service.try_submit(owned, **body, models=models[:1]).status_code == 202
    assert service.http.post(f"/v1/models/{models[1]}/reject", json={"reason": "too fine"}).status_code == 200
    rejected = service.try_submit(owned, **body, models=models[1:])
    assert rejected.status_code == 422, rejected.text
    assert "/models/0" in rejected.text
