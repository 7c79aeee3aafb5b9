"""`python -m api` whose home is a disk of its own of 24 MiB, in a mount namespace: a test can fill it.

From outside, the home as the service sees it is below `/proc/<pid>/root`.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import mkdtemp

INSIDE = "SMALL_DISK"


def main() -> None:
    """Enter a namespace, move the home onto the small disk, and be the API."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "-Urm", sys.executable, "-m", __spec__.name, *sys.argv[1:]])
    home, disk = Path(sys.argv[sys.argv.index("--home") + 1]), mkdtemp()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk], check=True)
    subprocess.run(["cp", "-a", f"{home}/.", disk], check=True)
    subprocess.run(["mount", "--bind", disk, str(home)], check=True)
    os.execv(sys.executable, [sys.executable, "-m", "api", *sys.argv[1:]])


if __name__ == "__main__":
    main()
