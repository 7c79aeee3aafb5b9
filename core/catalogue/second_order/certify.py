"""Certify: rounds of escape at a released model's point, and no descent; what none of them leaves has a certificate.

A fresh gradient first. Where it is longer than 3 chi the point is not stationary, as far as the figures tell, and the
job ends. Otherwise up to Q rounds of at most Gamma steps begin there, as in Gauss-PSGD, until one moves R away. Where
none does, the gradient there is at most alpha = 4 chi long and no eigenvalue of the mean Hessian is below
-sqrt(rho alpha), as surely as the figures allow. So that a point that any method found, on some records, gets its
certificate by others. One pass over the records that the job names has the price of a single answer.

Level: of a point with a curvature below -sqrt(rho alpha) all rounds stay with probability `missed` at most, linearised.
Power: of a minimum, rounds stay unless errors carry them R away; the preset strict gives them half of that distance.

Letters as in `gauss`.

Source: [derived] ours, from algorithm 1 of Tao, Zhang, Yu, Cheng, Dressler and Wang, Second-order convergence in
private stochastic non-convex optimization, without its descent. No new argument of privacy is needed.
"""

from typing import ClassVar, Final, Literal, Self

from pydantic import Field

from core.catalogue.certificate import Certificate, SecondOrder
from core.catalogue.method import Assumption, Card
from core.catalogue.second_order.claims import AFFORDABLE, CLIPPED, INDEPENDENT, PAPER, SMOOTH, AbstractEscape
from core.catalogue.second_order.figures import known
from core.privacy.facts import Adjacency, Facts

APART: Final = "the model was made without the units that were read here"


class Certify(AbstractEscape):
    """Rounds of escape at a released model's point: certified if none of them moves away. The point stays as it is."""

    about: ClassVar = (1, 1)
    needs_apart: ClassVar = True
    rooms: ClassVar = (1.5, 1.0)
    descends: ClassVar = False

    kind: Literal["certify"] = "certify"
    epochs: Literal[1] = Field(default=1, description="always: what is read twice is no news of a population")
    start: Literal["zeros"] = Field(default="zeros", description="always: the job's `models` say where")

    def plan(self, facts: Facts, mu: float) -> Self:
        """Fill what is open; see `core.catalogue.second_order.planned`.

        Raises:
            Invalid: a constant is missing, or the figures allow no certificate; with the figures and what to change.
        """
        return super().plan(facts.model_copy(update={"start_gap": None}), mu)  # that of the point is not known

    def needed(self) -> tuple[float, str]:
        """Return the units of the gradient before the rounds and of all rounds, each without a restart."""
        batch, changes = known(self.batch), known(self.difference_batch)
        units = float(batch + self.phase_units())
        return units, (
            f"a certificate takes b1 + Q (b1 + (Gamma - 1) b2) = {batch} + {self.rounds} * ({batch} + "
            f"{known(self.round_steps) - 1} * {changes}) = {units:.0f} units"
        )

    def most_steps(self, facts: Facts) -> int:
        """Return all steps of all rounds, and the gradient before them."""
        del facts  # there is no descent
        return 1 + known(self.rounds) * known(self.round_steps)

    def claim(self, facts: Facts, ended: SecondOrder, *, strayed: bool) -> Certificate:
        """Return what is claimed of the point; see `AbstractEscape.claim`."""
        made = super().claim(facts, ended, strayed=strayed)
        return made.model_copy(update={"conditions": (*made.conditions, APART)}) if made.conditions else made

    @classmethod
    def card(cls) -> Card:
        """Return the catalogue entry."""
        return Card(
            kind="certify",
            title="A certificate for a released model, by rounds of escape",
            paper=PAPER,
            native="mu-GDP",
            adjacency=tuple(Adjacency),
            assumptions=(
                CLIPPED,
                Assumption(text="each unit is read by one question at most", checked="runtime"),
                Assumption(text="the model was not made of the dataset that is read", checked="static"),
                Assumption(text="the model was not made of the units that are read", checked="declared"),
                SMOOTH,
                INDEPENDENT,
                AFFORDABLE,
            ),
            returns="the model's own point with what is claimed of it; no intervals",
        )
