"""Columns whose names and values are hostile: text on every page from the file to a job, in a real browser."""

import csv
import io
import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from tests.console.test_new_dataset import declared, send
from tests.support.api import Service
from tests.support.browser import WIDTHS, Look, look
from tests.support.windows import csrf

SCRIPT = "<script>window.hit=1</script>"
IMAGE = '"><img src=x onerror="window.hit=1">'
RIGHT_TO_LEFT = "\u202e\u0642\u0627\u0639\u062f\u0629"
LONG = "a" * 200
TEMPLATE = "{{ 7 * 7 }}${7*7}' onfocus='window.hit=1"
ARROW = "💊]]>--></style></script><svg onload=window.hit=1>"
TARGET = "y&lt;b&gt;"
NAMES = (SCRIPT, IMAGE, RIGHT_TO_LEFT, LONG, TEMPLATE, ARROW)
COLUMNS: list[dict[str, Any]] = [
    *({"name": name, "type": "number", "lower": 0, "upper": 100} for name in NAMES[:4]),
    {"name": TEMPLATE, "type": "category", "values": [SCRIPT, IMAGE, "z"], "other": "z"},
    {"name": ARROW, "type": "category", "values": [RIGHT_TO_LEFT, LONG], "other": LONG},
    {"name": TARGET, "type": "binary", "values": ["</script>", SCRIPT]},
]


def records(rows: int = 400, *, spoilt: int = 40) -> bytes:
    """Return a file of these columns; some cells of the first cannot be read."""
    written = io.StringIO()
    lines = csv.writer(written)
    lines.writerow([one["name"] for one in COLUMNS])
    for row in range(rows):
        first = SCRIPT if row < spoilt else f"{row % 90}.{row:04}"
        numbers = [f"{(row * 7 + place) % 90}.{row * 7919 % 9973:04}" for place in range(3)]
        kinds = [(SCRIPT, IMAGE, "z")[row % 3], (RIGHT_TO_LEFT, LONG)[row % 2]]
        lines.writerow([first, *numbers, *kinds, ("</script>", SCRIPT)[row % 2]])
    return written.getvalue().encode()


def refuse_hits(seen: Look, where: str) -> None:
    """Fail where a name became markup, or ran."""
    assert seen.page.evaluate("window.hit") is None, where
    assert seen.page.locator("main img, main svg[onload], main script").count() == 0, where
    seen.refuse_reports()


def test_they_stay_text_from_the_file_to_a_job(service: Service, chromium: Browser, tmp_path: Path) -> None:
    _, made = service.someone("owner", "hostile columns")
    window = service.window(made["key"])
    token = csrf(window)
    dataset = declared(window, token, name="hostile", columns=COLUMNS)
    answer = send(window, token, dataset, records())
    assert answer.status_code == 200, answer.text
    path = tmp_path / f"{SCRIPT.replace('/', '')}.csv"
    path.write_bytes(records())
    with look(chromium, service.url) as seen:
        seen.sign_in(made["key"])
        seen.go("/datasets/new")
        seen.page.get_by_label("Choose a file").set_input_files(path)
        seen.page.get_by_label(f"Type of {TARGET}", exact=True).wait_for()
        for name in NAMES:
            assert seen.page.locator("#columns bdi").filter(has_text=name).first.text_content() == name
        refuse_hits(seen, "the form of a file")
        for _ in range(2):  # as a draft with gaps, then sealed
            state = window.get(f"/datasets/{dataset}/draft").status_code
            pages = ("/draft", "/mend") if state == 200 else ("", "/budget", "/access")
            for where in (*(f"/datasets/{dataset}{one}" for one in pages), "/jobs/new", f"/jobs/new?dataset={dataset}"):
                for width in WIDTHS:
                    seen.page.set_viewport_size({"width": width, "height": 900})
                    seen.go(where)
                    refuse_hits(seen, where)
                    seen.refuse_violations()
            if state == 200:
                seen.go(f"/datasets/{dataset}/draft")
                assert seen.page.locator("bdi").filter(has_text=SCRIPT).first.text_content() == SCRIPT
                sealed = window.post(f"/datasets/{dataset}/seal", data={"csrf": token, "accept": "yes"})
                assert sealed.status_code == 303, sealed.text
    wrong = {"csrf": token, "metadata": json.dumps({"name": "x", "columns": [{"name": SCRIPT, "type": IMAGE}]})}
    text = window.post("/datasets/new/check", data=wrong).text
    assert SCRIPT not in text
    assert IMAGE not in text
    turned = {
        "csrf": token,
        "metadata": json.dumps({"name": "x", "columns": [{"name": RIGHT_TO_LEFT, "type": "number"}]}),
    }
    text = window.post("/datasets/new/check", data=turned).text
    assert f"<bdi>{RIGHT_TO_LEFT}</bdi>: type the lowest" in text, "what follows the name is not turned round"
