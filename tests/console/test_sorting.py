"""Tables sort by links that work without script, and say at their edges that they go on."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page

import api.pages
from tests.support.api import Service, job, submit, upload
from tests.support.browser import WIDTHS, look

NAMES = ("mike", "Alpha", "zulu")
MORE = 28
"""Jobs, so that there are two pages."""
TEMPLATES = Path(api.pages.__file__).parent / "templates"
_EDGES = """(wrap) => {
  const style = getComputedStyle(wrap);
  return [style.backgroundAttachment, wrap.scrollWidth - wrap.clientWidth];
}"""


class Listed:
    """An owner with a dataset, three jobs, and a window."""

    def __init__(self, service: Service) -> None:
        self.client, key = service.someone("owner", "sorts lists")
        self.key = str(key["key"])
        self.window: httpx.Client = service.window(self.key)
        self.dataset: dict[str, Any] = upload(self.client, shift=61_000, name="sorted ones")
        for name in NAMES:
            submit(self.client, job(self.dataset["id"], labels={"name": name}))

    def main(self, path: str) -> str:
        answer = self.window.get(path)
        assert answer.status_code == 200, answer.text
        return answer.text.split("<main", 1)[1]


@pytest.fixture(scope="module")
def listed(service: Service) -> Listed:
    return Listed(service)


def rows(text: str) -> list[str]:
    """Return the names of a table's rows."""
    return re.findall(r'<th scope="row"><a[^>]*><bdi class="name">([^<]*)<', text)


def test_a_link_sorts_the_jobs_and_the_next_one_turns_them_round(listed: Listed) -> None:
    path = f"/jobs?dataset={listed.dataset['id']}"
    usual = listed.main(path)
    assert rows(usual) == ["zulu", "Alpha", "mike"]
    assert '<th scope="col" class="opt" aria-sort="descending"><a href="/jobs?dataset=' in usual
    assert "newest first" in usual
    by_name = f"{path}&sort=name"
    assert f'href="{by_name.replace("&", "&amp;")}"' in usual
    up = listed.main(by_name)
    assert rows(up) == ["Alpha", "mike", "zulu"]
    assert up.count("aria-sort") == 1
    assert '<th scope="col" aria-sort="ascending"><a' in up
    assert "newest first" not in up
    assert f'href="{path.replace("&", "&amp;")}&amp;sort=-name"' in up
    assert rows(listed.main(f"{path}&sort=-name")) == ["zulu", "mike", "Alpha"]


def test_pages_keep_the_order_and_the_filter(listed: Listed) -> None:
    path = f"/jobs?dataset={listed.dataset['id']}&sort=name"
    for number in range(MORE):
        sent = submit(listed.client, job(listed.dataset["id"], labels={"name": f"n{number:02d}"}))
        assert sent.status_code == 202, sent.text
    first = listed.main(path)
    following = re.search(r'<nav class="pager".*?href="(/jobs\?[^"]*)">Next</a>', first, re.DOTALL)
    assert following is not None
    second = listed.main(following[1].replace("&amp;", "&"))
    assert [*rows(first), *rows(second)] == ["Alpha", "mike", *(f"n{number:02d}" for number in range(MORE)), "zulu"]
    assert f'href="{path.replace("&", "&amp;")}">First page</a>' in second


@pytest.mark.parametrize("path", ["/jobs", "/models", "/datasets"])
def test_a_table_is_not_sorted_by_a_column_that_it_lacks(listed: Listed, path: str) -> None:
    for sort in ("state", "-cost", "--name", "name'"):
        answer = listed.window.get(path, params={"sort": sort})
        assert answer.status_code == 422
        assert "The list is not sorted by that." in answer.text


def test_the_filter_of_models_keeps_the_order(listed: Listed) -> None:
    shown = listed.main("/models?sort=-method")
    assert '<input type="hidden" name="sort" value="-method">' in shown


def test_datasets_sort_and_home_stays_as_it_is(listed: Listed) -> None:
    upload(listed.client, shift=61_500, name="Another")
    assert rows(listed.main("/datasets?sort=name")) == ["Another", "sorted ones"]
    assert rows(listed.main("/datasets?sort=-name")) == ["sorted ones", "Another"]
    assert "aria-sort" not in listed.main("/")


def test_a_ledger_is_read_from_either_end(listed: Listed) -> None:
    base = f"/datasets/{listed.dataset['id']}/ledger"

    def numbers(text: str) -> list[int]:
        return [int(one) for one in re.findall(r'<tr><td class="num">(\d+)</td>', text)]

    usual = listed.main(base)
    last = numbers(usual)[0]
    assert numbers(usual) == sorted(numbers(usual), reverse=True)
    assert f'aria-sort="descending"><a href="{base}?sort=made">' in usual
    up = listed.main(f"{base}?sort=made")
    assert numbers(up) == list(range(1, min(last, 50) + 1))
    assert f'aria-sort="ascending"><a href="{base}">' in up
    later = listed.main(f"{base}?sort=made&after=3")
    assert numbers(later)[0] == 4
    assert f'href="{base}?sort=made&amp;after=0">Older</a>' in later


def test_every_table_scrolls_in_a_named_part_that_the_keyboard_reaches() -> None:
    for path in sorted(TEMPLATES.glob("*.html")):
        text = path.read_text()
        wraps = re.findall(r'<div class="table-wrap"([^>]*)>\s*<table', text)
        assert len(wraps) == text.count("<table"), f"{path.name}: a table stands outside a .table-wrap"
        for one in wraps:
            assert 'tabindex="0" role="group" aria-label' in one, path.name


def scrolled(page: Page) -> None:
    """Scroll the focused table by keyboard to its end."""
    page.locator(".table-wrap").first.focus()
    for _ in range(40):
        page.keyboard.press("ArrowRight")


def test_a_cut_table_has_a_shade_and_sorts_by_keyboard(listed: Listed, service: Service, chromium: Browser) -> None:
    with look(chromium, service.url) as seen:
        seen.sign_in(listed.key)
        for width in WIDTHS:
            seen.page.set_viewport_size({"width": width, "height": 900})
            seen.go(f"/datasets/{listed.dataset['id']}/ledger")
            seen.refuse_violations()
        wrap = seen.page.locator(".table-wrap").first
        attachment, beyond = wrap.evaluate(_EDGES)
        assert attachment == "local, local, scroll, scroll"
        assert beyond > 0, "at 390 px the ledger is cut"
        scrolled(seen.page)
        seen.page.wait_for_function("() => document.querySelector('.table-wrap').scrollLeft > 0")
        seen.go(f"/jobs?dataset={listed.dataset['id']}")
        seen.page.get_by_role("columnheader", name="Job").get_by_role("link").focus()
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_url("**sort=name")
        seen.refuse_violations()
        seen.refuse_reports()
