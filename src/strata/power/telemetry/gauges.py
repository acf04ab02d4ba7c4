"""What the machine and its cabinets draw, as gauges for Prometheus. Not by node: 100,000 series would be nobody's."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from prometheus_client import Gauge

from strata.core.distinct import distinct
from strata.fleet.columns import Indices
from strata.fleet.metrics import Metrics
from strata.fleet.registry.registry import Registry
from strata.hardware.feeds.feeds import CHASSIS, OUTLET
from strata.power.telemetry.columns import PowerColumns


class PowerGauges:
    """Set anew by ``update``, after each sweep: what this controller has measured of the nodes that it leads."""

    def __init__(
        self,
        metrics: Metrics,
        registry: Registry,
        columns: PowerColumns,
        fresh: Callable[[], float],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._registry = registry
        self._columns = columns
        self._fresh = fresh
        self._clock = clock
        kept = metrics.registry
        self._system = Gauge("strata_power_watts", "What the measured nodes draw together.", registry=kept)
        self._measured = Gauge("strata_power_measured_nodes", "Nodes whose power is known now.", registry=kept)
        self._cabinets = Gauge(
            "strata_power_cabinet_watts", "What the measured nodes of a cabinet draw.", ("cabinet",), registry=kept
        )

    def update(self) -> None:
        nodes = drawing(self._registry, np.flatnonzero(self._registry.alive))
        rows = self._columns.rows(self._registry.uids[nodes])
        known = np.isfinite(rows.power) & (rows.power_time >= self._clock() - self._fresh())
        watts = rows.power[known]
        self._system.set(float(watts.sum()))
        self._measured.set(len(watts))
        words = self._registry.location("cabinet")
        codes = words.codes[nodes[known]]
        sums = np.bincount(codes, weights=watts, minlength=len(words.table))
        self._cabinets.clear()
        for code in distinct(codes).tolist():
            self._cabinets.labels(words.table[code]).set(float(sums[code]))


def drawing(registry: Registry, nodes: Indices) -> Indices:
    """Those of ``nodes`` that draw power: what an outlet or a chassis gives is drawn by what is behind it."""
    table = registry.roles.table
    feeding = np.array([role in (CHASSIS, OUTLET) for role in table], dtype=np.bool_)
    kept: Indices = nodes[~feeding[registry.roles.codes[nodes]]] if feeding.any() else nodes
    return kept
