"""Each wrong field is named where it stands, in words that say what it must be and never what was sent."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from core.base.validation_errors import field_errors
from core.planning.job import JobSpec

JOB: dict[str, Any] = {
    "dataset": "ds_1",
    "model": {"kind": "logistic", "target": "y"},
    "optimizer": {"kind": "noisy_newton"},
    "privacy": {"mu": "0.1"},
}
SECRET = "p3rsonal"
LIBRARY = re.compile(r"\b(Input|Tuple|Extra inputs|Field required|Unable to|discriminator|pydantic|dictionary)\b")
WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "no optimizer": ({"optimizer": None}, "/optimizer", "must be an object"),
    "another kind": ({"optimizer": {"kind": SECRET}}, "/optimizer/kind", "must be one of 'noisy_gd', 'noisy_newton'"),
    "no kind": ({"model": {"target": "y"}}, "/model/kind", "is missing; it says which kind this is"),
    "no target": ({"model": {"kind": "logistic"}}, "/model/target", "is missing"),
    "an unknown field": ({"optimizer": {"kind": "noisy_gd", SECRET: 1}}, f"/optimizer/{SECRET}", "there is no such"),
    "a text for a number": (
        {"optimizer": {"kind": "noisy_gd", "steps": SECRET}},
        "/optimizer/steps",
        "must be a whole",
    ),
    "too few steps": ({"optimizer": {"kind": "noisy_gd", "steps": -1}}, "/optimizer/steps", "must be at least 1"),
    "a level of 95": ({"inference": {"level": 95}}, "/inference/level", "must be below 1"),
    "a word for a list": ({"model": {**JOB["model"], "features": SECRET}}, "/model/features", "must be a list"),
    "another correction": ({"inference": {"correction": SECRET}}, "/inference/correction", "must be 'stationary'"),
    "no truth value": ({"inference": {"intervals": SECRET}}, "/inference/intervals", "must be true or false"),
    "no id": ({"dataset": SECRET}, "/dataset", "must be an identifier: ds_ and 1 to 36 letters or digits, such as ds_"),
    "no name of a label": (
        {"labels": {"a b": SECRET}},
        "/labels/a b",
        "must be 1 to 64 letters, digits, points, hyphens or underscores, such as study-a",
    ),
}


def faults(changed: dict[str, Any]) -> list[tuple[str, str]]:
    sent = {**JOB, **changed}
    with pytest.raises(ValidationError) as caught:
        JobSpec.model_validate(sent)
    return [(field.pointer, field.detail) for field in field_errors(caught.value.errors(), sent)]


@pytest.mark.parametrize("case", WRONG)
def test_the_field_and_what_it_must_be(case: str) -> None:
    changed, pointer, detail = WRONG[case]
    ((found, said),) = faults(changed)
    assert found == pointer
    assert said.startswith(detail), said
    assert not LIBRARY.search(said), "no words of a library"
    assert SECRET not in said, "nothing that was sent"
