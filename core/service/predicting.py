"""Predictions of files: CSV, Arrow or Parquet in, the same rows with their predictions beside them out.

Rows and answer are on the disk while they are made, encrypted, and in files that nobody finds by name any more once
the answer is sent.
"""

import secrets
from collections.abc import Iterable
from typing import Final

from core.inference.network import ReleasedNetwork, with_coefficients
from core.records.answering import Kind, Media, RowsToPredict, read_answer
from core.records.decoding.child import Spare, refuse
from core.records.decoding.decode import Limits
from core.records.encryption import Decrypting, SealedFile
from core.service import quotas
from core.service.context import Caller, Context
from core.service.models import released_by

MOST_TIMES: Final = 8
"""An answer may be so many times as large as a body may be."""
_CHILDREN: Final = Spare("core.records.predicting")


def predict(
    context: Context,
    caller: Caller,
    model_id: str,
    pieces: Iterable[bytes],
    *,
    media: Media,
    kind: Kind,
    level: float | None,
) -> Decrypting:
    """Predict the rows of a file; return the answer, an open file that is gone once it is closed.

    Args:
        context: the service.
        caller: its principal.
        model_id: the model.
        pieces: of the file, as it comes.
        media: its format.
        kind: the format of the answer.
        level: of the intervals; None: predictions alone.

    Raises:
        NotFound: the model does not exist for the caller.
        Invalid: it predicts nothing, or the file cannot be read or has cells that stand for nothing.
        TooLarge: the file, or the answer, holds more than is taken.
        DiskFull: the service has too little free disk.
    """
    settings = context.settings
    released, _ = released_by(context, caller, model_id)
    if not isinstance(released, ReleasedNetwork):
        released = with_coefficients(released, "predictions")
    folder = settings.spool_path
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = secrets.token_hex(16)
    source, target = (
        SealedFile(path=(folder / f"predict-{name}.{what}").resolve(), context=model_id) for what in ("rows", "answer")
    )
    try:
        with source.writing() as sink:
            for piece in quotas.leaving_free(context, pieces):
                sink.write(piece)
        request = RowsToPredict(
            source=source,
            target=target,
            media=media,
            kind=kind,
            model=model_id,
            released=released.model_dump(mode="json"),
            level=level,
            limits=Limits(
                rows=settings.max_predict_rows,
                columns=settings.max_columns,
                seconds=settings.decode_seconds,
                memory_bytes=settings.decode_memory_bytes,
                free_bytes=settings.min_free_disk_bytes,
            ),
            answer_bytes=MOST_TIMES * settings.max_predict_bytes,
        )
        answer = read_answer(_CHILDREN.ask(request.model_dump_json(), settings.decode_seconds))
        if answer is None or answer.problem is not None:
            refuse(None if answer is None else answer.problem)
        return target.open()
    finally:
        # An open file stays readable without its name.
        for one in (source, target):
            one.path.unlink(missing_ok=True)
