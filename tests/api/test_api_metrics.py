"""Metrics: per route by template, errors apart, latencies fine enough for a p99."""

from __future__ import annotations

from itertools import pairwise

import httpx
from api_support import Service
from prometheus_client.parser import text_string_to_metric_families

from strata.fleet.metrics import REQUEST_BUCKETS, Metrics


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def exposition(client: httpx.AsyncClient) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return samples((await client.get("/metrics")).text)


async def test_requests_are_counted_by_template_and_status(service: Service) -> None:
    async with service.client() as client:
        for name in ("n000", "n001", "n777"):
            await client.get(f"/v1/nodes/{name}")
            await client.get(f"/v1/nodes/{name}/why")
        await client.head("/v1/nodes/n000")
        found = await exposition(client)
    for route in ("/v1/nodes/{name}", "/v1/nodes/{name}/why"):
        good = (("method", "GET"), ("route", route), ("status", "200"))
        bad = (("method", "GET"), ("route", route), ("status", "404"))
        assert found["strata_http_requests_total", good] == (3 if route.endswith("}") else 2)
        assert found["strata_http_requests_total", bad] == 1


async def test_paths_that_lead_nowhere_make_no_new_labels(service: Service) -> None:
    async with service.client() as client:
        for number in range(20):
            await client.get(f"/v1/nowhere/{number}")
        found = await exposition(client)
    routes = {dict(labels)["route"] for name, labels in found if name == "strata_http_requests_total"}
    assert routes == {"(none)"}


async def test_failures_of_ours_are_counted_apart(service: Service) -> None:
    service.fail_on_nodes(RuntimeError("x"))
    async with service.client() as client:
        await client.get("/v1/nodes/n000")
        await client.get("/v1/nodes/n000/why")
        await client.get("/v1/nodes?limit=0")
        found = await exposition(client)
    errors = {dict(labels)["route"]: n for (name, labels), n in found.items() if name == "strata_http_errors_total"}
    assert errors["/v1/nodes/{name}"] == errors["/v1/nodes/{name}/why"] == 1
    assert errors["/v1/nodes"] == 0


async def test_latency_is_a_histogram_with_fine_buckets_and_nothing_stays_in_flight(service: Service) -> None:
    async with service.client() as client:
        await client.get("/v1/nodes/n000")
        found = await exposition(client)
    buckets = [labels for name, labels in found if name == "strata_http_request_seconds_bucket"]
    assert len(buckets) >= len(REQUEST_BUCKETS)
    assert all(after <= before * 2.5 for before, after in pairwise(REQUEST_BUCKETS) if after < 10)
    # The request that reads the metrics is itself in flight.
    assert found["strata_http_in_flight", ()] == 1


def test_the_fleet_is_shown_as_it_stands_and_not_as_it_was() -> None:
    metrics = Metrics()
    metrics.fleet({"ready": 3, "faulted": 1}, {"in_flight": 2})
    metrics.fleet({"ready": 4}, {})
    metrics.driver_call("bmc", "power-on", 0.2, {"done": 5, "unknown": 1})
    found = samples(metrics.exposition().decode())
    assert found["strata_nodes", (("state", "ready"),)] == 4
    assert ("strata_nodes", (("state", "faulted"),)) not in found
    labels = (("action", "power-on"), ("driver", "bmc"), ("outcome", "done"))
    assert found["strata_driver_nodes_total", labels] == 5
