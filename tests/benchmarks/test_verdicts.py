"""The rule about noise: judged on intervals that were given, each job by its own claim."""

import numpy as np

from benchmarks.trust.jobs import Job
from benchmarks.trust.verdicts import MOST_NOISE, broken, judge


def job(seed: int, claimed: float = 1.0, *, withheld: bool = False) -> Job:
    """Return a job of two coefficients whose noise has deviation 1 and whose sampling error has the same."""
    draws = np.random.default_rng(seed)
    sampling, noise = draws.normal(size=2), draws.normal(size=2)
    error = np.full(2, np.sqrt(1 + claimed**2))
    return Job(
        estimate=sampling + noise,
        error=error,
        noise=np.full(2, claimed),
        flagged=np.full(2, withheld),
        truth=np.zeros(2),
        nonprivate=sampling,
        nonprivate_error=np.ones(2),
        plain_error=np.ones(2),
        foreseen=error,
        rival=error,
        words=(),
    )


def of_noise(jobs: list[Job]) -> list[str]:
    return [said for said in broken(judge(jobs), "elsewhere") if said.startswith("noise")]


def test_a_withheld_interval_does_not_move_the_ratio() -> None:
    """One job with a hidden direction claims a thousand times the noise, and gives no interval."""
    jobs = [job(seed) for seed in range(60)]
    assert not of_noise(jobs)
    assert not of_noise([*jobs, job(60, 1000.0, withheld=True)])


def test_claims_that_are_too_small_are_seen_beside_one_that_is_far_too_large() -> None:
    """Planted bug: a third of the noise is claimed. A mean of squares over jobs would hide it behind one wide job."""
    jobs = [*(job(seed, 1 / 3) for seed in range(59)), job(59, 1000.0)]
    assert of_noise(jobs)
    squares = [np.mean([getattr(one, name) ** 2 for one in jobs]) for name in ("noise",)]
    away = np.mean([(one.estimate - one.nonprivate) ** 2 for one in jobs])
    assert np.sqrt(away / squares[0]) < MOST_NOISE


def test_where_no_interval_is_given_there_is_no_claim() -> None:
    assert judge([job(seed, withheld=True) for seed in range(5)]).noise is None
