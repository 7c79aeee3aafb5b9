"""Commands that look at a file on its owner's machine and send nothing: check and declare.

The file is read by a program of the service's, in a process of its own that gets no setting, key or address. Where only
the client is installed, both commands say what to do.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from farthing import tables
from farthing.console import WRONG_INPUT, Json, answer, app, complain, line, read_json, say, visible
from farthing.errors import FarthingError
from farthing.schemas.local import CheckView, DeclareView
from farthing.serving import folder_of
from farthing.uploading import refuse_absent, warn_excluded

SECONDS: Final = 600.0
"""Of reading a file, as in an upload."""
_KEPT: Final = ("PATH", "LD_LIBRARY_PATH", "TMPDIR")
_SET: Final = {
    "LANG": "C.UTF-8",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "2",
    "OPENBLAS_NUM_THREADS": "1",
}
_LEAK: Final = (
    "WARNING: {what} come from single records. A bound, a value or an alias that is taken from them is a release about "
    "these records that no budget counts. Take it from the codebook."
)
DataFile = Annotated[Path, typer.Argument(help="CSV, Parquet, Arrow or NPZ; it is read here and not sent")]


@app.command()
def check(
    file: DataFile,
    declaration: Annotated[Path, typer.Option("--declaration", "-d", help="JSON, as `upload --metadata` takes it")],
    *,
    show_extremes: Annotated[
        bool,
        typer.Option(
            "--show-extremes",
            help="print least and greatest cells and undeclared values too; each tells of a single record, and is "
            "never to be copied into a declaration",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check a file at home against its declaration. Nothing is sent; status 1 where it would be refused.

    An upload is also compared with your earlier ones, and with the scope that it joins: that needs the service.
    """
    _refuse_unreadable(file)
    declared = read_json(declaration, "declaration")
    request = {"path": str(file.resolve()), "declared": declared, "extremes": show_extremes}
    found = CheckView.model_validate(asked("core.records.local.check", request))
    answer(found, tables.checked(found), as_json=as_json)
    if show_extremes:
        complain(_LEAK.format(what="these cells"))
    if found.refused is not None:
        raise FarthingError(0, found.refused.model_dump())
    warn_excluded(found)
    way = "" if found.sniffed is None else ", as a draft whose reading you confirm"
    say(f"It would be sealed{way}: {found.rows:,} rows.")


@app.command()
def declare(
    file: DataFile,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="a new file; default: standard output")] = None,
    *,
    values_from_file: Annotated[
        bool,
        typer.Option(
            "--values-from-file",
            help="take the values of categories from the file: each tells that a record has it, which no budget counts",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="overwrite the output")] = False,
    as_json: Json = False,
) -> None:
    """Draft a file's declaration from its names and types. On this machine; nothing is sent.

    Bounds and values are null, for you to say from the codebook. Identifiers and free text are left out.
    """
    _refuse_unreadable(file)
    if output is not None:
        _refuse_output(output, file, force=force)
    request = {"path": str(file.resolve()), "values": values_from_file}
    found = DeclareView.model_validate(asked("core.records.local.declare", request))
    text = json.dumps(found.declaration, indent=2, ensure_ascii=False)
    if as_json:
        answer(found, "", as_json=True)
    elif output is None:
        line(text)
    if output is not None:
        try:
            with output.open("w" if force else "x", encoding="utf-8") as sink:
                sink.write(text + "\n")
        except OSError as error:
            complain(f"--output {output}: {error.strerror}")
            raise typer.Exit(WRONG_INPUT) from error
    for words in tables.drafted(found):
        say(words)
    if values_from_file:
        complain(_LEAK.format(what="the values of categories"))
    name = "D.json" if output is None else visible(str(output))
    say(f"Fill in each null from the codebook, then: farthing check {visible(str(file))} --declaration {name}")


def _refuse_unreadable(file: Path) -> None:
    """End with status 2 where there is no such file, or this user may not read it."""
    refuse_absent(file)
    if not os.access(file, os.R_OK):
        complain(f"{file}: you may not read it")
        raise typer.Exit(WRONG_INPUT)


def _refuse_output(output: Path, file: Path, *, force: bool) -> None:
    """End with status 2 where an output would overwrite what it should not."""
    if not output.exists():
        return
    wrong = None if force else "it exists; --force overwrites it"
    if not output.is_file():
        wrong = "it is no file"
    elif output.samefile(file):
        wrong = "it is the data file"
    if wrong is not None:
        complain(f"--output {output}: {wrong}")
        raise typer.Exit(WRONG_INPUT)


def asked(module: str, request: Mapping[str, Any]) -> Any:  # noqa: ANN401 - as the program answers
    """Have a program of the service's look at a file; return its answer.

    Raises:
        FarthingError: the file or its declaration is refused.
    """
    folder = folder_of(
        module,
        "Run this command in its checkout (`make setup`), or without a network in its image: `docker run --rm "
        "--network none --user $(id -u) -v $PWD:/data:ro farthing-api farthing check /data/FILE -d /data/D.json`. Or "
        "send the file as a draft, which you alone see: `farthing upload FILE -m D.json --draft`.",
    )
    process = subprocess.Popen(  # noqa: S603 - a module of the service's
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Libraries quote cells in their messages.
        stderr=subprocess.DEVNULL,
        # A folder of data may hold a `numpy.py`, which would be imported from there.
        cwd=folder,
        env={name: os.environ[name] for name in _KEPT if name in os.environ} | _SET,
    )
    assert process.stdin is not None, "it is a pipe"
    assert process.stdout is not None, "as above"
    end = threading.Timer(SECONDS, process.kill)
    end.start()
    try:
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        # The other pipe stays open: its end tells the program that this command has ended.
        said = process.stdout.read()
        code = process.wait()
    finally:
        end.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
        with suppress(BrokenPipeError):
            process.stdin.close()
    found = json.loads(said) if code == 0 and said else {}
    if "found" in found:
        return found["found"]
    problem = found.get("problem") or {
        "code": "invalid-request",
        "detail": f"The reader ended without an answer (status {code}).",
        "fields": [("/file", "give fewer rows, or smaller row groups: it has 10 minutes and 4 GiB of memory")],
    }
    # They quote names of the file's header.
    errors = [{"pointer": visible(pointer), "detail": visible(detail)} for pointer, detail in problem["fields"]]
    raise FarthingError(0, {"code": problem["code"], "detail": visible(problem["detail"]), "errors": errors})
