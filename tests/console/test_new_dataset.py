"""An owner's way through pages: declare, send a file, look at the report, mend, seal."""

import base64
import csv
import hashlib
import io
import json
import re
from pathlib import Path

import httpx
from playwright.sync_api import Browser, expect

from tests.support.api import COLUMNS, Service, metadata
from tests.support.api import csv as rows_of
from tests.support.browser import WIDTHS, Look, look
from tests.support.windows import csrf


def spoilt(shift: int, rows: int, unreadable: int) -> bytes:
    """Return a file of which so many ages cannot be read."""
    return re.sub(rb"^\d\d\.", b"old", rows_of(rows, shift), count=unreadable, flags=re.MULTILINE)


def declared(window: httpx.Client, token: str, **changes: object) -> str:
    form = {"csrf": token, "metadata": json.dumps(metadata(**changes))}
    answer = window.post("/datasets/new", data=form)
    assert answer.status_code == 201, answer.text
    return answer.headers["location"].split("/")[2]


def send(window: httpx.Client, token: str, dataset: str, content: bytes) -> httpx.Response:
    headers = {"X-CSRF-Token": token, "Content-Type": "text/csv"}
    return window.post(f"/datasets/{dataset}/content", content=content, headers=headers)


def test_a_form_makes_a_draft_whatever_it_says_of_sealing(service: Service) -> None:
    client, made = service.someone("owner", "hasty")
    window = service.window(made["key"])
    dataset = declared(window, csrf(window), name="hasty", seal=True)
    assert client.get(f"/v1/datasets/{dataset}").json()["state"] == "draft"
    assert f"/datasets/{dataset}/draft" in window.get("/datasets").text


def test_many_rows_left_out_are_loud_and_need_a_tick(service: Service) -> None:
    client, made = service.someone("owner", "exports with commas")
    window = service.window(made["key"])
    token = csrf(window)
    dataset = declared(window, token, name="commas")
    assert send(window, token, dataset, spoilt(95_000, 400, 40)).status_code == 200
    page = window.get(f"/datasets/{dataset}/draft").text
    assert "40 of 400 rows would be left out of models: 10" in page
    assert "has 40 cells that cannot be read" in page
    refused = window.post(f"/datasets/{dataset}/seal", data={"csrf": token})
    assert refused.status_code == 422
    assert "Tick that the rows may be left out" in refused.text
    assert client.get(f"/v1/datasets/{dataset}").json()["state"] == "draft"
    assert "commas is a draft" in window.get("/").text
    sealed = window.post(f"/datasets/{dataset}/seal", data={"csrf": token, "accept": "yes"})
    assert sealed.status_code == 303, sealed.text
    assert client.get(f"/v1/datasets/{dataset}").json()["state"] == "ready"
    assert "commas is a draft" not in window.get("/").text


def test_a_copy_is_refused_at_sealing_and_the_draft_stays(service: Service) -> None:
    client, made = service.someone("owner", "sends twice")
    window = service.window(made["key"])
    token = csrf(window)
    found = []
    for name in ("first", "second"):
        dataset = declared(window, token, name=name)
        assert send(window, token, dataset, rows_of(400, 96_000)).status_code == 200
        found.append(window.post(f"/datasets/{dataset}/seal", data={"csrf": token}))
    assert [one.status_code for one in found] == [303, 409]
    assert "The draft is as it was." in found[1].text
    assert client.get(f"/v1/datasets/{dataset}").json()["state"] == "draft"


def test_a_refused_file_names_its_column_and_keeps_the_declaration(service: Service) -> None:
    _, made = service.someone("owner", "renamed a column")
    window = service.window(made["key"])
    token = csrf(window)
    dataset = declared(window, token, name="renamed")
    answer = send(window, token, dataset, rows_of(40, 97_000).replace(b"age", b"years", 1))
    assert answer.status_code == 422
    assert "age" in answer.text
    assert "Send its file" in window.get(f"/datasets/{dataset}/draft").text
    assert send(window, "0" * 48, dataset, rows_of(40, 97_000)).status_code == 403, "a forged form"


def test_what_is_missing_is_said_in_the_words_of_the_page(service: Service) -> None:
    """Columns by their names: one that is left out of the declaration has no number."""
    _, made = service.someone("owner", "forgets bounds")
    window = service.window(made["key"])
    columns = [{"name": "age", "type": "number"}, {"name": "ward", "type": "category"}, COLUMNS[2]]
    form = {"csrf": csrf(window), "metadata": json.dumps(metadata(columns=columns))}
    for path in ("/datasets/new/check", "/datasets/new"):
        answer = window.post(path, data=form)
        assert answer.status_code == 422
        assert "3 things are missing or wrong" in answer.text
        assert '<a href="#c0-lower"><bdi>age</bdi>: type the lowest plausible value</a>' in answer.text
        assert '<a href="#c1-values"><bdi>ward</bdi>: list its values with commas between' in answer.text
    assert window.post("/datasets/new/check", data=form | {"metadata": "{"}).status_code == 422


def test_others_see_no_draft(service: Service) -> None:
    _, made = service.someone("owner", "discreet")
    window = service.window(made["key"])
    dataset = declared(window, csrf(window), name="discreet")
    for role in ("owner", "analyst", "auditor", "admin"):
        _, other = service.someone(role, f"nosy {role}")
        nosy = service.window(other["key"])
        token = csrf(nosy)
        for path in ("", "/draft", "/mend"):
            answer = nosy.get(f"/datasets/{dataset}{path}")
            assert answer.status_code in {403, 404}, (role, path)
            assert "discreet" not in answer.text.replace("nosy", "")
        for deed in ("mend", "seal"):
            form = {"csrf": token, "metadata": json.dumps(metadata())}
            assert nosy.post(f"/datasets/{dataset}/{deed}", data=form).status_code in {403, 404}


def test_what_the_form_has_no_field_for_stays_declared(service: Service) -> None:
    client, made = service.someone("owner", "fills gaps")
    window = service.window(made["key"])
    token = csrf(window)
    form = metadata(name="filled", columns=[{**COLUMNS[0], "fill": 30}, *COLUMNS[1:]])
    dataset = declared(window, token, **form)
    changed = {**form, "name": "renamed", "seal": True, "accept_excluded": True}
    answer = window.post(f"/datasets/{dataset}/mend", data={"csrf": token, "metadata": json.dumps(changed)})
    assert answer.status_code == 200, answer.text
    kept = client.get(f"/v1/datasets/{dataset}/draft").json()["declared"]
    assert (kept["name"], kept["columns"][0]["fill"]) == ("renamed", 30)
    assert client.get(f"/v1/datasets/{dataset}").json()["state"] == "draft"


def write(seen: Look, label: str, text: str) -> None:
    seen.page.get_by_label(label, exact=True).fill(text)


def test_a_broken_export_is_mended_in_the_browser(service: Service, chromium: Browser, tmp_path: Path) -> None:
    """The first file has words for numbers; the budget is changed; the second file is sealed."""
    _, made = service.someone("owner", "mends")
    path = tmp_path / "survey.csv"
    kept = [["age", "done"], *([f"{20 + number % 60}.5", ("yes", "no")[number % 2]] for number in range(200))]
    written = io.StringIO()
    csv.writer(written).writerows(kept)
    path.write_text(re.sub(r"^(\d\d)\.5", r"about \1", written.getvalue(), flags=re.MULTILINE))
    with look(chromium, service.url) as seen:
        seen.sign_in(made["key"])
        seen.go("/datasets/new")
        seen.page.get_by_label("Choose a file").set_input_files(path)
        seen.page.get_by_label("Type of age").select_option("number")
        write(seen, "Lowest age", "18")
        write(seen, "Highest age", "95")
        seen.page.get_by_label("Type of done").select_option("binary")
        write(seen, "Values of done", "no, yes")
        seen.page.get_by_role("button", name=re.compile("^Upload")).click()
        seen.page.get_by_text("200 of 200 rows would be left out").wait_for()
        for width in WIDTHS:
            seen.page.set_viewport_size({"width": width, "height": 900})
            seen.refuse_violations()
        seen.page.get_by_role("link", name="Change the declaration").click()
        expect(seen.page.get_by_label("Highest age", exact=True)).to_have_value("95")
        expect(seen.page.get_by_label("Values of done", exact=True)).to_have_value("no, yes")
        seen.refuse_violations()
        expect(seen.page.get_by_label("Each release waits for my yes")).to_be_checked()
        write(seen, "Epsilon, for all jobs ever", "1.5")
        seen.page.get_by_role("button", name="Keep the changes").click()
        seen.page.get_by_text("epsilon 1.5").wait_for()
        path.write_text(written.getvalue())
        seen.page.get_by_label("Another file of the same columns").set_input_files(path)
        seen.page.get_by_role("button", name="Send the file").click()
        seen.page.get_by_text("No row is left out").wait_for()
        seen.page.get_by_role("button", name="Seal the dataset").click()
        seen.page.get_by_role("link", name="Budget", exact=True).wait_for()
        seen.refuse_violations()
        seen.refuse_reports()


def test_a_messy_export_is_found_out_in_the_browser(service: Service, chromium: Browser, tmp_path: Path) -> None:
    """Semicolons, decimal commas, cp1252 and German dates: the form offers to find them, and the draft says them."""
    client, made = service.someone("owner", "exports from a hospital")
    path = tmp_path / "visits.csv"
    lines = [f"{20 + n % 60},5;{1 + n % 28:02}.0{1 + n % 9}.2021;{('nein', 'ja')[n % 2]};fünf" for n in range(200)]
    path.write_text("\n".join(["Größe;visit;done;note", *lines, ""]), encoding="cp1252")
    with look(chromium, service.url) as seen:
        seen.sign_in(made["key"])
        seen.go("/datasets/new")
        expect(seen.page.get_by_label("Find out how a CSV file is written")).not_to_be_checked()
        seen.page.get_by_label("Choose a file").set_input_files(path)
        expect(seen.page.get_by_label("Find out how a CSV file is written")).to_be_checked()
        expect(seen.page.get_by_label("Type of Größe")).to_have_value("number")
        expect(seen.page.get_by_label("Type of visit")).to_have_value("date")
        write(seen, "Lowest Größe", "18")
        write(seen, "Highest Größe", "95")
        write(seen, "Lowest visit", "2021-01-01")
        write(seen, "Highest visit", "2021-12-31")
        seen.page.get_by_label("Type of done").select_option("binary")
        write(seen, "Values of done", "nein, ja")
        seen.page.get_by_label("Use note").uncheck()
        seen.page.get_by_role("button", name=re.compile("^Upload")).click()
        seen.page.get_by_text("No row is left out").wait_for()
        seen.page.get_by_text("separator “;”, decimal “,”, no thousands, encoding “cp1252”").wait_for()
        seen.page.get_by_text("Dates of visit: %d.%m.%Y, and ISO 8601.").wait_for()
        seen.refuse_violations()
        seen.page.get_by_role("link", name="Change the declaration").click()
        expect(seen.page.get_by_label("Find out how a CSV file is written")).to_be_checked()
        seen.page.go_back()
        seen.page.get_by_role("button", name="Seal the dataset").click()
        seen.page.get_by_role("link", name="Budget", exact=True).wait_for()
        seen.refuse_reports()
    (dataset,) = client.get("/v1/datasets").json()["data"]
    assert dataset["columns"][1]["formats"] == ["%d.%m.%Y"]


def test_a_large_file_goes_in_parts_and_on_after_a_broken_line(
    service: Service, chromium: Browser, tmp_path: Path
) -> None:
    """The second part is refused, then breaks once; the same file goes on with it, and the first is not sent again."""
    client, made = service.someone("owner", "far away")
    window = service.window(made["key"])
    dataset = declared(window, csrf(window), name="large")
    rows = 800_000
    content = rows_of(rows, 940_000)
    assert len(content) > 16 * 2**20
    path = tmp_path / "large.csv"
    path.write_bytes(content)
    asked: list[str] = []
    with look(chromium, service.url) as seen:
        seen.sign_in(made["key"])
        seen.page.on("request", lambda one: asked.append(one.url.rpartition("/")[2]) if "/parts/" in one.url else None)
        seen.page.route("**/parts/2", lambda route: route.fulfill(status=403, body="<p>the line is closed</p>"))
        seen.go(f"/datasets/{dataset}/draft")
        seen.page.get_by_label("The file", exact=True).set_input_files(path)
        seen.page.get_by_role("button", name="Send the file").click()
        seen.page.get_by_text("the line is closed").wait_for()
        assert asked == ["1", "2"]
        open_uploads = client.get(f"/v1/datasets/{dataset}/uploads").json()["data"]
        assert [one["received_count"] for one in open_uploads] == [1]
        seen.page.unroute("**/parts/2")
        breaks = iter([True])
        seen.page.route("**/parts/2", lambda route: route.abort() if next(breaks, False) else route.continue_())
        seen.wrong.clear()
        seen.page.get_by_role("button", name="Send the file").click()
        seen.page.get_by_text(f"every declared column has a value in all {rows:,}").wait_for(timeout=120_000)
        assert asked[2:] == ["2", "2", "3"]
    assert client.get(f"/v1/datasets/{dataset}/uploads").json()["data"] == []
    assert client.get(f"/v1/datasets/{dataset}/draft").json()["rows"] == rows


def test_parts_of_others_are_not_seen_and_odd_sizes_are_refused(service: Service) -> None:
    _, made = service.someone("owner", "alone with parts")
    window = service.window(made["key"])
    token = csrf(window)
    dataset = declared(window, token, name="in parts")
    base = f"/datasets/{dataset}/uploads"
    for size in ("", "many", "0", "-1", str(2**60)):
        form = {"csrf": token, "bytes": size, "media_type": "text/csv"}
        assert window.post(base, data=form).status_code == 422, size
    opened = window.post(base, data={"csrf": token, "bytes": "9", "media_type": "text/csv"})
    assert opened.status_code == 201, opened.text
    upload = opened.json()["id"]
    other = service.window(service.someone("owner", "nosy of parts")[1]["key"])
    for path in (base, f"{base}/{upload}"):
        assert other.get(path).status_code == 404
    digest = "sha-256=:" + base64.b64encode(hashlib.sha256(b"123456789").digest()).decode() + ":"
    headers = {"Content-Digest": digest, "X-CSRF-Token": token}
    assert window.post(f"{base}/{upload}/parts/1", content=b"12345678x", headers=headers).status_code == 422
    headers["X-CSRF-Token"] = "0" * 48
    assert window.post(f"{base}/{upload}/parts/1", content=b"123456789", headers=headers).status_code == 403
