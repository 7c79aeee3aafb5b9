"""Which iterate is returned: the last, the one of the least noised norm, or one drawn by an exponential mechanism.

Source: Menart, Ullah, Arora, Bassily and Guzman (2024), theorem 14, where the draw is by an exponential mechanism; here
with a budget of its own. The least noised norm is Farthing's choice: it is made of answers, so it costs nothing.
"""

from math import isnan
from typing import NamedTuple

import torch
from torch import Tensor

from core.methods.kl.adaptive_gd.spec import AdaptiveGradientDescent
from core.methods.kl.adaptive_gd.theory import MOST_CANDIDATES
from core.oracle import Oracle


class Candidate(NamedTuple):
    """An iterate, shape (p,), and its noised norm; nan where none was asked."""

    theta: Tensor
    norm: float


def hold(
    settings: AdaptiveGradientDescent, points: Tensor, norms: Tensor, theta: Tensor, norm: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the candidates with one more, as many as the choice needs: those of the least noised norms, in order.

    Args:
        settings: which choice is made.
        points: held so far, shape (K, p).
        norms: theirs, shape (K,).
        theta: another, shape (p,).
        norm: its own, shape ().
    """
    most = {"last": 0, "least_norm": 1, "exponential": MOST_CANDIDATES}[settings.select]
    together = torch.cat([norms, norm.reshape(1)])
    # A resumed attempt must hold the same points, also where norms are equal.
    order = together.argsort(stable=True)[:most]
    return torch.cat([points, theta.unsqueeze(0)])[order], together[order]


def select(settings: AdaptiveGradientDescent, oracle: Oracle, state: dict[str, Tensor], last: Candidate) -> Candidate:
    """Return the iterate that the settings ask for, with its noised norm; a draw among several is paid for.

    The steps leave enough for it: its chunk is the last one, also after lost attempts.
    """
    points, norms = state["points"], state["norms"]
    if settings.select == "last" or not len(norms):
        return last
    choice = settings.selection_question()
    index = 0
    if choice is not None and len(norms) > 1:
        index = int(oracle.ask(choice, points).value[0])
    assert not isnan(norms[index]), "candidates have norms"
    return Candidate(points[index], float(norms[index]))
