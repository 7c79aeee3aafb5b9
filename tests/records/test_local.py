"""Files on their owner's machine, read in this process: counts of a check, refusals, and kinds of a draft."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.base.errors import NotOfferedYet, Refusal
from core.records.decoding.decode import Limits
from core.records.local.check import check
from core.records.local.declare import declare
from farthing.schemas.local import CheckView
from tests.records.test_messy import HOSPITAL, TOLD, VISITS, WRITTEN, hospital

AGE = {"type": "integer", "name": "age", "lower": 0, "upper": 120}
JOB = {"type": "category", "name": "job", "values": ["manager", "technician"]}


def declaration(*columns: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "visits", "budget": {"epsilon": "3"}, "columns": list(columns), **more}


def checked(folder: Path, content: bytes, declared: object, *, extremes: bool = False) -> CheckView:
    file = folder / "visits.csv"
    file.write_bytes(content)
    return check(file, declared, extremes=extremes, limits=Limits())


def drafted(folder: Path, content: bytes, *, values: bool = False) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a draft, and the reasons by the columns that it leaves out."""
    file = folder / "visits"
    file.write_bytes(content)
    found = declare(file, values=values, limits=Limits())
    return found.declaration, {one.column: one.reason for one in found.left_out}


def kinds(folder: Path, content: bytes) -> dict[str, str]:
    draft, left_out = drafted(folder, content)
    return {column["name"]: column["type"] for column in draft["columns"]} | dict.fromkeys(left_out, "left out")


def refusals(refusal: Refusal) -> str:
    return " ".join([refusal.detail, *(f"{field.pointer}: {field.detail}" for field in refusal.fields)])


class TestChecking:
    def test_a_hospital_is_counted_as_an_upload_is(self, tmp_path: Path) -> None:
        content = hospital()[0].encode("cp1252")
        declared = checked(tmp_path, content, declaration(*TOLD, reading=WRITTEN | {"encoding": "cp1252"}))
        assert (declared.rows, declared.incomplete_rows, declared.refused) == (VISITS, 0, None)
        assert declared.sniffed is None
        sniffed = checked(tmp_path, content, declaration(HOSPITAL[0], *TOLD[1:], reading="sniff"))
        assert sniffed.columns == declared.columns
        assert sniffed.reading is None
        assert sniffed.sniffed is not None
        assert sniffed.sniffed.reading == declared.reading
        assert [one.other for one in sniffed.sniffed.doubts] == ["cp1251"]

    def test_each_rule_of_an_upload_refuses_here(self, tmp_path: Path) -> None:
        content = b"age,job\nold,manager\n40,manager\n"

        def refused(**more: Any) -> str | None:
            found = checked(tmp_path, content, declaration(AGE, JOB, **more)).refused
            return found and found.errors[0].pointer

        assert refused() == "/accept_excluded"
        assert refused(accept_excluded=True) is None
        assert refused(seal=False) is None
        assert refused(accept_excluded=True, rows=3) == "/rows"
        large = declaration(AGE, budget={"epsilon": "1", "delta": "0.01"})
        assert checked(tmp_path, b"age\n" + b"40\n" * 5, large).refused is None
        over = checked(tmp_path, b"age\n" + b"40\n" * 20, large).refused  # above a tenth of 1/20
        assert over is not None
        assert over.errors[0].pointer == "/budget/accept_delta"

    @pytest.mark.parametrize(
        ("text", "nearest"),
        [
            ("manger", "manager"),
            ("MANAGER", "manager"),
            ("tecnician", "technician"),
            ("stage 3", None),
            ("ward c", None),
            ("gardener", None),
            ("x" * 5_000, None),
        ],
    )
    def test_a_misspelt_value_is_one_that_differs_by_spelling(
        self, tmp_path: Path, text: str, nearest: str | None
    ) -> None:
        values = ["manager", "technician", "stage 1", "stage 2", "ward a", "ward b"]
        declared = declaration(JOB | {"values": values, "missing": ["none"]})
        found = checked(tmp_path, f"job\n{text}\nnone\n\n{text}\nmanager\n".encode(), declared)
        assert [(one.text, one.cells, one.nearest) for one in found.misspelt] == [(text, 2, nearest)] * bool(nearest)
        assert found.columns[0].unreadable == 2

    def test_extremes_are_of_cells_that_are_no_codes_and_only_where_wanted(self, tmp_path: Path) -> None:
        day = {"type": "date", "name": "day", "lower": "2020-01-01", "upper": "2021-01-01", "missing": ["9999-12-31"]}
        declared = declaration(AGE | {"missing": [-999]}, JOB, day)
        content = b"age,job,day\n7,manager,2019-02-03\n-999,Gardener,9999-12-31\n130,manager,2022-05-06\n,,\n"
        found = checked(tmp_path, content, declared, extremes=True).extremes
        assert found is not None
        assert [(one.least, one.most, one.undeclared) for one in found] == [
            ("7", "130", []),
            (None, None, ["Gardener"]),
            ("2019-02-03", "2022-05-06", []),
        ]
        plain = checked(tmp_path, content, declared)
        assert plain.extremes is None
        assert not [cell for cell in ("130", "2019", "2022", "Gardener") if cell in plain.model_dump_json()]

    def test_arrays_have_extremes_too(self, tmp_path: Path) -> None:
        photos = np.arange(12, dtype=np.float32).reshape(3, 4)
        np.savez(tmp_path / "photos.npz", photo=photos, y=np.array(["a", "b", "a"]))
        photo = {"type": "array", "name": "photo", "shape": [4], "lower": 0, "upper": 10, "missing": [0]}
        declared = declaration(photo, {"type": "binary", "name": "y", "values": ["a", "b"]})
        found = check(tmp_path / "photos.npz", declared, extremes=True, limits=Limits())
        assert (found.columns[0].clamped_high, found.columns[0].missing) == (1, 1)
        assert found.extremes is not None
        assert (found.extremes[0].least, found.extremes[0].most) == ("1", "11")

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "/file"),
            (b"age,job\n", "The file holds no rows"),
            (b"age\n" + b"1" * (9 * 2**20), "/columns/1/name"),
            (b"age,job\n1," + b"x" * (9 * 2**20), "is longer than 4096 KiB"),
            (b"x" * (3 * 2**20), "a header of more than 2 MiB"),
            (b"PAR1" + bytes(40), "no complete Parquet file"),
            ("age,job\n1,manager\n".encode("utf-16-le"), "as UTF-16 without a byte order mark has"),
            (hospital()[0].encode("cp1252"), "/reading/encoding"),
        ],
    )
    def test_a_bad_file_names_the_fix(self, tmp_path: Path, content: bytes, said: str) -> None:
        with pytest.raises(Refusal) as refused:
            checked(tmp_path, content, declaration(AGE, JOB))
        assert said in refusals(refused.value)

    @pytest.mark.parametrize(
        ("declared", "said"),
        [
            ([], "send an object with name and columns"),
            (declaration(AGE, colums=1), "/colums: there is no such field here"),
            (declaration(AGE, name="\ud800"), "/name"),
            (declaration(AGE, distinct_because="others"), "/distinct_because"),
            (declaration(AGE, budget={"epsilon": "3", "delta": "0.5"}), "/budget/delta"),
            (declaration(AGE | {"lower": None}), "bounds of age: say what is possible, without looking at the data"),
            (declaration(JOB | {"values": None}), "values of job: list those of the codebook, without looking"),
            (declaration({"type": "array", "name": "p", "shape": None, "lower": 0, "upper": 1}), "shape of p: say"),
        ],
    )
    def test_a_bad_declaration_is_refused_as_in_an_upload(self, tmp_path: Path, declared: object, said: str) -> None:
        with pytest.raises(Refusal) as refused:
            checked(tmp_path, b"age,job\n40,manager\n", declared)
        assert said in refusals(refused.value)

    def test_users_are_no_unit_here_either(self, tmp_path: Path) -> None:
        with pytest.raises(NotOfferedYet):
            checked(tmp_path, b"age\n40\n", declaration(AGE, unit={"user_column": "age", "max_records": 1}))


class TestDrafting:
    def test_a_kind_is_that_of_most_cells(self, tmp_path: Path) -> None:
        names = "whole;part;day;code;one;counter;long;empty;few"
        rows = [
            f"{row % 9};{row % 7},5;{1 + row % 28:02}.03.2021;{'012345' if row % 2 else '01234'};x;{row};a {row};;"
            f"{'NA' if row % 12 == 0 else row % 5}"
            for row in range(60)
        ]
        expected = ["integer", "number", "date", "category", "category", "left out", "left out", "left out", "integer"]
        found = kinds(tmp_path, "\n".join([names, *rows, ""]).encode())
        assert found == dict(zip(names.split(";"), expected, strict=True))

    @pytest.mark.parametrize(
        ("name", "kind"),
        [
            ("patientId", "left out"),
            ("PATIENT_ID", "left out"),
            ("E-Mail", "left out"),
            ("Nachname", "left out"),
            ("notes", "left out"),
            ("paid", "integer"),
            ("width", "integer"),
            ("renamed", "integer"),
            ("=cmd()", "integer"),
            ("x" * 201, "left out"),
            ("\x1b[31m", "left out"),
        ],
    )
    def test_a_name_says_what_to_leave_out(self, tmp_path: Path, name: str, kind: str) -> None:
        assert kinds(tmp_path, f"{name},y\n4,1\n9,1\n4,1\n".encode()) == {name: kind, "y": "integer"}

    def test_a_typed_file_says_its_kinds(self, tmp_path: Path) -> None:
        table = pa.table(
            {
                "whole": pa.array([4, None, 9], pa.int32()),
                "part": [0.5, 1.0, 2.0],
                "yes": [True, False, True],
                "day": pa.array([1, 2, 3], pa.date32()),
                "job": pa.array(["a", "a", "b"]).dictionary_encode(),
                "photo": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
                "odd": pa.array([b"1", b"2", b"3"]),
            }
        )
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        draft, left_out = drafted(tmp_path, bytes(sink.getvalue()), values=True)
        blank = {"lower": None, "upper": None}
        assert draft["columns"] == [
            {"name": "whole", "type": "integer"} | blank,
            {"name": "part", "type": "number"} | blank,
            {"name": "yes", "type": "binary", "values": ["false", "true"]},
            {"name": "day", "type": "date"} | blank,
            {"name": "job", "type": "category", "values": ["a", "b"]},
            {"name": "photo", "type": "array", "shape": [2]} | blank,
        ]
        assert list(left_out) == ["odd"]
        assert "reading" not in draft

    @pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
    def test_the_separator_is_that_of_header_and_rows(self, tmp_path: Path, separator: str) -> None:
        lines = [separator.join(["age", '"cost, net; all"', "y"]), *[separator.join(["40", '"2,5"', "1"])] * 9]
        draft, _ = drafted(tmp_path, "\n".join(lines).encode())
        assert [column["name"] for column in draft["columns"]] == ["age", "cost, net; all", "y"]
        assert draft["reading"]["separator"] == separator

    def test_a_single_column_of_decimal_commas(self, tmp_path: Path) -> None:
        draft, _ = drafted(tmp_path, "Größe\n1,5\n2,25\n2,5\n".encode())
        assert [column["type"] for column in draft["columns"]] == ["number"]
        assert draft["reading"]["decimal"] == ","

    def test_other_cells_of_the_same_kinds_make_the_same_draft(self, tmp_path: Path) -> None:
        texts = [
            "age,job\n" + f"{low},{one}\n{high},{two}\n" * 40
            for low, high, one, two in [(1, 99, "north", "south"), (20, 21, "east", "west")]
        ]
        one, other = (json.dumps(drafted(tmp_path, text.encode())) for text in texts)
        assert one == other

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "/file"),
            (b"a,a\n1,2\n", "both named `a`"),
            (b"," * 5_000 + b"\n", "more than 2000 columns"),
            (b"40,1.5\n41,2\n", "holds numbers where names belong"),
            (b"a,b\n1,2\n3\n", "/rows/"),
            (b"PK\x03\x04" + bytes(20), "An NPZ file has no draft"),
            (b"\x1f\x8b\x08\0", "compressed by gzip"),
        ],
    )
    def test_a_file_that_cannot_be_read_is_refused(self, tmp_path: Path, content: bytes, said: str) -> None:
        with pytest.raises(Refusal) as refused:
            drafted(tmp_path, content)
        assert said in refusals(refused.value)
