"""Rights and scopes over the real service: what the table says, and what a scope hides and forbids."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from real_ground import Ids, live, provide
from real_service import RealService, real_service
from route_table import (
    BAD_CREDENTIALS,
    GROUP,
    UNVERIFIED,
    bad_token,
    check_closed_to_bad_token,
    check_closed_to_unverified,
    check_role,
    unverified,
)

from strata.api.agents import ROUTES as AGENT_ROUTES
from strata.control.principal import ROLES
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
        assert (await get("/v1/jobs"))["items"] == []
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
        for path in ("/v1/groups/gpu", f"/v1/jobs/{real.job}"):
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
                (await client.post(AGENT_ROUTES[route], json=body, headers=headers)).status_code  # type: ignore[arg-type]
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
        redeemed = await client.post(AGENT_ROUTES["redeem"], json=open_to_all["redeem"])
        assert redeemed.status_code == 403
        assert (await client.post(AGENT_ROUTES["hello"], json=open_to_all["hello"])).json()["adopted"] is False
        for route in AGENT_ROUTES.values():
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
        for path in ("/v1/image-sets/nodes", "/v1/images/tiny/1", "/v1/boot/profiles/debug"):
            assert (await client.delete(path)).status_code == 403, path
