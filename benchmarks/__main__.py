"""Every benchmark, one after the other: `make bench`. One that misses its goal says so and ends with status 1.

Those beside other libraries are named at the end and not run: they install these, and take hours.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BESIDE_PEERS = (
    *(f"benchmarks.peers {task}" for task in ("logistic", "cnn", "mlp", "transformer")),
    "benchmarks.peers.digits",
)


def main() -> int:
    """Run each in a fresh process; return the number that missed their goals."""
    missed = []
    for path in sorted(HERE.glob("[a-z]*.py")):
        module = f"benchmarks.{path.stem}"
        print(f"\n=== {module}", flush=True)
        if subprocess.run([sys.executable, "-m", module], check=False).returncode:
            missed.append(module)
    print(f"\n{'all goals met' if not missed else 'missed: ' + ', '.join(missed)}")
    print("not run, since they install other libraries to compare with: python -m", ", ".join(BESIDE_PEERS))
    return len(missed)


if __name__ == "__main__":
    sys.exit(main())
