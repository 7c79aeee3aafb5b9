"""The peers' own environments, made once by ordinary pip outside this tree."""

import os
import subprocess
import venv
from pathlib import Path

PACKAGES = {"torch": ("opacus==1.6.0", "torch~=2.13.0"), "jax": ("jax-privacy==2.0.0",)}
"""The packages of each environment; the first of each is the one measured."""


def folder() -> Path:
    """Return where the environments live: the user's cache, since packages of two peers do not go together."""
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "farthing-peers"


def python_of(peer: str) -> Path:
    """Return an environment's interpreter; the first call makes the environment, which takes minutes.

    Raises:
        CalledProcessError: pip could not install it; its output says why.
    """
    place = folder() / peer
    python = place / "bin" / "python"
    done = place / "installed.txt"
    wanted = "\n".join(PACKAGES[peer])
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        print(f"installing {', '.join(PACKAGES[peer])} into {place}", flush=True)
        venv.create(place, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", *PACKAGES[peer]]
        subprocess.run(command, check=True, capture_output=True, text=True)
        done.write_text(wanted, encoding="utf-8")
    return python
