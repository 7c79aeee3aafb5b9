"""The SDK is light: it loads no library for frames, formulas or plots before a call needs it."""

import json
import subprocess
import sys

import pytest

HEAVY = {"pandas", "polars", "pyarrow", "numpy", "matplotlib", "formulaic", "narwhals", "scipy", "IPython"}
"""Libraries that people may have, and that a script of the SDK does not wait for."""
MOST = 1.3
"""Times the modules that httpx and pydantic load, and their time."""
BASE = "import httpx, pydantic; pydantic.create_model('A', x=(int, ...)); httpx.Client().close()"
SDK = "import farthing; farthing.Client('http://127.0.0.1:1').close(); farthing.formula"


def loaded(code: str) -> set[str]:
    """Return the modules that a fresh interpreter has after some code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    return set(json.loads(done.stdout))


def test_a_client_loads_little_more_than_http_and_pydantic() -> None:
    base, found = loaded(BASE), loaded(SDK)
    assert not HEAVY & {name.partition(".")[0] for name in found}
    assert not HEAVY & {name.partition(".")[0] for name in base}, "what HTTP loads would hide what we load"
    assert "farthing.console" not in found, "it is the command line's"
    assert len(found) <= MOST * len(base), sorted(found - base)


def test_no_answer_is_made_ready_before_one_comes() -> None:
    """Their validators and docstrings took more than half of the time of an import."""
    code = "import farthing; farthing.Client; from farthing.schemas.base import View\n"
    code += "import sys; ready = [one.__name__ for one in View.__subclasses__() if one.__pydantic_complete__]\n"
    code += "assert len(View.__subclasses__()) > 50; assert not ready, ready"
    assert "farthing.client" in loaded(code)


@pytest.mark.timing
def test_a_client_is_ready_nearly_as_soon_as_http_and_pydantic() -> None:
    def seconds(code: str) -> float:
        script = f"import time; {code}; print(time.process_time())"
        return float(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout)

    # In turn, so that a busy machine slows both; the least of many is what the code itself takes.
    base, found = (min(times) for times in zip(*((seconds(BASE), seconds(SDK)) for _ in range(15)), strict=True))
    assert found <= MOST * base, (found, base)
