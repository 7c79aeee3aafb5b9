"""Put what the experiments left behind into the page of results, between its two marks."""

import json
from pathlib import Path

from studies.inference.results import table

FIRST, LAST = "<!-- results -->", "<!-- end of results -->"


def fill(page: Path, folder: Path, studies: str) -> None:
    """Replace what stands between the marks by one section for each stored experiment.

    Args:
        page: with the two marks.
        folder: beside it, with what is stored.
        studies: the part of `studies` that makes it.
    """
    text = page.read_text()
    before, rest = text.split(FIRST)
    _, after = rest.split(LAST)
    told = [json.loads(path.read_text()) for path in sorted(folder.glob("[a-z][0-9][0-9]*.json"))]
    sections = "\n".join(table(one, folder.name, studies) for one in told)
    page.write_text(f"{before}{FIRST}\n\n{sections}\n{LAST}{after}")
