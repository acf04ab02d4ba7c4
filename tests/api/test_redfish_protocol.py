"""The protocol by itself, over routes that the tests bring: paths, headers, statuses, entity tags, errors."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from redfish_support import bare_client, keys

from strata.api.redfish.protocol.route import Call, Json, Reply, Route, collection
from strata.api.redfish.protocol.table import Table
from strata.api.services import Limits
from strata.core import errors as e
from strata.fleet.access.principal import Principal, Right

BASE = "/redfish/v1/Things"


class Shop:
    """A few things that can be read and changed."""

    def __init__(self, *names: str) -> None:
        self.things = dict.fromkeys(names, 1)
        self.running = 0
        self.most = 0

    async def list(self, call: Call) -> Json:
        return collection(BASE, "Thing", "Things", [f"{BASE}/{name}" for name in self.things])

    async def get(self, call: Call) -> Json:
        name = call.params["thing"]
        if name not in self.things:
            raise e.NotFound("no such thing", where=name)
        return {
            "@odata.id": f"{BASE}/{name}",
            "@odata.type": "#Thing.v1_2_3.Thing",
            "Id": name,
            "Size": self.things[name],
        }

    async def patch(self, call: Call) -> Json:
        assert call.body is not None
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.things[call.params["thing"]] = call.body["Size"]
        self.running -= 1
        return await self.get(call)

    async def post(self, call: Call) -> Reply:
        assert call.body is not None
        self.things[call.body["Id"]] = 1
        return Reply(status=201, headers={"Location": f"{BASE}/{call.body['Id']}"})

    async def delete(self, call: Call) -> Reply:
        del self.things[call.params["thing"]]
        return Reply(status=204)

    @property
    def routes(self) -> tuple[Route, ...]:
        return (
            Route(template=BASE, get=self.list, post=self.post),
            Route(
                template=f"{BASE}/{{thing}}",
                get=self.get,
                patch=self.patch,
                delete=self.delete,
                rights={"PATCH": Right("change", "node"), "DELETE": Right("delete", "node")},
            ),
        )


@pytest.fixture
def shop() -> Shop:
    return Shop("a", "b")


@pytest.fixture
def client(shop: Shop) -> httpx.AsyncClient:
    return bare_client(shop.routes)


async def failing(error: Exception) -> httpx.Response:
    async def fail(call: Call) -> Json:
        raise error

    route = Route(template=BASE, get=fail, patch=fail)
    return await bare_client([route]).get(BASE)


# paths


def handler_named(name: str) -> Route:
    async def get(call: Call) -> Json:
        return {"name": name}

    return Route(template=name, get=get)


@pytest.mark.parametrize(
    ("path", "template", "params"),
    [
        ("/redfish/v1", "/redfish/v1", {}),
        ("/redfish/v1/", "/redfish/v1", {}),
        ("/redfish/v1/A/x", "/redfish/v1/A/{a}", {"a": "x"}),
        ("/redfish/v1/A/x/", "/redfish/v1/A/{a}", {"a": "x"}),
        ("/redfish/v1/A/x%2Fy", "/redfish/v1/A/{a}", {"a": "x/y"}),
        ("/redfish/v1/%41/x", "/redfish/v1/A/{a}", {"a": "x"}),
        ("/redfish/v1/A/special", "/redfish/v1/A/special", {}),
        ("/redfish/v1/A/special/B", "/redfish/v1/A/{a}/B", {"a": "special"}),
    ],
)
def test_a_path_is_found_by_its_segments(path: str, template: str, params: dict[str, str]) -> None:
    templates = ("/redfish/v1", "/redfish/v1/A/{a}", "/redfish/v1/A/special", "/redfish/v1/A/{a}/B")
    found = Table(map(handler_named, templates)).find(path)
    assert found is not None
    assert (found[0].template, dict(found[1])) == (template, params)


@pytest.mark.parametrize(
    "path",
    [
        "/redfish/v1//A/x",
        "/redfish/v1/A//",
        "/redfish/v1/A/..",
        "/redfish/v1/A/%2e%2e",
        "/redfish/v1/a/x",
        "/redfish/v1/A/%ff",
        "/redfish/v1/A/" + "x" * 3000,
    ],
)
def test_a_path_that_is_not_exactly_right_is_not_there(path: str) -> None:
    assert Table([handler_named("/redfish/v1/A/{a}")]).find(path) is None


def test_two_routes_for_one_path_do_not_start() -> None:
    with pytest.raises(RuntimeError, match="twice"):
        Table([handler_named("/redfish/v1/A/{a}"), handler_named("/redfish/v1/A/{a}")])


async def test_a_collection_is_created_in_by_its_members_too(client: httpx.AsyncClient, shop: Shop) -> None:
    assert (await client.post(f"{BASE}/Members", json={"Id": "c"})).headers["location"] == f"{BASE}/c"
    assert "c" in shop.things


# methods and headers


async def test_every_answer_says_its_version_and_what_is_allowed(client: httpx.AsyncClient) -> None:
    answer = await client.get(f"{BASE}/a")
    assert answer.headers["odata-version"] == "4.0"
    assert answer.headers["allow"] == "GET, PATCH, DELETE, HEAD"
    assert answer.headers["content-type"] == "application/json; charset=utf-8"
    assert answer.headers["link"] == "<https://redfish.dmtf.org/schemas/v1/Thing.v1_2_3.json>; rel=describedby"


async def test_a_method_that_is_not_offered_is_told_with_those_that_are(client: httpx.AsyncClient) -> None:
    answer = await client.delete(BASE)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST, HEAD")
    assert keys(answer) == ["OperationNotAllowed"]
    assert (await client.put(BASE, json={})).status_code == 405
    assert (await client.request("BREW", BASE)).status_code == 501
    options = await client.options(BASE)
    assert (options.status_code, options.headers["allow"]) == (204, "GET, POST, HEAD")


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        ("application/json", 200),
        ("application/json;charset=utf-8", 200),
        ("text/html, application/*;q=0.1", 200),
        ("*/*", 200),
        ("", 200),
        ("text/html", 406),
        ("application/json;q=0", 406),
    ],
)
async def test_only_json_is_given(client: httpx.AsyncClient, accept: str, status: int) -> None:
    assert (await client.get(BASE, headers={"Accept": accept})).status_code == status


async def test_another_version_of_odata_is_refused(client: httpx.AsyncClient) -> None:
    assert (await client.get(BASE, headers={"OData-Version": "4.1"})).status_code == 412


@pytest.mark.parametrize(
    ("kind", "body", "status", "key"),
    [
        ("text/plain", b"{}", 415, "HeaderInvalid"),
        ("application/json;charset=latin-1", b"{}", 415, "HeaderInvalid"),
        ("application/json", b"{", 400, "MalformedJSON"),
        ("application/json", b"[" * 100_000, 400, "MalformedJSON"),
        ("application/json", b'{"a":"\xff"}', 400, "MalformedJSON"),
        ("application/json", b"[]", 400, "UnrecognizedRequestBody"),
    ],
)
async def test_a_body_that_is_no_json_object_changes_nothing(
    client: httpx.AsyncClient, kind: str, body: bytes, status: int, key: str
) -> None:
    answer = await client.patch(f"{BASE}/a", content=body, headers={"Content-Type": kind})
    assert (answer.status_code, keys(answer)) == (status, [key])


async def test_a_body_that_is_too_large_is_refused() -> None:
    answer = await bare_client(Shop("a").routes, limits=Limits(body=100)).patch(f"{BASE}/a", json={"Size": "x" * 200})
    assert answer.status_code == 413


async def test_a_right_that_is_missing_is_told_before_the_body_is_looked_at(shop: Shop) -> None:
    viewer = Principal(name="v", role="viewer")
    answer = await bare_client(shop.routes, viewer).patch(f"{BASE}/a", content=b"{")
    assert (answer.status_code, keys(answer)) == (403, ["InsufficientPrivilege", "Denied"])


# entity tags


async def test_an_entity_tag_is_stable_and_in_both_places(client: httpx.AsyncClient, shop: Shop) -> None:
    first = await client.get(f"{BASE}/a")
    again = await client.get(f"{BASE}/a", params={"$select": "Id"})
    assert first.headers["etag"] == first.json()["@odata.etag"] == again.headers["etag"]
    shop.things["a"] = 2
    assert (await client.get(f"{BASE}/a")).headers["etag"] != first.headers["etag"]


async def test_what_a_client_has_is_not_sent_again(client: httpx.AsyncClient) -> None:
    tag = (await client.get(f"{BASE}/a")).headers["etag"]
    answer = await client.get(f"{BASE}/a", headers={"If-None-Match": tag})
    assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)


async def test_a_change_of_something_that_has_changed_is_refused(client: httpx.AsyncClient, shop: Shop) -> None:
    tag = (await client.get(f"{BASE}/a")).headers["etag"]
    changed = await client.patch(f"{BASE}/a", json={"Size": 5}, headers={"If-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] == (await client.get(f"{BASE}/a")).headers["etag"]
    for wanted in (tag, '"never"', changed.headers["etag"] + "x"):
        for request in (client.patch(f"{BASE}/a", json={"Size": 6}, headers={"If-Match": wanted}),
                        client.delete(f"{BASE}/a", headers={"If-Match": wanted})):  # fmt: skip
            refused = await request
            assert (refused.status_code, keys(refused)) == (412, ["PreconditionFailed"])
    assert shop.things["a"] == 5
    assert (await client.delete(f"{BASE}/a", headers={"If-Match": "*"})).status_code == 204


async def test_of_many_writers_with_the_same_tag_one_wins(client: httpx.AsyncClient, shop: Shop) -> None:
    tag = (await client.get(f"{BASE}/a")).headers["etag"]
    answers = await asyncio.gather(
        *(client.patch(f"{BASE}/a", json={"Size": 10 + n}, headers={"If-Match": tag}) for n in range(5))
    )
    assert sorted(a.status_code for a in answers) == [200, 412, 412, 412, 412]
    assert shop.most == 1


# errors


@pytest.mark.parametrize(
    ("error", "status", "first"),
    [
        (e.BadRequest("no"), 400, "BadRequest"),
        (e.NotFound("gone"), 404, "ResourceMissingAtURI"),
        (e.Denied("no"), 403, "InsufficientPrivilege"),
        (e.Conflict("late"), 409, "Conflict"),
        (e.Refused("frozen", by="freeze"), 409, "Refused"),
        (e.Unavailable("store away"), 503, "ServiceTemporarilyUnavailable"),
        (e.DeviceError("nonsense", node="n1"), 502, "DeviceError"),
        (e.NotOffered("no such thing", node="n1"), 409, "DeviceError"),
        (e.OutcomeUnknown("silence"), 504, "OutcomeUnknown"),
        (ValueError("secret inside"), 500, "InternalError"),
    ],
)
async def test_every_error_has_its_status_and_a_message(error: Exception, status: int, first: str) -> None:
    answer = await failing(error)
    assert (answer.status_code, keys(answer)[0]) == (status, first)
    body = answer.json()["error"]
    assert body["code"].endswith(first)
    assert body["message"]
    assert "secret" not in answer.text
    if status == 503:
        assert int(answer.headers["retry-after"]) > 0


async def test_an_error_says_what_where_and_what_to_do() -> None:
    answer = await failing(e.Refused("a freeze is on", by="freeze", where="n1", hint="strata thaw"))
    info = answer.json()["error"]["@Message.ExtendedInfo"][0]
    assert "a freeze is on" in info["Message"]
    assert "n1" in info["Message"]
    assert info["Resolution"] == "strata thaw"


async def test_what_others_wrote_is_made_short_and_printable() -> None:
    answer = await failing(e.BadRequest("bell \x07 " + "x" * 5000))
    text = answer.json()["error"]["message"]
    assert "\x07" not in text
    assert len(text) < 500


async def test_a_conflict_under_a_condition_is_a_failed_precondition() -> None:
    async def fail(call: Call) -> Json:
        raise e.Conflict("somebody was first")

    async def get(call: Call) -> Json:
        return {"@odata.id": BASE}

    client = bare_client([Route(template=BASE, get=get, patch=fail)])
    assert (await client.patch(BASE, json={"a": 1})).status_code == 409
    assert (await client.patch(BASE, json={"a": 1}, headers={"If-Match": "*"})).status_code == 412
