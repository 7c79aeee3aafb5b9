"""A linear regression from end to end: V13 on Poisson samples of one table, V14 in one pass over a stream."""

from math import sqrt

import numpy as np
import torch

from core.mechanisms.generator import SimulationGenerator
from core.methods.clipped.clipped_sgd.spec import ClippedSgd, ClippedSgdPlan
from core.methods.clipped.one_pass.spec import OnePassClippedSgdPlan
from core.methods.clipped.rules import TailMean
from core.methods.fits import iterate
from core.oracle.simulation import Simulation
from core.privacy.calibration import smallest_epsilon
from core.privacy.conversions import gdp_mu
from core.privacy.facts import Adjacency
from studies.clipped.advice import Estimate, Proxy, foresee
from studies.clipped.heavy_tails import IsotropicPareto, SkewedPareto
from studies.clipped.populations import RegressionStream, RegressionTable
from studies.clipped.reports import control, log_log, seen, within
from studies.clipped.runs import FAR, UNCLIPPED, facts_of, log_slope, quantile, run
from studies.clipped.without_replacement import multiplier as multiplier_of
from studies.inference.charts import Series
from studies.inference.results import Result, Row

DELTA = 1e-5
TRUTH = torch.tensor([1.0, -1.0, 0.5, -0.5, 1.0, 0.5], dtype=torch.float64)
"""Coefficients of five features and an intercept."""
UNITS, BATCH = 20_000, 200
PROXIES = 5000
"""Public records of the same law, apart from those that are fitted."""


SKEWED = SkewedPareto(tail=1.6, scale=0.2)
SYMMETRIC = IsotropicPareto(tail=1.6, scale=0.2)


def practical(epsilon: float, clip: float, steps: int, table: RegressionTable) -> ClippedSgdPlan:
    """Return filled settings for a table, with the least noise at (epsilon, 1e-5)."""
    settings = ClippedSgd(steps=steps, batch=BATCH, clip=clip, step_size=0.5, average=TailMean(steps=steps), radius=FAR)
    return settings.calibrated(facts_of(table), lambda event: smallest_epsilon(event, DELTA) <= epsilon)


def table_excess(settings: ClippedSgdPlan, clip: float, table: RegressionTable, seed: int) -> float:
    """Return the 95 % quantile of the excess risk of the average, over runs on one table."""
    chosen = settings.model_copy(update={"clip": clip})
    facts = facts_of(table)
    oracle = Simulation(table, facts, SimulationGenerator(seed), sampling=chosen.sampling(facts))
    estimate, _ = iterate(chosen, oracle)
    return quantile(table.excess(estimate.theta), 0.95)


def proxy() -> Proxy:
    """Return public gradients at the public records' own least-squares fit."""
    public = RegressionTable(SKEWED, 1, PROXIES, TRUTH, SimulationGenerator(131))
    residuals = public.features @ public.minimiser - public.target
    gradients = residuals.unsqueeze(-1) * public.features
    return Proxy(gradients=gradients.tolist(), factors=public.features.tolist())


def estimate(table: RegressionTable, multiplier: float, steps: int) -> Estimate:
    """Return what a table's own records say of clips: a study may look at them, a plan may not."""
    residuals = table.features @ table.minimiser - table.target
    records = Proxy.model_construct(
        gradients=(residuals.unsqueeze(-1) * table.features).tolist(), factors=table.features.tolist(), curvatures=None
    )
    return Estimate(records, multiplier=multiplier, batch=BATCH, steps=steps)


def regrets(multiplier: float, steps: int, clips: list[float], draws: int) -> list[float]:
    """Return, by draw of a table and of public records, the error at the chosen clip over the least; by estimate."""
    found = []
    for draw in range(draws):
        own = estimate(RegressionTable(SKEWED, 1, UNITS, TRUTH, SimulationGenerator(1000 + draw)), multiplier, steps)
        public = RegressionTable(SKEWED, 1, PROXIES, TRUTH, SimulationGenerator(2000 + draw))
        chosen = min(clips, key=estimate(public, multiplier, steps).excess)
        found.append(own.excess(chosen) / min(map(own.excess, clips)))
    return found


def without_replacement(epsilon: float, steps: int) -> float:
    """Return the noise multiplier of batches without replacement at (epsilon, 1e-5), where a unit may be another."""
    z = multiplier_of(BATCH / UNITS, steps, epsilon, DELTA)
    assert z is not None, "such noise exists"
    return z


def choosing_a_clip(*, full: bool) -> Result:
    """V13: the clip that public records favour is about as good as the best one."""
    replicates, steps, draws = (100, 1000, 100) if full else (40, 400, 10)
    clips = np.geomspace(0.05, 100, 12 if full else 6).tolist()
    table = RegressionTable(SKEWED, replicates, UNITS, TRUTH, SimulationGenerator(13))
    public = proxy()
    elsewhere = {1.0: (6.3, 0.00235, 0.025, 0.24), 4.0: (12.6, 0.00107, None, None)}
    rows: list[Row] = []
    lines = []
    for epsilon in (1.0, 4.0) if full else (1.0,):
        sampled = practical(epsilon, clips[0], steps, table)
        assert sampled.sigma is not None, "calibrated"
        z = without_replacement(epsilon, steps)
        settings = sampled.model_copy(update={"sigma": z})
        found = [table_excess(settings, clip, table, 1300 + at) for at, clip in enumerate(clips)]
        foreseen = [foresee(public, multiplier=z, batch=BATCH, steps=steps, plan_clip=clip).at_plan for clip in clips]
        told = [float("inf") if value is None else value for value in foreseen]
        chosen, best = told.index(min(told)), found.index(min(found))
        at = f"epsilon = {epsilon:g}"
        clip, value, low, high = elsewhere[epsilon]
        rows.append(Row(f"{at}: noise multiplier z", None, z))
        rows.append(within(f"{at}: Q(.95) at the chosen clip over the best", 1, found[chosen] / found[best], 1.5))
        rows.append(within(f"{at}: Q(.95) at the smallest clip over the best", 5, found[0] / found[best], float("inf")))
        rows.append(within(f"{at}: Q(.95) at the largest clip over the best", 5, found[-1] / found[best], float("inf")))
        rows.append(Row(f"{at}: the best clip", None, clips[best]))
        rows.append(Row(f"{at}: Q(.95) at the chosen clip over its estimate", None, found[chosen] / told[chosen]))
        rows.append(seen(f"{at}: chosen clip", clip, clips[chosen]))
        rows.append(seen(f"{at}: Q(.95) there", value, found[chosen]))
        if low is not None and high is not None:
            rows += [seen(f"{at}: at the smallest clip", low, found[0]), seen(f"{at}: at the largest", high, found[-1])]
        for name, noise in ((f"{draws} other draws", z), ("with the noise of Poisson samples", sampled.sigma)):
            regret = np.array(regrets(noise, steps, clips, draws))
            rows.append(within(f"{at}: {name}: error at the chosen clip, median", 1, float(np.median(regret)), 1.5))
            rows.append(Row(f"{at}: {name}: share of at most 1.5", None, float(np.mean(regret <= 1.5))))  # noqa: PLR2004 - as stated
            rows.append(Row(f"{at}: {name}: the worst", None, float(regret.max())))
        lines.append(Series(f"epsilon {epsilon:g}", clips, found))
        known = [at for at, value in enumerate(told) if value < float("inf")]
        estimated = [clips[at] for at in known], [told[at] for at in known]
        lines.append(Series(f"estimate, {epsilon:g}", *estimated, dashed=True))
    return Result(
        "V13",
        "Choosing a clip from public records",
        f"linear regression, five features of norm 1 and an intercept, skewed Pareto residuals of index 1.6 and scale "
        f".2, n = {UNITS}, expected batch {BATCH}, {steps} steps of size .5, delta 1e-5, {replicates} runs on one "
        f"table, {len(clips)} clips from .05 to 100, {PROXIES} public records, the average iterate; the noise is "
        "that of batches without replacement, where a unit may change into any other",
        tuple(rows),
        "Samples are Poisson, as jobs draw them; the noise is that of the independent simulators, whose batches were "
        "drawn without replacement, on a table of their own. Their public records chose the very best clip both times, "
        "and so do ours. That is not so in every draw, whoever computes it: of 300 draws of a table and of public "
        "records the chosen clip was within 1.5 of the best in 92 % (epsilon 1) and 82 % (epsilon 4), by the estimate; "
        "with ten times as many public records in 98 % and 95 % of 100; and the clip that the law itself favours, two "
        "million records, was within 1.14 in all of 150. So what is missing is public records, not the rule: what "
        "clipping moves the mean by is told by the few largest of 5000 residuals, whose variance is infinite. The "
        "noise that Poisson samples take where a unit is zeroed is 3.6 and 2.4 times smaller, the best clip larger and "
        "the tail that decides thinner: 89 % and 75 % there.",
        {"clips": log_log("excess risk by clip", "clip", "95 % quantile", lines)},
    )


def stream_excess(units: int, replicates: int, seed: int, *, composed: bool) -> float:
    """Return the 95 % quantile of the excess risk of the average after one pass.

    Args:
        units: n.
        replicates: runs, each on a stream of its own.
        seed: of all of it.
        composed: a control: noise as if each of the K steps read the same records.
    """
    batch, clip = 50, 3.0
    steps = units // batch
    problem = RegressionStream(SYMMETRIC, replicates, units, TRUTH)
    facts = facts_of(problem, UNCLIPPED).model_copy(update={"adjacency": Adjacency.REPLACE_ONE})
    mu = gdp_mu(1.0, DELTA)
    settings = OnePassClippedSgdPlan(
        mu=mu / sqrt(steps) if composed else mu,
        batch=batch,
        steps=steps,
        clip=clip,
        step_size=0.5,
        returns="average",
        radius=FAR,
    )
    return quantile(problem.excess(run(settings, facts, problem, seed)), 0.95)


def one_pass(*, full: bool) -> Result:
    """V14: in one pass privacy costs no rate; noise as if steps were composed destroys everything."""
    replicates = 200 if full else 60
    units = tuple(5000 * 2**power for power in range(5 if full else 3))
    found = [stream_excess(n, replicates, 140 + at, composed=False) for at, n in enumerate(units)]
    controls = [stream_excess(n, replicates, 150 + at, composed=True) for at, n in enumerate(units)]
    slope = log_slope(units, found)
    worst = min(other / one for one, other in zip(found, controls, strict=True))
    rows = [
        within("slope of log Q(.95) in log n, at most -.85", -1.5, slope, -0.85),
        control("noise of K composed answers is 100 times worse", fails=worst >= 100),  # noqa: PLR2004 - as stated
        Row(f"Q(.95) at n = {units[0]}", None, found[0]),
        Row(f"Q(.95) at n = {units[-1]}", None, found[-1]),
        Row(f"composed: Q(.95) at n = {units[0]}", None, controls[0]),
        Row(f"composed: Q(.95) at n = {units[-1]}", None, controls[-1]),
        seen(f"Q(.95) at n = {units[0]}", 0.0534, found[0]),
    ]
    if full:
        rows += [
            seen("slope", -0.96, slope),
            seen(f"Q(.95) at n = {units[-1]}", 0.00375, found[-1]),
            seen(f"composed: Q(.95) at n = {units[0]}", 95.0, controls[0]),
            seen(f"composed: Q(.95) at n = {units[-1]}", 2.3e4, controls[-1]),
        ]
    lines = [Series("one pass", units, found), Series("noise of K composed answers", units, controls)]
    return Result(
        "V14",
        "One pass costs one answer",
        f"the regression of V13 with symmetric residuals, fresh records, b = 50, lambda = 3, epsilon = 1 at delta "
        f"1e-5, replace_one, step size .5, n = {units[0]} to {units[-1]}, {replicates} runs, the average iterate",
        tuple(rows),
        "That one Gaussian answer covers all disjoint batches is ours and not the paper's, whose noise grows with the "
        "root of K in this setting. Both curves promise the same privacy.",
        {"rates": log_log("excess risk by records", "units n", "95 % quantile", lines)},
    )
