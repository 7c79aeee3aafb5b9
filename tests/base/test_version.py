"""Statements of a certificate about the code that a trainer ran."""

from hashlib import sha256
from pathlib import Path

from core.base.version import source_digest

ROOT = Path(__file__).resolve().parents[2]


def test_the_digest_is_that_of_every_source_a_trainer_runs() -> None:
    """Where the module that computes it moves to another folder, it must not become the digest of no file."""
    names = sorted(
        path.relative_to(ROOT).as_posix()
        for part in ("core", "workers")
        for path in (ROOT / part).glob("**/*.*")
        if path.suffix in {".py", ".c", ".h"}
    )
    assert {"core/oracle/full.py", "core/native/noise.c", "workers/trainer.py"} <= set(names)
    lines = "".join(f"{sha256((ROOT / name).read_bytes()).hexdigest()}  {name}\n" for name in sorted(names, key=Path))
    assert source_digest() == "sha256:" + sha256(lines.encode()).hexdigest()
