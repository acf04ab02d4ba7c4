"""The table of rights, and who is let in by which door. ``test_api_real_rights`` holds every route to the table."""

from __future__ import annotations

import httpx
import pytest
from api_support import Service
from litestar import Litestar, get
from route_table import PROTECTED, PUBLIC

from strata.api.rights import needs, require_rights
from strata.fleet.access.principal import KINDS, LOCAL_ADMIN, RIGHTS, ROLES, VERBS, Principal, Right


def test_only_health_readiness_how_to_log_in_and_what_is_reached_by_a_secret_path_are_public() -> None:
    # The inbox and boot media have a credential of their own: a name in the path that nobody can guess.
    inbox, media = ("POST", "/v1/hardware/events/in/{token}"), ("GET", "/v1/boot/media/{name}")
    sign_in = {("GET", "/v1/auth/oidc"), ("POST", "/v1/auth/oidc/code"), ("POST", "/v1/auth/oidc/renewal")}
    assert {("GET", "/v1/health"), ("GET", "/v1/ready"), inbox, media} | sign_in == PUBLIC


async def test_the_admin_socket_is_the_local_administrator_unless_a_token_says_otherwise(
    service: Service,
) -> None:
    async with service.client("admin") as client:
        assert (await client.get("/v1/auth/whoami")).json()["name"] == "local-admin"
    async with service.client("admin", await service.token("viewer")) as client:
        assert (await client.get("/v1/auth/whoami")).json()["role"] == "viewer"
    async with service.client("admin", "strata_bad") as client:
        assert (await client.get("/v1/auth/whoami")).status_code == 401


async def test_certificate_headers_mean_nothing_on_the_admin_socket(client: httpx.AsyncClient) -> None:
    headers = {
        "X-Strata-Client-Verify": "SUCCESS",
        "X-Strata-Client-Serial": "0A",
        "X-Strata-Client-DN": "OU=role:viewer,CN=eve,O=Strata",
    }
    assert (await client.get("/v1/auth/whoami", headers=headers)).json()["name"] == "local-admin"


async def test_a_denial_is_given_before_the_body_is_read(service: Service) -> None:
    async with service.client("front", await service.token("viewer")) as client:
        answer = await client.post("/v1/nodes", content=b"{broken", headers={"Content-Type": "application/json"})
    assert answer.status_code == 403
    assert "create node" in answer.json()["detail"]


async def test_a_scoped_reader_sees_only_its_groups_and_a_scoped_writer_reaches_no_further(
    service: Service,
) -> None:
    await service.put_group("g1", "n001")
    async with service.client("front", await service.token("operator", ["g1"])) as client:
        assert [n["name"] for n in (await client.get("/v1/nodes")).json()["items"]] == ["n001"]
        assert (await client.get("/v1/nodes/n000")).status_code == 404
        assert (await client.get("/v1/nodes/n001")).status_code == 200
        wide = await client.post("/v1/holds", json={"select": "*", "reason": "x"})
        near = await client.post("/v1/holds", json={"select": "@g1", "reason": "x"})
        assert (await client.post("/v1/retries", json={"select": "*"})).status_code == 403
        assert (await client.post("/v1/retries", json={"select": "@g1"})).status_code == 200
    assert (wide.status_code, near.status_code) == (403, 200)
    assert [hold.node for hold in (await service.service.holds(LOCAL_ADMIN, 10, "")).items] == ["n001"]


def test_a_route_without_a_declared_right_stops_the_start() -> None:
    @get("/v1/forgotten", sync_to_thread=False)
    def forgotten() -> str:
        return ""

    app = Litestar([forgotten], openapi_config=None, logging_config=None)
    with pytest.raises(RuntimeError, match="GET /v1/forgotten"):
        require_rights(app)


def test_every_right_that_a_route_needs_is_in_the_table_and_only_admins_have_all() -> None:
    every = {Right(verb, kind) for verb in VERBS for kind in KINDS}
    assert {right for *_, right in PROTECTED} <= every
    assert RIGHTS["admin"] == every
    assert all(RIGHTS[role] < every for role in ROLES if role != "admin")
    assert RIGHTS["viewer"] < RIGHTS["operator"]
    assert not any(right.verb != "read" for right in RIGHTS["viewer"] | RIGHTS["node"])


def test_no_read_needs_a_right_to_change_and_no_change_only_a_right_to_read() -> None:
    dry_runs = {
        "/v1/plan",
        "/v1/config/plan",
        "/v1/flows/{name}/plan",
        "/v1/system/start/plan",
        "/v1/system/stop/plan",
        "/v1/rollout-plans",
        "/v1/rollout-twins",
    }
    for method, path, right in PROTECTED:
        assert (right.verb == "read") == (method == "GET" or path in dry_runs), (method, path)


def test_a_scoped_administrator_cannot_make_credentials_that_reach_further() -> None:
    who = Principal(name="a", role="admin", scope=("g1",))
    assert not who.may(Right("create", "credential"))
    assert who.may(Right("change", "desire"))


def test_needs_documents_every_status_that_it_names() -> None:
    assert {400, 401, 403, 404, 413, 415, 500, 503} == set(needs("read", "node", 404, body=True)["responses"])
