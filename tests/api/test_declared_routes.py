"""Routes that are one method of a service each: what is said of them once, for all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Annotated

import httpx
import msgspec
import pytest
from litestar import Litestar
from litestar.di import Provide

from strata.api.app import _to_problem
from strata.api.routing import Routes
from strata.api.services import Ask, Cursor, Limit, Time
from strata.core.texts import In, Out
from strata.fleet.access.principal import LOCAL_ADMIN, Principal
from strata.fleet.operations.records import Operation
from strata.fleet.services import Services


class Letters(Out, frozen=True, kw_only=True):
    items: tuple[str, ...]
    next: str | None


class Parcel(In, frozen=True, kw_only=True):
    name: str
    weight: Annotated[int, msgspec.Meta(ge=1)] = 1


class Post:
    """Answers with what it was asked."""

    async def letters(self, who: Principal, since: float | None = None, limit: int = 2, after: str = "") -> Letters:
        """The letters."""
        return Letters(items=(f"{since} {limit} {after!r}",), next="b" if not after else None)

    async def stamps(self, who: Principal) -> Sequence[str]:
        """The stamps."""
        return ["red", "blue"]

    async def send(self, who: Principal, name: str, parcel: Parcel) -> Parcel:
        """Send it to somebody."""
        return msgspec.structs.replace(parcel, name=f"{parcel.name} to {name} by {who.name}")

    async def weigh(self, who: Principal, name: str, *, weight: int) -> Operation | str:
        """Weigh one; many take their time."""
        return f"{name}: {weight}" if weight < 9 else Operation(id="o1", kind="weigh", author=who.name, created=0)


_ROUTES = Routes(Post, "note", tag="post")
_ROUTES.get("list_letters", "/letters", Post.letters, since=Time, limit=Limit, cursor=Cursor)
_ROUTES.get("list_stamps", "/stamps", Post.stamps)
_ROUTES.post("send", "/people/{name:str}", Post.send, "change")
_ROUTES.post("weigh", "/scales", Post.weigh, "change", data=Parcel)


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    services = Services()
    services.put(Post())
    app = Litestar(
        _ROUTES.made,
        dependencies={"ask": Provide(lambda: Ask(LOCAL_ADMIN, services), sync_to_thread=False)},
        exception_handlers={Exception: _to_problem},
        openapi_config=None,
        logging_config=None,
    )
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://post") as found:
        yield found


async def test_a_page_goes_on_by_a_cursor_that_only_the_service_reads(client: httpx.AsyncClient) -> None:
    first = (await client.get("/letters")).json()
    assert first["items"] == ["None 2 ''"]
    assert first["next"] not in ("b", None)
    second = (await client.get("/letters", params={"cursor": first["next"], "limit": 7, "since": 1.5})).json()
    assert second == {"items": ["1.5 7 'b'"], "next": None}
    assert (await client.get("/letters", params={"cursor": "b"})).status_code == 400


async def test_a_time_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    refused = await client.get("/letters", params={"since": "nan"})
    assert refused.status_code == 400
    assert refused.json()["where"] == "query since"


async def test_a_sequence_is_a_list_of_items(client: httpx.AsyncClient) -> None:
    assert (await client.get("/stamps")).json() == {"items": ["red", "blue"]}


async def test_the_body_is_what_the_method_takes_last(client: httpx.AsyncClient) -> None:
    sent = await client.post("/people/ann", json={"name": "hat"})
    assert (sent.status_code, sent.json()["name"]) == (200, f"hat to ann by {LOCAL_ADMIN.name}")
    assert (await client.post("/people/ann", json={"weight": 0})).status_code == 400
    assert (await client.post("/people/-", json={"name": "hat"})).status_code == 400, "no name of anything"


async def test_the_fields_of_a_body_are_what_the_method_takes(client: httpx.AsyncClient) -> None:
    assert (await client.post("/scales", json={"name": "hat"})).text == "hat: 1"


async def test_work_that_takes_its_time_is_accepted_with_its_place(client: httpx.AsyncClient) -> None:
    accepted = await client.post("/scales", json={"name": "hats", "weight": 9})
    assert (accepted.status_code, accepted.headers["location"]) == (202, "/v1/operations/o1")
