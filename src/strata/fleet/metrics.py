"""Numbers for Prometheus: requests, drivers, engine. Objects that others call; knows neither HTTP nor the engine.

One ``Metrics`` owns its registry, so that several can live in one process (tests, several controllers).
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from strata.core.state import State

REQUEST_BUCKETS = (
    0.0001, 0.00025, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.05,
    0.075, 0.1, 0.15, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Seconds; fine enough that a p99 read from them is within half of the truth."""

DRIVER_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

CONTENT_TYPE = CONTENT_TYPE_LATEST


class RouteMetrics:
    """What is counted of one route and method. Made once, so that a request costs no label look-up."""

    __slots__ = ("_errors", "_labels", "_requests", "_seconds", "_statuses")

    def __init__(self, metrics: Metrics, method: str, route: str) -> None:
        self._labels = (method, route)
        self._requests = metrics.requests
        self._errors = metrics.errors.labels(method, route)
        self._seconds = metrics.seconds.labels(method, route)
        self._statuses: dict[int, Counter] = {}

    def done(self, status: int, seconds: float) -> None:
        """Count one answered request."""
        counter = self._statuses.get(status)
        if counter is None:
            counter = self._statuses[status] = self._requests.labels(*self._labels, str(status))
        counter.inc()
        self._seconds.observe(seconds)
        if status >= 500:
            self._errors.inc()


class Metrics:
    """Everything that ``/metrics`` shows."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        kept = self.registry
        self.requests = Counter(
            "strata_http_requests", "Requests answered.", ("method", "route", "status"), registry=kept
        )
        self.errors = Counter(
            "strata_http_errors", "Requests that we failed to serve (5xx).", ("method", "route"), registry=kept
        )
        self.seconds = Histogram(
            "strata_http_request_seconds",
            "Time to answer; for a watch, until it began.",
            ("method", "route"),
            buckets=REQUEST_BUCKETS,
            registry=kept,
        )
        self.in_flight = Gauge("strata_http_in_flight", "Requests being served.", registry=kept)
        self.watchers = Gauge("strata_http_watchers", "Clients that watch events.", registry=kept)
        self._routes: dict[tuple[str, str], RouteMetrics] = {}

        self.driver_nodes = Counter(
            "strata_driver_nodes", "Nodes acted on, by outcome.", ("driver", "action", "outcome"), registry=kept
        )
        self.driver_seconds = Histogram(
            "strata_driver_call_seconds",
            "Time of one driver call (a batch).",
            ("driver", "action"),
            buckets=DRIVER_BUCKETS,
            registry=kept,
        )

        self.nodes = Gauge("strata_nodes", "Nodes by state.", ("state",), registry=kept)
        self.queue = Gauge("strata_engine_queue", "Nodes by their place in the engine.", ("queue",), registry=kept)
        self.step_seconds = Histogram(
            "strata_engine_step_seconds", "Time of one engine step.", buckets=REQUEST_BUCKETS, registry=kept
        )
        self.mutations = Counter("strata_mutations", "Mutations by how they ended.", ("mutation", "end"), registry=kept)
        self.faults = Counter("strata_faults", "Nodes that went into a fault state.", registry=kept)
        self.shards = Gauge("strata_shards", "Shards that the fleet is divided into.", registry=kept)
        self.led_shards = Gauge("strata_led_shards", "Shards that this controller leads.", registry=kept)
        self.store_revision = Gauge("strata_store_revision", "The newest store revision seen.", registry=kept)

    def route(self, method: str, route: str) -> RouteMetrics:
        """What is counted of ``method`` on ``route`` (a template, never a raw path)."""
        key = (method, route)
        found = self._routes.get(key)
        if found is None:
            found = self._routes[key] = RouteMetrics(self, method, route)
        return found

    def driver_call(self, driver: str, action: str, seconds: float, outcomes: Mapping[str, int]) -> None:
        """One driver call is over: ``action`` is a mutation, ``observe`` or a guard; ``outcomes`` counts nodes."""
        self.driver_seconds.labels(driver, action).observe(seconds)
        for outcome, count in outcomes.items():
            self.driver_nodes.labels(driver, action, outcome).inc(count)

    def fleet(self, by_state: Mapping[State, int], queue: Mapping[str, int]) -> None:
        """The fleet as it stands. A state or queue that is not named has no nodes."""
        self.nodes.clear()
        self.queue.clear()
        for state, count in by_state.items():
            self.nodes.labels(state).set(count)
        for name, count in queue.items():
            self.queue.labels(name).set(count)

    def exposition(self) -> bytes:
        """Prometheus' text form."""
        return generate_latest(self.registry)
