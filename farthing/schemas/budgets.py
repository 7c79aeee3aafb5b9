"""Budgets: the rules and the parts of one, the caps on it, and access to its datasets."""

from collections.abc import Iterator
from typing import Any, Literal

from farthing.schemas.base import Shown, View
from farthing.schemas.provenance import Declared, Drawn, Operational, Paid, Timed


class EpsilonView(View):
    """Epsilon at the scope's delta; informational, never what admits a job."""

    total: Declared[str]
    """Of the budget, for good."""
    spent: Paid[str]
    """Of all that was drawn; informational. Until the smallest one is found, a larger one, which holds, too."""
    remaining: Paid[str]
    """The largest that one more job could ask, alone."""


class SharesView(View):
    """Division of a budget at its ledger's present head: decimal strings from 0 to 1, in the ledger's units."""

    spent: Paid[str]
    """Drawn and gone."""
    reserved: Paid[str]
    """Held by jobs that have not ended."""
    remaining: Paid[str]
    """That new jobs may reserve."""


class RhoView(View):
    """Zero-concentrated figures; null once any charge was not of that kind."""

    total: Declared[str | None]
    """That the budget is worth; null once a charge had none."""
    spent: Paid[str | None]
    """Drawn; null once a charge had none."""
    reserved: Paid[str | None]
    """Held by jobs that have not ended; null once a charge had none."""
    remaining: Paid[str | None]
    """Left to new jobs; null once a charge had none."""


class CapView(View):
    """The most that a principal may use of a scope's budget, and what of it is used."""

    budget_cap: Declared[str | dict[str, str]]
    """As the owner wrote it: all, or a budget_share, an epsilon or a rho."""
    epsilon: Declared[str | None]
    """That the cap alone promises at `delta`; null of a share and of all, which the budget's own promise covers."""
    delta: Declared[str]
    """At which the cap is counted."""
    used: SharesView
    """Used part of the cap, in shares of it, since the access was first given in this scope."""


class AccessView(CapView, Shown):
    """Access of a principal to a dataset, and its cap."""

    object: Literal["access"] = "access"
    dataset: Drawn[str]
    """`ds_...`."""
    principal: Drawn[str]
    """Principal with access, `pr_...`."""
    name: Declared[str]
    """Of the principal."""
    role: Declared[str]
    """owner, analyst, auditor or admin."""
    disabled: Operational[bool]
    """True: the principal is shut out of the service."""
    scope: Drawn[str]
    """Scope of the cap, `sc_...`; there is one cap for each scope and principal."""
    datasets: Drawn[list[str]]
    """All of the scope that this principal may use; jobs on any of them count against this cap."""
    given_at: Timed[str]
    """When access to this dataset was given."""
    version: Operational[str]
    """Changes with the cap; send it in If-Match."""

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from (("name", self.name), ("principal", self.principal), ("budget_cap", self.budget_cap))
        yield "spent", self.used.spent


class GapView(View):
    """A range of time in which entries may be missing: the ledger went on without its witness."""

    entry: Operational[int]
    """Number of the entry that says so."""
    since: Timed[str]
    """When the last entry before it was made."""
    until: Timed[str]
    """When the ledger went on."""
    accepted: Operational[int | None]
    """Number of the entry by which the owner has accepted it; null: no job is admitted until then."""


class BudgetView(Shown):
    """Remaining budget of the people behind a dataset."""

    scope: Drawn[str]
    """Scope of the budget, `sc_...`."""
    adjacency: Declared[str]
    """Under which all figures hold."""
    delta: Declared[str]
    """At which the epsilons hold."""
    epsilon: EpsilonView
    """The remaining budget as epsilons."""
    budget_share: SharesView
    """The remaining budget in the ledger's units."""
    rho: RhoView
    """The remaining budget as zCDP."""
    entries: Paid[int]
    """Lines of the ledger so far."""
    head: Drawn[str]
    """SHA-256 of the last line, over all before it."""
    frozen: Operational[str | None]
    """Why nothing is admitted now; null: jobs are."""
    unwitnessed: list[GapView]
    """Ranges where entries may be missing, so that more may have been spent than is shown; empty: none."""
    label: Paid[str]
    """guarantee, or informational where answers decided how much was drawn."""
    implies: Paid[dict[str, Any]]
    """Promise of the spent figures under the other adjacencies."""
    cap: CapView | None = None
    """The caller's own cap here; null: the budget is its own, or it has no access."""

    def plot(self, axes: Any = None) -> Any:  # noqa: ANN401 - matplotlib's
        """Draw it with matplotlib, on given axes or new ones, and return them."""
        from farthing.plots import plot_budget  # noqa: PLC0415 - the service has no use for it

        return plot_budget(self, axes)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        yield from (("scope", self.scope), ("spent", self.epsilon.spent), ("remaining", self.epsilon.remaining))
        yield from (("total", self.epsilon.total), ("delta", self.delta), ("frozen", self.frozen))


class Scope(View):
    """A budget and the rules it was made with; they never change."""

    id: Drawn[str]
    """`sc_...`."""
    object: Literal["scope"] = "scope"
    owner: Drawn[str]
    """The principal whose data it covers, `pr_...`."""
    unit: Declared[Any]
    """Protected unit: `record`, or a mapping with the user column."""
    adjacency: Declared[str]
    """Definition of neighbouring data: zero_out or replace_one."""
    units: Declared[int]
    """Number of protected units, by the owner's statement."""
    epsilon: Declared[str]
    """Total that may ever be spent, at `delta`."""
    delta: Declared[str]
    """At which `epsilon` holds."""
    orders: Declared[list[int]]
    """Renyi orders that the ledger keeps."""
    weights: Declared[list[str]]
    """The part of delta that each order answers for, in order."""
    caps_nano: Declared[list[int]]
    """The most that may be spent at each order, in nano-nats."""
    approval: Declared[bool]
    """Whether its owner approves each release before others see it."""
    frozen: Operational[str | None]
    """Why nothing is admitted now; null: jobs are."""
    unwitnessed: list[GapView]
    """Ranges where entries may be missing, so that more may have been spent than is shown; empty: none."""
    entries: Paid[int]
    """Lines of its ledger so far."""
    head: Drawn[str]
    """SHA-256 of the last line, over all before it."""
    datasets: Drawn[list[str]]
    """Those of it that the caller may see."""
    created_at: Timed[str]
    """When its first dataset was declared."""
