"""Messy files: each mess is read as declared, or refused with the field and the fix; nothing is guessed in silence."""

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from core.base.errors import Invalid
from core.data.datasets import Metadata, parse_metadata
from core.records.decoding.decode import Decoded, Limits, decode
from core.records.encryption import SealedFile
from tests.support.sealed import seal

KEY = bytes(32)
AGE = {"type": "number", "name": "age", "lower": 0, "upper": 120}
COST = {"type": "number", "name": "cost", "lower": 0, "upper": 1e6}
STAYS = {"type": "integer", "name": "stays", "lower": 0, "upper": 100_000}
SEX = {"type": "binary", "name": "sex", "values": ["female", "male"]}


def metadata(*columns: dict[str, Any], **more: Any) -> Metadata:
    return parse_metadata({"name": "h", "budget": {"epsilon": "3"}, "columns": list(columns), **more})


def read(folder: Path, content: bytes, *columns: dict[str, Any], **more: Any) -> tuple[Decoded, dict[str, list[Any]]]:
    """Decode a file as declared; numbers that are missing are None."""
    declared = metadata(*columns, **more)
    target = SealedFile(path=folder / "decoded", context="ds_1")
    target.path.unlink(missing_ok=True)
    source = seal(folder / "source", content)
    decoded = decode(
        source, target, declared.columns, limits=Limits(), media=None, reading=declared.reading, row_key=KEY
    )
    with target.open() as file:
        table = pa.ipc.open_file(pa.PythonFile(file, "r")).read_all().to_pydict()
    return decoded, {
        name: [None if isinstance(one, float) and math.isnan(one) else one for one in cells]
        for name, cells in table.items()
    }


def refused(folder: Path, content: bytes, *columns: dict[str, Any], **more: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        read(folder, content, *columns, **more)
    return {field.pointer: field.detail for field in caught.value.fields}


def undeclarable(*columns: dict[str, Any], **more: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        metadata(*columns, **more)
    return {field.pointer: field.detail for field in caught.value.fields}


class TestAReading:
    @pytest.mark.parametrize(
        ("reading", "pointer"),
        [
            ({"decimal": ","}, "/reading/decimal"),
            ({"separator": ";", "decimal": ",", "thousands": ","}, "/reading/thousands"),
            ({"thousands": "."}, "/reading/thousands"),
            ({"thousands": "'", "quote": "'"}, "/reading/quote"),
            ({"thousands": ",", "quote": None}, "/reading/quote"),
            ({"separator": ":"}, "/reading/separator"),
            ({"separator": ""}, "/reading/separator"),
            ({"decimal": ";"}, "/reading/decimal"),
            ({"thousands": "_"}, "/reading/thousands"),
            ({"encoding": "rot13"}, "/reading/encoding"),
            ({"encoding": "../etc"}, "/reading/encoding"),
            ({"quote": "`"}, "/reading/quote"),
            ({"header": False}, "/reading/header"),
            ([], "/reading"),
            (";", "/reading"),
        ],
    )
    def test_one_that_contradicts_itself_is_refused_by_field(self, reading: object, pointer: str) -> None:
        assert list(undeclarable(AGE, reading=reading)) == [pointer]

    def test_a_declaration_without_one_is_stored_as_before(self) -> None:
        assert "reading" not in metadata(AGE).model_dump(mode="json")
        assert metadata(AGE, reading={"separator": ";"}).model_dump(mode="json")["reading"]["separator"] == ";"

    def test_semicolons_and_decimal_commas(self, tmp_path: Path) -> None:
        content = b'age;cost\n40,5;1.234,56\n3;"2.000.000,5"\n,5;7\n1.5;1.23\n'
        decoded, rows = read(tmp_path, content, AGE, COST, reading={"separator": ";", "decimal": ",", "thousands": "."})
        assert rows == {"age": [40.5, 3.0, 0.5, None], "cost": [1234.56, 1e6, 7.0, None]}
        assert [one.unreadable for one in decoded.report.columns] == [1, 1]

    @pytest.mark.parametrize("blank", [" ", "\u00a0", "\u202f"])
    def test_thousands_by_blanks(self, tmp_path: Path, blank: str) -> None:
        content = f"cost\n12{blank}345,5\n1 2\n-1{blank}000\n".encode()
        _, rows = read(tmp_path, content, COST, reading={"separator": ";", "decimal": ",", "thousands": " "})
        assert rows == {"cost": [12345.5, None, 0.0]}

    def test_thousands_by_commas_in_quotes(self, tmp_path: Path) -> None:
        content = b'age,cost\n40,"1,234.50"\n41,"2,5"\n42,1e3\n'
        _, rows = read(tmp_path, content, AGE, COST, reading={"thousands": ","})
        assert rows["cost"] == [1234.5, None, 1000.0]

    @pytest.mark.parametrize("mark", ["'", "\u2019"])
    def test_swiss_thousands(self, tmp_path: Path, mark: str) -> None:
        _, rows = read(tmp_path, f"cost\n12{mark}345.5\n".encode(), COST, reading={"thousands": "'"})
        assert rows["cost"] == [12345.5]

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1", "iso-8859-15", "cp1252", "cp1250"])
    def test_encodings(self, tmp_path: Path, encoding: str) -> None:
        town = {"type": "category", "name": "Städte", "values": ["Köln", "Zürich"]}
        content = 'id;Städte\n1;Köln\n2;"Zürich"\n'.encode(encoding)
        _, rows = read(tmp_path, content, town, reading={"separator": ";", "encoding": encoding})
        assert rows == {"Städte": [0, 1]}

    def test_a_byte_order_mark_is_no_letter(self, tmp_path: Path) -> None:
        _, rows = read(tmp_path, "\ufeffage;cost\n1;2\n".encode(), AGE, COST, reading={"separator": ";"})
        assert rows == {"age": [1.0], "cost": [2.0]}

    def test_tabs_without_quotes(self, tmp_path: Path) -> None:
        content = b'age\tnote\n40\t5" nail, left\n41\t"\n'
        _, rows = read(tmp_path, content, AGE, reading={"separator": "\t", "quote": None})
        assert rows["age"] == [40.0, 41.0]

    def test_free_text_in_apostrophes_may_hold_anything(self, tmp_path: Path) -> None:
        content = b"note|age\n'a|b\nc \"d\" ''e'''|40\n"
        _, rows = read(tmp_path, content, AGE, reading={"separator": "|", "quote": "'"})
        assert rows["age"] == [40.0]

    def test_missing_codes_are_read_as_json_or_as_the_file_has_them(self, tmp_path: Path) -> None:
        column = AGE | {"missing": [-9.5, "-8,5", "n.a."]}
        content = b"age\n-9,5\n-8,5\nn.a.\n40,5\n"
        decoded, rows = read(tmp_path, content, column, reading={"separator": ";", "decimal": ","})
        assert rows["age"] == [None, None, None, 40.5]
        assert (decoded.report.columns[0].missing, decoded.report.columns[0].unreadable) == (3, 0)

    def test_a_per_cent_is_no_number(self, tmp_path: Path) -> None:
        decoded, rows = read(tmp_path, b"age\n40\n12 %\n", AGE)
        assert rows["age"] == [40.0, None]
        assert decoded.report.columns[0].unreadable == 1

    def test_a_file_that_says_itself_how_it_is_written_takes_none(self, tmp_path: Path) -> None:
        sink = pa.BufferOutputStream()
        table = pa.table({"age": [1.0]})
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write(table)
        assert list(refused(tmp_path, sink.getvalue().to_pybytes(), AGE, reading={})) == ["/reading"]


def often(head: str, *lines: str) -> bytes:
    """Return a file in which the lines come so often that they are no accident."""
    return "\n".join([head, *lines * 32, ""]).encode()


class TestPlainlyOtherwise:
    @pytest.mark.parametrize(("mark", "named"), [(";", ";"), ("\t", "\\t"), ("|", "|")])
    def test_the_separator(self, tmp_path: Path, mark: str, named: str) -> None:
        content = f"age{mark}cost\n40{mark}2\n".encode()
        found = refused(tmp_path, content, AGE, COST)
        assert found == {"/reading/separator": f'the header reads as one column; declare reading.separator "{named}"'}

    def test_a_separator_that_was_declared(self, tmp_path: Path) -> None:
        found = refused(tmp_path, b"age,cost\n40,2\n", AGE, COST, reading={"separator": ";"})
        assert 'separator ","' in found["/reading/separator"]

    @pytest.mark.parametrize(
        ("encoding", "declared", "named"),
        [
            ("cp1252", None, "cp1252"),
            ("utf-16", None, "utf-16"),
            ("utf-8", "latin-1", "utf-8"),
            ("utf-8", "utf-16", "utf-8"),
        ],
    )
    def test_the_encoding(self, tmp_path: Path, encoding: str, declared: str | None, named: str) -> None:
        more = {} if declared is None else {"reading": {"encoding": declared}}
        found = refused(tmp_path, "age,town\n40,Köln\n".encode(encoding), AGE, **more)
        assert named in found["/reading/encoding"]

    def test_bytes_that_a_code_page_lacks(self, tmp_path: Path) -> None:
        found = refused(tmp_path, b"age,x\n40,\x81\n", AGE, reading={"encoding": "cp1252"})
        assert "latin-1" in found["/reading/encoding"]

    def test_decimal_commas(self, tmp_path: Path) -> None:
        content = often("age;cost", "40,5;1,25", "41;2", "42,5;")
        found = refused(tmp_path, content, AGE, COST, reading={"separator": ";"})
        assert 'declare reading.decimal ","' in found["/reading/decimal"]
        assert "`age`" in found["/reading/decimal"]

    def test_decimal_points(self, tmp_path: Path) -> None:
        found = refused(tmp_path, often("age", "40.5", "4.25"), AGE, reading={"separator": ";", "decimal": ","})
        assert 'reading.decimal "."' in found["/reading/decimal"]

    def test_one_comma_may_be_either_and_both_are_named(self, tmp_path: Path) -> None:
        found = refused(tmp_path, often("cost", '"1,234"', '"2,345"'), COST)
        assert 'decimal ","' in found["/reading/decimal"]
        assert 'thousands ","' in found["/reading/decimal"]

    def test_thousands_that_would_be_fractions_of_whole_numbers(self, tmp_path: Path) -> None:
        assert list(refused(tmp_path, often("stays", "1.234", "12", "10.500"), STAYS)) == ["/reading/thousands"]
        # of zeros alone, the point may be a decimal one
        assert read(tmp_path, often("stays", "1.000", "12.000"), STAYS)[1]["stays"][:2] == [1.0, 12.0]

    def test_a_few_strange_cells_are_counted_and_no_sign(self, tmp_path: Path) -> None:
        decoded, rows = read(tmp_path, often("age", "40", '"4,5"', "41", "old"), AGE)
        assert rows["age"][:4] == [40.0, None, 41.0, None]
        assert decoded.report.columns[0].unreadable == 64

    def test_a_handful_of_cells_is_no_sign(self, tmp_path: Path) -> None:
        assert read(tmp_path, b'age\n"4,5"\n"5,5"\n', AGE)[1]["age"] == [None, None]
