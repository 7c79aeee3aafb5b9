"""Figures for operators, in the Prometheus text format; labels are route templates and codes, never names or ids.

This module counts the answers of this process. All else is read from the database when somebody asks, so that it does
not matter which process, or how many, are asked.
"""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeHistogramMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from core.operations.figures import BUCKETS_SECONDS, Figures


class Metrics:
    """One registry for each application, so that two may live in one process.

    Attributes:
        agreed: the last entry of each ledger that the witness has followed.
    """

    def __init__(self) -> None:
        """Make the registry."""
        self.agreed: dict[str, int] = {}
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "farthing_requests", "Requests answered.", ["method", "route", "status"], registry=self._registry
        )
        self._refusals = Counter("farthing_refusals", "Requests refused.", ["code"], registry=self._registry)
        self._seconds = Histogram(
            "farthing_request_seconds", "Time to the first byte of an answer.", ["route"], registry=self._registry
        )

    def seen(self, method: str, route: str, status: int, seconds: float | None, code: str | None) -> None:
        """Count one answered request, its time unless that is its asker's affair, and its code where it was refused."""
        self._requests.labels(method, route, str(status)).inc()
        if seconds is not None:
            self._seconds.labels(route).observe(seconds)
        if code is not None:
            self._refusals.labels(code).inc()

    def render(self, figures: Figures, witness_lag: int | None) -> bytes:
        """Return the text, with the figures of the whole service as just read."""
        # A registry for this answer alone: figures of the database must not outlive the reading.
        registry = CollectorRegistry()
        registry.register(_Once(_families(figures, witness_lag)))
        return generate_latest(self._registry) + generate_latest(registry)


class _Once(Collector):
    """Hands out metrics that are there already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = list(metrics)

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _families(figures: Figures, witness_lag: int | None) -> Iterator[Metric]:
    yield _gauge("farthing_jobs", "Jobs by state.", "state", figures.jobs)
    yield _gauge("farthing_queue_depth", "Jobs that wait, by the device they ask for.", "device", figures.waiting)
    yield _gauge(
        "farthing_queue_oldest_seconds", "Age of the oldest job that waits.", "device", figures.oldest_waiting_seconds
    )
    yield _durations(figures)
    yield CounterMetricFamily(
        "farthing_reservations", "Reservations made: one for each job.", sum(figures.jobs.values())
    )
    yield CounterMetricFamily("farthing_ledger_entries", "Entries of all ledgers.", figures.entries)
    nats = {"spent": figures.spent_nats, "reserved": figures.reserved_nats}
    yield _gauge("farthing_ledger_nats", "Renyi nats at each ledger's first order, over all ledgers.", "kind", nats)
    scopes = {"all": figures.scopes, "frozen": figures.scopes_frozen}
    yield _gauge("farthing_scopes", "Ledgers, and how many of them admit no jobs.", "kind", scopes)
    yield _single("farthing_ledger_frozen", "1: the ledger is behind its witness.", int(figures.ledger_frozen))
    yield _single("farthing_ledger_head_age_seconds", "Age of the newest entry.", figures.head_age_seconds)
    yield _single("farthing_witness_lag_entries", "Entries that the witness does not know of.", witness_lag)
    yield _single("farthing_last_sweep_age_seconds", "Time since the last sweep.", figures.last_sweep_seconds)
    workers = figures.workers.items()
    yield _gauge("farthing_workers", "Supervisors seen lately.", "queues", {name: one.seen for name, one in workers})
    yield _gauge(
        "farthing_worker_slots", "Jobs they run at a time.", "queues", {name: one.slots for name, one in workers}
    )
    yield _gauge("farthing_worker_gpus", "GPUs they hold.", "queues", {name: one.gpus for name, one in workers})


def _gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for value, count in sorted(values.items()):
        family.add_metric([value], count)
    return family


def _single(name: str, text: str, value: float | None) -> Metric:
    """Return a gauge that is left out while there is nothing to measure."""
    family = GaugeMetricFamily(name, text)
    # A gauge of 0 would claim that something was measured.
    if value is not None:
        family.add_metric([], value)
    return family


def _durations(figures: Figures) -> Metric:
    text = "From first start to end, of jobs that ended within the last hour."
    family = GaugeHistogramMetricFamily("farthing_job_seconds", text, labels=["outcome"])
    for outcome, found in sorted(figures.ended.items()):
        # Prometheus wants the last bucket to be +Inf, and to hold all.
        bounds = [*(str(bound) for bound in BUCKETS_SECONDS), "+Inf"]
        buckets = list(zip(bounds, [*found.within, found.count], strict=True))
        family.add_metric([outcome], buckets=buckets, gsum_value=found.sum_seconds)
    return family
