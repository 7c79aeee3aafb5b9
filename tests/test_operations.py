"""The operator's guide says what the code has: every setting, every command."""

import re
from pathlib import Path

import pytest

from core.settings import ServiceSettings

ROOT = Path(__file__).resolve().parents[1]
GUIDE = (ROOT / "docs" / "operations.md").read_text()


@pytest.mark.parametrize("setting", ServiceSettings.model_fields)
def test_every_setting_is_explained(setting: str) -> None:
    assert re.search(rf"^\|[^|]*`{setting}`", GUIDE, re.MULTILINE)


def test_no_other_setting_is() -> None:
    table = GUIDE.split("## Settings")[1].split("## TLS")[0]
    named = {name for row in re.findall(r"^\|([^|]*)\|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert named == set(ServiceSettings.model_fields)


def test_every_command_it_names_exists() -> None:
    source = "".join((ROOT / "farthing" / name).read_text() for name in ("serving.py", "custody.py", "training.py"))
    named = set(re.findall(r"\bfarthing ([a-z]+)\b", GUIDE.replace("farthing up ", "")))
    for command in named - {"up"}:
        assert re.search(rf"^def {command}\(", source, re.MULTILINE), command
