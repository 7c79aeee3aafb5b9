"""Messy files: each mess is read as declared, or refused with the field and the fix; nothing is guessed in silence."""

import math
import random
import re
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.base.errors import Invalid, Refusal
from core.data.cells import code_of_cell, number_of_cell
from core.data.columns import Coded, DateColumn
from core.data.datasets import Metadata, parse_metadata
from core.data.dates import MONTHS, parse_date
from core.data.reading import FileReading
from core.db.tables import Dataset
from core.models.design import Design, make_design
from core.models.kinds import LogisticModel
from core.records.decoding.cells import days_of_texts
from core.records.decoding.decode import Decoded, Limits, decode
from core.records.decoding.likeness import are_same
from core.records.decoding.validation import Sniffed, seal_report
from core.records.encryption import SealedFile
from tests.support.api import Service, running
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


def sniffed(folder: Path, content: bytes, *columns: dict[str, Any]) -> Sniffed:
    decoded, _ = read(folder, content, *columns, reading="sniff", seal=False)
    assert decoded.report.sniffed is not None
    return decoded.report.sniffed


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

    @pytest.mark.parametrize("mark", ["", "\ufeff"])
    def test_the_separator_that_excel_writes_first_is_no_header(self, tmp_path: Path, mark: str) -> None:
        content = f"{mark}sep=;\r\nage;cost\r\n40;1,5\r\n".encode()
        assert read(tmp_path, content, AGE, COST, reading={"separator": ";", "decimal": ","})[1]["cost"] == [1.5]
        assert sniffed(tmp_path, content, AGE, COST).reading.separator == ";"
        assert list(refused(tmp_path, content, AGE, COST)) == ["/reading/separator"]

    def test_a_zero_byte_in_a_cell_makes_no_file_fail(self, tmp_path: Path) -> None:
        content = b"age,cost\n4\0,1\n5,2\n"
        assert read(tmp_path, content, AGE, COST)[1] == {"age": [None, 5.0], "cost": [1.0, 2.0]}
        assert sniffed(tmp_path, content, AGE, COST).reading == FileReading()

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

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"age   cost\n40  1.5\n41  2\n", "blanks seem to separate its cells"),
            (b"40,1.5\n41,2\n", "holds numbers where names belong"),
            (b"age,price\n40,1.5\n", None),
        ],
    )
    def test_why_no_column_is_found(self, tmp_path: Path, content: bytes, said: str | None) -> None:
        causes = refused(tmp_path, content, AGE, COST)
        assert "/columns/1/name" in causes
        assert (said is None) == ("/file" not in causes)
        assert said is None or said in causes["/file"]

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


VISIT = {"type": "date", "name": "visit", "lower": "2020-01-01", "upper": "2024-12-31"}
WARD = {"type": "category", "name": "ward", "values": ["surgery", "cardiology", "unknown"], "missing": ["?", "N/A"]}


class TestAliases:
    def test_case_and_aliases_and_codes(self, tmp_path: Path) -> None:
        sex = SEX | {"fold_case": True, "aliases": {"male": ["m", "Mann"], "female": ["f", "w"]}}
        ward = WARD | {"fold_case": True, "aliases": {"surgery": ["surgry", "Chirurgie"]}, "fill": "unknown"}
        lines = ["MALE,Surgery", "m, CHIRURGIE ", "mann,surgry", "W,n/a", "Frau,", "female,?"]
        decoded, rows = read(tmp_path, "\n".join(["sex,ward", *lines, ""]).encode(), sex, ward)
        assert rows == {"sex": [1, 1, 1, 0, -1, 0], "ward": [0, 0, 0, 2, 2, 2]}
        assert [one.unreadable for one in decoded.report.columns] == [1, 0]
        columns = metadata(sex, ward).columns
        for place, line in enumerate(lines):
            for column, text in zip(columns, line.split(","), strict=True):
                assert isinstance(column, Coded)
                code = code_of_cell(column, text)
                assert rows[column.name][place] == (-1 if code is None else code), (column.name, text)

    def test_without_case_to_fold_only_the_alias_counts(self, tmp_path: Path) -> None:
        ward = WARD | {"aliases": {"surgery": ["surg."]}, "other": "unknown"}
        _, rows = read(tmp_path, b"ward\nsurg.\nSurg.\nSurgery\n?\n", ward)
        assert rows == {"ward": [0, 2, 2, -1]}
        (column,) = metadata(ward).columns
        assert isinstance(column, Coded)
        assert [code_of_cell(column, text) for text in ("surg.", "Surg.", "Surgery", "?")] == [0, 2, 2, None]

    def test_a_missing_value_may_be_a_category_of_its_own(self, tmp_path: Path) -> None:
        _, rows = read(tmp_path, b"x,ward\n1,\n2,N/A\n3,dermatology\n", WARD | {"fill": "unknown"})
        assert rows == {"ward": [2, 2, 2]}

    @pytest.mark.parametrize(
        ("changes", "field", "said"),
        [
            ({"aliases": {"surgery": ["cardiology"]}}, "aliases", "means `cardiology` already"),
            ({"aliases": {"surgery": ["surgery"]}}, "aliases", "means `surgery` already"),
            ({"aliases": {"surgery": ["?"]}}, "aliases", "`not known`"),
            ({"aliases": {"surgery": [""]}}, "aliases", "`not known`"),
            ({"aliases": {"surgery": ["s"], "unknown": ["s"]}}, "aliases", "means `surgery` already"),
            ({"aliases": {"surgery": ["S"], "unknown": ["s"]}, "fold_case": True}, "aliases", "means `surgery`"),
            ({"aliases": {"surgery": ["n/a"]}, "fold_case": True}, "aliases", "`not known`"),
            ({"aliases": {"surgery": ["CARDIOLOGY"]}, "fold_case": True}, "aliases", "means `cardiology`"),
            ({"aliases": {"dermatology": ["d"]}}, "aliases", "not one of the declared values"),
            ({"aliases": {"surgery": [" s"]}}, "aliases/surgery/0", "blanks"),
            ({"aliases": {"surgery": []}}, "aliases/surgery", "at least 1 item"),
            ({"aliases": {"surgery": "s"}}, "aliases/surgery", "a list"),
            ({"aliases": {"surgery": [1]}}, "aliases/surgery/0", "a text"),
            ({"aliases": ["s"]}, "aliases", "an object"),
            ({"aliases": {"surgery": [f"s{n}" for n in range(5_001)]}}, "aliases", "5000 aliases at most"),
            ({"values": ["a", "A"], "fold_case": True}, "fold_case", "`a` and `A` are one text"),
            ({"values": ["a", "b"], "missing": ["B"], "fold_case": True}, "fold_case", "`b` and `B` are one text"),
            ({"fold_case": "yes"}, "fold_case", "true or false"),
        ],
    )
    def test_an_alias_means_one_value(self, changes: dict[str, Any], field: str, said: str) -> None:
        found = undeclarable(WARD | changes)
        assert list(found) == [f"/columns/0/{field}"]
        assert said in found[f"/columns/0/{field}"]

    def test_an_alias_by_case_alone_is_no_fault(self) -> None:
        metadata(WARD | {"fold_case": True, "aliases": {"surgery": ["Surgery", "SURGERY"]}, "missing": ["na", "NA"]})


class TestDates:
    def test_several_forms_in_one_column(self, tmp_path: Path) -> None:
        visit = VISIT | {"formats": ["%d.%m.%Y", "%m/%d/%Y", "%Y%m%d", "%d%b%Y"], "missing": ["01.01.2024"]}
        cells = ["3.1.2020", "03.01.2020 14:30", "1/3/2020", "20200103", "03JAN2020", "2020-01-03T00:00"]
        wrong = ["31.02.2020", "13/13/2020", "2020013", "3JAN2020", "1.1.20", "2020/01/03", "32.01.2020", "0.1.2020"]
        gone = ["01.01.2024", "2024-01-01", ""]
        decoded, rows = read(
            tmp_path, "\n".join(["i,visit", *(f"1,{c}" for c in cells + wrong + gone)]).encode(), visit
        )
        assert rows["visit"] == [2.0] * len(cells) + [None] * len(wrong + gone)
        assert decoded.report.columns[0].unreadable == len(wrong)
        (column,) = metadata(visit).columns
        assert isinstance(column, DateColumn)
        assert [number_of_cell(column, cell) for cell in cells + wrong + gone] == rows["visit"]

    @settings(max_examples=300, deadline=None)
    @given(
        form=st.sampled_from(["%d.%m.%Y", "%d/%b/%Y", "%Y%m%d", "%b %d, %Y", "%m-%d-%Y"]),
        day=st.dates(min_value=date(1, 1, 1)) | st.just(date(2000, 2, 29)),
        spoil=st.none() | st.text("0123456789./- TJa", max_size=14),
    )
    def test_one_cell_and_whole_columns_read_alike(self, form: str, day: date, spoil: str | None) -> None:
        text = form
        for part, shown in (("%d", f"{day.day:02}"), ("%m", f"{day.month:02}"), ("%Y", f"{day.year:04}")):
            text = text.replace(part, shown)
        text = text.replace("%b", MONTHS[day.month - 1].capitalize()) if spoil is None else spoil
        (found,) = days_of_texts(pa.array([text.strip()]), [form])
        one = parse_date(text.strip(), (form,))
        assert one == (None if math.isnan(found) else date.fromordinal(int(found) + date(1970, 1, 1).toordinal()))
        assert spoil is not None or one == day

    @pytest.mark.parametrize(
        ("formats", "pointer", "said"),
        [
            (["%d/%m/%Y", "%m/%d/%Y"], "formats", "may be one of `%d/%m/%Y` too"),
            (["%Y-%d-%m"], "formats", "`%Y-%m-%d`"),
            (["%Y%m%d", "%d%m%Y"], "formats", "may be one of"),
            (["%Y%m/%d", "%m%Y/%d"], "formats", "may be one of"),
            (["%d.%m.%Y", "%d.%m.%Y"], "formats", "once"),
            (["%d.%m.%y"], "formats/0", "must be made of"),
            (["%d.%m"], "formats/0", "%Y, once each"),
            (["%d.%m.%Y.%d"], "formats/0", "once each"),
            (["%d %B %Y"], "formats/0", "must be made of"),
            (["%d.%m.%Y "], "formats/0", "blanks"),
            (["(%d+)+%m%Y"], "formats/0", "must be made of"),
            (["%d\n%m\n%Y"], "formats/0", "must be made of"),
            ([""], "formats/0", "must be made of"),
            (["%d" + "." * 50 + "%m.%Y"], "formats/0", "30 characters"),
            ([f"%d{'.' * n}%m.%Y" for n in range(1, 10)], "formats", "at most 8"),
            ("%d.%m.%Y", "formats", "a list"),
            ([1], "formats/0", "a text"),
        ],
    )
    def test_forms_that_are_none_or_ambiguous(self, formats: object, pointer: str, said: str) -> None:
        found = undeclarable(VISIT | {"formats": formats})
        assert list(found) == [f"/columns/0/{pointer}"]
        assert said in found[f"/columns/0/{pointer}"]

    def test_another_form_of_dates_is_refused_with_the_forms_that_fit(self, tmp_path: Path) -> None:
        found = refused(tmp_path, often("visit", "31.01.2020", "1.2.2020"), VISIT)
        assert found == {"/columns/0/formats": 'most dates of `visit` are not written as declared; declare "%d.%m.%Y"'}
        both = refused(tmp_path, often("visit", "01/02/2020"), VISIT)["/columns/0/formats"]
        assert '"%d/%m/%Y" or "%m/%d/%Y"' in both


class TestStoredForms:
    def test_columns_without_any_of_it_are_stored_as_before(self) -> None:
        columns = metadata(VISIT, WARD, SEX).model_dump(mode="json")["columns"]
        assert not {"aliases", "fold_case", "formats"}.intersection(*(one.keys() for one in columns))
        assert all({"aliases", "fold_case", "formats"}.isdisjoint(one) for one in columns)

    def test_a_model_reads_rows_for_predictions_as_the_file_was_read(self) -> None:
        ward = WARD | {"fold_case": True, "aliases": {"cardiology": ["kardiologie"]}}
        sex = SEX | {"aliases": {"male": ["m"]}}
        columns = metadata(AGE, VISIT | {"formats": ["%d.%m.%Y"]}, ward, sex).columns
        design = make_design(columns, LogisticModel(target="sex", features=("visit", "ward")))
        clean = design.encode_row({"visit": "2021-03-04", "ward": "cardiology"})
        assert design.encode_row({"visit": "4.3.2021", "ward": "Kardiologie"}) == clean
        assert (
            Design.model_validate_json(design.model_dump_json()).encode_row(
                {"visit": "04.03.2021", "ward": "CARDIOLOGY"}
            )
            == clean
        )
        with pytest.raises(Invalid) as caught:
            design.encode_row({"visit": "3/4/2021", "ward": "kardio"})
        assert [one.pointer for one in caught.value.fields] == ["/visit", "/ward"]


class TestTheSameRecords:
    """Identity looks at cells before aliases and bounds, so that another declaration makes no new people."""

    def test_another_declaration_of_the_same_rows(self, tmp_path: Path) -> None:
        lines = [f"{place % 90},{'mf'[place % 2]},{'sS'[place % 3 == 0]}" for place in range(500)]
        first = "\n".join(["age,sex,ward", *lines]).encode()
        second = "\n".join(["age,sex,ward", *reversed(lines)]).encode()
        plainly, _ = read(tmp_path, first, AGE, SEX | {"values": ["f", "m"]}, WARD | {"values": ["s", "S"]})
        aliased, _ = read(
            tmp_path,
            second,
            AGE,
            SEX | {"aliases": {"male": ["m"], "female": ["f"]}},
            WARD | {"fold_case": True, "aliases": {"surgery": ["s"]}},
        )
        assert plainly.records is not None
        assert aliased.records is not None
        assert are_same(plainly.records.summary, aliased.records.summary)

    def test_the_same_rows_written_otherwise(self, tmp_path: Path) -> None:
        days = [date(2020, 1, 1) + timedelta(days=place) for place in range(400)]
        clean = "\n".join(["age,visit,dose", *(f"{n % 90 + 0.5},{day},{n / 4}" for n, day in enumerate(days))])
        messy = "\n".join(
            [
                "age;visit;dose",
                *(f"{n % 90},5;{day:%d.%m.%Y};{n / 4}".replace(".25", ",25") for n, day in enumerate(days)),
            ]
        )
        messy = re.sub(r"\.(0|5|75)$", r",\1", messy, flags=re.MULTILINE)
        dose = COST | {"name": "dose"}
        first, rows = read(tmp_path, clean.encode(), AGE, VISIT, dose)
        commas = {"separator": ";", "decimal": ","}
        again, same = read(tmp_path, messy.encode(), AGE, VISIT | {"formats": ["%d.%m.%Y"]}, dose, reading=commas)
        coded = {"type": "category", "name": "dose", "values": ["0,0", "0,25"], "other": "0,0"}
        third, _ = read(tmp_path, messy.encode(), AGE, VISIT | {"formats": ["%d.%m.%Y"]}, coded, reading=commas)
        assert rows == same
        for other in (again, third):
            assert first.records is not None
            assert other.records is not None
            assert are_same(first.records.summary, other.records.summary)


VISITS = 8_000
WARDS = ("surgery", "cardiology", "neurology", "unknown")
TYPOS = {
    "surgery": ("Surgery", "surgry", "SURGERY "),
    "cardiology": ("Cardiology", "kardiology"),
    "neurology": ("Neuro",),
}
HOSPITAL: tuple[dict[str, Any], ...] = (
    {"type": "date", "name": "admitted", "lower": "2020-01-01", "upper": "2024-12-31"},
    {"type": "number", "name": "weight", "lower": 30, "upper": 200, "missing": [-1]},
    {"type": "number", "name": "cost", "lower": 0, "upper": 100_000},
    {"type": "category", "name": "Abteilung für", "values": list(WARDS), "fill": "unknown"},
    {"type": "binary", "name": "sex", "values": ["female", "male"]},
)
TOLD: tuple[dict[str, Any], ...] = (
    HOSPITAL[0] | {"formats": ["%d.%m.%Y"]},
    HOSPITAL[1] | {"fill": 75},
    HOSPITAL[2],
    HOSPITAL[3]
    | {"fold_case": True, "aliases": {"surgery": ["surgry"], "cardiology": ["kardiology"], "neurology": ["neuro"]}},
    HOSPITAL[4] | {"fold_case": True, "aliases": {"female": ["f", "w"], "male": ["m"]}},
)
WRITTEN: dict[str, Any] = {"separator": ";", "decimal": ",", "thousands": "."}


def hospital(visits: int = VISITS, seed: int = 40) -> tuple[str, list[dict[str, Any]]]:
    """Return an export as a hospital makes it, and the truth of each row."""
    draw = random.Random(seed)
    lines, truth = ["Nr;admitted;weight;cost;Abteilung für;sex;note"], []
    for number in range(visits):
        day = date(2020, 1, 1) + timedelta(days=draw.randrange(1800))
        weight = None if draw.random() < 0.08 else draw.randrange(300, 2000) / 10
        cost = draw.randrange(100, 9_999_999) / 100
        ward, sex = draw.choice(WARDS[:3]), draw.choice(("female", "male"))
        hidden = draw.random() < 0.05
        cells = [
            str(number),
            f"{day:%d.%m.%Y}" if draw.random() < 0.7 else day.isoformat(),
            draw.choice(("", "-1", " ")) if weight is None else f"{weight}".replace(".", ","),
            f"{cost:,.2f}".translate(str.maketrans(",.", ".,")),
            "" if hidden else draw.choice((ward, ward, *TYPOS[ward])),
            draw.choice({"female": ("f", "F", "w", "Female"), "male": ("m", "M", "male", "MALE")}[sex]),
            draw.choice(("", "stürzte; Röntgen", '"sagt ""gut""; geht\nheim"', "5,5 mg")).replace("e; R", "e, R"),
        ]
        lines.append(";".join(cells))
        truth.append(
            {"admitted": day, "weight": weight, "cost": cost, "ward": "unknown" if hidden else ward, "sex": sex}
        )
    return "\r\n".join([*lines, ""]), truth


ENCODINGS = {"utf-8-sig": {}, "latin-1": {"encoding": "latin-1"}, "cp1252": {"encoding": "cp1252"}}


class TestAHospital:
    @pytest.mark.parametrize("encoding", ENCODINGS)
    def test_it_is_read_by_its_declaration(self, tmp_path: Path, encoding: str) -> None:
        text, truth = hospital()
        decoded, rows = read(tmp_path, text.encode(encoding), *TOLD, reading=WRITTEN | ENCODINGS[encoding])
        assert (decoded.rows, decoded.report.incomplete_rows) == (VISITS, 0)
        assert rows["admitted"] == [(one["admitted"] - date(2020, 1, 1)).days for one in truth]
        assert rows["weight"] == [75.0 if one["weight"] is None else one["weight"] for one in truth]
        assert rows["cost"] == [one["cost"] for one in truth]
        assert rows["Abteilung für"] == [WARDS.index(one["ward"]) for one in truth]
        assert rows["sex"] == [one["sex"] == "male" for one in truth]
        assert [(one.unreadable, one.unknown) for one in decoded.report.columns] == [(0, 0)] * len(TOLD)

    def test_each_refusal_names_the_next_field(self, tmp_path: Path) -> None:
        content = hospital()[0].encode("cp1252")
        assert list(refused(tmp_path, content, *HOSPITAL)) == ["/reading/encoding"]
        reading: dict[str, Any] = {"encoding": "cp1252"}
        assert list(refused(tmp_path, content, *HOSPITAL, reading=reading)) == ["/reading/separator"]
        reading["separator"] = ";"
        found = refused(tmp_path, content, *HOSPITAL, reading=reading)
        assert list(found) == ["/columns/0/formats", "/reading/decimal"]
        assert 'reading.decimal ","' in found["/reading/decimal"]
        assert '"%d.%m.%Y"' in found["/columns/0/formats"]
        reading["decimal"] = ","
        found = refused(tmp_path, content, TOLD[0], *HOSPITAL[1:], reading=reading)
        assert 'reading.thousands "."' in found["/reading/thousands"]
        reading["thousands"] = "."
        decoded, _ = read(tmp_path, content, TOLD[0], *HOSPITAL[1:], reading=reading)
        # What is left is counted cell by cell: its owner sees many rows excluded, and declares aliases and a filling.
        assert decoded.report.incomplete_rows > VISITS / 2


def named(found: Sniffed) -> list[tuple[str, str, str]]:
    return [(one.pointer, one.taken, one.other) for one in found.doubts]


class TestSniffing:
    @pytest.mark.parametrize("encoding", ENCODINGS)
    def test_a_hospital_is_read_as_it_would_be_declared(self, tmp_path: Path, encoding: str) -> None:
        content = hospital()[0].encode(encoding)
        undated = (HOSPITAL[0], *TOLD[1:])
        declared = read(tmp_path, content, *TOLD, reading=WRITTEN | ENCODINGS[encoding])
        decoded, rows = read(tmp_path, content, *undated, reading="sniff", seal=False)
        found = decoded.report.sniffed
        assert found is not None
        assert found.formats == (("%d.%m.%Y",), (), (), (), ())
        assert (
            found.reading.model_dump()
            == FileReading(**WRITTEN, encoding="utf-8" if encoding == "utf-8-sig" else "cp1252").model_dump()
        )
        assert rows == declared[1]
        assert decoded.report.columns == declared[0].report.columns
        assert named(found) == ([] if encoding == "utf-8-sig" else [("/reading/encoding", "cp1252", "cp1251")])

    def test_one_point_may_be_either(self, tmp_path: Path) -> None:
        found = sniffed(tmp_path, often("age;cost", "40;1.234", "41;5.500"), AGE, COST)
        assert (found.reading.decimal, found.reading.thousands) == (".", None)
        other = 'decimal ",", thousands "."'
        assert named(found) == [("/reading/decimal", 'decimal ".", thousands null', other)]
        assert found.doubts[0].cells == 64

    def test_one_cell_that_only_one_reading_has_ends_the_doubt(self, tmp_path: Path) -> None:
        found = sniffed(tmp_path, often("age;cost", "40;1.234", "40,5;5.500"), AGE, COST)
        assert (found.reading.decimal, found.reading.thousands, found.doubts) == (",", ".", ())

    def test_whole_numbers_have_thousands_and_the_doubt_is_named(self, tmp_path: Path) -> None:
        found = sniffed(tmp_path, often("stays;age", "1.234;3", "12;4", "17.120;5"), STAYS, AGE)
        assert (found.reading.decimal, found.reading.thousands) == (",", ".")
        assert named(found)[0][2] == 'decimal ".", thousands null'

    def test_a_quoted_comma_beside_commas(self, tmp_path: Path) -> None:
        found = sniffed(tmp_path, often("age,cost", '40,"1,234"'), AGE, COST)
        assert (found.reading.separator, found.reading.decimal, found.reading.thousands) == (",", ".", ",")
        assert named(found) == [("/reading/decimal", 'decimal ".", thousands ","', 'decimal ",", thousands null')]

    def test_days_and_months_may_change_places(self, tmp_path: Path) -> None:
        found = sniffed(tmp_path, often("age,visit", "1,01/02/2024", "2,03/04/2021", "3,2020-05-06"), AGE, VISIT)
        assert found.formats == ((), ("%d/%m/%Y",))
        assert named(found) == [("/columns/1/formats", "%d/%m/%Y", "%m/%d/%Y")]
        assert found.doubts[0].cells == 64
        sure = sniffed(tmp_path, often("age,visit", "1,01/02/2024", "2,03/14/2021"), AGE, VISIT)
        assert (sure.formats, sure.doubts) == (((), ("%m/%d/%Y",)), ())
        both = sniffed(tmp_path, often("age,visit", "1,31.12.2023", "2,31/12/2023"), AGE, VISIT)
        assert (both.formats, both.doubts) == (((), ("%d.%m.%Y", "%d/%m/%Y")), ())

    def test_declared_forms_stay_and_a_typing_mistake_makes_no_form(self, tmp_path: Path) -> None:
        declared = VISIT | {"formats": ["%m/%d/%Y"]}
        assert sniffed(tmp_path, often("visit", "01/02/2024", "01.02.2024"), declared).formats == ((),)
        content = often("visit", *["01.02.2024"] * 10, "1.2.2024") + b"05/06/2024\n"
        assert sniffed(tmp_path, content, VISIT).formats == (("%d.%m.%Y",),)

    @pytest.mark.parametrize(
        ("content", "reading"),
        [
            ("age\tcost\n1\t2\n".encode("utf-16"), {"separator": "\t", "encoding": "utf-16"}),
            (b"'age'\t'cost'\n1\t2\n", {"separator": "\t", "quote": "'"}),
            (b"age|cost\n'1'|'2,5'\n", {"separator": "|", "quote": "'", "decimal": ","}),
            (b"age;cost\n1;2'000.5\n", {"separator": ";", "thousands": "'"}),
            ("age;cost\n1;2\u202f000,5\n".encode(), {"separator": ";", "decimal": ",", "thousands": " "}),
            (b"age,cost\n", {}),
            (b"age,cost\n,\n", {}),
        ],
    )
    def test_other_files(self, tmp_path: Path, content: bytes, reading: dict[str, Any]) -> None:
        if content.endswith(b"cost\n"):
            with pytest.raises(Invalid, match="no rows"):
                sniffed(tmp_path, content, AGE, COST)
        else:
            assert sniffed(tmp_path, content, AGE, COST).reading.model_dump() == FileReading(**reading).model_dump()

    def test_names_that_no_separator_finds_are_refused_as_ever(self, tmp_path: Path) -> None:
        with pytest.raises(Invalid) as caught:
            sniffed(tmp_path, b"alter;kosten\n1;2\n", AGE, COST)
        assert [one.pointer for one in caught.value.fields] == ["/columns/0/name", "/columns/1/name"]

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("age\n1\n".encode("utf-16") + b"\0", "begins as UTF-16"),
            ("age\n1\n".encode("utf-16-le"), "UTF-16 without a byte order mark"),
            ("age\n1\n".encode("utf-16-be"), "UTF-16 without a byte order mark"),
            (b"\x1f\x8b\x08\0\0", "compressed by gzip"),
            (b"", "no CSV header"),
            (bytes(range(256)), "no CSV header"),
            (b";" * 5_000 + b"\n1\n", "more than 2000 columns"),
            (b"age;x\n1;2\n3;4;5\n", "more or fewer cells"),
        ],
    )
    def test_no_file_breaks_it(self, tmp_path: Path, content: bytes, said: str) -> None:
        with pytest.raises(Refusal, match=said):
            sniffed(tmp_path, content, AGE)

    def test_only_drafts_are_sniffed(self) -> None:
        assert list(undeclarable(AGE, reading="sniff")) == ["/reading"]
        assert list(undeclarable(AGE, reading="guess", seal=False)) == ["/reading"]

    def test_the_length_of_a_report_says_nothing_of_the_file(self, tmp_path: Path) -> None:
        reports = [
            read(tmp_path, content, AGE, VISIT, reading="sniff", seal=False)[0].report
            for content in (often("age,visit", "1,2020-01-01"), often("age;visit", "1.234;01/02/2024", ";2JAN2020"))
        ]
        assert [len(report.sniffed.doubts) for report in reports if report.sniffed] == [0, 2]
        assert len({len(seal_report(report, KEY, "ds_a")["sealed"]) for report in reports}) == 1


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("home")) as found:
        yield found


class TestOverHttp:
    def declared(self, client: httpx.Client, columns: tuple[dict[str, Any], ...], **more: Any) -> httpx.Response:
        body = {"name": "h", "budget": {"epsilon": "3", "delta": "1e-6"}, "columns": columns, "seal": False, **more}
        return client.post("/v1/datasets", json=body)

    def sent(self, client: httpx.Client, dataset: str, content: bytes) -> httpx.Response:
        return client.put(f"/v1/datasets/{dataset}/content", content=content, headers={"Content-Type": "text/csv"})

    def test_a_sniffed_draft_says_what_it_took_and_sealing_declares_it(self, service: Service) -> None:
        client, made = service.someone("owner")
        content = hospital()[0].encode("cp1252")
        dataset = self.declared(client, (HOSPITAL[0], *TOLD[1:]), reading="sniff").json()["id"]
        assert client.get(f"/v1/datasets/{dataset}/draft").json()["sniffed"] is None
        assert self.sent(client, dataset, content).status_code == 200
        seen = client.get(f"/v1/datasets/{dataset}/draft").json()
        assert (seen["rows"], seen["excluded"], seen["declared"]["reading"]) == (VISITS, 0, "sniff")
        assert seen["sniffed"]["reading"] == {**WRITTEN, "encoding": "cp1252", "quote": '"'}
        assert seen["sniffed"]["formats"] == {"admitted": ["%d.%m.%Y"]}
        assert [one["pointer"] for one in seen["sniffed"]["doubts"]] == ["/reading/encoding"]
        page = service.window(made["key"]).get(f"/datasets/{dataset}/draft").text
        assert "Form of the file, as it was found" in page
        assert "Dates of admitted: %d.%m.%Y, and ISO 8601." in page
        sealed = client.post(f"/v1/datasets/{dataset}/seal")
        assert sealed.status_code == 200, sealed.text
        assert sealed.json()["columns"][0]["formats"] == ["%d.%m.%Y"]
        assert client.get(f"/v1/datasets/{dataset}").json() == sealed.json()
        with service.database().read() as session:
            stored = session.get_one(Dataset, dataset)
            assert stored.request["reading"] == seen["sniffed"]["reading"]
            assert stored.request["columns"] == stored.columns
        again = self.declared(client, TOLD, reading=seen["sniffed"]["reading"]).json()["id"]
        assert self.sent(client, again, content).status_code == 200
        assert client.post(f"/v1/datasets/{again}/seal").status_code == 409  # the same records

    def test_a_declared_draft_is_mended_field_by_field(self, service: Service) -> None:
        client, _ = service.someone("owner")
        content = hospital(400, seed=7)[0].encode("latin-1")
        dataset = self.declared(client, HOSPITAL).json()["id"]
        for reading in ({"encoding": "latin-1"}, {"separator": ";"}, {"decimal": ","}, {"thousands": "."}):
            refusal = self.sent(client, dataset, content)
            assert refusal.status_code == 422
            ((field, value),) = reading.items()
            assert f"/reading/{field}" in {one["pointer"] for one in refusal.json()["errors"]}
            before = client.get(f"/v1/datasets/{dataset}/draft").json()["declared"].get("reading", {})
            changes = {"reading": {**before, field: value}, "columns": TOLD}
            assert client.patch(f"/v1/datasets/{dataset}", json=changes).status_code == 200
        assert self.sent(client, dataset, content).status_code == 200
        assert client.get(f"/v1/datasets/{dataset}/draft").json()["excluded"] == 0
        # Another reading would read the cells otherwise, so that the file goes.
        changed = client.patch(f"/v1/datasets/{dataset}", json={"reading": WRITTEN}).json()
        assert (changed["rows"], changed["sniffed"]) == (None, None)

    def test_a_sealed_upload_is_never_sniffed(self, service: Service) -> None:
        client, _ = service.someone("owner")
        refusal = self.declared(client, HOSPITAL, reading="sniff", seal=True)
        assert [one["pointer"] for one in refusal.json()["errors"]] == ["/reading"]
