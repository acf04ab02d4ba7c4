"""The OpenAPI document: complete, and true. Schemathesis asks everything that it allows, and more."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
import schemathesis
from api_support import Service
from schema_checks import ask_and_check, examples, schema_of

from strata.api.app import create_litestar, openapi_schema
from strata.api.redfish.resources.events import SSE
from strata.api.rights import handlers_of
from strata.api.streams import STREAMS, is_stream
from strata.fleet.access.authority import Authority
from strata.fleet.access.principal import Principal
from strata.fleet.watch.service import WatchEvent
from support.fake_machine import furnish


def test_every_route_is_documented_with_its_right_statuses_and_words() -> None:
    paths = openapi_schema()["paths"]
    for method, path, handler in handlers_of(create_litestar(2**20)):
        operation = paths[path][method.lower()]
        assert operation["description"], (method, path)
        if handler.opt["right"] is not None:
            assert {"401", "403", "500", "503"} <= set(operation["responses"]), (method, path)
        if handler.opt["body"]:
            assert {"413", "415"} <= set(operation["responses"]), (method, path)
            assert operation["requestBody"]["required"], (method, path)


def test_every_failure_is_documented_as_a_problem() -> None:
    for path, operations in openapi_schema()["paths"].items():
        for method, operation in operations.items():
            for status, response in operation["responses"].items():
                if int(status) >= 400:
                    assert list(response["content"]) == ["application/problem+json"], (method, path, status)


def test_every_stream_is_known_as_one() -> None:
    found = {
        path
        for path, operations in openapi_schema()["paths"].items()
        if "text/event-stream" in operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
    }
    assert found == {path for path in STREAMS if path.startswith("/v1/")}
    assert SSE in STREAMS
    assert all(is_stream(path.replace("{name}", "n1")) for path in STREAMS)
    assert not is_stream("/v1/nodes/n1/console/follow/more")
    assert not is_stream("/v1/nodes/n1/x/console/follow")


SERVICE = Service(nodes=4)
SERVICE.facade.groups_["compute"] = ({"n000", "n001"}, "", 1)
SERVICE.ground.dead.add("n002")
SERVICE.ground.bare.add("n003")
SERVICE.ground.endless = False
furnish(SERVICE.ground, sorted(SERVICE.facade.nodes))


async def no_events(who: Principal, select: str, since: int | None) -> AsyncIterator[Sequence[WatchEvent]]:
    """A watch that ends at once: the document says nothing about how long one lasts."""
    await SERVICE.facade.nodes_folded(who, select, None)

    async def none() -> AsyncIterator[Sequence[WatchEvent]]:
        for nothing in ():
            yield nothing

    return none()


SERVICE.facade.watch = no_events  # type: ignore[method-assign]
SCHEMA = schema_of(SERVICE.app())


@pytest.fixture(scope="module", autouse=True)
def authority(tmp_path_factory: pytest.TempPathFactory) -> None:
    SERVICE.services.put(Authority.open(tmp_path_factory.mktemp("ca")))


@pytest.mark.slow
@SCHEMA.parametrize()
@examples(20)
def test_no_request_gets_a_server_error_or_an_undocumented_answer(case: schemathesis.Case) -> None:
    ask_and_check(case)
