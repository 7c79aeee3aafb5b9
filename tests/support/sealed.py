"""Encrypted files for tests, made of plain bytes, and a real object store over HTTP."""

from pathlib import Path

from core.records.encryption import SealedFile


def seal(path: Path, content: bytes, context: str = "ds_1") -> SealedFile:
    """Write bytes into a new encrypted file; one that is there makes room."""
    path.unlink(missing_ok=True)
    made = SealedFile(path=path, context=context)
    with made.writing() as sink:
        sink.write(content)
    return made
