"""Every benchmark of a folder, one after the other: `make bench`. Where one misses its goal, the status is not 0.

`python -m benchmarks [FOLDER]`; default: those of the service. `studies/benchmarks` has those of the papers' methods.

Those beside other libraries are named at the end and not run: they install these, and take hours.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BESIDE_PEERS = (
    *(f"benchmarks.peers {task}" for task in ("logistic", "cnn", "mlp", "transformer")),
    "benchmarks.peers.digits",
)


def main(folder: str = "benchmarks") -> int:
    """Run each in a fresh process; return the number that missed their goals.

    Args:
        folder: of a package, from the root of the checkout.
    """
    missed = []
    for path in sorted((ROOT / folder).glob("[a-z]*.py")):
        module = f"{folder.replace('/', '.')}.{path.stem}"
        print(f"\n=== {module}", flush=True)
        if subprocess.run([sys.executable, "-m", module], check=False).returncode:
            missed.append(module)
    print(f"\n{'all goals met' if not missed else 'missed: ' + ', '.join(missed)}")
    if folder == "benchmarks":
        print("not run, since they install other libraries to compare with: python -m", ", ".join(BESIDE_PEERS))
    return len(missed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
