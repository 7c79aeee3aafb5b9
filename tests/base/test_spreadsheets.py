"""CSV for people: no text runs as a formula where it is opened, and numbers stay numbers."""

from core.base.spreadsheets import lines


def test_a_text_that_would_run_has_an_apostrophe_before_it() -> None:
    texts = ["=1+1", "+SUM(A1)", "-1+cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1"]
    assert lines([[text] for text in texts]).count("'") == len(texts) + 2, "and two of its own in the third"


def test_numbers_signs_and_nothing_stay() -> None:
    assert lines([[-3.5, "-3.5", "+1e3", "-", "+", None, "a=b"]]) == "-3.5,-3.5,+1e3,-,+,,a=b\r\n"
