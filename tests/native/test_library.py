"""Which library is loaded: one of these very sources, or none."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from core.native import build as building
from core.native.library import FOLDER, MARK, NAME, address, mark, opened
from tests.support.compiled import built, compiled_kernels, copied, needs_compiler

ROOT = Path(__file__).parents[2]


def test_what_was_not_built_is_said_to_be_missing(tmp_path: Path) -> None:
    found, told = opened(copied(tmp_path))
    assert found is None
    assert told.startswith("none: NumPy")


@needs_compiler
def test_the_sources_compile_without_a_warning() -> None:
    assert compiled_kernels() is not None


@needs_compiler
@pytest.mark.parametrize("change", ["more", "another name", "a new file", "what files include"])
def test_a_stale_library_is_not_loaded(change: str, tmp_path: Path) -> None:
    built(copied(tmp_path))
    noise = tmp_path / "noise.c"
    match change:
        case "more":
            noise.write_text(noise.read_text() + "\n")
        case "another name":
            noise.rename(tmp_path / "noises.c")
        case "a new file":
            (tmp_path / "more.c").write_text("int more;\n")
        case "what files include":
            (tmp_path / "processors.h").write_text((tmp_path / "processors.h").read_text() + "\n")
    found, told = opened(tmp_path)
    assert found is None
    assert told.startswith("stale: built from other sources")


def test_what_is_no_library_of_this_machine_is_not_loaded(tmp_path: Path) -> None:
    """A file with the right mark that no loader takes, as one of another processor would be."""
    copied(tmp_path)
    (tmp_path / NAME).write_bytes(b"\x7fELF" + mark(tmp_path).encode())
    found, told = opened(tmp_path)
    assert found is None
    assert told.startswith("foreign")


def test_the_mark_names_sources_flags_and_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(tmp_path)
    marks = {mark(tmp_path)}
    assert marks == {mark(FOLDER)}, "the folder's name is no part of it"
    monkeypatch.setattr("core.native.library.platform.machine", lambda: "another")
    marks.add(mark(tmp_path))
    monkeypatch.setattr("core.native.library.FLAGS", ("-O0",))
    marks.add(mark(tmp_path))
    assert len(marks) == 3
    assert all(one.startswith(MARK) for one in marks)


def test_a_machine_without_a_compiler_is_told_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler -O2")
    assert building.main([]) == 0
    assert building.main(["--required"]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first == second
    assert "no C compiler" in first


@needs_compiler
def test_sources_that_do_not_compile_are_an_error(tmp_path: Path) -> None:
    copied(tmp_path)
    (tmp_path / "noise.c").write_text("int broken(")
    with pytest.raises(subprocess.CalledProcessError):
        building.build([*(building.compiler() or [])], tmp_path)
    assert [path for path in tmp_path.iterdir() if path.suffix not in {".c", ".h"}] == [], "nothing half made is left"


def test_the_build_asks_for_nothing_that_is_installed() -> None:
    """A build stage of an image has Python and a compiler alone."""
    code = "import sys, core.native.build; print(sorted({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "numpy" not in done.stdout


def test_only_arrays_that_c_can_walk_have_an_address() -> None:
    numbers = np.arange(12, dtype=np.int64)
    assert address(numbers[3:]) == address(numbers) + 24
    odd = np.frombuffer(bytes(17), dtype=np.uint8)[1:].view(np.int64)
    for other in (numbers[::2], odd):
        with pytest.raises(AssertionError):
            address(other)
