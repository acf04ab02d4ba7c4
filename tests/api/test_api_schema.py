"""The OpenAPI document is complete. Whether it is true, ``test_api_real_service`` finds out."""

from __future__ import annotations

from typing import get_args, get_origin

import pytest

from strata.api.app import create_litestar, openapi_schema
from strata.api.redfish.resources.events import SSE
from strata.api.rights import handlers_of
from strata.api.streams import STREAMS, is_stream
from strata.core.texts import ListOf


@pytest.mark.slow
def test_a_service_starts_without_writing_its_documentation() -> None:
    before = openapi_schema.cache_info()
    create_litestar.__wrapped__(2**20)
    assert openapi_schema.cache_info() == before


@pytest.mark.slow
def test_every_route_is_documented_with_its_right_statuses_and_words() -> None:
    paths = openapi_schema()["paths"]
    for method, path, handler in handlers_of(create_litestar(2**20)):
        operation = paths[path][method.lower()]
        assert operation["description"], (method, path)
        documented = {one["name"] for one in operation.get("parameters", ()) if one["in"] == "query"}
        assert handler.opt["query"] == documented, (method, path)
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


def test_a_list_of_a_kind_is_named_by_the_kind_and_not_by_its_module() -> None:
    schema = openapi_schema()
    returned = (handler.parsed_fn_signature.return_type.raw for *_, handler in handlers_of(create_litestar(2**20)))
    lists = {one for one in returned if get_origin(one) is ListOf}
    expected = {f"ListOf{kind.__name__[0].upper()}{kind.__name__[1:]}" for one in lists for kind in get_args(one)}
    assert {name for name in schema["components"]["schemas"] if name.startswith("ListOf")} == expected
    assert len(expected) == len(lists)  # else two kinds of one name would share a schema
    answer = schema["paths"]["/v1/groups"]["get"]["responses"]["200"]["content"]["application/json"]
    assert answer["schema"]["$ref"] == "#/components/schemas/ListOfGroupView"
    assert schema["components"]["schemas"]["ListOfGroupView"]["title"] == "ListOfGroupView"
