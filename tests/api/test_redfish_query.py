"""Query parameters: what they choose, what they expand, and where they end."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from redfish_support import bare_client, keys

from strata.api.redfish.protocol import query as queries
from strata.api.redfish.protocol.filter import compile_filter
from strata.api.redfish.protocol.route import Call, Json, Route, collection, link
from strata.core.errors import BadRequest, NotFound
from strata.fleet.access.principal import LOCAL_ADMIN, Principal, Right

BASE = "/redfish/v1/Things"
OWNER = "/redfish/v1/Owner"
SECRET = "/redfish/v1/Secret"

THING = {"Name": "it's", "Size": 3, "On": True, "Status": {"Health": "OK", "State": None}, "Tags": ["a"]}


def service_of(count: int, who: Principal | None = None) -> httpx.AsyncClient:
    """A collection of numbered things with an owner, and something that only administrators see."""

    async def things(call: Call) -> Json:
        return collection(BASE, "Thing", "Things", [f"{BASE}/{n}" for n in range(count)])

    async def thing(call: Call) -> Json:
        number = int(call.params["thing"])
        if number >= count:
            raise NotFound("no such thing")
        return {
            "@odata.id": f"{BASE}/{number}",
            "@odata.type": "#Thing.v1_0_0.Thing",
            "Id": str(number),
            "Size": number,
            "Status": {"Health": "OK" if number % 2 else "Warning", "State": "Enabled"},
            "Part": link(SECRET),
            "Links": {"Owner": link(OWNER), "Others": [link(f"{BASE}/{number + 1}")]},
            "Actions": {"#Thing.Do": {"target": f"{BASE}/{number}/Actions/Thing.Do"}},
        }

    async def owner(call: Call) -> Json:
        return {"@odata.id": OWNER, "Id": "owner", "Things": link(BASE)}

    async def secret(call: Call) -> Json:
        return {"@odata.id": SECRET, "Id": "secret"}

    routes = (
        Route(template=BASE, get=things),
        Route(template=f"{BASE}/{{thing}}", get=thing),
        Route(template=OWNER, get=owner),
        Route(template=SECRET, get=secret, rights={"GET": Right("read", "credential")}),
    )
    return bare_client(routes, who or LOCAL_ADMIN)


async def ask(text: str, path: str = BASE, count: int = 5) -> httpx.Response:
    return await service_of(count).get(f"{path}?{text}")


def ids(body: Json) -> list[str]:
    return [member["@odata.id"].rpartition("/")[2] for member in body["Members"]]


# the filter language


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("Size eq 3", True),
        ("Size ne 3", False),
        ("3 eq Size", True),
        ("Size gt 2.5 and Size lt 4", True),
        ("Size ge 4 or Size le 3", True),
        ("not Size eq 3", False),
        ("not (Size eq 3) or On eq true", True),
        ("Size eq 1 or Size eq 2 and On eq true", False),
        ("(Size eq 3 or Size eq 2) and On eq true", True),
        ("Name eq 'it''s'", True),
        ("Status/Health eq 'OK'", True),
        ("Status/State eq null", True),
        ("Nothing/At/All eq null", True),
        ("On eq 1", False),
        ("Size eq '3'", False),
        ("Name gt 5", False),
        ("Name gt 'a'", True),
    ],
)
def test_a_filter_says_whether_a_resource_fits(text: str, holds: bool) -> None:
    assert compile_filter(text)(THING) is holds


@pytest.mark.parametrize(
    "text",
    ["", "Size", "Size eq", "eq 3", "Size is 3", "Size eq 3 and", "(Size eq 3", "Size eq 3)", "Size eq 'x",
     "Size eq 3 4", "a eq ;", "(" * 50 + "a eq 1" + ")" * 50, "a eq 1 or " * 400 + "a eq 1", "Size eq 3x"],
)  # fmt: skip
def test_a_filter_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        compile_filter(text)


@given(st.text(alphabet="aS()'/ 1.eqntordgl-", max_size=40))
def test_no_text_breaks_the_filter(text: str) -> None:
    try:
        test = compile_filter(text)
    except BadRequest:
        return
    assert test(THING) in (True, False)


# choosing members


async def test_a_part_of_a_collection_is_counted_as_a_whole() -> None:
    body = (await ask("$skip=1&$top=2")).json()
    assert (ids(body), body["Members@odata.count"]) == (["1", "2"], 5)
    assert "Members@odata.nextLink" not in body
    assert ids((await ask("$top=0")).json()) == []
    assert ids((await ask("$skip=9")).json()) == []


async def test_a_filter_keeps_the_members_that_fit() -> None:
    body = (await ask("$filter=Status/Health eq 'OK' and Size gt 1")).json()
    assert (ids(body), body["Members@odata.count"]) == (["3"], 1)


async def test_a_large_collection_comes_in_pages_that_make_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "PAGE", 2)
    client = service_of(7)
    found, path = [], f"{BASE}?$skip=1&$top=5"
    while path:
        body = (await client.get(path)).json()
        found += ids(body)
        assert len(body["Members"]) <= 2
        path = body.get("Members@odata.nextLink", "")
    assert found == ["1", "2", "3", "4", "5"]


async def test_a_page_of_whole_members_keeps_its_query(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "EXPANDED_PAGE", 2)
    client = service_of(6)
    found, path = [], f"{BASE}?$expand=.&$filter=Status/Health eq 'OK'&$select=Size"
    while path:
        body = (await client.get(path)).json()
        found += [member["Size"] for member in body["Members"]]
        assert all(set(member) == {"@odata.id", "@odata.type", "Size"} for member in body["Members"])
        path = body.get("Members@odata.nextLink", "")
    assert found == [1, 3, 5]


async def test_a_filter_looks_at_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_FILTERED", 4)
    assert (await ask("$filter=Size eq 1")).status_code == 400


async def test_only_gives_the_one_member_or_else_the_collection() -> None:
    assert (await ask("only", count=1)).json()["Size"] == 0
    assert len((await ask("only", count=2)).json()["Members"]) == 2


# expanding


async def test_a_dot_expands_what_is_below_and_a_tilde_what_is_linked() -> None:
    dot = (await ask("$expand=.", f"{BASE}/1")).json()
    assert dot["Part"]["Id"] == "secret"
    assert dot["Links"]["Owner"] == link(OWNER)
    tilde = (await ask("$expand=~", f"{BASE}/1")).json()
    assert tilde["Part"] == link(SECRET)
    assert tilde["Links"]["Owner"]["Id"] == "owner"
    assert tilde["Links"]["Others"][0]["Size"] == 2
    both = (await ask("$expand=*", f"{BASE}/1")).json()
    assert (both["Part"]["Id"], both["Links"]["Owner"]["Id"]) == ("secret", "owner")
    assert both["Actions"] == dot["Actions"]


async def test_levels_say_how_deep() -> None:
    one = (await ask("$expand=.", OWNER)).json()["Things"]["Members"]
    two = (await ask("$expand=.($levels=2)", OWNER)).json()["Things"]["Members"]
    assert one[0] == link(f"{BASE}/0")
    assert two[0]["Part"] == link(SECRET)
    assert (await ask("$expand=.($levels=3)", OWNER)).json()["Things"]["Members"][0]["Part"]["Id"] == "secret"
    assert keys(await ask("$expand=.($levels=4)", OWNER)) == ["QueryParameterOutOfRange"]


async def test_what_may_not_be_read_or_is_gone_stays_a_link() -> None:
    viewer = Principal(name="v", role="viewer")
    body = (await service_of(2, viewer).get(f"{BASE}/1?$expand=*")).json()
    assert body["Part"] == link(SECRET)
    assert body["Links"]["Others"] == [link(f"{BASE}/2")]


async def test_an_expansion_ends_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_EXPANDED", 3)
    assert (await ask("$expand=.")).status_code == 400
    assert (await ask("$expand=.&$top=3")).status_code == 200


# the rest


async def test_select_keeps_what_was_named_and_what_says_what_it_is() -> None:
    body = (await ask("$select=Size,Status/Health,Nothing", f"{BASE}/1")).json()
    assert set(body) == {"@odata.id", "@odata.type", "@odata.etag", "Size", "Status"}
    assert body["Status"] == {"Health": "OK"}


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("unknown=1", 200),
        ("unknown", 200),
        ("$unknown", 501),
        ("$count=true", 501),
        ("$expand=Links", 400),
        ("$expand", 400),
        ("$top=x", 400),
        ("$top=-1", 400),
        ("$skip=", 400),
        ("$filter=x", 400),
        ("$select=", 400),
        ("$select=a;b", 400),
        ("only=1", 400),
        ("only&$top=1", 400),
        ("$top=1&$top=2", 400),
        ("&".join(f"a{n}=1" for n in range(99)), 400),
    ],
)
async def test_parameters_are_taken_refused_or_ignored_as_the_standard_says(text: str, status: int) -> None:
    assert (await ask(text)).status_code == status


@pytest.mark.parametrize("text", ["only", "$top=1", "$skip=1", "$filter=Size eq 1"])
async def test_what_is_for_collections_is_refused_elsewhere(text: str) -> None:
    assert keys(await ask(text, f"{BASE}/1")) == ["QueryNotSupportedOnResource"]


async def test_the_entity_tag_of_an_expansion_is_of_all_that_it_holds() -> None:
    plain = (await ask("$top=1")).headers["etag"]
    assert plain == (await ask("")).headers["etag"]
    assert plain != (await ask("$expand=.")).headers["etag"]


def test_the_features_promise_what_is_parsed() -> None:
    promised: dict[str, Any] = queries.FEATURES
    assert promised["ExpandQuery"]["MaxLevels"] == queries.MAX_LEVELS
    assert queries.parse("$expand=.&$filter=a eq 1&$select=a&$top=1&$skip=1").top == 1
    assert queries.parse("only").only
