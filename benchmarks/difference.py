"""A change of gradients between two points against two gradients, less one pass: `python -m benchmarks.difference`.

581,012 x 54 float64, the size of the covertype data, synthetic. Two gradients are four products with X, read twice; a
change of gradients takes three and reads X once. The target is a ratio of at most 1.3 to two gradients less one pass
over the data, which is one plain product; all are measured in turns.
"""

import torch

from benchmarks.gradient import DIMENSION, UNITS, WEIGHTS, facts_for, interleaved
from core.losses.categorical import Logistic
from core.losses.registry import Loss
from core.losses.robust import Huber
from core.mechanisms.generator import SystemGenerator
from core.oracle.filters import UnlimitedFilter
from core.oracle.full import FullOracle
from core.queries.gradients import Gradient, GradientDifference, GradientNorm
from core.queries.sums.linear import LinearProblem

TARGET_RATIO = 1.3


def compare(loss: Loss, title: str, clip: float | None, threads: int) -> float:
    """Print a line and return the ratio."""
    torch.set_num_threads(threads)
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(UNITS, DIMENSION, generator=generator, dtype=torch.float64)
    target = (torch.rand(UNITS, generator=generator) < 0.5).double()
    theta = torch.full((DIMENSION,), 0.05, dtype=torch.float64)
    other = theta + 0.01
    problem = LinearProblem(features, target, torch.ones(UNITS, dtype=torch.bool), loss, WEIGHTS)
    oracle = FullOracle(problem, facts_for(loss, UNITS, DIMENSION), UnlimitedFilter(), SystemGenerator())
    gradient, norm = Gradient(sigma=30.0, clip=clip), GradientNorm(sigma=30.0, clip=clip)
    difference = GradientDifference(sigma=30.0, cap=0.05, clip=clip)

    def two_gradients() -> object:
        return oracle.ask(gradient, theta), oracle.ask(gradient, other)

    def norm_and_gradient() -> object:
        point = theta + 1e-6 * torch.rand(1, dtype=torch.float64)  # a new one, which no sum is remembered of
        return oracle.ask(norm, point), oracle.ask(gradient, point)

    pair, one, ours, both = interleaved(
        two_gradients,
        lambda: features @ theta,
        lambda: oracle.ask(difference, theta, other),
        norm_and_gradient,
    )
    ratio = ours / (pair - one)
    cells = "".join(f"{seconds * 1e3:>14.1f}" for seconds in (pair, one, ours))
    print(f"{title:<20}{threads:>8}{cells}{ratio:>8.2f}{both / pair:>22.2f}")
    return ratio


def main() -> None:
    """Print the table."""
    print(f"{UNITS} x {DIMENSION} float64, milliseconds, medians; target ratio {TARGET_RATIO}")
    heads = f"{'two gradients':>14}{'one pass':>14}{'difference':>14}{'ratio':>8}"
    print(f"{'':<20}{'threads':>8}{heads}{'norm + gradient / 2':>22}")
    default, ratios = torch.get_num_threads(), list[float]()
    for threads in dict.fromkeys((1, default)):
        ratios += [
            compare(Logistic(), "logistic", None, threads),
            compare(Logistic(), "logistic, clipped", 2.0, threads),
            compare(Huber(scale=1.0), "huber", None, threads),
        ]
    if max(ratios) > TARGET_RATIO:
        raise SystemExit("the target is missed")


if __name__ == "__main__":
    main()
