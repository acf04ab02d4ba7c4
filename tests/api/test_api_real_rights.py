"""Rights and scopes over the real service: what the table says, and what a scope hides and forbids."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from provisioned import Ids, live, provide
from real_service import RealService, real_service
from route_table import (
    BAD_CREDENTIALS,
    GROUP,
    PROTECTED,
    UNVERIFIED,
    bad_token,
    check_closed_to_bad_token,
    check_closed_to_unverified,
    check_role,
    unverified,
)

from strata.api.streams import STREAMS
from strata.fleet.access.principal import ROLES
from strata.provisioning.agents.door import PREFIX as AGENTS
from strata.provisioning.agents.door import ROUTES as AGENT_ROUTES
from support.boot_site import make_csr
from support.fake_agents import node_headers

pytestmark = pytest.mark.slow


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealService]:
    async with real_service(tmp_path) as service:
        async with service.client() as client:
            made = await client.put(f"/v1/groups/{GROUP}", json={"members": "n[00001-00004]"})
            assert made.status_code == 200, made.text
        yield service


async def test_without_a_good_credential_every_route_of_the_real_service_is_closed(real: RealService) -> None:
    for credential in BAD_CREDENTIALS:
        await check_closed_to_bad_token(real, credential)
    for verify in UNVERIFIED:
        await check_closed_to_unverified(real, verify)


async def test_a_role_may_do_just_what_the_table_says_on_the_real_service(real: RealService) -> None:
    for role in ROLES:
        for scoped in (False, True):
            await check_role(real, role, scoped)


@pytest.mark.parametrize("role", ["viewer", "operator"])
async def test_a_scoped_reader_sees_only_its_groups(real: RealService, role: str) -> None:
    async with real.client("front", await real.token(role, [GROUP])) as client:  # type: ignore[arg-type]

        async def get(path: str) -> dict:  # type: ignore[type-arg]
            answer = await client.get(path)
            assert answer.status_code == 200, (path, answer.text)
            return answer.json()  # type: ignore[no-any-return]

        page = await get("/v1/nodes")
        assert [node["name"] for node in page["items"]] == ["n00001", "n00002", "n00003", "n00004"]
        assert page["total"] == 4
        assert (await get("/v1/nodes?folded=true"))["nodeset"] == "n[00001-00004]"
        assert (await get("/v1/nodes?select=n*"))["total"] == 4
        assert (await get("/v1/nodes?select=!n00001"))["total"] == 3
        assert (await get("/v1/holds"))["items"] == []
        assert [group["name"] for group in (await get("/v1/groups"))["items"]] == [GROUP]
        assert (await get("/v1/operations"))["items"] == []
        assert all(document["matches"] <= 4 for document in (await get("/v1/documents"))["items"])
        status = await get("/v1/status")
        assert (status["nodes"], sum(status["by_state"].values()), status["holds"]) == (4, 4, 0)
        plan = (await client.post("/v1/plan", json={"select": "*", "set": {"power": "off"}})).json()
        assert plan["nodes"] == 4


async def test_a_node_outside_the_scope_is_answered_just_as_one_that_is_nowhere(real: RealService) -> None:
    async with real.client("front", await real.token("operator", [GROUP])) as client:
        for path in ("", "/why", "/plan", "/history", "/at?time=1"):
            outside, nowhere = [await client.get(f"/v1/nodes/{name}{path}") for name in ("n00010", "n00099")]
            assert (outside.status_code, nowhere.status_code) == (404, 404), path
            for word in ("detail", "where", "hint"):
                assert outside.json()[word] == nowhere.json()[word].replace("n00099", "n00010"), path
        for select in ("n00010", "n[00001-00010]", "n10"):
            answer = await client.get("/v1/nodes", params={"select": select})
            assert answer.status_code == 404, select
            assert "did you mean" not in answer.json()["hint"]
        for path in ("/v1/groups/gpu", f"/v1/operations/{real.job}"):
            assert (await client.get(path)).status_code == 404, path


async def test_a_scoped_watcher_hears_nothing_of_other_groups(real: RealService) -> None:
    async with real.client() as admin:
        for scope in (f"group:{GROUP}", "node:n00010"):
            assert (await admin.post("/v1/freezes", json={"scope": scope, "reason": "x"})).status_code == 201
    async with real.client("front", await real.token("viewer", [GROUP])) as client:
        heard = (await client.get("/v1/watch?since=0")).text
        freezes = (await client.get("/v1/freezes")).json()["items"]
    assert '"node":"n00001"' in heard
    assert "n00010" not in heard
    assert f'"scope":"group:{GROUP}"' in heard
    assert f"group:{GROUP}" in [freeze["scope"] for freeze in freezes]
    assert "node:n00010" not in [freeze["scope"] for freeze in freezes]


async def test_a_scoped_writer_that_reaches_outside_changes_nothing(real: RealService) -> None:
    token = await real.token("operator", [GROUP])
    before = await real.still()
    async with real.client("front", token) as client:
        for path, body in (
            ("/v1/desires", {"select": "*", "set": {"power": "off"}}),
            ("/v1/desires", {"select": "n00001,n00010", "unset": ["power"]}),
            ("/v1/holds", {"select": "@compute", "reason": "x"}),
            ("/v1/retries", {"select": "*"}),
            ("/v1/freezes", {"scope": "fleet", "reason": "x"}),
            ("/v1/freezes", {"scope": "group:gpu", "reason": "x"}),
            ("/v1/freezes", {"scope": "node:n00010", "reason": "x"}),
            ("/v1/apply", {"documents": [], "prune": True}),
            ("/v1/groups/g1/members", {"add": "*"}),
            ("/v1/auth/tokens", {"role": "admin"}),
        ):
            assert (await client.post(path, json=body)).status_code == 403, (path, body)
        for path in ("/v1/holds?select=*", "/v1/freezes/group:service", "/v1/groups/gpu", "/v1/nodes/n00001"):
            assert (await client.delete(path)).status_code == 403, path
        assert await real.store.revision() == before
        held = await client.post("/v1/holds", json={"select": f"@{GROUP}", "reason": "mine"})
        assert (held.status_code, held.json()["nodeset"]) == (200, "n[00001-00004]")
        assert (await client.delete("/v1/holds", params={"select": "n00002"})).json()["changed"] == 1


async def test_where_agents_speak_nobody_is_heard_but_a_node_with_the_certificate_of_its_present_boot(
    real: RealService,
) -> None:
    ids = Ids()
    await provide(real, ids)
    serial = await live(real, ids)
    csr = make_csr("n00001")[0].decode()
    said = {"generation": 1, "boot_id": "b1", "seq": 2, "wait": 0, "state": {}}
    bodies = {"exchange": said, "renew": {"csr": csr}, "inventory": {}, "log": {"lines": []}}
    open_to_all = {"redeem": {"token": f"n00001.{'A' * 43}", "csr": csr}, "hello": {"macs": ["52:54:00:00:77:02"]}}
    assert {*bodies, *open_to_all} == set(AGENT_ROUTES)

    async def statuses(headers: object = None, token: str = "") -> set[int]:
        async with real.client("front", token) as client:
            return {
                (await client.post(f"{AGENTS}{route}", json=body, headers=headers)).status_code  # type: ignore[arg-type]
                for route, body in bodies.items()
            }

    for credential in BAD_CREDENTIALS:
        assert await statuses(await bad_token(real, credential)) == {401}, credential
    for verify in UNVERIFIED:
        assert await statuses(unverified(verify, "node")) == {401}, verify
    for role in ROLES:
        assert await statuses(token=await real.token(role)) == {403}, role
        if role != "node":
            assert await statuses(unverified("SUCCESS", role)) == {403}, role
    for name, shown in (("n00001", "0A"), ("n00002", serial), ("n00099", serial)):
        assert await statuses(node_headers(name, shown)) == {403}, (name, shown)
    async with real.client("front") as client:
        redeemed = await client.post(f"{AGENTS}redeem", json=open_to_all["redeem"])
        assert redeemed.status_code == 403
        assert (await client.post(f"{AGENTS}hello", json=open_to_all["hello"])).json()["adopted"] is False
        for route in (f"{AGENTS}{name}" for name in sorted(AGENT_ROUTES)):
            assert (await client.get(route)).status_code == 400
        del bodies["renew"]
    assert await statuses(node_headers("n00001", serial)) == {200}


async def test_a_scoped_operator_reaches_only_its_nodes_through_agents_and_boots(real: RealService) -> None:
    ids = Ids()
    await provide(real, ids)
    await live(real, ids)
    async with real.client("front", await real.token("operator", [GROUP])) as client:
        for path in ("/v1/nodes/{}/agent", "/v1/boot/nodes/{}/script"):
            assert (await client.get(path.format("n00001"))).status_code == 200, path
            assert (await client.get(path.format("n00010"))).status_code == 404, path
        booted = (await client.get("/v1/boot/nodes")).json()["items"]
        assert [item["node"] for item in booted] == ["n00001", "n00002", "n00003", "n00004"]
        assert (await client.post("/v1/exec", json={"select": "*", "argv": ["id"]})).status_code == 403
        begun = await client.post("/v1/exec", json={"select": "n00002", "argv": ["id"]})
        assert (begun.status_code, begun.json()["total"]) == (201, 1)
        assert (await client.get(f"/v1/exec/{ids.run}")).status_code == 404
        assert (await client.delete(f"/v1/exec/{ids.run}")).status_code == 404
        assert (await client.get("/v1/boot/unknown")).status_code == 403
        for path in ("/v1/personalities/nodes", "/v1/images/tiny/1", "/v1/boot/profiles/debug"):
            assert (await client.delete(path)).status_code == 403, path


BESIDE_THE_FLEET = {
    *("revision", "stamp", "seq", "started", "since", "time", "times", "start", "end", "last", "seen", "age", "at"),
    "seconds",
    "health",  # looks at it come when they come
}
"""Fields that differ from one answer to the next, whoever is there."""


def still(part: Any) -> Any:
    """An answer without what passes with time."""
    if isinstance(part, dict):
        return {key: still(value) for key, value in part.items() if key not in BESIDE_THE_FLEET}
    if isinstance(part, list):
        passing = (isinstance(item, dict) and item.get("variable") in BESIDE_THE_FLEET for item in part)
        return [still(item) for item, passes in zip(part, passing, strict=True) if not passes]
    return part


def differing(one: Any, other: Any, place: str = "") -> list[str]:
    """Where two answers differ, and how."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted({*one, *other})
        return [found for key in keys for found in differing(one.get(key), other.get(key), f"{place}.{key}")]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        return [
            found for n, pair in enumerate(zip(one, other, strict=True)) for found in differing(*pair, f"{place}[{n}]")
        ]
    return [] if one == other else [f"{place}: {one!r} != {other!r}"]


async def test_nothing_that_a_scoped_reader_is_answered_changes_with_what_is_outside(real: RealService) -> None:
    listings = [path for method, path, _ in PROTECTED if method == "GET" and "{" not in path and path not in STREAMS]
    selections = ["@others", "@nosuch", "x*", "x00001", "label:row=9", "!n00001", "state:held", "want:power=on", "@*"]
    asked = [*listings, *(f"/v1/nodes?select={select}" for select in selections)]

    async def answers(client: httpx.AsyncClient) -> dict[str, tuple[int, Any]]:
        found = {}
        for path in asked:
            answer = await client.get(path)
            plain = answer.headers.get("content-type", "").endswith("json")
            body = still(answer.json()) if plain else answer.text
            if plain and answer.status_code >= 400:
                del body["request_id"]
            found[path] = (answer.status_code, body)
        return found

    async def settled(client: httpx.AsyncClient) -> dict[str, tuple[int, Any]]:
        """The answers once nothing is written and no look shows anything new."""
        await real.still()
        async with asyncio.timeout(120):
            last = await answers(client)
            while (now := await answers(client)) != last:
                last = now
        return now

    async with real.client() as admin, real.client("front", await real.token("operator", [GROUP])) as client:
        before = await settled(client)
        made = await admin.post(
            "/v1/nodes", json={"nodes": [{"name": f"x{n:05}", "labels": {"row": "9"}} for n in range(1, 8)]}
        )
        assert made.status_code < 300, made.text
        group = await admin.put("/v1/groups/others", json={"members": "x[00001-00007]"})
        assert group.status_code < 300, group.text
        for path, body in (
            ("/v1/holds", {"select": "x00001", "reason": "x"}),
            ("/v1/freezes", {"scope": "group:others", "reason": "x"}),
            ("/v1/desires", {"select": "x00002", "set": {"power": "on"}}),
        ):
            assert (await admin.post(path, json=body)).status_code < 300, path
        spec = {"name": "outside", "select": "@others", "set": {"power": "off"}}
        assert (await admin.post("/v1/apply", json={"documents": [spec], "prune": False})).status_code == 200
        after = await settled(client)
        seen = (await admin.get("/v1/status")).json()["nodes"]
    assert seen == len(real.nodes) + 7
    assert {path: differing(before[path], after[path]) for path in asked if before[path] != after[path]} == {}
    assert sum(status == 200 for status, _ in before.values()) > 15


@pytest.mark.parametrize(
    ("outside", "nowhere"),
    [
        ("n00010", "n00099"),
        ("n00001,n00010", "n00001,n00099"),
        ("@gpu", "@nosuch"),
        ("n0001*", "z*"),
        ("!n00001", "!z*"),
    ],
)
async def test_a_scoped_writer_learns_nothing_of_what_is_outside_from_being_refused(
    real: RealService, outside: str, nowhere: str
) -> None:
    async with real.client("front", await real.token("operator", [GROUP])) as client:
        for path, body in (
            ("/v1/holds", {"reason": "x"}),
            ("/v1/desires", {"set": {"power": "off"}}),
            ("/v1/retries", {}),
            ("/v1/exec", {"argv": ["id"]}),
        ):
            told = []
            for select in (outside, nowhere):
                answer = await client.post(path, json={"select": select, **body})
                assert answer.status_code == 403, (path, select, answer.text)
                told.append({word: answer.json()[word].replace(select, "S") for word in ("detail", "where", "hint")})
            told[1] = {
                word: text.replace("n00099", "n00010").replace("nosuch", "gpu") for word, text in told[1].items()
            }
            assert told[0] == told[1], (path, told)
            assert GROUP in told[0]["detail"]


async def test_a_scoped_writer_changes_what_it_selects_within_its_groups(real: RealService) -> None:
    async with real.client("front", await real.token("operator", [GROUP])) as client:
        for select, count in (("n00001", 1), (f"@{GROUP}", 4), (f"@{GROUP} n0000?", 4), (f"n*&@{GROUP}!n00001", 3)):
            held = await client.post("/v1/holds", json={"select": select, "reason": "x"})
            assert held.status_code == 200, (select, held.text)
            assert (await client.delete("/v1/holds", params={"select": select})).json()["changed"] == count, select


async def test_metrics_are_of_the_whole_fleet_and_not_for_a_scope(real: RealService) -> None:
    for scope, status in (((), 200), ((GROUP,), 403)):
        for role in ("viewer", "operator", "admin", "workload-manager"):
            async with real.client("front", await real.token(role, scope)) as client:  # type: ignore[arg-type]
                answer = await client.get("/metrics")
            assert answer.status_code == status, (scope, role)
            assert ("strata_" in answer.text) == (status == 200)
