"""Whitened Newton over several sites: the result of all records together, with the same intervals."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from core.inference.estimate import Estimate
from core.methods.fits import fit_and_infer
from core.oracle.federation import FederatedOracle, MessageRounds, SiteFilter
from core.oracle.filters import CountingFilter
from core.oracle.full import FullOracle
from core.privacy.events import compose
from core.queries.sums.peer_group import PeerGroup
from tests.methods.test_whitened_newton import CELLS, Scene
from tests.support.peer_groups import Mail, together
from tests.support.problems import repeatable_generator

SIZES = (300, 900, 1800)
QUIET = 300.0
"""mu at which noise is a small part of the error that sampling leaves."""


def shards(scene: Scene) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Return the records of three owners, each with people of its own kind: sorted by the first column."""
    features, target = scene.records
    order = np.argsort(features[:, 1], kind="stable")
    edges = np.cumsum((0, *SIZES))
    found = []
    for first, last in pairwise(edges):
        rows = order[first:last]
        own = torch.from_numpy(features[rows]), torch.from_numpy(target[rows])
        found.append((*own, torch.ones(len(rows), dtype=torch.bool)))
    return found


def by_clients(scene: Scene, *, weighted: bool = True) -> Estimate:
    """Fit it with every site at an oracle of its own, with noise of its own."""
    owned = shards(scene)

    def work(peers: PeerGroup) -> Estimate:
        records = owned[peers.place]
        paying = SiteFilter(CountingFilter(compose(Counter(scene.plan.schedule))), MessageRounds(peers))
        facts = scene.plan.facts.model_copy(update={"units": len(records[1])})
        own = FullOracle(scene.problem(records), facts, paying, repeatable_generator(bytes([peers.place + 1]) * 32))
        oracle = FederatedOracle(own, paying, "fed_test")
        if not weighted:
            oracle._shares = [1 / peers.size] * peers.size
        return fit_and_infer(scene.settings, scene.plan.spec.inference, oracle).value.estimate

    first, *others = together(Mail(len(SIZES)), work)
    assert all(torch.equal(first.theta, other.theta) for other in others)
    return first


def errors(estimate: Estimate) -> Tensor:
    assert estimate.sandwich is not None
    return estimate.sandwich.covariance.diagonal().sqrt()


@pytest.mark.parametrize("name", CELLS)
def test_three_owners_of_unlike_people_find_what_one_would_with_the_same_errors(name: str) -> None:
    """Beside one oracle over all records: apart by part of a standard error, and these agree within a twentieth."""
    scene = Scene(replace(CELLS[name], mu=QUIET))
    alone, all_of_them = scene.fitted(scene.oracle()), by_clients(scene)
    apart = (alone.theta - all_of_them.theta).abs() / errors(alone)
    assert float(apart.max()) < 0.25, apart
    ratio = errors(all_of_them) / errors(alone)
    assert float((ratio - 1).abs().max()) < 0.05, ratio
    assert all_of_them.checks is not None
    assert all_of_them.checks.withheld == ()


def test_a_plain_mean_over_owners_would_find_something_else() -> None:
    """Planted bug: 300 people count as much as 1,800."""
    scene = Scene(replace(CELLS["logistic"], mu=QUIET))
    alone, wrong = scene.fitted(scene.oracle()), by_clients(scene, weighted=False)
    apart = (alone.theta - wrong.theta).abs() / errors(alone)
    assert float(apart.max()) > 0.5, apart


@pytest.mark.parametrize("name", CELLS)
def test_at_an_ordinary_budget_noise_is_that_of_three(name: str) -> None:
    """Each owner adds its own: sqrt(3) times the deviation of one oracle's; nothing is six standard errors off."""
    scene = Scene(CELLS[name])
    one, three = scene.fitted(scene.oracle()), by_clients(scene)
    assert float((errors(three) / errors(one)).min()) > 0.9  # noise is a small part of some errors, whose rest is told
    apart = (one.theta - three.theta).abs() / (errors(one) ** 2 + errors(three) ** 2).sqrt()
    assert float(apart.max()) < 6, apart
