"""Files of HTML in a real browser, opened from a disk: they load nothing, and no screen or paper cuts them."""

import io
from pathlib import Path

import pytest
from playwright.sync_api import Browser
from pypdf import PdfReader

from api.pages.standalone import summary_page
from core.inference.checks import Checks, ColumnLook, Learned
from core.inference.released import Released
from core.service.readings import whole_of
from tests.support.browser import SCHEMES, WIDTHS, look
from tests.support.released import KINDS, of_kind, released, rows_of, shown_of, spread

LEARNED = Learned(columns=(ColumnLook(centre=0, scale=1),) * 4, encoding=rows_of(spread(4)), weight_bound=3.0)
FLAGGED = Checks(
    job=("not converged",),
    coefficients=((), ("separated",), ("not identified",), ()),
    gradient_excess=0.1,
    hessian_noise=0.1,
    unidentified=(0.0,) * 4,
    learned=LEARNED,
)
MODELS: dict[str, Released] = {kind: of_kind(kind) for kind in KINDS} | {"flagged": released(checks=FLAGGED)}
PAPER = 718
"""Pixels of a sheet of A4 between margins of 10 mm."""


@pytest.mark.parametrize("kind", MODELS)
def test_a_file_loads_nothing_and_has_no_fault(chromium: Browser, tmp_path: Path, kind: str) -> None:
    model = MODELS[kind]
    shown = shown_of(model, (0.95, 0.99))
    file = tmp_path / "summary.html"
    file.write_text(summary_page(whole_of(model, shown)), encoding="utf-8")
    with look(chromium, file.as_uri()) as seen:
        requested: list[str] = []
        seen.page.on("request", lambda request: requested.append(request.url))
        for scheme in SCHEMES:
            seen.page.emulate_media(color_scheme=scheme)
            for width in WIDTHS:
                seen.page.set_viewport_size({"width": width, "height": 900})
                seen.go("")
                seen.refuse_violations()
        seen.refuse_reports()
        assert set(requested) == {file.as_uri()}
        shades = []
        for scheme in SCHEMES:
            seen.page.emulate_media(color_scheme=scheme)
            shades.append(seen.page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert shades[0] != shades[1]
        seen.page.emulate_media(media="print")
        seen.page.set_viewport_size({"width": PAPER, "height": 1000})
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= PAPER, "paper does not scroll"
        printed = " ".join(page.extract_text() for page in PdfReader(io.BytesIO(seen.page.pdf(format="A4"))).pages)
        for name in (*model.names, "For a methods section"):
            assert "".join(name.split()) in "".join(printed.split())
