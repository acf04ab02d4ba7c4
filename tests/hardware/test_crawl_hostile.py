"""Nothing that a service says makes the walk through it fail, loop or grow without bound."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_crawl_mockups import ROOT, collection, link, own, resource

from strata.core.errors import DeviceError
from strata.hardware.bmc.redfish.client import Answer, RedfishSettings
from strata.hardware.discovery.crawl import CrawlSettings, crawl
from strata.hardware.discovery.crawl_values import LONGEST, mac, number, serial, text, uuid
from strata.hardware.inventory.records import Found


class Told:
    """A client whose BMC says whatever the test wants."""

    def __init__(self, *bodies: Any) -> None:
        self.bodies = {body["@odata.id"]: body for body in bodies}
        self.asked: list[str] = []
        self.settings = RedfishSettings()
        self.path, self.dead = "", False
        self.silent_from = ""
        self.quiet_until = 0.0
        self.busy_at = ""

    def bmc(self, address: str) -> Told:
        return self

    def clock(self) -> float:
        return 0.0

    async def get(self, address: str, path: str, *, timeout: float = 0.0) -> Answer:
        self.asked.append(path)
        if self.busy_at and path.startswith(self.busy_at):
            self.busy_at, self.quiet_until = "", 0.01
            raise DeviceError("busy: it asks to wait 0 s", node=address)
        if self.silent_from and path.startswith(self.silent_from):
            self.dead = True
            raise DeviceError("no answer in 1 s", node=address)
        body = self.bodies.get(path.rstrip("/"))
        if body is None:
            raise DeviceError("it answered 404", node=address)
        return Answer(200, body, "", "")


async def walk(told: Told, **settings: Any) -> Found:
    found = await crawl(told, "http://bmc", settings=CrawlSettings(**settings), clock=lambda: 1.0)  # type: ignore[arg-type]
    msgspec.msgpack.encode(found)
    return found


def root(**more: Any) -> dict[str, Any]:
    return resource(ROOT, "ServiceRoot", **more)


async def test_links_in_a_circle_are_walked_once() -> None:
    a, b = f"{ROOT}/Chassis/A", f"{ROOT}/Chassis/A/B"
    told = Told(
        root(Chassis=link(f"{ROOT}/Chassis")),
        collection(f"{ROOT}/Chassis", "Chassis", a, a, b),
        resource(a, "Chassis", Inner=link(b), Itself=link(a)),
        resource(b, "Thing", Outer=link(a), Again=link(b)),
    )
    found = await walk(told)
    assert len(found.components) == 2
    assert len(told.asked) == len(set(told.asked)) == 4


async def test_a_collection_whose_next_page_is_itself_ends() -> None:
    path = f"{ROOT}/Chassis"
    told = Told(root(Chassis=link(path)), {**collection(path, "Chassis"), "Members@odata.nextLink": f"{path}?$skip=1"})
    told.bodies[f"{path}?$skip=1"] = {**collection(path, "Chassis"), "Members@odata.nextLink": f"{path}?$skip=1"}
    await walk(told)
    assert told.asked.count(f"{path}?$skip=1") == 1


async def test_a_service_without_end_is_read_up_to_a_bound_and_says_so() -> None:
    members = [f"{ROOT}/Chassis/{i}" for i in range(1000)]
    told = Told(root(Chassis=link(f"{ROOT}/Chassis")), collection(f"{ROOT}/Chassis", "Chassis", *members))
    told.bodies |= {member: resource(member, "Chassis") for member in members}
    found = await walk(told, resources=50)
    assert len(found.components) == 49
    assert "more than is looked at" in found.trouble[0]
    found = await walk(told, requests=20)
    assert "20 requests" in found.trouble[0]


async def test_one_that_stops_answering_is_not_asked_for_the_rest() -> None:
    told = Told(*own())
    told.silent_from = f"{ROOT}/Systems/S/Processors"
    told.bodies |= {f"{ROOT}/Systems/S/Processors/{i}": {} for i in range(50)}
    found = await walk(told, silences=1)
    assert found.trouble[0] == "/: the rest was not read: it stopped answering"
    assert len(told.asked) < 10


async def test_one_that_asks_for_patience_is_waited_for() -> None:
    told = Told(*own())
    told.busy_at = f"{ROOT}/Systems/S/Processors"
    assert (await walk(told)).trouble == ()
    told.busy_at = f"{ROOT}/Systems/S/Processors"
    found = await walk(told, busy=0.001)
    assert found.trouble == (f"{ROOT}/Systems/S/Processors: busy: it asks to wait 0 s",)


async def test_one_that_promises_to_expand_and_cannot_is_asked_one_by_one() -> None:
    bodies = own()
    bodies[0]["ProtocolFeaturesSupported"] = {"ExpandQuery": {"NoLinks": True, "Levels": True, "MaxLevels": 3}}
    told = Told(*bodies)
    found = await walk(told)
    assert found.trouble == ()
    assert len([path for path in told.asked if "$expand" in path]) == 1


async def test_links_to_elsewhere_are_not_followed() -> None:
    told = Told(
        root(
            Chassis={"@odata.id": "http://elsewhere.invalid/redfish/v1/Chassis"},
            Systems={"@odata.id": "/etc/passwd"},
            Managers={"@odata.id": f"{ROOT}/../../secret"},
            Fabrics={"@odata.id": f"{ROOT}/Fabrics?a=b"},
            Storage={"@odata.id": f"{ROOT}/" + "x" * 600},
            Cables={"@odata.id": 7},
        )
    )
    await walk(told)
    assert told.asked == [f"{ROOT}/"]


async def test_texts_are_cut_and_cleaned() -> None:
    path = f"{ROOT}/Chassis/A"
    told = Told(
        root(Chassis=link(f"{ROOT}/Chassis")),
        collection(f"{ROOT}/Chassis", "Chassis", path),
        resource(path, "Chassis", Name="a\x1b[2Jb\nc", Model="m" * 10**6, SerialNumber=12345, Manufacturer=None),
    )
    [part] = (await walk(told)).components
    assert (part.name, part.model, part.serial, part.vendor) == ("a [2Jb c", "m" * LONGEST, "12345", "")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(spoilt=st.lists(st.tuples(st.integers(0, 17), st.integers(0, 9), JSON), max_size=12))
async def test_no_nonsense_makes_it_fail(spoilt: list[tuple[int, int, Any]]) -> None:
    bodies = own()
    for which, what, value in spoilt:
        body = bodies[which % len(bodies)]
        names = [name for name in body if name != "@odata.id"]
        if names:
            body[names[what % len(names)]] = value
    await walk(Told(*bodies))


async def test_only_a_silent_root_is_an_error() -> None:
    told = Told(root())
    told.silent_from = ROOT
    with pytest.raises(DeviceError):
        await walk(told)


@pytest.mark.parametrize(
    "junk", ["", "To Be Filled By O.E.M.", "0123456789", "None", "N/A", "00000000", "Default string"]
)
def test_serials_that_makers_left_in_by_mistake_are_none(junk: str) -> None:
    assert serial(junk) == ""


def test_uuids_that_every_board_has_are_none() -> None:
    assert uuid("03000200-0400-0500-0006-000700080009") == ""
    assert uuid("00000000-0000-0000-0000-000000000000") == ""
    assert uuid("CD7C5CDD-C6EF-46ED-9827-413362E178DE") == "cd7c5cdd-c6ef-46ed-9827-413362e178de"


@given(JSON)
def test_any_value_is_read_or_is_nothing(value: Any) -> None:
    assert len(text(value)) <= LONGEST
    assert text(value).isprintable() or text(value) == ""
    assert mac(value) == "" or len(mac(value)) == 17
    found = number(value)
    assert found is None or 0 <= found < 1e18
