"""`python -m tests.stack`: build the images, start the stack, run the integration suite against it, clean up.

Where no container engine answers and none can be started, one line says why, and the status is 0.
"""

import os
import subprocess
import sys
import time

from tests.stack.engine import Engine, NoEngineError, engine, say
from tests.stack.images import ROOT, build, remove
from tests.stack.stack import stack

SUITES = ("tests/integration", "tests/stack")


def main(arguments: list[str]) -> int:
    """Return pytest's status; its further arguments come from the command line."""
    began = time.monotonic()
    try:
        with engine() as found:
            status = _test(found, arguments)
    except NoEngineError as error:
        say(f"NOT TESTED: {error}")
        return 0
    except subprocess.CalledProcessError as error:
        say(f"failed: {error}")
        return 1
    say(f"status {status} after {time.monotonic() - began:.0f} s")
    return status


def _test(found: Engine, arguments: list[str]) -> int:
    """Build, start and test; everything that was built or started is gone afterwards."""
    composes = found.composes()
    if not composes:
        raise NoEngineError("a container engine answers, but there is no compose")
    try:
        with stack(found, build(found), composes[max(composes)]) as running:
            command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *SUITES, *arguments]
            environment = os.environ | running.environment(found, composes)
            return subprocess.run(command, check=False, cwd=ROOT, env=environment).returncode
    finally:
        remove(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
