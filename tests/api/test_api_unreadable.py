"""What is not UTF-8, wherever in a request it stands, is the client's mistake on every route, and told as one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from api_support import Service
from provisioned import Ids, live, provide
from real_service import real_service
from route_table import ROUTES, concrete

from strata.api.app import create_litestar
from strata.api.rights import handlers_of
from strata.api.server import ApiServer
from strata.api.streams import STREAMS
from strata.fleet.peers.routes import PeerDoor
from strata.provisioning.agents.door import PREFIX as AGENTS
from strata.provisioning.agents.door import ROUTES as AGENT_ROUTES
from strata.provisioning.agents.peer_answers import each
from support.fake_agents import node_headers

HANDLERS = handlers_of(create_litestar(2**20))
BODIES = (b'{"name": "\xff"}', b"\xff", b'["\xc3"]', b'{"\xed\xa0\x80": 1}', b'{"select": "\xf8\x88", "reason": "x"}')
UNASKED = {*STREAMS, "/v1/health"}
"""Streams do not end; what the front answers by itself looks at nothing."""
MENDED = {"inventory": b"{", "log": b'{"lines":'}
"""How reports of agents begin that count although they hold other bytes: file names and the like may."""
HEADERS = ("If-Match", "If-None-Match", "Prefer", "Accept", "X-Request-Id", "Last-Event-ID", "Content-Type")
TABLE = [(method, path) for method, path in sorted(route[:2] for route in ROUTES) if path not in UNASKED]


def check_problem(answer: httpx.Response, *what: object) -> None:
    assert 400 <= answer.status_code < 500, (*what, answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json", what
    assert answer.json()["status"] == answer.status_code


async def test_every_route_with_a_body_refuses_one_that_is_not_utf_8(client: httpx.AsyncClient) -> None:
    checked = 0
    for method, path, handler in HANDLERS:
        if not handler.opt["body"]:
            continue
        for body in BODIES:
            answer = await client.request(
                method, concrete(path), content=body, headers={"Content-Type": "application/json"}
            )
            assert answer.status_code == 400, (method, path, body, answer.text)
            check_problem(answer, method, path, body)
        checked += 1
    assert checked > 30


@pytest.mark.slow
async def test_no_route_breaks_on_a_query_a_path_or_a_header_that_is_not_utf_8(tmp_path: Path) -> None:
    async with real_service(tmp_path) as real, real.client() as client:
        for method, path in TABLE:
            handler = next(handler for known, where, handler in HANDLERS if (known, where) == (method, path))
            where = concrete(path)
            check_problem(await client.request(method, f"{where}?nonsense=%ff"), method, path)
            check_problem(await client.request(method, f"{where}?%ff=1"), method, path)
            for name in handler.opt["query"]:
                answer = await client.request(method, f"{where}?{name}=%ff%c3")
                assert answer.status_code < 500 or answer.status_code == 503, (method, path, name, answer.text)
            for part in [part for part in path.split("/") if part.startswith("{")]:
                odd = concrete(path.replace(part, "%ff", 1))
                answer = await client.request(method, odd, headers={"Content-Type": "application/json"})
                check_problem(answer, method, odd)
            for header in (
                "If-Match",
                "If-None-Match",
                "Prefer",
                "Accept",
                "X-Request-Id",
                "Last-Event-ID",
                "Content-Type",
            ):
                answer = await client.request(method, where, headers=[(header.encode(), b"\xff\xc3")])
                assert answer.status_code < 500 or answer.status_code == 503, (method, path, header, answer.text)
            answer = await client.request(method, where, headers=[(b"Authorization", b"Bearer \xff")])
            assert answer.status_code in (
                (401,) if handler.opt["right"] is not None else (200, 400, 401, 403, 404, 405, 415)
            )


@pytest.mark.slow
async def test_what_an_agent_says_in_other_bytes_is_refused_unless_it_is_a_report_that_can_be_mended(
    tmp_path: Path,
) -> None:
    bodies = (*BODIES, b'{"token": "\xff", "csr": "x"}', b'{"lines": [[1, "k", "\xff"]]}')
    async with real_service(tmp_path) as real, real.client("front") as client:
        ids = Ids()
        await provide(real, ids)
        headers = node_headers(real.nodes[0], await live(real, ids))
        for route in sorted(AGENT_ROUTES):
            for body in bodies:
                answer = await client.post(f"{AGENTS}{route}", content=body, headers=headers)
                if body.startswith(MENDED.get(route, b"-")):
                    assert answer.status_code == 200, (route, body, answer.text)
                else:
                    check_problem(answer, route, body)


@pytest.mark.slow
async def test_capmc_and_redfish_refuse_it_in_their_own_shape(tmp_path: Path) -> None:
    async with real_service(tmp_path) as real, real.client() as client:
        for path in ("/capmc/get_nid_map", "/capmc/v1/get_power_cap", "/redfish/v1/SessionService/Sessions"):
            for body in BODIES:
                answer = await client.post(path, content=body, headers={"Content-Type": "application/json"})
                assert answer.status_code == 400, (path, body, answer.text)
                assert answer.json().get("e") == 400 or "error" in answer.json()
            assert (await client.get(f"{path}?nids=%ff")).status_code < 500


async def test_a_controller_that_says_it_in_other_bytes_is_refused(service: Service) -> None:
    door = service.services.put(PeerDoor("alpha"))

    async def nothing(asked: object) -> None: ...

    door.routes["ask"] = each(dict[str, str], nothing)
    said = {
        "X-Strata-Client-Verify": "SUCCESS",
        "X-Strata-Client-Serial": "A1",
        "X-Strata-Client-DN": "OU=strata-controller,CN=beta,O=Strata",
        "X-Strata-Controller": "alpha",
    }
    async with service.client("front") as client:
        for body in (*BODIES, b'[{"a": "\xff"}]'):
            check_problem(await client.post("/peer/v1/ask", content=body, headers=said), body)


@pytest.mark.parametrize("target", [b"/v1/nodes/\xff", b"/v1/nodes?select=\xff", b"/\xff", b"/redfish/v1/\xff"])
async def test_bare_bytes_in_the_first_line_break_nothing(service: Service, tmp_path: Path, target: bytes) -> None:
    api = ApiServer(service.services, tmp_path / "admin.sock")
    await api.start()
    reader, writer = await asyncio.open_unix_connection(str(tmp_path / "admin.sock"))
    writer.write(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    async with asyncio.timeout(60):
        status = int((await reader.read()).split()[1])
    assert 400 <= status < 500
    writer.close()
    await writer.wait_closed()
    await api.stop()
