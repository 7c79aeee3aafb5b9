"""The time of a quote: price at four orders, per cent, fit, and epsilon alone. `python -m benchmarks.pricing`."""

from collections.abc import Callable
from decimal import Decimal
from statistics import median, quantiles
from time import perf_counter

from core.privacy import renyi
from core.privacy.budget import admits, jobs_that_still_fit, plan_orders
from core.privacy.events import Event, Gaussian, Repeated, Sampled
from core.privacy.renyi import cost_nano, prefix_costs
from core.privacy.reports import cost_view

RUNS = 400
TERMS = plan_orders(Decimal(3), Decimal("1e-6"))
EMPTY = (0,) * len(TERMS.orders)


def quote_gaussian(run: int) -> None:
    """Quote a full-batch job as the service does; a new noise level each time, so that nothing is cached."""
    event = Repeated(event=Gaussian(sigma=20 + run / 1000), times=8)
    cost_view(event, TERMS, EMPTY, EMPTY)
    price = cost_nano(event, TERMS.orders)
    jobs_that_still_fit(TERMS, EMPTY, EMPTY, price)


def price_sampled(run: int) -> None:
    """Price and admit a Poisson-sampled job (its epsilon alone needs dp-accounting and is not part of this)."""
    event = Repeated(event=Sampled(numerator=2**57 + run, sigma=1.0), times=500)
    admits(TERMS, EMPTY, EMPTY, cost_nano(event, TERMS.orders))


def freeze_prefixes(run: int) -> None:
    """Freeze a list of 100 chunks, a hundred noise levels."""
    events: list[Event] = [Gaussian(sigma=10 + chunk + run / 1000) for chunk in range(100)]
    prefix_costs(events, TERMS.orders)


def measure(task: Callable[[int], None]) -> tuple[float, float]:
    """Return p50 and p99 in milliseconds."""
    times = []
    for run in range(RUNS):
        start = perf_counter()
        task(run)
        times.append(1e3 * (perf_counter() - start))
    return median(times), quantiles(times, n=100)[-1]


def main() -> None:
    """Print the table; the first row is the one with a target."""
    print(f"{'task':<44}{'p50 ms':>9}{'p99 ms':>9}{'target':>9}")
    rows = (
        ("quote, 8 full-batch answers", quote_gaussian, "< 1"),
        ("price, 500 Poisson-sampled steps", price_sampled, "< 1"),
        ("prefix list of 100 chunks", freeze_prefixes, "-"),
    )
    for name, task, target in rows:
        middle, tail = measure(task)
        print(f"{name:<44}{middle:>9.3f}{tail:>9.3f}{target:>9}")
    print(f"(prices saturate at {renyi.MAX_NANO} nano-nats)")


if __name__ == "__main__":
    main()
