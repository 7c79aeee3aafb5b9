r"""The number of draws that a budget has room for, since the sampler's laws are only close to those that are priced.

Prices are those of ideal draws: of the discrete Gaussian and its like, and of samples whose lists have room for all
their units. The real laws are within tau = 2^-108 of the ideal ones in total variation, given all earlier draws
(`core.mechanisms.gaussian`, `exponential`, `laplace`). A real sample passes the length of its list with probability
below 2^-84 (`core.mechanisms.sampling`); its sum then has another law than the one that was priced. Draws are counted
in units of tau: a coordinate of noise, or a choice, is one, and a sample is 2^24 more.

Theorem. Let an interaction of at most N such units with ideal draws be (epsilon, d)-differentially private. Then with
real draws it is (epsilon, d + (1 + e^epsilon) N tau)-differentially private.

Proof. Fix neighbours, with laws P and Q of the transcript, P* and Q* those with ideal draws. Number the draws in the
order they are made; a transcript with fewer than there may be is filled up with draws that nobody sees. Let P_i be the
law where the first i draws are real and all later ones ideal. P_i and P_{i-1} differ in draw i alone, and everything
before it has the same law under both. Given everything before it, the two laws of draw i are within tau u_i of each
other, u_i its units. Under both, the rest of the transcript is the same random function of draw i. Hence P_i and
P_{i-1} are within tau u_i. The units of all draws add up to at most N in each transcript, so that P and P* are within
N tau, and Q and Q* likewise. Hence for each event E

    P[E] <= P*[E] + N tau <= e^epsilon Q*[E] + d + N tau <= e^epsilon (Q[E] + N tau) + d + N tau.   QED

The room. The caps c_j of a budget make its ideal interaction (epsilon, sum_j d_j)-private (`core.privacy.budget`).
Here d_j is the delta at which charges of c_j at order a_j are worth epsilon (Canonne, Kamath and Steinke 2020,
proposition 12, as in `conversions.renyi_budget`):

    d_j = exp((a_j - 1)(c_j - epsilon)) (1 - 1/a_j)^(a_j - 1) / a_j <= w_j delta.

An order whose cap is 0 (a lowered ceiling may have one) has no part in that sum. The first charge passes it. Before
that charge nothing was drawn from a record, which is (0, 0)-private.

Hence N = (delta - sum_j d_j) / ((1 + e^epsilon) tau), computed here in decimals of 60 digits, each rounded to the safe
side. It depends on epsilon, delta, orders and caps, and on nothing else. Weights add up to .999, so that N is about
delta/(1000 (1 + e^epsilon) tau): 1e20 at (8, 1e-6), 6e14 at (20, 1e-6), 3e10 at (30, 1e-6), and none above epsilon 54.

The count. Each job reserves the most that it may draw, `JobDraws`, before it is admitted. The units of a scope's
reservations never pass its N, so that no transcript has more. A cap inside the budget promises nothing more and has no
N; it may use only a part of the scope's (`core.privacy.caps.part_of_draws`). Draws that depend on no record, such as
random starts, need no count: their law is the same for both neighbours. For a person in one site's records alone, the
same is true of the draws of a federated job's other sites. A person in the records of several has a promise from each.

Draws of one job. A method asks a bounded number of questions in a run, and goes on after a loss from its kept state. A
loss takes at most all answers of a run with it. Attempts that lose something have paid, and a job is not queued again
once there are `MOST_RUNS` of them (`core.ledger.ledger.affords_repeats`). A stream reads no batch twice, so its
attempts together are one run.

Draws given back. A job that paid nothing has drawn nothing, and its whole reservation is given back when it ends.
Otherwise each attempt that could read counts as a whole run, and the other runs are given back (`draws_left`). An entry
of the chain precedes the opening of records (`core.ledger.job_entries.Reading`), and an attempt draws nothing before
it. An attempt draws at most one run (`core.training.draws`), wherever it was killed, even in a process that goes on
after its job has ended. Less than a run is never counted. Payments do not bound draws: many can cost less than one
nano-nat together, so that a payment for one chunk covers all of them.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import lru_cache
from typing import Final

from core.privacy.budget import NANO, Terms
from core.privacy.events import Composed, Disjoint, Event, Repeated
from core.privacy.facts import Frozen

DRAW_BITS: Final = 108
"""A draw is within 2^-108 of its ideal law."""
LIST_BITS: Final = 84
"""A sample passes the length of its list with probability below 2^-84."""
SAMPLE_DRAWS: Final = 2 ** (DRAW_BITS - LIST_BITS)
"""Units of a sample, beside those of the noise on what is summed over it."""
MOST_RUNS: Final = 10
"""Attempts at a job of which something may be lost, the last one included."""
MOST_COUNTED: Final = 2**62
"""Largest count of any account: it fits a signed 64-bit column."""

_DIGITS: Final = 60
_UP = Context(prec=_DIGITS, rounding=ROUND_CEILING)
_DOWN = Context(prec=_DIGITS, rounding=ROUND_FLOOR)


class JobDraws(Frozen):
    """The most that a job may draw, in units."""

    run: int
    """In one run from its start to its end, for any answers."""
    runs: int = MOST_RUNS
    """The most runs that all its attempts together count as."""

    @property
    def most(self) -> int:
        """The most that the job may draw in all its runs."""
        return self.run * self.runs


def least_draws(event: Event) -> int:
    """Return the least units with which an event can be drawn: one for each answer; of disjoint parts, the most."""
    match event:
        case Repeated(event=inner, times=times):
            return times * least_draws(inner)
        case Composed(events=parts):
            return sum(map(least_draws, parts))
        case Disjoint(events=parts):
            return max(map(least_draws, parts), default=0)
        case _:
            return 1


def draws_left(reserved: int, runs: int, readings: int) -> int:
    """Return the reserved units that no attempt can have drawn, of a job that has paid.

    Args:
        reserved: units, for all runs together.
        runs: the number of whole runs in them.
        readings: attempts that an entry has allowed to read records. Entries of version 1 allow none, so that a job
            which has paid has made one run at least.
    """
    return reserved // runs * max(0, runs - max(1, readings))


def jobs_with_room(most: int, counted: int, draws: int) -> int:
    """Return the number of jobs of `draws` units each that have room within `most`, beside the `counted` units."""
    return max(most - counted, 0) // max(draws, 1)


@lru_cache(maxsize=1024)
def most_draws(terms: Terms) -> int:
    """Return N, the units of draws that a budget has room for; 0 where it has none, and at most `MOST_COUNTED`."""
    room = terms.delta
    for order, cap in zip(terms.orders, terms.caps_nano, strict=True):
        if not cap:
            continue
        room = _DOWN.subtract(room, _delta_of(order, _UP.divide(Decimal(cap), Decimal(NANO)), terms.epsilon))
    if room <= 0:
        return 0
    each = _UP.divide(_UP.add(1, _UP.next_plus(_UP.exp(terms.epsilon))), Decimal(2**DRAW_BITS))
    return min(int(_DOWN.divide(room, each)), MOST_COUNTED)


def _delta_of(order: int, cap: Decimal, epsilon: Decimal) -> Decimal:
    """Return the delta at which a Renyi price of `cap` nats is worth epsilon, rounded up."""
    power = _UP.multiply(Decimal(order - 1), _UP.subtract(cap, epsilon))
    grown = _UP.next_plus(_UP.exp(power))  # decimal rounds exponentials to nearest, whatever the context says
    shrunk = _UP.next_plus(_UP.power(_UP.divide(Decimal(order - 1), Decimal(order)), order - 1))
    return _UP.divide(_UP.multiply(grown, shrunk), Decimal(order))
