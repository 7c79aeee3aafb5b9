"""The sites of a federated job (here: clients) in one process, with seeds; and the division of images among them.

A site is a simulated oracle of its own to its own records, with noise and a filter of its own. Their mean is taken in
the order of their places. It is therefore the answer that a `core.oracle.federation.FederatedOracle` gives every site,
without its messages; a test compares the two bit for bit.
"""

from collections.abc import Callable, Sequence
from math import hypot
from typing import Literal, NoReturn, TypeVar

import torch
from torch import Tensor

from core.mechanisms.generator import SimulationGenerator
from core.oracle import Answer, Oracle, PublicRandomness, Release, Status
from core.oracle.simulation import SeededRandomness
from core.queries.gradients import Question
from studies.inference.designs import uniform

T = TypeVar("T")
State = dict[str, Tensor]
Partition = Literal["iid", "dirichlet", "shards"]
"""At random; by proportions of classes drawn from Dirichlet(1/2) for each site; or two runs of sorted labels each."""


class Clients:
    """The unweighted mean of several sites' noised answers.

    Args:
        oracles: one of each site.
        seed: of the coins.
        seen: called with each state that the method keeps.
    """

    def __init__(self, oracles: Sequence[Oracle], seed: int, seen: Callable[[State], None]) -> None:
        self._oracles, self._seen = oracles, seen
        self.facts = oracles[0].facts.model_copy(update={"units": sum(one.facts.units for one in oracles)})
        self.randomness: PublicRandomness = SeededRandomness(SimulationGenerator(seed))
        self.precision = torch.float64

    def ask(self, question: Question, theta: Tensor, other: Tensor | None = None) -> Answer:
        """Return the mean of all sites' answers; its scale is that of the mean."""
        answers = [one.ask(question, theta, other) for one in self._oracles]
        total = answers[0].value
        for answer in answers[1:]:
            total = total + answer.value
        return Answer(total / len(answers), hypot(*(one.scale for one in answers)) / len(answers))

    def affords(self, question: Question, then: Question | None = None) -> bool:
        """Say whether all sites afford it."""
        return all(one.affords(question, then) for one in self._oracles)

    def block(self, name: str) -> NoReturn:
        """Refuse: sites have no blocks here."""
        raise AssertionError(f"no client has a block {name!r}")

    def resume(self, initial: State) -> State:
        """Return the beginning."""
        return initial

    def keep(self, state: State, step: int) -> None:
        """Pass the state on to `seen`."""
        del step
        self._seen(state)

    def release(self, value: T, status: Status) -> Release[T]:
        """Close all oracles; the event drawn is the first one's, and all drew the same."""
        released = [one.release(value, status) for one in self._oracles]
        assert all(one.event == released[0].event for one in released), "all were asked the same"
        return released[0]


def shares(labels: Tensor, clients: int, units: int, partition: Partition, seed: int) -> list[Tensor]:
    """Return the records of each site, `units` of them each and none of two sites, in the order they are read.

    Args:
        labels: of all records, shape (n,), whole numbers.
        clients: m.
        units: of each site; m times as many are there.
        partition: the kind of division.
        seed: of the division, which no noise depends on.
    """
    generator = SimulationGenerator(seed)
    mixed = uniform(generator, len(labels)).argsort()[: clients * units]
    if partition == "iid":
        return list(mixed.view(clients, units))
    if partition == "shards":
        ordered = mixed[labels[mixed].argsort(stable=True)].tensor_split(2 * clients)
        place = uniform(generator, 2 * clients).argsort()
        found = [torch.cat([ordered[int(at)] for at in pair]) for pair in place.view(-1, 2)]
    else:
        found = _by_proportions(labels, mixed, clients, units, generator)
    # A public order that labels have no part in.
    return [one[uniform(generator, len(one)).argsort()] for one in found]


def _by_proportions(
    labels: Tensor, mixed: Tensor, clients: int, units: int, generator: SimulationGenerator
) -> list[Tensor]:
    """Divide by proportions of classes; a site that finds a class used up takes from those left."""
    classes = int(labels.max()) + 1
    pools = [mixed[labels[mixed] == label].tolist() for label in range(classes)]
    found = []
    for _ in range(clients):
        # Gamma(1/2) is half a squared normal.
        weights = generator.normal(classes).square()
        taken: list[int] = []
        while len(taken) < units:
            left = torch.tensor([float(bool(pool)) for pool in pools], dtype=torch.float64)
            weights = torch.where(left * weights > 0, weights, 0) if float((left * weights).sum()) > 0 else left
            wanted = (weights / weights.sum() * (units - len(taken))).ceil().long().tolist()
            for pool, count in zip(pools, wanted, strict=True):
                fits = min(count, units - len(taken), len(pool))
                taken += pool[:fits]
                del pool[:fits]
        found.append(torch.tensor(taken))
    return found
