"""KL-Spider as it is printed, for tests alone: it shows that each correction matters.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), algorithm 1, letter by letter: one update more than T_k, a
difference after the last one, and the point before a round's last as the next round's first. The start stands where
the print has a point that does not exist.
"""

import torch
from torch import Tensor

from core.methods.kl.spider.schedule import SpiderConstants, SpiderSchedule, proved
from core.oracle import Oracle
from core.queries.gradients import Gradient, GradientDifference


def printed_course(ground: SpiderConstants, rho: float, failure: float) -> SpiderSchedule:
    """Return the printed noise for a budget, which under replacement costs more than twice of it."""
    return proved(ground, rho, failure)


def printed_walk(course: SpiderSchedule, start: Tensor, oracle: Oracle, *, corrected: bool = False) -> Tensor:
    """Return the last point of the printed loop, without replicates; or of the corrected one, written a second time."""
    theta = start
    for one in course.rounds:
        before, step = theta, 0
        slope = oracle.ask(Gradient(sigma=one.gradient_sigma), theta).value
        while (step < one.steps if corrected else step <= one.steps) and slope.norm() >= one.threshold:
            before, theta, step = theta, theta - one.step * slope / slope.norm(), step + 1
            if corrected and step == one.steps:
                break
            question = GradientDifference(sigma=one.difference_sigma or one.gradient_sigma, cap=one.cap)
            slope = slope + oracle.ask(question, before, theta).value
        theta = theta if corrected else before
    return theta


def fresh_walk(course: SpiderSchedule, start: Tensor, oracle: Oracle) -> Tensor:
    """Return the last points, shape (R, p), of rounds that ask a gradient after each step where they ask differences.

    The value of differences shows in rounds without them. Every gradient has the noise of a round's first.
    """
    theta = start
    for one in course.rounds:
        gradient = Gradient(sigma=one.gradient_sigma)
        slope = oracle.ask(gradient, theta).value
        walking = torch.ones(slope.shape[:-1], dtype=torch.bool)
        for step in range(1, one.steps + 1):
            length = slope.norm(dim=-1)
            walking = walking & (length >= one.threshold)
            if not bool(walking.any()):
                break
            moved = theta - one.step * slope / length.unsqueeze(-1)
            theta = torch.where(walking.unsqueeze(-1), moved, theta)
            if step < one.steps:
                slope = oracle.ask(gradient, theta).value
    return theta
