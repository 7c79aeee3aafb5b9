"""Coverage and width of nominal 95 % intervals, and the time that a thousand repetitions take.

`python -m studies.benchmarks.coverage [repetitions [seed]]` repeats fit and inference, 2,000 times by default, in
replicates at mu = 1 under replace_one, with the designs, steps and shares of Avella-Medina, Bradshaw and Loh (2023),
figures 5(a) and 6. Every coefficient must be covered within [.93, .97] by the stationary correction. 1,000 repetitions
with 1,000 units and 56 steps of gradient descent with an unknown scale must take less than 60 seconds on two cores.
"""

import sys
import time

from studies.inference.coverage import headline, joint
from studies.inference.studies import Intervals

UNITS = (1000, 2000, 4000)
LEAST, MOST = 0.93, 0.97
GOAL_SECONDS = 60.0
TIMED = 1000
WIDTHS_SEEN = 200
"""Repetitions for the non-private width, which hardly varies."""


def main() -> int:
    """Print the table; return 1 if a goal is missed."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    began, worked = time.perf_counter(), time.process_time()
    joint(56).intervals(1000, TIMED, seed=1)
    seconds, worked = time.perf_counter() - began, time.process_time() - worked
    print(
        f"{TIMED} repetitions, n = 1000, K = 56, unknown scale: {seconds:.1f} s, of which {worked:.1f} s at work "
        f"(goal {GOAL_SECONDS:.0f} s)\n"
    )
    missed = seconds > GOAL_SECONDS
    print(f"{'':34}{'n':>6}  coverage of each coefficient" + " " * 8 + "plain          printed        median width: ")
    print(
        f"{'method':34}{'':>6}  stationary"
        + " " * 26
        + "first, second  first, second  stationary  printed  non-private"
    )
    for units in UNITS:
        for setting in headline(units):
            seen = setting.intervals(units, repetitions, seed=seed + units)
            exact = setting.non_private(units, WIDTHS_SEEN, seed=seed + units)
            covered = seen.coverage("stationary")
            within = bool(((covered >= LEAST) & (covered <= MOST)).all())
            missed |= not within
            print(f"{setting.name:34}{units:6}  {line(seen, exact)}{'' if within else '  MISSED'}", flush=True)
    return int(missed)


def line(seen: Intervals, exact: Intervals) -> str:
    """Return coverages of all coefficients and widths of the first two."""

    def numbers(values: list[float], digits: int = 3) -> str:
        return " ".join(f"{value:.{digits}f}".removeprefix("0") for value in values)

    parts = [f"{numbers(seen.coverage('stationary').tolist()):36}"]
    parts += [f"{numbers(seen.coverage(kind)[:2].tolist()):15}" for kind in ("plain", "printed")]
    parts += [
        f"{numbers(one.width(kind)[:2].tolist()):11}"
        for one, kind in ((seen, "stationary"), (seen, "printed"), (exact, "plain"))
    ]
    return " ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
