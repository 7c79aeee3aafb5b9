"""Utility under the KL condition, side by side in one run: the same records, the same rho, many draws of the noise.

`python -m studies.benchmarks.kl [runs]` prints, for each kind of problem, the median excess risk of each method beside
those of two rivals. One is plain noisy gradient descent (equal noise on T gradients, steps 1/L1). The other is DP-SGD
(Poisson samples of a hundredth, clipped at L0, steps of a share of 1/L1). Both rivals are shown at their best setting
of a public grid, chosen on the result, which nobody paid for. DP-SGD is calibrated to the epsilon of rho at delta =
1e-6 by Renyi accounting for adding or removing a record, the weaker notion: replacing one is what the others are
private for.

More than a tenth of the runs beyond their certificate are a failure; a win of a rival is none.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import torch
from dp_accounting import dp_event
from dp_accounting.mechanism_calibration import calibrate_dp_mechanism
from dp_accounting.rdp import RdpAccountant
from torch import Tensor

from core.methods.base import Spec
from core.privacy.conversions import cks_epsilon
from studies.kl.baseline import plain
from studies.kl.data import MEAN_SMOOTHNESS
from studies.kl.instances import LeastSquares, Power, sphere_rows
from studies.kl.rates import settings_for
from studies.kl.reports import with_options
from studies.kl.runs import Instance, run

RHO, DELTA, SHARE = 1.0, 1e-6, 0.01
SAMPLED_STEPS = (100, 400, 1600)
SHARES_OF_STEP = (1.0, 0.3, 0.1)


def practical(instance: Power, weight: str) -> Spec:
    """Return the proximal-point method with its `practical` options, its rounds as long as these take."""
    plain_settings = settings_for("proximal_point", instance.constants)
    asked = {"prox_weight": weight, "round_schedule": "practical", "inner_steps": "practical", "max_inner": 10**7}
    return with_options(plain_settings, **asked)


@dataclass(frozen=True)
class Contest:
    """One problem and the methods that are made for it."""

    name: str
    instance: Instance
    rows: Callable[[Tensor], Tensor]
    """Gradients of distinct records, shape (R, kinds, p), at points (R, p)."""
    copies: int
    smoothness: float
    """Of the mean loss; for a loss with a kink, of steps that are small enough."""
    methods: dict[str, Spec]


def contests() -> list[Contest]:
    """Return every problem with its methods."""
    made = []
    for exponent, units in ((2.0, 10**6), (3.0, 10**6), (4.0, 10**7)):
        power = Power(units, 10, exponent)
        smoothness = power.constants.smoothness
        assert smoothness is not None
        made.append(
            Contest(
                f"|w|^{exponent:g} in 10 dimensions, kappa = {power.constants.kappa:.3g}, n = {units:.0e}",
                power,
                power.problem.gradients,
                units,
                smoothness,
                _smooth_methods(power),
            )
        )
    squares = LeastSquares(1000, 10, 1000, eigenvalue=0.07, radius=4.0)
    features = sphere_rows(1000, 10, 0)
    made.append(
        Contest(
            "least squares in 10 dimensions, kappa = 2, n = 1e+06",
            squares,
            lambda theta: ((theta @ features.mT - squares.labels).unsqueeze(-1)) * features,
            1000,
            MEAN_SMOOTHNESS,
            _smooth_methods(squares, MEAN_SMOOTHNESS),
        )
    )
    sharp = Power(100, 1, 1.5, steepness=4.0)
    made.append(
        Contest(
            "|w|^1.5, four times steeper on one side, kappa = 3, n = 100",
            sharp,
            sharp.problem.gradients,
            100,
            8.0,
            {f"proximal point, {one} weight": practical(sharp, one) for one in ("scheduled", "paper")},
        )
    )
    return made


def _smooth_methods(instance: Power | LeastSquares, smoothness: float | None = None) -> dict[str, Spec]:
    """Return KL-Spider in both forms and adaptive descent with and without a cap on its steps."""
    spider, adaptive = (settings_for(kind, instance.constants) for kind in ("kl_spider", "adaptive_gd"))
    if smoothness is not None:
        spider = with_options(spider, mean_smoothness=smoothness)
        adaptive = with_options(adaptive, smoothness=smoothness)
    return {
        "KL-Spider, calibrated": with_options(spider, variant="calibrated"),
        "adaptive": adaptive,
        "adaptive, 40 steps (extension)": with_options(adaptive, step_cap=40),
    }


def sampled_descent(contest: Contest, runs: int) -> tuple[float, str]:
    """Return DP-SGD's least median excess over the grid, and where it was."""
    instance = contest.instance
    clip = instance.constants.lipschitz
    best = (float("inf"), "")
    for steps in SAMPLED_STEPS:
        noise = multiplier(steps)
        for share in SHARES_OF_STEP:
            generator = torch.Generator().manual_seed(steps)
            theta = torch.zeros(runs, instance.dimension, dtype=torch.float64)
            for _ in range(steps):
                gradients = contest.rows(theta)
                lengths = gradients.norm(dim=-1, keepdim=True)
                counts = torch.binomial(
                    torch.full(gradients.shape[:-1], float(contest.copies), dtype=torch.float64),
                    torch.full(gradients.shape[:-1], SHARE, dtype=torch.float64),
                    generator=generator,
                ).unsqueeze(-1)
                total = (gradients * (clip / lengths.clamp(min=clip)) * counts).sum(-2)
                drawn = torch.randn(theta.shape, generator=generator, dtype=torch.float64)
                mean = (total + noise * clip * drawn) / (SHARE * instance.units)
                theta = theta - share / contest.smoothness * mean
            found = float(instance.excess(theta).median())
            if found < best[0]:
                best = (found, f"{steps} steps of {share:g}/L1")
    return best


def multiplier(steps: int) -> float:
    """Return the noise over the clip with which so many sampled steps are as private as rho, by their epsilons."""
    return float(
        calibrate_dp_mechanism(
            RdpAccountant,
            lambda noise: dp_event.SelfComposedDpEvent(
                dp_event.PoissonSampledDpEvent(SHARE, dp_event.GaussianDpEvent(noise)), steps
            ),
            cks_epsilon(RHO, DELTA),
            DELTA,
        )
    )


def main() -> int:
    """Print the table; return 1 where a certificate is false too often."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 11
    false = 0
    for contest in contests():
        print(f"\n{contest.name}, rho = {RHO:g}, {runs} runs; F0 = {contest.instance.constants.start_gap:.3g}")
        best, steps = plain(contest.instance, RHO, smoothness=contest.smoothness, runs=runs)
        sampled, where = sampled_descent(contest, runs)
        lines: list[tuple[str, float, float | None]] = [
            (f"plain noisy gradient descent, {steps} steps", best.median, None),
            (f"DP-SGD, {where}", sampled, None),
        ]
        for name, settings in contest.methods.items():
            found = run(settings, contest.instance, RHO, runs=runs)
            lines.append((name, found.median, found.promised))
            false += found.promised is not None and found.kept < 0.9
        for name, median, promised in sorted(lines, key=lambda line: line[1]):
            certified = "" if promised is None else f"   promised {promised:9.2e}"
            print(f"  {name:48} {median:9.2e}  {median / best.median:9.3g} x plain{certified}")
    print(f"\n{sqrt(2 * RHO):.3g}-GDP in all; certificates false in more than a tenth of the runs: {false}")
    return int(false > 0)


if __name__ == "__main__":
    sys.exit(main())
