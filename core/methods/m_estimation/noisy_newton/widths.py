"""The covariance of noisy Newton that intervals would be made of, from the reference's matrices with noise.

Source: Avella-Medina, Bradshaw and Loh (2023), section 5.1; Farthing's own plan as in `core.inference.late_covariance`.
"""

from typing import TYPE_CHECKING

import numpy as np

from core.inference.late_covariance import Matrices, Steps, late_covariance
from core.inference.settings import PlannedInference
from core.methods.m_estimation.predicted_covariance import (
    Array,
    Noised,
    floored_at,
    inverted,
    plain_covariance,
    remembered,
    spectrum_of,
)
from core.models.outlook import Outlook
from core.privacy.facts import Facts

if TYPE_CHECKING:
    from core.methods.m_estimation.noisy_newton.spec import NoisyNewtonPlan


def newton_covariance(
    plan: "NoisyNewtonPlan", outlook: Outlook, facts: Facts, inference: PlannedInference, noised: Noised
) -> Array:
    """Return the covariance, shape (R, p, p).

    Args:
        plan: nothing open.
        outlook: the public reference.
        facts: of the job.
        inference: nothing open.
        noised: the reference's matrices with noise.
    """
    scale = outlook.reference.scale
    if plan.late_steps > 0 and inference.correction != "plain":
        return scale**2 * _late(plan, outlook, facts, inference, noised)
    spectrum = spectrum_of(noised, inference, scale)
    plain = plain_covariance(noised, inference, spectrum, facts.units)
    if inference.correction == "plain":
        return plain
    # Careful runs are taken to end in pure steps.
    damping, floor = 1.0 if plan.careful else plan.damping, plan.floors(facts)[-1]
    gradients = [one.sigma * one.sensitivity(facts) for one in plan.gradients()[plan.warm_steps :]]
    if inference.correction != "stationary":
        inverse = inverted(floored_at(noised.stepped, floor) / scale)
        return np.asarray(plain + (damping * gradients[-1]) ** 2 * inverse @ inverse)
    variance = 0.0
    for deviation in gradients:
        variance = (1 - damping) ** 2 * variance + (damping * deviation) ** 2
    relative = floor / scale
    start = remembered(
        outlook, inference, spectrum, lambda speed: damping * np.minimum(speed / relative, 1.0), plan.steps
    )
    return np.asarray(plain + (variance * spectrum.of(spectrum.floored**-2) + start))


def _late(
    plan: "NoisyNewtonPlan", outlook: Outlook, facts: Facts, inference: PlannedInference, noised: Noised
) -> Array:
    """Return the covariance of the mean of late gradient steps, in units of the scale."""
    gradient = plan.gradients()[-1]
    curvature_question, score_question = inference.questions()
    steps = Steps(
        count=plan.late_steps,
        averaged=plan.averaged,
        scale=gradient.sigma * gradient.sensitivity(facts),
        inverse=inverted(floored_at(noised.stepped, plan.floors(facts)[-1])),
    )
    matrices = Matrices(
        curvature=noised.final,
        deviation=noised.deviation,
        score=noised.score,
        score_deviation=noised.score_deviation,
        ratio=score_question.bound(facts) / curvature_question.bound(facts),
    )
    radius = inference.plausible_radius / outlook.reference.scale
    return late_covariance(steps, matrices, facts.units, radius, outlook.shifts)[0]
