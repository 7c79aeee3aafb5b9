"""Check of a file on its owner's machine against its declaration: cells are counted, by the code that reads an upload.

`farthing check` starts it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.base.errors import Refusal
from core.data.datasets import Metadata, parse_metadata, refuse_unkept
from core.data.reading import PLAIN, SNIFF
from core.records.decoding.checks import Caps
from core.records.decoding.conversion import Conversion
from core.records.decoding.decode import Limits, check_rows
from core.records.decoding.sources import PlainFile
from core.records.decoding.validation import ValidationReport, refuse_many_excluded
from core.records.local.program import run
from core.records.local.strange import Strange
from farthing.schemas.drafts import CellCounts
from farthing.schemas.local import CheckView, RefusedView


def check(path: Path, declared: object, *, extremes: bool, limits: Limits) -> CheckView:
    """Count the cells of a file as an upload with this declaration would.

    Args:
        path: of the file.
        declared: the metadata of the upload.
        extremes: also return cells of single records.
        limits: of the file.

    Raises:
        Invalid, TooLarge, NotOfferedYet: the declaration or the file would be refused before its cells are counted.
    """
    metadata = parse_metadata(_as_draft(declared))
    refuse_unkept(metadata, limits.rows)
    caps = Caps(limits.rows, limits.columns, limits.cells)
    file = Conversion(PlainFile(path=path), metadata.columns, caps, reading=metadata.reading)
    strange = [Strange(column, file.reading or PLAIN) for column in file.columns]
    for _ in file.batches(strange):
        pass
    report = file.report
    names = [column.name for column in metadata.columns]
    return CheckView(
        rows=report.rows,
        incomplete_rows=report.incomplete_rows,
        many_excluded=report.many_excluded,
        columns=[CellCounts.model_validate(dict(one)) for one in report.columns],
        reading=None if report.sniffed or file.reading is None else file.reading.model_dump(mode="json"),
        sniffed=None if report.sniffed is None else report.sniffed.view(names),
        misspelt=[one for column in strange for one in column.misspelt()],
        extremes=[column.extremes() for column in strange] if extremes else None,
        refused=_refused(metadata, report),
    )


def _as_draft(declared: object) -> object:
    """Return metadata of which the reading may be looked for: nothing is sealed here."""
    if isinstance(declared, dict) and declared.get("reading") == SNIFF:
        return {name: value for name, value in declared.items() if name != "accept_excluded"} | {"seal": False}
    return declared


def _refused(metadata: Metadata, report: ValidationReport) -> RefusedView | None:
    """Return the refusal of an upload whose cells have these counts; None: it would be sealed."""
    try:
        check_rows(report.rows, metadata.rows)
        if metadata.budget is not None:
            metadata.budget.terms(report.rows)
        # Sealing a draft accepts its rows.
        refuse_many_excluded(report, accepted=metadata.accept_excluded or not metadata.seal)
    except Refusal as refusal:
        errors = [{"pointer": field.pointer, "detail": field.detail} for field in refusal.fields]
        return RefusedView.model_validate({"code": refusal.code, "detail": refusal.detail, "errors": errors})
    return None


def _look(request: Mapping[str, Any], limits: Limits) -> CheckView:
    return check(Path(request["path"]), request["declared"], extremes=request["extremes"], limits=limits)


if __name__ == "__main__":
    run(_look)
