"""Counters for operators, in the Prometheus text format; labels are route templates, never paths or names."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


class Metrics:
    """One registry for each application, so that two may live in one process."""

    def __init__(self) -> None:
        """Make the registry."""
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "farthing_requests", "Requests answered.", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "farthing_request_seconds", "Time to the first byte of an answer.", ["route"], registry=self.registry
        )
        self.jobs = Gauge("farthing_jobs", "Jobs by state.", ["state"], registry=self.registry)

    def seen(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one answered request."""
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def render(self, jobs: dict[str, int]) -> bytes:
        """Return the text, with the number of jobs in each state as just counted."""
        for state, count in jobs.items():
            self.jobs.labels(state).set(count)
        return generate_latest(self.registry)
