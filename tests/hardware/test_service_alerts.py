"""Events, alerts and webhooks as callers see them: within their scope, page by page, live; also over HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from strata.api.app import create_app
from strata.core.errors import BadRequest, Denied, NotFound
from strata.fleet.access.credentials import Authenticator
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.access.sealing import Seal
from strata.fleet.fleet import Fleet as RunningFleet
from strata.hardware.alerts.service import AlertService
from strata.hardware.bmc.bmcs import Bmcs
from strata.hardware.bmc.protocol import Severity
from strata.hardware.bmc.redfish.client import Credentials, RedfishClient
from strata.hardware.bmc.redfish.events import RedfishSubscriptions
from strata.hardware.events.hub import EventHub, EventSettings
from strata.hardware.events.poller import PollSettings
from strata.hardware.events.records import HardwareEvent
from strata.hardware.events.site import bmc_addresses
from strata.store.audit import Ledger
from support.registry_support import Fleet, a_fleet, spec
from support.rooms import api_services

SCOPED = Principal(name="eve", role="operator", scope=("mine",))


class Bench:
    """A service over a small fleet: n1 and n2 are in the group ``mine``, n3 is not."""

    def __init__(self, fleet: Fleet, hub: EventHub) -> None:
        self.fleet = fleet
        self.hub = hub
        self.nodes = RunningFleet.__new__(RunningFleet)
        self.nodes.registry = fleet.registry
        self.nodes.view = None  # type: ignore[assignment]
        self.service = AlertService(self.nodes, hub)

    async def happens(self, *events: HardwareEvent) -> None:
        before = self.hub.log.newest
        stream = await self.hub.log.follow(before)
        self.hub.take(events)
        async with asyncio.timeout(60):
            await self.hub.alerts.settled()
            while self.hub.log.newest < before + len(events):
                await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]

    def client(self) -> httpx.AsyncClient:
        """The API's admin door over this service."""
        services = api_services(
            authenticator=Authenticator(self.fleet.store, Ledger(self.fleet.store)),
            rooms={AlertService: self.service, EventHub: self.hub},
        )
        transport = httpx.ASGITransport(app=create_app(services, "admin"), raise_app_exceptions=False)
        return httpx.AsyncClient(transport=transport, base_url="http://strata")


def event(node: str, severity: Severity = "warning", *, key: str = "k", bmc: str = "") -> HardwareEvent:
    return HardwareEvent(
        time=1_700_000_000.0, severity=severity, message=f"{key} of {node}", source="push", key=key, node=node, bmc=bmc
    )


@asynccontextmanager
async def a_hub(fleet: Fleet, path: Path) -> AsyncIterator[EventHub]:
    client = RedfishClient(Credentials("root", "x"))
    controllers = Bmcs(client)
    hub = EventHub(
        path,
        fleet.store,
        Ledger(fleet.store),
        Seal([b"k" * 32]),
        controllers,
        RedfishSubscriptions(client),
        owner="c1",
        addresses=bmc_addresses(fleet.registry),
        mine=lambda _: False,  # nobody is polled here
        settings=EventSettings(poll=PollSettings(slow=3600.0)),
        clock=lambda: 1_700_000_000.0,
    )
    await hub.start()
    yield hub
    await hub.stop()
    await controllers.close()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with a_fleet("n1", "n2", "n3") as fleet:
        await fleet.edits.create_nodes([spec("n4", bmc="http://b4")], "alice")
        await fleet.settled()
        await fleet.edits.put_group("mine", fleet.at("n1", "n2"), "alice", description="")
        await fleet.settled()
        async with a_hub(fleet, tmp_path / "events.db") as hub:
            yield Bench(fleet, hub)


async def test_events_are_paged_newest_first_within_the_scope(bench: Bench) -> None:
    await bench.happens(*(event(f"n{i % 3 + 1}") for i in range(9)), event("", bmc="http://b9"))
    page = await bench.service.events(LOCAL_ADMIN, "*", "ok", None, 4, "")
    assert [item.id for item in page.items] == [10, 9, 8, 7]
    rest = await bench.service.events(LOCAL_ADMIN, "*", "ok", None, 10, page.next)
    assert ([item.id for item in rest.items], rest.next) == ([6, 5, 4, 3, 2, 1], "")
    seen = await bench.service.events(SCOPED, "*", "", None, 100, "")
    assert {item.node for item in seen.items} == {"n1", "n2"}
    with pytest.raises(NotFound):
        await bench.service.events(SCOPED, "n3", "", None, 100, "")
    only = await bench.service.events(LOCAL_ADMIN, "n3", "warning", None, 100, "")
    assert [item.id for item in only.items] == [9, 6, 3]
    for cursor in ("x", "-1", "9" * 30):
        with pytest.raises(BadRequest):
            await bench.service.events(LOCAL_ADMIN, "*", "", None, 1, cursor)


async def test_who_follows_sees_its_own_nodes_from_where_it_left(bench: Bench) -> None:
    await bench.happens(event("n1"), event("n3"), event("n2"))
    stream = await bench.service.follow(SCOPED, "*", 0)
    assert [item.node for item in await anext(stream)] == ["n1", "n2"]
    await bench.happens(event("n3"), event("n2", "ok"))
    assert [(item.id, item.node) for item in await anext(stream)] == [(5, "n2")]
    await stream.aclose()  # type: ignore[attr-defined]


async def test_alerts_are_worst_first_and_those_outside_the_scope_are_not_there(bench: Bench) -> None:
    await bench.happens(event("n1"), event("n2", "critical"), event("n3", "critical"), event("", bmc="http://b9"))
    page = await bench.service.alerts(LOCAL_ADMIN, all_=False, limit=10, after="")
    assert [item.severity for item in page.items] == ["critical", "critical", "warning", "warning"]
    assert page.open == 4
    mine = await bench.service.alerts(SCOPED, all_=False, limit=10, after="")
    assert ([item.node for item in mine.items], mine.open) == (["n2", "n1"], 2)
    foreign = next(item.id for item in page.items if item.node == "n3")
    with pytest.raises(NotFound):
        await bench.service.acknowledge(SCOPED, [foreign], "")
    [done] = await bench.service.acknowledge(SCOPED, [mine.items[0].id] * 2, "looking")
    assert (done.state, done.by, done.note) == ("acknowledged", "eve", "looking")
    page = await bench.service.alerts(LOCAL_ADMIN, all_=False, limit=1, after="")
    assert (page.open, page.acknowledged) == (3, 1), "whoever counts what needs somebody does not count that one"
    await bench.happens(event("n2", "ok"))
    page = await bench.service.alerts(LOCAL_ADMIN, all_=False, limit=1, after="")
    assert (page.open, page.acknowledged) == (3, 0)


async def test_one_alert_is_shown_open_or_over_and_one_outside_the_scope_is_not_there(bench: Bench) -> None:
    await bench.happens(event("n1", "critical", key="fan"), event("n3", key="psu"))
    shown = {alert.node: alert for alert in bench.hub.alerts.alerts.values()}
    one = await bench.service.alert(SCOPED, shown["n1"].id)
    assert (one.node, one.key, one.state) == ("n1", "fan", "open")
    await bench.happens(event("n1", "ok", key="fan"))
    assert (await bench.service.alert(SCOPED, shown["n1"].id)).state == "over"
    assert (await bench.service.alert(LOCAL_ADMIN, shown["n3"].id)).key == "psu"
    with pytest.raises(NotFound) as outside:
        await bench.service.alert(SCOPED, shown["n3"].id)
    with pytest.raises(NotFound) as nowhere:
        await bench.service.alert(SCOPED, "nope")
    assert outside.value.detail == nowhere.value.detail
    async with bench.client() as client:
        assert (await client.get(f"/v1/alerts/{shown['n3'].id}")).json()["key"] == "psu"
        assert (await client.get("/v1/alerts/nope")).status_code == 404


async def test_the_beginning_of_an_id_will_do_where_one_alert_alone_has_it(bench: Bench) -> None:
    await bench.happens(*(event("n1", key=f"k{i}") for i in range(20)), event("n3", key="psu"))
    ids = sorted(bench.hub.alerts.alerts)
    psu = next(alert.id for alert in bench.hub.alerts.alerts.values() if alert.node == "n3")
    for ident in ids:
        least = next(n for n in range(1, 21) if [one for one in ids if one.startswith(ident[:n])] == [ident])
        assert (await bench.service.alert(LOCAL_ADMIN, ident[:least])).id == ident
    shared = next(first for first in "0123456789abcdef" if sum(one.startswith(first) for one in ids) > 1)
    candidates = [one for one in ids if one.startswith(shared)]
    for asked in (bench.service.alert(LOCAL_ADMIN, shared), bench.service.acknowledge(LOCAL_ADMIN, [shared], "")):
        with pytest.raises(BadRequest) as several:
            await asked
        assert str(several.value.hint).startswith(f"write more of one: {', '.join(candidates[:5])}")
    for missing in (psu[:19], ""):
        with pytest.raises(NotFound):
            await bench.service.acknowledge(SCOPED, [missing], "")
    (done,) = await bench.service.acknowledge(LOCAL_ADMIN, [psu[:19], psu], "psu ordered")
    assert (done.id, done.state, done.note) == (psu, "acknowledged", "psu ordered")


async def test_pages_of_alerts_fit_together(bench: Bench) -> None:
    await bench.happens(*(event("n1", ("warning", "critical")[i % 2], key=f"k{i}") for i in range(25)))  # type: ignore[arg-type]
    await bench.happens(event("n1", "ok", key="k3"))
    found, after = [], ""
    while True:
        page = await bench.service.alerts(LOCAL_ADMIN, all_=True, limit=7, after=after)
        found += page.items
        after = page.next
        if not after:
            break
    assert len({item.id for item in found}) == 25
    assert [item.state for item in found].count("over") == 1
    assert found[-1].key == "k3"
    assert [item.severity for item in found[:11]] == ["critical"] * 11


async def test_webhooks_are_for_those_with_the_whole_fleet(bench: Bench) -> None:
    from strata.hardware.alerts.records import WebhookSpec

    spec_ = WebhookSpec(url="http://127.0.0.1:9/x", secret="s3cret")
    with pytest.raises(Denied):
        await bench.service.put_webhook(SCOPED, "pager", spec_)
    view = await bench.service.put_webhook(LOCAL_ADMIN, "pager", spec_)
    assert (view.signed, view.delivered, view.failing) == (True, 0, "")
    assert "s3cret" not in repr(await bench.service.webhooks(LOCAL_ADMIN))
    await bench.service.delete_webhook(LOCAL_ADMIN, "pager")
    assert await bench.service.webhooks(LOCAL_ADMIN) == []


async def test_addresses_are_those_of_nodes_and_the_same_object_until_they_change(bench: Bench) -> None:
    addresses = bmc_addresses(bench.fleet.registry)
    first = addresses()
    assert first == {"http://b4": "n4"}
    assert addresses() is first
    await bench.fleet.edits.create_nodes([spec("n5", bmc="http://b5")], "alice")
    await bench.fleet.settled()
    assert addresses() == {"http://b4": "n4", "http://b5": "n5"}
    assert np.all(bench.fleet.registry.alive)


# over HTTP


async def test_a_push_is_taken_by_its_token_alone_and_nonsense_is_never_our_fault(bench: Bench) -> None:
    token = bench.hub.inbox.token("http://b4")
    body = {"Events": [{"Message": "hot", "Severity": "Critical"}]}
    async with bench.client() as client:
        path = "/v1/hardware/events/in/"
        assert (await client.post(path + token, json=body)).status_code == 204
        wrong = token[:-1] + ("0" if token[-1] != "0" else "1")
        assert (await client.post(path + wrong, json=body)).status_code == 403
        assert (await client.post(path + "nonsense", json=body)).status_code == 400
        for content in (b"", b"{", b"[]", b"[" * 100_000, b'{"Events":[7]}'):
            assert (await client.post(path + token, content=content)).status_code == 400, content[:20]
        assert (await client.post(path + token, content=b"x" * 300_000)).status_code == 413
        await bench.hub.alerts.settled()
        found = (await client.get("/v1/alerts")).json()
        assert [(item["node"], item["severity"]) for item in found["items"]] == [("n4", "critical")]
        assert found["open"] == 1


async def test_lists_acknowledgement_and_webhooks_over_http(bench: Bench) -> None:
    await bench.happens(*(event("n1", key=f"k{i}") for i in range(5)))
    async with bench.client() as client:
        first = (await client.get("/v1/alerts?limit=3")).json()
        rest = (await client.get("/v1/alerts", params={"limit": 3, "cursor": first["next"]})).json()
        ids = [item["id"] for item in first["items"] + rest["items"]]
        assert (len(set(ids)), rest["next"]) == (5, "")
        done = await client.post("/v1/alerts/acknowledge", json={"ids": ids[:2], "note": "fan ordered"})
        assert [item["state"] for item in done.json()["items"]] == ["acknowledged"] * 2
        assert (await client.post("/v1/alerts/acknowledge", json={"ids": ["0" * 20]})).status_code == 404
        page = (await client.get("/v1/hardware/events?limit=2&severity=warning")).json()
        more = (await client.get("/v1/hardware/events", params={"cursor": page["next"]})).json()
        assert [item["id"] for item in page["items"] + more["items"]] == [5, 4, 3, 2, 1]
        assert (await client.get("/v1/hardware/events?severity=dire")).status_code == 400
        hook = {"url": "http://127.0.0.1:9/x", "secret": "s3cret"}
        assert (await client.put("/v1/webhooks/pager", json=hook)).json()["signed"]
        assert "s3cret" not in (await client.get("/v1/webhooks")).text
        assert (await client.put("/v1/webhooks/pager", json={"url": "https://a:b@c/"})).status_code == 400
        assert (await client.delete("/v1/webhooks/pager")).status_code == 204
        assert (await client.delete("/v1/webhooks/pager")).status_code == 404


async def test_events_are_followed_over_http_and_resumed(bench: Bench) -> None:
    await bench.happens(event("n1"), event("n2"))
    got: list[bytes] = []

    async def read(headers: dict[str, str], count: int) -> list[dict[str, Any]]:
        app = bench.client()._transport.app  # type: ignore[attr-defined]
        enough = asyncio.Event()
        got.clear()

        async def send(message: dict[str, Any]) -> None:
            got.append(message.get("body", b""))
            if b"".join(got).count(b"event: event") >= count:
                enough.set()

        async def receive() -> dict[str, Any]:
            await enough.wait()
            return {"type": "http.disconnect"}

        scope = {
            "type": "http", "method": "GET", "path": "/v1/hardware/events/follow", "raw_path": b"", "root_path": "",
            "query_string": b"since=0", "scheme": "http", "http_version": "1.1", "server": ("x", 1), "client": None,
            "headers": [(k.encode(), v.encode()) for k, v in headers.items()],
        }  # fmt: skip
        async with asyncio.timeout(60):
            await app(scope, receive, send)
        lines = b"".join(got).decode().splitlines()
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]

    assert [item["id"] for item in await read({}, 2)] == [1, 2]
    assert [item["id"] for item in await read({"last-event-id": "1"}, 1)] == [2]
    async with bench.client() as client:
        assert (await client.get("/v1/hardware/events/follow?since=99")).status_code == 400
        assert (await client.head("/v1/hardware/events/follow")).status_code == 405
