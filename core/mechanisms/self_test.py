"""The start-up self-test: fresh processes must draw different noise.

By hand: ``python -m core.mechanisms.self_test`` prints what one process draws.

A broken system source, or a process image restored twice, would give two trainers the same noise, and their
difference would be the records' own.
"""

import os
import subprocess
import sys
from typing import Final

from core.mechanisms.gaussian import noise_vector
from core.mechanisms.generator import SystemGenerator

PARAMETER: Final = 5.0e6
DRAWS: Final = 8
_PATIENCE_SECONDS: Final = 60


def fresh_noise() -> str:
    """Draw a little noise from a fresh generator and write it as one line; it noises nothing."""
    return " ".join(map(str, noise_vector(SystemGenerator(), PARAMETER, DRAWS).tolist()))


def distinct(lines: list[str]) -> bool:
    """Say whether every line holds DRAWS integers and no two lines are equal."""
    return len(set(lines)) == len(lines) and all(len(line.split()) == DRAWS for line in lines)


def self_test() -> None:
    """Check that two fresh processes and this one draw different noise; takes about half a second.

    Equal lines by chance have probability below 2^-180.

    Raises:
        AssertionError: they do not; the worker must not start.
        CalledProcessError, TimeoutExpired: a fresh process could not draw at all.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "core.mechanisms.self_test"]
    lines = [fresh_noise()]
    for _ in range(2):
        child = subprocess.run(  # noqa: S603 - our own module
            command, env=environment, stdout=subprocess.PIPE, text=True, timeout=_PATIENCE_SECONDS, check=True
        )
        lines.append(child.stdout.strip())
    assert distinct(lines), "fresh processes draw the same noise: the system's source of randomness is broken"


if __name__ == "__main__":  # pragma: no cover - runs in the fresh processes
    sys.stdout.write(fresh_noise() + "\n")
