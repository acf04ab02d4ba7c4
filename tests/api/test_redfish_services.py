"""Root, tasks, events, registries; and what holds for every route: a right, a schema, a link that leads somewhere."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from aiohttp import web
from machine_support import ROOT, MachineService, machine_service
from redfish_support import keys

from strata.api.redfish.protocol.schemas import SCHEMAS
from strata.api.redfish.resources import push as push_module
from strata.api.redfish.routes import ROUTES
from strata.api.services import Watchers
from strata.core.errors import Corrupt
from strata.fleet.access.principal import LOCAL_ADMIN, ROLES, Principal, Role
from strata.fleet.access.sealing import Seal
from strata.fleet.operations.operations import OperationSettings
from strata.fleet.operations.records import Step
from strata.hardware.alerts.service import AlertService
from strata.hardware.events.records import EventView
from strata.store.protocol import Put

SUBSCRIPTIONS = f"{ROOT}/EventService/Subscriptions"
TASKS = f"{ROOT}/TaskService/Tasks"

OPEN = {
    ("GET", "/redfish/v1/SessionService"),
    ("GET", "/redfish/v1/SessionService/Sessions"),  # one's own
    ("GET", "/redfish/v1/SessionService/Sessions/{session}"),
    ("DELETE", "/redfish/v1/SessionService/Sessions/{session}"),
    ("GET", "/redfish/v1/AccountService"),
    ("GET", "/redfish/v1/AccountService/Accounts"),  # one's own
    ("GET", "/redfish/v1/AccountService/Accounts/{account}"),
    ("PATCH", "/redfish/v1/AccountService/Accounts/{account}"),  # one's own password
    ("DELETE", "/redfish/v1/AccountService/Accounts/{account}"),  # asked for by the handler, after whether it is there
    ("GET", "/redfish/v1/AccountService/Roles"),
    ("GET", "/redfish/v1/AccountService/Roles/{role}"),
    ("GET", "/redfish/v1/Registries"),
    ("GET", "/redfish/v1/Registries/{registry}"),
    ("GET", "/redfish/v1/Registries/Strata/Strata.1.0.0.json"),
}
"""What everybody who is logged in may do; the handlers look at whose it is."""


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[MachineService]:
    async with machine_service(tmp_path) as found:
        yield found


def event(number: int, severity: str = "warning", node: str = "n1") -> EventView:
    return EventView(
        id=number, time=1_700_000_000.0, severity=severity, message="too \x07 hot", source="push", key="sensor/CPU",
        node=node, bmc="", message_id="", fields={},
    )  # fmt: skip


# all routes


def test_every_route_needs_a_right_or_is_known_to_need_none() -> None:
    bare = {
        (method, route.template)
        for route in ROUTES
        for method in ("GET", "POST", "PATCH", "DELETE")
        if getattr(route, method.lower()) and method not in route.rights and method not in route.public
    }
    assert bare == OPEN
    public = {(method, route.template) for route in ROUTES for method in route.public}
    assert public == {
        ("GET", "/redfish"),
        ("GET", "/redfish/v1"),
        ("GET", "/redfish/v1/odata"),
        ("GET", "/redfish/v1/$metadata"),
        ("POST", "/redfish/v1/SessionService/Sessions"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("scope", [(), ("g1",)])
async def test_a_role_without_the_right_is_denied_whatever_is_there(
    service: MachineService, role: Role, scope: tuple[str, ...]
) -> None:
    who = Principal(name="x", role=role, scope=scope)
    async with service.client("front", await service.token(role, scope)) as client:
        for route in ROUTES:
            path = re.sub(r"\{\w+\}", "x", route.template)
            for method, right in route.rights.items():
                if route.media == "text/event-stream" and who.may(right):
                    continue  # would not end
                answer = await client.request(method, path, json={} if method in ("POST", "PATCH") else None)
                denied = answer.status_code == 403 and keys(answer)[0] == "InsufficientPrivilege"
                assert denied or who.may(right), (method, path, answer.status_code)
                assert answer.status_code < 500, (method, path, answer.text)


async def test_a_client_certificate_is_as_good_as_a_token(service: MachineService) -> None:
    headers = {
        "X-Strata-Client-Verify": "SUCCESS",
        "X-Strata-Client-Serial": "0A",
        "X-Strata-Client-DN": "OU=role:viewer,CN=ada,O=Strata",
    }
    async with service.client("front") as client:
        assert (await client.get(f"{ROOT}/Systems", headers=headers)).status_code == 200
        assert (await client.get(SUBSCRIPTIONS, headers=headers)).status_code == 403


def links(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("@odata.id"), str):
            yield value["@odata.id"].partition("#")[0]
        for inner in value.values():
            yield from links(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from links(inner)


def types(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("@odata.type"), str):
            yield value["@odata.type"].lstrip("#").rpartition(".")[0]
        for inner in value.values():
            yield from types(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from types(inner)


@pytest.mark.slow
async def test_every_link_leads_to_something_of_a_listed_schema(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    await service.account("ada", "operator", ("g1",))
    await service.logins.open("ada", "correct horse battery")
    await client.post(SUBSCRIPTIONS, json={"Destination": "http://127.0.0.1:1/", "Protocol": "Redfish"})
    await Held(service).begin()
    seen: set[str] = set()
    waiting = [f"{ROOT}/"]
    used: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        answer = await client.get(path)
        assert answer.status_code == 200, (path, answer.text)
        body = answer.json()
        assert body["@odata.id"].rstrip("/") == path.rstrip("/")
        assert body["Name"]
        used |= set(types(body))
        waiting += links(body)
    assert used <= set(SCHEMAS)
    assert len(seen) > 50


# tasks


class Held:
    """An operation on ten nodes that has done four, failed on one, and goes no further until it is let."""

    def __init__(self, service: MachineService) -> None:
        self.go_on = asyncio.Event()
        self._reported = asyncio.Event()
        self._operations = service.service.operations
        self._operations._settings = OperationSettings(report_every=0.0)
        self._operations.register("held", self._work)

    async def begin(self) -> str:
        """Its id, once it has come so far."""
        operation = await self._operations.start("held", "ada", 10, {})
        async with asyncio.timeout(60):
            await self._reported.wait()
            while (await self._operations.show(operation.id)).done < 4:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return operation.id

    async def _work(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        yield Step(position=5, done=4, failed=[("n004", "no answer")])
        self._reported.set()
        await self.go_on.wait()
        yield Step(position=10, done=5, failed=[])


@pytest.mark.slow
async def test_operations_are_tasks_that_can_be_waited_for_and_cancelled(
    service: MachineService, client: httpx.AsyncClient
) -> None:
    held = Held(service)
    ident = await held.begin()
    task = (await client.get(f"{TASKS}/{ident}")).json()
    assert (task["TaskState"], task["TaskStatus"], task["PercentComplete"]) == ("Running", "Warning", 50)
    waiting = await client.get(task["TaskMonitor"])
    assert (waiting.status_code, waiting.headers["location"]) == (202, task["TaskMonitor"])
    assert (await client.delete(f"{TASKS}/{ident}")).status_code == 204
    held.go_on.set()
    await service.service.operations.wait(ident)
    assert (await client.get(f"{TASKS}/{ident}")).json()["TaskState"] == "Cancelled"
    assert (await client.get(task["TaskMonitor"])).status_code == 200
    assert (await client.delete(f"{TASKS}/{ident}")).status_code == 409
    assert (await client.get(f"{TASKS}/j2")).status_code == 404


# events


class Receiver:
    """Somebody who is sent events, on a real socket."""

    def __init__(self) -> None:
        self.got: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.answers: list[int] = []
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        status = self.answers.pop(0) if self.answers else 204
        body = await request.json()
        if status < 300:
            self.got.put_nowait(body)
        return web.Response(status=status)

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            return await self.got.get()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    found = Receiver()
    app = web.Application()
    app.router.add_post("/events", found.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    found.url = f"http://{host}:{port}/events"
    yield found
    await runner.cleanup()


async def subscribe(client: httpx.AsyncClient, url: str, **more: object) -> str:
    body = {"Destination": url, "Protocol": "Redfish", "Context": "mine", **more}
    answer = await client.post(SUBSCRIPTIONS, json=body)
    assert answer.status_code == 201, answer.text
    return str(answer.headers["location"])


async def until_health(client: httpx.AsyncClient, path: str, health: str) -> None:
    async with asyncio.timeout(60):
        while (await client.get(path)).json()["Status"]["Health"] != health:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_events_are_sent_to_subscribers(
    service: MachineService, client: httpx.AsyncClient, receiver: Receiver
) -> None:
    path = await subscribe(client, receiver.url, Severities=["Critical"])
    service.push.publish([event(1), event(2, "critical")])
    message = await receiver.next()
    assert (message["Context"], len(message["Events"])) == ("mine", 1)
    record = message["Events"][0]
    assert (record["EventId"], record["MessageSeverity"]) == ("2", "Critical")
    assert record["OriginOfCondition"] == {"@odata.id": f"{ROOT}/Systems/n1"}
    assert "\x07" not in record["Message"]
    changed = await client.patch(path, json={"Context": "yours"})
    assert changed.json()["Context"] == "yours"
    test = {"MessageId": "Strata.1.0.TestEvent", "Message": "hello", "MessageSeverity": "Warning"}
    action = f"{ROOT}/EventService/Actions/EventService.SubmitTestEvent"
    assert (await client.post(action, json=test)).status_code == 204
    message = await receiver.next()
    assert (message["Context"], message["Events"][0]["Message"]) == ("yours", "hello")
    assert (await client.delete(path)).status_code == 204
    service.push.publish([event(3, "critical")])
    assert receiver.got.empty()


async def test_a_destination_is_sealed_and_whole_to_whoever_gave_it_only(
    service: MachineService, client: httpx.AsyncClient, receiver: Receiver
) -> None:
    url = f"{receiver.url}?token=s3cret"
    path = await subscribe(client, url)
    assert (await client.get(path)).json()["Destination"] == url
    (subscription,) = service.push.all()
    await service.push.replace(LOCAL_ADMIN, msgspec.structs.replace(subscription, author="somebody else"))
    assert (await client.get(path)).json()["Destination"] == f"{receiver.url}?[hidden]"
    assert not [entry.key for entry in (await service.store.range("")).entries if b"s3cret" in entry.value]
    service.push.publish([event(1)])
    assert (await receiver.next())["Events"]
    refused = await client.post(SUBSCRIPTIONS, json={"Destination": "https://a:pw@x.example/", "Protocol": "Redfish"})
    assert (refused.status_code, "pw" in refused.text) == (400, False)


async def test_a_destination_that_was_stored_in_the_open_is_sealed_at_the_next_start(
    service: MachineService, client: httpx.AsyncClient, receiver: Receiver
) -> None:
    old = push_module.Subscription(id="0a", destination=f"{receiver.url}?token=s3cret", created=1.0, author="a")
    await service.store.txn([Put("redfish-subscription/0a", msgspec.msgpack.encode(old))])
    other = push_module.EventPush(service.store, service.ledger, service.of(Seal))
    await other.start()
    try:
        assert [one.destination for one in other.all()] == [old.destination]
        found = await service.store.get("redfish-subscription/0a")
        assert found is not None and b"s3cret" not in found.value
    finally:
        await other.stop()


async def test_a_destination_that_no_key_opens_takes_nobody_elses_events_and_can_be_deleted(
    service: MachineService, client: httpx.AsyncClient, receiver: Receiver
) -> None:
    path = await subscribe(client, "http://127.0.0.1:9/?token=s3cret")
    other = push_module.EventPush(service.store, service.ledger, Seal([b"x" * 32]))
    await other.start()
    try:
        await subscribe(client, receiver.url)
        assert other.all() == []
        ident = path.rpartition("/")[2]
        with pytest.raises(Corrupt, match="does not hold"):
            other.get(ident)
        await other.delete(LOCAL_ADMIN, ident)
        assert await service.store.get(f"redfish-subscription/{ident}") is None
    finally:
        await other.stop()
    service.push.publish([event(1)])
    assert (await receiver.next())["Events"]


@pytest.mark.slow
async def test_a_receiver_that_fails_is_tried_again_then_told_of(
    service: MachineService, client: httpx.AsyncClient, receiver: Receiver
) -> None:
    path = await subscribe(client, receiver.url)
    receiver.answers = [500, 302]
    service.push.publish([event(1)])
    assert (await receiver.next())["Events"][0]["EventId"] == "1"
    await until_health(client, path, "OK")
    receiver.answers = [500, 500, 500]
    service.push.publish([event(2)])
    async with asyncio.timeout(60):
        while receiver.answers:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await until_health(client, path, "Warning")
    service.push.publish([event(3)])
    assert (await receiver.next())["Events"][0]["EventId"] == "3"
    await until_health(client, path, "OK")


async def test_a_slow_receiver_costs_a_bounded_queue(
    service: MachineService, client: httpx.AsyncClient, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_module, "_QUEUE", 3)
    await subscribe(client, receiver.url)
    service.push.publish([event(n) for n in range(10)])
    assert [record["EventId"] for record in (await receiver.next())["Events"]] == ["7", "8", "9"]


@pytest.mark.parametrize(
    "body",
    [
        {"Destination": "http://127.0.0.1/"},
        {"Protocol": "Redfish"},
        {"Destination": "ftp://127.0.0.1/", "Protocol": "Redfish"},
        {"Destination": "http://127.0.0.1/ x", "Protocol": "Redfish"},
        {"Destination": "http://127.0.0.1/", "Protocol": "FTP"},
        {"Destination": "http://127.0.0.1/", "Protocol": "Redfish", "EventFormatType": "MetricReport"},
        {"Destination": "http://127.0.0.1/", "Protocol": "Redfish", "Severities": ["Bad"]},
        {"Destination": "http://127.0.0.1/", "Protocol": "Redfish", "HttpHeaders": [{"a": "b"}]},
    ],
)
async def test_a_subscription_that_we_could_not_honour_is_refused(
    client: httpx.AsyncClient, service: MachineService, body: dict[str, object]
) -> None:
    assert (await client.post(SUBSCRIPTIONS, json=body)).status_code == 400
    assert not service.push.all()


async def test_subscriptions_are_for_administrators(service: MachineService) -> None:
    token = await service.token("operator")
    async with service.client("front", token) as client:
        for answer in (await client.get(SUBSCRIPTIONS), await client.post(SUBSCRIPTIONS, json={})):
            assert (answer.status_code, keys(answer)[0]) == (403, "InsufficientPrivilege")


class Listener:
    """A client of the stream, as the server sees it: it hears what is sent until it hangs up."""

    def __init__(self, service: MachineService, accept: str = "text/event-stream") -> None:
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._gone = asyncio.Event()
        headers = [(b"accept", accept.encode())]
        path = f"{ROOT}/EventService/SSE"
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
                 "headers": headers}  # fmt: skip
        self.task = asyncio.create_task(service.app("admin")(scope, self._receive, self._send))
        self._first = True

    async def _receive(self) -> dict[str, Any]:
        if self._first:
            self._first = False
            return {"type": "http.request", "body": b""}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: dict[str, Any]) -> None:
        self.heard.put_nowait(message)

    async def next(self) -> dict[str, Any]:
        async with asyncio.timeout(60):
            return await self.heard.get()

    async def hang_up(self) -> None:
        self._gone.set()
        async with asyncio.timeout(60):
            await self.task


class Feed:
    """Events to follow, and whether somebody still does."""

    def __init__(self) -> None:
        self.events: asyncio.Queue[list[EventView]] = asyncio.Queue()
        self.closed = False

    async def follow(self, who: object, select: str, since: int | None) -> AsyncIterator[list[EventView]]:
        return self._run()

    async def _run(self) -> AsyncIterator[list[EventView]]:
        try:
            while True:
                yield await self.events.get()
        finally:
            self.closed = True


@pytest.fixture
def feed(service: MachineService, monkeypatch: pytest.MonkeyPatch) -> Feed:
    found = Feed()
    monkeypatch.setattr(service.services.get(AlertService), "follow", found.follow)
    return found


async def test_a_listener_is_a_subscription_for_as_long_as_it_listens(
    service: MachineService, client: httpx.AsyncClient, feed: Feed
) -> None:
    listener = Listener(service)
    start = await listener.next()
    assert dict(start["headers"])[b"content-type"] == b"text/event-stream"
    assert (await listener.next())["body"].startswith(b":")
    (member,) = (await client.get(SUBSCRIPTIONS)).json()["Members"]
    subscription = (await client.get(member["@odata.id"])).json()
    assert subscription["SubscriptionType"] == "SSE"
    feed.events.put_nowait([event(7)])
    lines = (await listener.next())["body"].decode().splitlines()
    assert lines[0] == "id: 7"
    message = json.loads(lines[1].removeprefix("data: "))
    assert (message["Context"], message["Events"][0]["EventId"]) == (subscription["Context"], "7")
    await listener.hang_up()
    assert feed.closed
    assert (await client.get(SUBSCRIPTIONS)).json()["Members"] == []
    assert service.services.get(Watchers).count == 0


async def test_a_listener_can_be_sent_away(service: MachineService, client: httpx.AsyncClient, feed: Feed) -> None:
    listener = Listener(service)
    await listener.next()
    (member,) = (await client.get(SUBSCRIPTIONS)).json()["Members"]
    assert (await client.patch(member["@odata.id"], json={"Context": "x"})).status_code == 400
    assert (await client.delete(member["@odata.id"])).status_code == 204
    async with asyncio.timeout(60):
        await listener.task
    assert feed.closed


async def test_a_client_that_wants_no_events_gets_no_stream(service: MachineService, feed: Feed) -> None:
    listener = Listener(service, accept="application/json")
    assert (await listener.next())["status"] == 406
    await listener.hang_up()
    assert not service.push.all()


async def test_the_hardware_layer_feeds_the_subscribers(
    service: MachineService, client: httpx.AsyncClient, receiver: Receiver, feed: Feed
) -> None:
    await subscribe(client, receiver.url)
    other = push_module.EventPush(service.store, service.ledger, service.of(Seal))
    await other.start(service.services.get(AlertService))
    feed.events.put_nowait([event(1)])
    assert (await receiver.next())["Events"][0]["EventId"] == "1"
    await other.stop()
    with contextlib.suppress(asyncio.CancelledError):
        assert feed.closed


# registries


async def test_every_message_of_ours_is_in_our_registry(client: httpx.AsyncClient) -> None:
    file = (await client.get(f"{ROOT}/Registries/Strata")).json()
    registry = (await client.get(file["Location"][0]["Uri"])).json()
    answer = await client.get(f"{ROOT}/Systems/nothing")
    own = [i for i in answer.json()["error"]["@Message.ExtendedInfo"] if i["MessageId"].startswith("Strata")]
    for info in own:
        prefix, version, key = info["MessageId"].split(".", 1)[0], "1.0", info["MessageId"].rpartition(".")[2]
        assert registry["RegistryPrefix"] == prefix
        assert registry["RegistryVersion"].startswith(version)
        assert len(info["MessageArgs"]) == registry["Messages"][key]["NumberOfArgs"]
    assert own
