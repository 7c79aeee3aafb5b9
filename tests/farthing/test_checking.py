"""Files at home: `farthing check` and `farthing declare` as users run them, without a service, key or network."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.records.decoding.decode import Limits
from farthing import FarthingError, checking, cli, console
from tests.records.test_local import AGE, JOB, declaration
from tests.records.test_messy import HOSPITAL, TOLD, WRITTEN, hospital

FARTHING = Path(sys.executable).parent / "farthing"


WALLED = pytest.mark.skipif(
    not shutil.which("unshare")
    or bool(subprocess.run(["unshare", "-rn", "true"], check=False, capture_output=True).returncode),
    reason="this machine makes no network namespaces",
)


class Ran:
    """The end of a command: its exit status and its streams."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Any:
    """Run a command in this process, which spares the start of an interpreter; the file is read by another one."""

    def command(*arguments: str | Path) -> Ran:
        monkeypatch.setattr(sys, "argv", ["farthing", *map(str, arguments)])
        for stream in (console.out, console.err):  # the width that they were made with is the terminal's of the tests
            monkeypatch.setattr(stream, "width", console.WIDE)
        with pytest.raises(SystemExit) as end:
            cli.main()
        found = capfd.readouterr()
        assert "Traceback" not in found.err
        return Ran(int(end.value.code or 0), found.out, found.err)

    return command


@pytest.fixture
def check(run: Any, tmp_path: Path) -> Any:
    """Check content against a declaration, each of which gets a file."""

    def command(content: bytes, declared: Any, *options: str, name: str = "visits.csv") -> Ran:
        file, described = tmp_path / name, tmp_path / "declaration.json"
        file.write_bytes(content)
        described.write_text(json.dumps(declared))
        found: Ran = run("check", file, "--declaration", described, *options)
        return found

    return command


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    """An address, and the connections that came to it."""
    came: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connection, address = server.accept()
                except OSError:
                    return
                came.append(str(address))
                connection.close()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", came
        server.shutdown(socket.SHUT_RDWR)


class TestNothingLeaves:
    @pytest.mark.parametrize("before_it", [(), pytest.param(("unshare", "-rn"), marks=(pytest.mark.slow, WALLED))])
    def test_a_listener_hears_nothing_and_no_file_is_made(
        self, tmp_path: Path, listener: tuple[str, list[str]], before_it: Sequence[str]
    ) -> None:
        data = tmp_path / "data"
        data.mkdir()
        (data / "visits.csv").write_text("age,job\n40,manager\n50,technician\n")
        (data / "visits.json").write_text(json.dumps(declaration(AGE, JOB)))
        for module in ("numpy", "pydantic", "core"):  # a folder of data may hold anything
            (data / f"{module}.py").write_text("open('hijacked', 'w')\n")
        before = sorted(data.iterdir())
        url, came = listener
        home = tmp_path / "home"
        settings = {"FARTHING_URL": url, "FARTHING_KEY": "sk", "FARTHING_HOME": str(home), "HOME": str(home)}
        done = subprocess.run(
            [*before_it, str(FARTHING), "check", "visits.csv", "-d", "visits.json"],
            cwd=data,
            env=os.environ | settings,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert not came
        assert sorted(data.iterdir()) == before
        assert not home.exists()

    def test_the_reader_gets_no_setting_and_can_write_no_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        program = tmp_path / "reader.py"
        program.write_text(
            "import json, os, sys\n"
            "from core.records.local.program import answer\n"
            "from farthing.schemas.base import View\n"
            "def look(request, limits):\n"
            "    try:\n"
            "        with open(request['path'], 'wb') as file: file.write(b'1')\n"
            "    except OSError as refused: os.environ['REFUSED'] = refused.strerror\n"
            "    class Seen(View): seen: dict\n"
            "    return Seen(seen=dict(os.environ))\n"
            "print(answer(look, sys.stdin.buffer.readline()))\n"
        )
        monkeypatch.setenv("FARTHING_KEY", "secret")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setattr(checking, "folder_of", lambda *_: tmp_path)
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        seen = checking.asked("reader", {"path": str(tmp_path / "written")})["seen"]
        assert seen["REFUSED"] == "File too large"
        assert "secret" not in seen.values()

    def test_a_reader_that_ends_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "reader.py").write_text("raise SystemExit(7)\n")
        monkeypatch.setattr(checking, "folder_of", lambda *_: tmp_path)
        with pytest.raises(FarthingError, match=r"without an answer \(status 7\)"):
            checking.asked("reader", {"declared": "x" * 2**20})

    def test_its_time_is_that_of_an_upload(self) -> None:
        assert Limits().seconds == checking.SECONDS


class TestCheck:
    def test_a_sniffed_hospital_and_no_cell_of_it(self, check: Any) -> None:
        declared = declaration(HOSPITAL[0], *TOLD[1:], reading="sniff")
        found = check(hospital()[0].encode("cp1252"), declared)
        assert found.status == 0, found.err
        assert "Taken from the file: separator “;”, decimal “,”, thousands “.”" in found.out
        assert "/reading/encoding may be wrong: cp1252 was taken, and cp1251 gives other letters." in found.out
        assert "Dates of admitted: %d.%m.%Y" in found.out
        assert "0 of them with a missing value" in found.out
        assert "as a draft whose reading you confirm" in found.err

    def test_a_refused_file_shows_its_counts_and_no_value_but_a_misspelt_one(self, check: Any) -> None:
        found = check(b"age,job\n41,manger\n133,Gardener\nold,technician\n", declaration(AGE, JOB))
        assert found.status == 1
        assert "Read as declared: separator “,”" in found.out
        assert "3 rows, 3 of them with a missing value" in found.out
        assert "job: “manger” in 1 cells may mean “manager”" in found.out
        assert "many-excluded" in found.err
        assert not [cell for cell in ("133", "Gardener") if cell in found.out + found.err]

    def test_extremes_are_shown_on_request_with_the_leak_named(self, check: Any) -> None:
        """The file's name has a line end and bytes that are no text."""
        content = b"age,job\n" + b"40,manager\n" * 60 + b"130,Gardener\n"
        found = check(content, declaration(AGE, JOB), "--json", "--show-extremes", name="b\udcff\nd.csv")
        assert found.status == 0, found.err
        assert found.json["extremes"] == [
            {"column": "age", "least": "40", "most": "130", "undeclared": []},
            {"column": "job", "least": None, "most": None, "undeclared": ["Gardener"]},
        ]
        assert "a release about these records that no budget counts" in found.err

    def test_a_refusal_before_any_count_is_a_problem_document(self, check: Any) -> None:
        """It quotes a name of the header, which no terminal shall obey."""
        found = check(b"\x1b[31mred,\x1b[31mred\n1,2\n", declaration(AGE), "--json")
        assert (found.status, found.out) == (1, "")
        problem = json.loads(found.err)
        assert problem["code"] == "invalid-request"
        assert [one["pointer"] for one in problem["errors"]] == ["/file"]
        assert "both named `\\x1b[31mred`" in problem["errors"][0]["detail"]

    def test_wrong_calls_end_with_status_2(self, run: Any, tmp_path: Path) -> None:
        file, described = tmp_path / "visits.csv", tmp_path / "declaration.json"
        file.write_text("age\n1\n")
        assert run("check", tmp_path / "absent", "-d", file).status == 2
        assert run("check", tmp_path, "-d", file).status == 2
        described.write_text("[" * 100_000)
        assert run("check", file, "-d", described).status == 2
        assert run("check", file, "-d", tmp_path / "absent").status == 2


class TestDeclare:
    CONTENT = (
        "patient_id;age;ward;Größe;seen;zip;comment;blank;red\x1b[31m\r\n"
        + "".join(
            f"P{row};{30 + row % 50};{'north' if row % 3 else 'south'};1,{row % 80};1{row % 9}.02.2021;0{row % 7}123;"
            f"came {row};;1\r\n"
            for row in range(60)
        )
    ).encode("cp1252")

    def test_names_and_types_and_no_cell(
        self, run: Any, tmp_path: Path, listener: tuple[str, list[str]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("FARTHING_URL", listener[0])
        file, to = tmp_path / "visits.csv", tmp_path / "visits.json"
        file.write_bytes(self.CONTENT)
        found = run("declare", file, "--output", to)
        assert (found.status, found.out) == (0, "")
        draft = json.loads(to.read_text())
        blank = {"lower": None, "upper": None}
        assert draft["columns"] == [
            {"name": "age", "type": "integer"} | blank,
            {"name": "ward", "type": "category", "values": None},
            {"name": "Größe", "type": "number"} | blank,
            {"name": "seen", "type": "date", "formats": ["%d.%m.%Y"]} | blank,
            {"name": "zip", "type": "category", "values": None},
        ]
        assert (draft["name"], draft["budget"]) == ("visits", None)
        assert draft["reading"] == {"quote": '"'} | WRITTEN | {"encoding": "cp1252", "thousands": None}
        for name in ("patient_id", "comment", "blank", "red\\x1b[31m"):
            assert f"“{name}” is left out" in found.err
        for cell in ("north", "P1", "came", "79", "0123"):
            assert cell not in to.read_text() + found.err
        assert run("declare", file, "--output", to).status == 2
        assert run("declare", file, "--output", file, "--force").status == 2
        assert run("declare", file, "--output", tmp_path, "--force").status == 2
        assert file.read_bytes() == self.CONTENT
        assert not listener[1]

    def test_values_come_from_the_file_on_request(self, run: Any, tmp_path: Path) -> None:
        file, to = tmp_path / "visits.csv", tmp_path / "visits.json"
        file.write_bytes(self.CONTENT)
        to.write_text("old")
        found = run("declare", file, "--output", to, "--force", "--values-from-file", "--json")
        assert "a release about these records that no budget counts" in found.err
        draft = json.loads(to.read_text())
        assert found.json["declaration"] == draft
        assert draft["columns"][1]["values"] == ["north", "south"]
