"""The REST contract: pages, entity tags, preconditions, per-node results, jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from api_support import Service, open_service
from hypothesis import given
from hypothesis import strategies as st

from strata.api.http import is_fresh, seal, unseal
from strata.core.errors import BadRequest, Unavailable
from strata.fleet.access.authority import Authority
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.fleet.nodes.service import NodeService
from strata.jobs.projects.service import ProjectService
from strata.platform.flows.service import FlowService


@pytest.fixture
async def service(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Service]:
    async with open_service(tmp_path_factory.mktemp("state"), nodes=5) as service:
        yield service


async def test_pages_put_together_are_the_whole(client: httpx.AsyncClient) -> None:
    names: list[str] = []
    cursor = None
    while True:
        page = (await client.get("/v1/nodes", params={"limit": 2, **({"cursor": cursor} if cursor else {})})).json()
        names += [node["name"] for node in page["items"]]
        assert page["total"] == 5
        if (cursor := page["next"]) is None:
            break
    assert names == [f"n{i:03d}" for i in range(5)]


async def test_only_the_fields_asked_for_are_shown(client: httpx.AsyncClient) -> None:
    page = (await client.get("/v1/nodes?fields=name,state&limit=1")).json()
    assert page["items"] == [{"name": "n000", "state": "unmanaged"}]
    wrong = await client.get("/v1/nodes?fields=name,sate")
    assert wrong.status_code == 400
    assert "sate" in wrong.json()["where"]


async def test_a_folded_list_holds_nodesets(client: httpx.AsyncClient) -> None:
    folded = (await client.get("/v1/nodes?folded=true")).json()
    assert folded["total"] == 5
    assert "nodeset" in folded


@pytest.mark.parametrize("path", ["/v1/nodes", "/v1/nodes/n001", "/v1/groups/g"])
async def test_what_the_client_has_already_is_not_sent_again_until_it_changes(
    service: Service, client: httpx.AsyncClient, path: str
) -> None:
    await client.put("/v1/groups/g", json={"members": "n001"})
    await client.put("/v1/documents/d", json={"name": "d", "select": "*", "set": {"power": "on"}})
    first = await client.get(path)
    again = await client.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    await client.put("/v1/groups/g", json={"members": "n002"})
    await client.put("/v1/documents/d", json={"name": "d", "select": "*", "set": {"power": "off"}})
    await client.post("/v1/desires", json={"select": "n001", "set": {"power": "on"}})
    changed = await client.get(path, headers={"If-None-Match": first.headers["etag"]})
    assert changed.status_code == 200
    assert changed.headers["etag"] != first.headers["etag"]


async def test_what_is_shown_with_more_than_its_record_is_always_sent_again(client: httpx.AsyncClient) -> None:
    await client.put("/v1/documents/d", json={"name": "d", "select": "@g", "set": {"power": "on"}})
    first = await client.get("/v1/documents/d")
    await client.put("/v1/groups/g", json={"members": "n001"})  # the document now selects another number of nodes
    again = await client.get("/v1/documents/d", headers={"If-None-Match": first.headers["etag"]})
    assert (first.json()["matches"], again.status_code, again.json()["matches"]) == (0, 200, 1)


@pytest.mark.parametrize(
    ("path", "body", "change"),
    [
        ("/v1/nodes/x1", {"name": "x1"}, "role"),
        ("/v1/groups/x1", {"members": "n001"}, "description"),
        ("/v1/documents/x1", {"name": "x1", "select": "*", "set": {"power": "on"}}, "select"),
        ("/v1/projects/x1", {}, "description"),
        ("/v1/flows/x1", {"steps": [{"name": "on", "nodes": "*", "set": {"power": "on"}}]}, "description"),
    ],
)
async def test_a_write_that_names_a_revision_happens_at_that_revision_or_not_at_all(
    service: Service, client: httpx.AsyncClient, path: str, body: dict[str, object], change: str
) -> None:
    fleet = service.service
    fleet.put(await fleet.keep(ProjectService(fleet)))
    fleet.put(await fleet.keep(FlowService(fleet)))
    other = body | {change: "n002"}
    missing = await client.put(path, json=body, headers={"If-Match": "*"})
    made = await client.put(path, json=body, headers={"If-None-Match": "*"})
    twice = await client.put(path, json=body, headers={"If-None-Match": "*"})
    right = await client.put(path, json=other, headers={"If-Match": made.headers["etag"]})
    late = await client.put(path, json=body, headers={"If-Match": made.headers["etag"]})
    either = await client.put(path, json=body, headers={"If-Match": f'"1", {right.headers["etag"]}'})
    stale = await client.delete(path, headers={"If-Match": right.headers["etag"]})
    nonsense = await client.delete(path, headers={"If-Match": "yesterday"})
    gone = await client.delete(path, headers={"If-Match": either.headers["etag"]})
    answers = (missing, made, twice, right, late, either, stale, nonsense, gone)
    assert [a.status_code for a in answers] == [412, 200, 412, 200, 412, 200, 412, 400, 204]
    assert late.json()["revision"] == int(right.headers["etag"].removeprefix("W/").strip('"').split("-")[0])


async def test_a_tag_of_zero_never_means_absence(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v1/nodes/new", json={"name": "new"}, headers={"If-Match": '"0"'})
    assert answer.status_code == 412


async def test_many_nodes_are_created_with_a_result_for_each(client: httpx.AsyncClient) -> None:
    all_new = await client.post("/v1/nodes", json={"nodes": [{"name": "a1"}, {"name": "a2"}]})
    mixed = await client.post("/v1/nodes", json={"nodes": [{"name": "a3"}, {"name": "a1"}]})
    assert (all_new.status_code, all_new.json()["created"]) == (201, 2)
    assert mixed.status_code == 207
    assert [(r["node"], r["ok"], r["status"]) for r in mixed.json()["results"]] == [
        ("a3", True, 201),
        ("a1", False, 409),
    ]


async def test_a_patch_changes_what_it_names_and_a_null_label_goes(client: httpx.AsyncClient) -> None:
    await client.patch("/v1/nodes/n001", json={"labels": {"rack": "r1", "row": "7"}, "nid": 5})
    view = (await client.patch("/v1/nodes/n001", json={"labels": {"row": None}, "role": "login"})).json()
    assert (view["labels"], view["nid"], view["role"], view["uid"]) == ({"rack": "r1"}, 5, "login", 2)


async def test_the_network_ports_of_a_node_are_given_shown_and_replaced(client: httpx.AsyncClient) -> None:
    boot = {"mac": "52:54:00:12:34:56", "address": "10.77.0.11", "name": "boot"}
    made = await client.post("/v1/nodes", json={"nodes": [{"name": "p1", "interfaces": [boot]}]})
    assert made.status_code == 201
    shown = (await client.get("/v1/nodes/p1")).json()["interfaces"]
    assert [one | boot for one in shown] == shown
    other = {"port": "sw/Eth1/5"}
    changed = await client.patch("/v1/nodes/p1", json={"interfaces": [other]})
    assert [one["port"] for one in changed.json()["interfaces"]] == ["sw/Eth1/5"]
    for wrong in ({"mac": "52:54"}, {"address": "10.77"}, {"mak": ""}, {"name": "\u001b"}):
        assert (await client.patch("/v1/nodes/p1", json={"interfaces": [wrong]})).status_code == 400


async def test_a_patch_races_with_another_and_neither_is_lost(service: Service, client: httpx.AsyncClient) -> None:
    nodes = service.of(NodeService)
    real = nodes.node
    raced = False

    async def node(*arguments: object) -> object:
        nonlocal raced
        view = await real(*arguments)  # type: ignore[arg-type]
        if not raced:
            raced = True
            await client.patch("/v1/nodes/n001", json={"role": "login"})
        return view

    nodes.node = node  # type: ignore[method-assign,assignment]
    view = (await client.patch("/v1/nodes/n001", json={"nid": 9})).json()
    assert (view["role"], view["nid"]) == ("login", 9)


async def test_nodes_are_not_renamed(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v1/nodes/n001", json={"name": "n002"})
    assert answer.status_code == 400


async def test_desires_are_set_at_once_or_as_an_operation_that_can_be_cancelled(
    service: Service, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = await client.post("/v1/desires", json={"select": "n001,n002", "set": {"power": ["on", "off"]}})
    assert (now.status_code, now.json()["changed"]) == (200, 2)
    edits, held = service.service.edits, asyncio.Event()
    real = edits.set_desires

    async def slowly(*arguments: Any) -> Any:
        await held.wait()
        return await real(*arguments)

    monkeypatch.setattr(edits, "set_desires", slowly)
    later = await client.post(
        "/v1/desires", json={"select": "*", "set": {"power": "on"}}, headers={"Prefer": "wait=1, respond-async"}
    )
    assert later.status_code == 202
    assert (await client.get(later.headers["location"])).json()["state"] in ("pending", "running")
    cancelled = await client.post(later.headers["location"] + "/cancel")
    held.set()
    await service.service.operations.wait(later.json()["id"])
    again = await client.post(later.headers["location"] + "/cancel")
    assert (cancelled.status_code, again.status_code) == (200, 409)
    assert (await client.get(later.headers["location"])).json()["state"] == "cancelled"


@pytest.mark.parametrize(
    "body",
    [
        {"select": "*"},
        {"select": "*", "set": {"power": "on"}, "unset": ["power"]},
        {"select": "*", "set": {"power": "sideways"}},
        {"select": "*", "set": {"power": []}},
        {"select": "*", "set": {"power": ""}},
        {"select": "*", "set": {"power": "o\nn"}},
        {"select": "*", "set": {"Power": "on"}},
        {"select": "", "set": {"power": "on"}},
        {"select": "n001\n", "set": {"power": "on"}},
        {"select": "*", "set": {"power": "on"}, "unexpected": 1},
        {"select": "*", "set": {"power": "on"}, "if_match": -1},
        {"select": "*", "set": {"power": "on"}, "if_match": 10**30},
    ],
)
async def test_a_bad_desire_is_refused_and_changes_nothing(
    service: Service, client: httpx.AsyncClient, body: dict[str, object]
) -> None:
    before = await service.service.audit_latest(LOCAL_ADMIN, 1)
    answer = await client.post("/v1/desires", json=body)
    assert answer.status_code == 400
    assert await service.service.audit_latest(LOCAL_ADMIN, 1) == before


async def test_a_plan_takes_desires_from_the_query(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/nodes/n001/plan?set=power=on|off")).status_code == 200
    for bad in ("power", "power=", "=on", "power=on,power=off", "power=sideways"):
        assert (await client.get("/v1/nodes/n001/plan", params={"set": bad})).status_code == 400, bad


async def test_brakes_go_on_and_off(client: httpx.AsyncClient) -> None:
    held = await client.post("/v1/holds", json={"select": "n00*", "reason": "disk swap"})
    assert held.json()["changed"] == 5
    page = (await client.get("/v1/holds?limit=2")).json()
    rest = (await client.get("/v1/holds", params={"cursor": page["next"]})).json()
    assert [h["node"] for h in page["items"] + rest["items"]] == [f"n{i:03d}" for i in range(5)]
    assert (await client.delete("/v1/holds")).status_code == 400
    assert (await client.delete("/v1/holds?select=n001")).json()["changed"] == 1
    assert (await client.post("/v1/freezes", json={"scope": "group:g", "reason": "x"})).status_code == 404
    await client.put("/v1/groups/g", json={"members": "n002"})
    assert (await client.post("/v1/freezes", json={"scope": "group:g", "reason": "x"})).status_code == 201
    assert (await client.delete("/v1/freezes/group:g")).status_code == 204
    assert (await client.delete("/v1/freezes/group:g")).status_code == 404
    assert (await client.post("/v1/freezes", json={"scope": "everything", "reason": "x"})).status_code == 400


async def test_only_nodes_that_failed_get_another_chance(service: Service, client: httpx.AsyncClient) -> None:
    service.service.controller.engine.progress.fault[service.service.registry.index_of("n002")] = True
    retried = await client.post("/v1/retries", json={"select": "*"})
    assert (retried.status_code, retried.json()["nodeset"]) == (200, "n002")
    assert (await client.post("/v1/retries", json={"select": "n001"})).json()["changed"] == 0
    assert (await client.post("/v1/retries", json={})).status_code == 400


async def test_credentials_are_minted_listed_and_revoked(
    service: Service, client: httpx.AsyncClient, tmp_path: Path
) -> None:
    service.services.put(Authority.open(tmp_path))
    made = (await client.post("/v1/auth/tokens", json={"role": "viewer", "note": "ci"})).json()
    listed = await client.get("/v1/auth/tokens")
    certificate = (await client.post("/v1/auth/certificates", json={"role": "viewer", "name": "eve"})).json()
    revoked = await client.delete(f"/v1/auth/certificates/{certificate['serial']}")
    (shown,) = (await client.get("/v1/auth/certificates")).json()["items"]
    gone = await client.delete(f"/v1/auth/tokens/{made['view']['id']}")
    assert [t["note"] for t in listed.json()["items"]] == ["ci"]
    assert made["token"].split("_", 2)[2] not in listed.text
    assert (revoked.status_code, gone.status_code, shown["revoked"]) == (204, 204, True)
    assert certificate["key"].startswith("-----BEGIN PRIVATE KEY")
    async with service.client("front", made["token"]) as client:
        assert (await client.get("/v1/auth/whoami")).status_code == 401


async def test_readiness_says_what_is_missing(
    service: Service, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await client.get("/v1/ready")).status_code == 200

    async def full(ttl: float) -> int:
        raise Unavailable("the disk is full")

    monkeypatch.setattr(service.store, "grant", full)
    await service.service.writable.look()
    answer = await client.get("/v1/ready")
    assert (answer.status_code, answer.json()["detail"]) == (503, "the store takes no writes: the disk is full")
    assert (await client.get("/v1/health")).status_code == 200


async def test_head_is_answered_like_get_without_a_body(client: httpx.AsyncClient) -> None:
    for path in ("/v1/nodes", "/v1/nodes/n001", "/v1/health", "/v1/groups", "/v1/status"):
        got, head = await client.get(path), await client.head(path)
        assert (head.status_code, head.content) == (got.status_code, b""), path
        assert head.headers["content-length"] == got.headers["content-length"]


@given(st.text(max_size=100))
def test_a_cursor_gives_back_what_was_sealed(text: str) -> None:
    sealed = seal(text)
    assert sealed is not None
    assert unseal(sealed) == text
    assert sealed.isascii()


@given(st.text(max_size=60))
def test_another_text_is_not_a_cursor(text: str) -> None:
    if not text:
        assert unseal(text) == ""
        return
    with pytest.raises(BadRequest):
        unseal(text)


@pytest.mark.parametrize(
    ("known", "tag", "fresh"),
    [
        ('"5"', '"5"', True),
        ('W/"5"', '"5"', True),
        ('"4", W/"5-6"', 'W/"5-6"', True),
        ("*", '"5"', True),
        ('"55"', '"5"', False),
        ("", '"5"', False),
    ],
)
def test_entity_tags_are_compared_weakly(known: str, tag: str, fresh: bool) -> None:
    assert is_fresh(known, tag) is fresh


async def test_nodes_with_the_same_reason_are_explained_together(client: httpx.AsyncClient) -> None:
    await client.post("/v1/freezes", json={"scope": "node:n001", "reason": "fans"})
    await client.post("/v1/holds", json={"select": "n[2-3]", "reason": "DIMM"})
    await client.post("/v1/desires", json={"select": "n[1-3]", "set": {"power": "on"}})
    for _ in range(600):  # what is held is looked at all the same, and only then waited for
        answer = (await client.get("/v1/why", params={"select": "n[0-4]"})).json()
        if "DIMM" in str(answer):
            break
        await asyncio.sleep(0.05)
    assert answer["total"] == 5 and answer["unasked"] == 0
    groups = {group["nodes"]: group for group in answer["items"]}
    assert (groups["n[002-003]"]["state"], groups["n[002-003]"]["count"]) == ("held", 2)
    assert "DIMM" in str(groups["n[002-003]"])
    assert groups["n[000,004]"]["state"] == "unmanaged"
    assert [group["count"] for group in answer["items"][:2]] == [2, 1], "those that need somebody first, the most first"


async def test_a_change_that_several_nodes_had_together_is_told_once(client: httpx.AsyncClient) -> None:
    await client.post("/v1/desires", json={"select": "n[0-4]", "set": {"power": "on"}})
    for _ in range(600):
        answer = (await client.get("/v1/history", params={"select": "n[1-2]"})).json()
        together = {item["nodes"] for item in answer["items"] if item["new"] == "on" and item["variable"] == "power"}
        if together:
            break
        await asyncio.sleep(0.05)
    assert together == {"n[001-002]"}
    times = [item["time"] for item in answer["items"]]
    assert times == sorted(times, reverse=True)
    assert (await client.get("/v1/history", params={"select": "nobody"})).status_code == 404
