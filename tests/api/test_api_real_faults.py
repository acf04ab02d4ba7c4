"""What asking the real service everything has found, each by name; reads that change nothing; texts that bite."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from provisioned import IMAGE, PROFILE, SET, TAGS, Ids, live, provide
from real_service import RAN, RealService, furnish_hardware, real_service
from route_table import ROUTES

from strata.api.http import seal
from strata.api.streams import STREAMS
from strata.core.errors import Conflict
from strata.fleet.access.principal import LOCAL_ADMIN
from strata.provisioning.boot.service import BootService

pytestmark = pytest.mark.slow

NASTY = (
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(1)'>",
    "red \x1b[31m text",
    "nul \x00 byte",
    "csi \x9b31m",
    "two\nlines",
    "line\u2028separator",
    "turned \u202e round",
    "../../etc/passwd",
)


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[RealService]:
    async with real_service(tmp_path) as service:
        yield service


@pytest.fixture
async def client(real: RealService) -> AsyncIterator[httpx.AsyncClient]:
    async with real.client() as found:
        yield found


# No workload manager is connected, no branch followed, nothing delivered or rolled out; other names name nothing here.
NOT_HERE = {
    "/v1/workloads/{name}",
    "/v1/workloads/{name}/nodes",
    "/v1/slurm/{name}",
    "/v1/slurm/{name}/files",
    "/v1/config/pending",
    "/v1/config/rendered/{name}",
    "/v1/rollouts/{name}",
    "/v1/rollout-policy",
    "/v1/playbooks/{name}",
    "/v1/projects/{name}",
    "/v1/job-targets/{name}",
    "/v1/environments/{name}",
    "/v1/auth/oidc",
    "/v1/cloud-init/{name}",
    "/v1/secrets/{name}",
    "/v1/secrets/{name}/status",
    "/v1/secret-identity",
    "/v1/health-checks/{name}",
    "/v1/flows/{name}",
    "/v1/flow-runs/{operation}",
    "/v1/system",
    "/v1/system/status",
}


async def test_no_get_changes_anything(real: RealService, client: httpx.AsyncClient) -> None:
    await furnish_hardware(real)
    ids = Ids()
    await provide(real, ids)
    await live(real, ids)
    medium = (await real.of(BootService).begin_from_medium("n00003")).rpartition("/")[2]
    policy = {"text": "name: cap\nlimit: 10 kW\n", "without_simulation": "a test"}
    made = await client.put("/v1/power/policies/cap", json=policy)
    assert made.status_code == 200, made.text
    names = {
        "/nodes/": "n00001",
        "/v1/power/policies/": "cap",
        "/v1/budgets/": "bmc-rate",
        "/v1/documents/": "gpu",
        "/v1/groups/": "gpu",
        "/v1/power/": RAN,
        "/v1/images/": IMAGE,
        "/v1/personalities/": SET,
        "/v1/boot/profiles/": PROFILE,
        "/v1/boot/media/": medium,
    }
    jobs = {"/v1/jobs/": real.user_job, "/v1/hardware/discover/": real.discovery, "/v1/exec/": ids.run}
    needed = {
        "/v1/history": {"select": "n00001"},
        "/v1/nodes/{name}/at": {"time": "1"},
        "/v1/bmc/sensors": {"select": "*"},
        "/v1/bmc/firmware": {"select": "*"},
        "/v1/consoles/search": {"text": "panic"},
        "/v1/hardware/bmc": {"address": real.bmcs.url("n00001")},
        "/v1/images/{name}/{tag}/diff": {"other": f"{IMAGE}:{TAGS[1]}"},
    }

    def known(path: str, values: dict[str, str], otherwise: str) -> str:
        return next((value for part, value in values.items() if part in path), otherwise)

    alert = (await client.get("/v1/alerts", params={"all": True})).json()["items"][0]["id"]
    await real.still()
    before = await kept(real)
    for method, path, _ in ROUTES:
        if method != "GET":
            continue
        where = path.format(
            name=known(path, names, "n00001"),
            job=known(path, jobs, real.job),
            operation=known(path, jobs, real.job),
            dump=real.dump,
            tag=TAGS[0],
            log=ids.log,
            ident=alert,
        )
        for verb in ("GET", "HEAD"):
            if verb == "GET" or path not in STREAMS:
                answer = await client.request(verb, where, params=needed.get(path))
                assert answer.status_code in ((404,) if path in NOT_HERE else (200, 410)), (where, answer.text)
    for more in ("?folded=true", "?fields=name", "?sort=-state", "?select=label:none", "?limit=3"):
        assert (await client.get(f"/v1/nodes{more}")).status_code == 200
    assert await kept(real) == before


async def kept(real: RealService) -> dict[str, int]:
    """What the store holds and when it was last written, but for the history of nodes: looks may still show more."""
    page = await real.store.range("")
    assert not page.more
    return {entry.key: entry.modified for entry in page.entries if not entry.key.startswith("transition/")}


async def test_pages_of_the_audit_log_leave_no_record_out(client: httpx.AsyncClient) -> None:
    whole = [record["seq"] for record in (await client.get("/v1/audit")).json()["items"]]
    seen: list[int] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await client.get("/v1/audit", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))).json()
        seen += [record["seq"] for record in page["items"]]
        cursor = page["next"]
    assert seen == whole == list(range(1, len(whole) + 1))
    assert (await client.get("/v1/audit?since=3")).json()["items"][0]["seq"] == 3


@pytest.mark.parametrize("text", ["n00003", "x", "-1", "1e3", "9" * 400, "\u0663"])
async def test_a_cursor_of_another_list_is_refused(client: httpx.AsyncClient, text: str) -> None:
    for path in ("/v1/audit", "/v1/nodes/n00001/history"):
        answer = await client.get(path, params={"cursor": seal(text) or ""})
        assert (answer.status_code, answer.json()["where"]) == (400, "cursor"), (path, answer.text)


async def test_a_precondition_on_a_route_that_takes_none_does_not_change_the_status(
    real: RealService, client: httpx.AsyncClient
) -> None:
    answer = await client.post(f"/v1/operations/{real.job}/cancel", headers={"If-Match": '"1"'})
    assert answer.status_code == 409
    conditional = await client.delete("/v1/groups/gpu", headers={"If-Match": '"1"'})
    assert conditional.status_code == 412


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/apply", {"documents": [], "prune": True, "dry_run": "0"}),
        ("/v1/apply", {"documents": [], "prune": 1}),
        ("/v1/auth/tokens", {"role": "viewer", "ttl": "60"}),
        ("/v1/nodes", {"nodes": [{"name": "n00077", "nid": "77"}]}),
    ],
)
async def test_a_value_of_the_wrong_type_is_not_taken_for_another(
    real: RealService, client: httpx.AsyncClient, path: str, body: dict[str, Any]
) -> None:
    before = await real.still()
    answer = await client.post(path, json=body)
    assert (answer.status_code, answer.json()["where"]) == (400, "body")
    assert await real.store.revision() == before


@pytest.mark.parametrize("count", [5000, 5001])
async def test_any_number_of_negations_is_read(client: httpx.AsyncClient, count: int) -> None:
    answer = await client.post("/v1/plan", json={"select": "!" * count + "@gpu"})
    gpus = (await client.get("/v1/groups/gpu")).json()["count"]
    assert answer.json()["nodes"] == (gpus if count % 2 == 0 else 20 - gpus)


async def test_labels_and_values_that_a_reader_makes_up_are_not_kept(
    real: RealService, client: httpx.AsyncClient
) -> None:
    registry = real.service.registry
    await client.get("/v1/nodes?select=label:accelerator")
    goals = {name: len(registry.desires.goals(name).table) for name in registry.model.variables}
    labels = len(registry._labels)
    for number in range(3):
        assert (await client.get(f"/v1/nodes?select=label:made-up-{number}")).json()["total"] == 0
        document = {"name": "d", "select": "*", "set": {"image": f"made-up-{number}"}}
        assert (await client.post("/v1/plan", json={"documents": [document]})).status_code == 200
    assert len(registry._labels) == labels
    assert {name: len(registry.desires.goals(name).table) for name in registry.model.variables} == goals


async def test_a_freeze_that_is_thawed_at_the_same_time_is_a_conflict(real: RealService) -> None:
    service = real.service
    settled = service.settled

    async def thawed_first(revision: int) -> None:
        await settled(await service.edits.thaw("fleet", "somebody else"))

    service.settled = thawed_first  # type: ignore[method-assign]
    with pytest.raises(Conflict, match="thawed"):
        await service.freeze(LOCAL_ADMIN, "fleet", "x")


async def test_what_bites_is_refused_or_comes_back_as_plain_json(real: RealService, client: httpx.AsyncClient) -> None:
    for text in NASTY:
        node = {"name": "n00077"}
        for method, path, body in (
            ("POST", "/v1/nodes", {"nodes": [{"name": text}]}),
            ("POST", "/v1/nodes", {"nodes": [node | {"labels": {text: "x"}}]}),
            ("POST", "/v1/nodes", {"nodes": [node | {"labels": {"x": text}}]}),
            ("POST", "/v1/nodes", {"nodes": [node | {"role": text}]}),
            ("POST", "/v1/nodes", {"nodes": [node | {"location": text}]}),
            ("POST", "/v1/holds", {"select": "n00001", "reason": text}),
            ("POST", "/v1/holds", {"select": text, "reason": "x"}),
            ("POST", "/v1/freezes", {"scope": "node:n00001", "reason": text}),
            ("POST", "/v1/freezes", {"scope": f"node:{text}", "reason": "x"}),
            ("PUT", "/v1/groups/odd", {"members": "", "description": text}),
            ("PUT", "/v1/documents/odd", {"name": text, "select": "*", "set": {"power": "on"}}),
            ("PUT", "/v1/documents/odd", {"name": "odd", "select": text, "set": {"power": "on"}}),
            ("POST", "/v1/desires", {"select": "n00001", "set": {"image": text}}),
            ("POST", "/v1/desires", {"select": "n00001", "set": {text: "x"}}),
            ("POST", "/v1/auth/tokens", {"role": "viewer", "note": text}),
            ("POST", "/v1/auth/certificates", {"role": "viewer", "name": text}),
        ):
            check_safe(await client.request(method, path, json=body), (path, body))
        await client.delete("/v1/holds", params={"select": "n00001"})
        check_safe(await client.get("/v1/nodes", params={"select": text}), text)
        check_safe(await client.get("/v1/nodes", params={text: "x"}), text)
    for path in ("nodes", "groups", "documents", "holds", "freezes", "auth/tokens", "audit"):
        check_safe(await client.get(f"/v1/{path}"), path)


async def test_a_lone_surrogate_is_refused(client: httpx.AsyncClient) -> None:
    body = b'{"select": "n00001", "reason": "\\ud800"}'
    answer = await client.post("/v1/holds", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400


async def test_an_echo_is_cut(client: httpx.AsyncClient) -> None:
    long = "x" * 50_000
    for answer in await asyncio.gather(
        client.get("/v1/nodes", params={"select": long}),
        client.get("/v1/nodes", params={"select": f"location:{long}"}),
        client.get("/v1/nodes", params={"select": f"state:{long}"}),
        client.get("/v1/nodes", params={"select": f"n[{long}]"}),
        client.get("/v1/nodes", params={long: "x"}),
        client.get(f"/v1/nodes/{long}"),
        client.post("/v1/desires", json={"select": "*", "set": {"image": long}}),
        client.post("/v1/plan", json={"select": long}),
    ):
        assert answer.status_code in (400, 404)
        assert len(answer.content) < 2000


def check_safe(answer: httpx.Response, what: object) -> None:
    """Nothing in it that a page would run or a terminal obey."""
    assert answer.status_code < 500, (what, answer.text)
    assert answer.headers["content-type"] in ("application/json", "application/problem+json"), what
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for text in texts(json.loads(answer.text)):
        lines = text.split("\n") if text.startswith("-----BEGIN") else [text]
        assert all(line.isprintable() for line in lines), (what, text)
        if answer.is_error:
            assert len(text) <= 400


def texts(data: Any) -> list[str]:
    """Every text in JSON data, keys too."""
    if isinstance(data, str):
        return [data]
    if isinstance(data, dict):
        return [text for pair in data.items() for part in pair for text in texts(part)]
    return [text for part in data for text in texts(part)] if isinstance(data, list) else []


@pytest.mark.parametrize(
    "address", ["https://[", "https://a]b", "https://a:99999", "https://\u2100.example", "ipmi://["]
)
async def test_an_address_that_is_none_is_no_server_error(
    real: RealService, client: httpx.AsyncClient, address: str
) -> None:
    hook = await client.put("/v1/webhooks/new", json={"url": address})
    assert hook.status_code == 400, hook.text
    described = await client.put("/v1/nodes/n00001", json={"name": "n00001", "bmc": address})
    assert described.status_code in (200, 400), described.text
    for method, path, body in (
        ("GET", "/v1/nodes/n00001/bmc", None),
        ("GET", "/v1/nodes/n00001/bmc/log", None),
        ("GET", "/v1/nodes/n00001/hardware", None),
        ("GET", "/v1/bmc/sensors?select=n00001", None),
        ("GET", "/v1/hardware/credentials", None),
        ("GET", "/v1/fabric", None),
        ("POST", "/v1/bmc/identify", {"select": "n00001"}),
        ("POST", "/v1/hardware/credentials/rotate", {"select": "n00001"}),
        ("POST", "/v1/hardware/credentials/accept-certificate", {"address": address}),
        ("PUT", "/v1/hardware/credentials", {"pattern": address, "user": "root", "password": "x"}),
    ):
        answer = await client.request(method, path, json=body)
        assert answer.status_code in (200, 202, 204, 400, 404, 409, 502), (path, answer.text)
