"""``strata hardware``: discover, list, show, components, history, conflicts, forget."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import fake_server
import pytest
from cli_support import Run
from fake_server import Call, FakeServer

from strata.hardware.inventory.commands import KINDS
from strata.hardware.inventory.records import ComponentKind

Json = dict[str, Any]

IDENTITY = {
    "vendor": "Contoso", "model": "HX-2", "serial": "S1", "uuid": "u1", "firmware": "1.4", "protocol": "redfish",
    "quirks": [],
}  # fmt: skip
SUMMARY = {
    "address": "https://bmc1", "identity": IDENTITY, "seen": 1_700_000_000.0, "nodes": ["n1"], "machines": 1,
    "components": {"system": 1, "memory": 2}, "trouble": [],
}  # fmt: skip


def part(ident: str, kind: str, parent: str = "", **more: Any) -> Json:
    empty = {"slot": "", "vendor": "", "model": "", "part": "", "serial": "", "firmware": "", "shape": ""}
    return {
        "bmc": "https://bmc1", "node": "n1", "id": ident, "kind": kind, "name": ident, "parent": parent, **empty,
        "health": "ok", "macs": [], "facts": {}, **more,
    }  # fmt: skip


PARTS = [
    part("/s", "system", serial="S1"),
    part("/s/d1", "memory", "/s", serial="M1", facts={"capacity_mib": 65536}),
    part("/s/d2", "memory", "/s", health="critical"),
    part("/s/x", "other", "/s", shape="Heater.v1_0_2.Heater", name="evil\x1b[2J"),
]
REPORT: Json = {
    "job": "j1", "found": 12, "new": 10, "changed": 1, "swapped": 1, "silent": 2, "failed": 0, "troubled": 1,
    "conflicts": 3, "located": 5, "adopted": 9, "updated": 1, "refused": [], "refused_count": 0,
    "not_understood": {"OutletGroup": 1, "ResourceBlock": 4},
}  # fmt: skip
CHANGE = {
    "time": 1_700_000_000.0, "what": "swapped", "bmc": "https://bmc1", "node": "n1", "component": "/s/d1",
    "kind": "memory", "old": "M1", "new": "M9", "detail": "DIMM1",
}  # fmt: skip
CONFLICT = {
    "what": "duplicate-mac", "value": "00:11:22:33:44:55", "where": ["https://bmc1", "https://bmc2"],
    "since": 1_700_000_000.0, "hint": "look",
}  # fmt: skip


class Hardware:
    """What the service has, and was asked."""

    def __init__(self, server: FakeServer) -> None:
        self.server = server
        self.report = dict(REPORT)
        self.job: Json = {}
        self.conflicts: list[Json] = [CONFLICT]
        self.forgotten: list[str] = []

    def routes(self) -> list[Any]:
        return [
            ("POST", "/v1/hardware/discover", "", self.discover),
            ("GET", "/v1/hardware/discover/([^/]+)", "", lambda fake, call: self.report),
            ("GET", "/v1/hardware/bmcs", "limit cursor", lambda fake, call: {"items": [SUMMARY], "next": None}),
            ("GET", "/v1/hardware/bmc", "address", lambda f, c: {"summary": SUMMARY, "components": PARTS}),
            ("DELETE", "/v1/hardware/bmc", "address", self.forget),
            ("GET", "/v1/nodes/([^/]+)/hardware", "", self.of_node),
            ("GET", "/v1/hardware/components", "select kind text limit cursor", self.components),
            ("GET", "/v1/hardware/history", "select since limit", lambda fake, call: {"items": [CHANGE]}),
            ("GET", "/v1/hardware/conflicts", "", lambda fake, call: {"items": self.conflicts}),
        ]

    def discover(self, fake: FakeServer, call: Call) -> tuple[int, Json]:
        allowed = "addresses csv leases dhcp ranges ssdp known mapping accept adopt name"
        call.fields(allowed)
        return 202, fake.job(12, **self.job)

    def of_node(self, fake: FakeServer, call: Call) -> Json:
        return {
            "node": call.name, "bmc": "https://bmc1", "identity": IDENTITY, "seen": 1_700_000_000.0,
            "serial": "S1", "uuid": "u1", "components": PARTS,
        }  # fmt: skip

    def components(self, fake: FakeServer, call: Call) -> Json:
        kind = call.query.get("kind")
        return {"items": [p for p in PARTS if not kind or p["kind"] == kind], "next": None}

    def forget(self, fake: FakeServer, call: Call) -> tuple[int, None]:
        self.forgotten.append(call.query["address"])
        return 204, None


@pytest.fixture
def hardware(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Hardware:
    found = Hardware(server)
    monkeypatch.setattr(fake_server, "ROUTES", [*found.routes(), *fake_server.ROUTES])
    return found


def body(server: FakeServer) -> Json:
    return next(sent for sent in server.bodies if sent is not None)


@pytest.mark.slow
def test_discover_sends_what_was_given_and_tells_what_it_came_to(run: Run, hardware: Hardware, tmp_path: Path) -> None:
    csv, mapping = tmp_path / "b.csv", tmp_path / "m.csv"
    csv.write_text("address\nhttps://bmc1\n")
    mapping.write_text("serial,nid\nS1,7\n")
    done = run(
        "hardware", "discover", "10.0.0.7", "--csv", csv, "--range", "10.1.0.0/20",
        "--mapping", mapping, "--adopt", "--ssdp",
    )  # fmt: skip
    assert done.code == 0, done.err
    sent = body(hardware.server)
    assert (sent["addresses"], sent["ranges"], sent["adopt"], sent["ssdp"]) == (
        ["10.0.0.7"],
        ["10.1.0.0/20"],
        True,
        True,
    )
    assert (sent["csv"], sent["mapping"]) == ("address\nhttps://bmc1\n", "serial,nid\nS1,7\n")
    assert "12 found: 10 new, 1 changed, 1 swapped; 2 silent" in done.out
    assert "9 nodes adopted, 1 updated" in done.out
    assert "3 conflicts: strata hardware conflicts" in done.err
    assert "kept by the BMCs' own names: 4 ResourceBlock, 1 OutletGroup" in done.out


@pytest.mark.slow
def test_discover_lists_what_failed_and_what_was_refused(run: Run, hardware: Hardware) -> None:
    hardware.job = {"failed": 1, "errors": [{"node": "https://bmc9", "detail": "nobody answers"}]}
    hardware.report |= {"refused": [{"machine": "https://bmc2", "why": "two places"}], "refused_count": 1}
    done = run("hardware", "discover", "https://bmc9", "--adopt")
    assert done.code == 1
    assert "https://bmc9: nobody answers" in done.err
    assert "https://bmc2: no node was made of it: two places" in done.err


def test_discover_without_waiting_names_the_job(run: Run, hardware: Hardware) -> None:
    assert run("hardware", "discover", "--known", "--no-wait").out == "accepted as operation j1: 12 addresses\n"
    assert body(hardware.server)["known"] is True


@pytest.mark.slow
def test_discover_answers_programs(run: Run, hardware: Hardware) -> None:
    done = run("hardware", "discover", "--accept", "https://bmc1", "--json")
    assert (done.json["report"]["found"], done.json["job"]["state"]) == (12, "done")
    assert body(hardware.server)["accept"] == ["https://bmc1"]


def test_a_lease_file_with_names_that_are_not_utf_8_is_sent(run: Run, hardware: Hardware, tmp_path: Path) -> None:
    leases = tmp_path / "dnsmasq.leases"
    leases.write_bytes(b"0 52:54:00:00:00:01 10.0.0.7 caf\xe9 *\n")
    done = run("hardware", "discover", "--leases", leases)
    assert done.code == 0, done.err
    assert body(hardware.server)["leases"] == "0 52:54:00:00:00:01 10.0.0.7 caf\ufffd *\n"


def test_a_file_that_cannot_be_read_is_named(run: Run, hardware: Hardware, tmp_path: Path) -> None:
    done = run("hardware", "discover", "--csv", tmp_path / "absent.csv")
    assert done.code == 1
    assert "absent.csv: cannot be read" in done.err


def test_controllers_are_listed(run: Run, hardware: Hardware) -> None:
    lines = run("hardware", "list").lines
    assert lines[0].split()[:3] == ["ADDRESS", "NODES", "VENDOR"]
    assert lines[1].split()[:5] == ["https://bmc1", "n1", "Contoso", "HX-2", "S1"]
    assert run("hardware", "list", "--json").json == [SUMMARY]


@pytest.mark.parametrize("what", ["n1", "https://bmc1"])
def test_a_node_or_a_controller_is_shown_as_a_tree(run: Run, hardware: Hardware, what: str) -> None:
    done = run("hardware", "show", what)
    assert done.code == 0, done.err
    tree = done.out.partition("\n\n")[2].splitlines()
    assert tree[0].startswith("system  /s  serial S1")
    assert tree[1] == "  memory  /s/d1  serial M1  capacity_mib=65536"
    assert tree[2] == "  memory  /s/d2  CRITICAL"
    assert tree[3] == "  Heater  evil\\x1b[2J"


def test_parts_that_are_in_each_other_are_shown_once(
    run: Run, hardware: Hardware, monkeypatch: pytest.MonkeyPatch
) -> None:
    circle = [part("/a", "chassis", "/b"), part("/b", "chassis", "/a")]
    monkeypatch.setattr("test_cli_inventory.PARTS", circle)
    assert len(run("hardware", "show", "n1").out.partition("\n\n")[2].splitlines()) == 2


def test_components_are_filtered_by_the_service(run: Run, hardware: Hardware) -> None:
    done = run("hardware", "components", "@gpu", "n1", "--kind", "memory", "--text", "M", "--columns", "node,serial")
    assert done.lines == ["NODE  SERIAL", "n1    M1", "n1    -"]
    assert "select=%40gpu%20n1&kind=memory&text=M" in hardware.server.requests[-1][1]


def test_history_and_conflicts(run: Run, hardware: Hardware) -> None:
    assert "swapped" in run("hardware", "history", "n1", "--since", "30d").out
    assert "since=" in hardware.server.requests[-1][1]
    found = run("hardware", "conflicts")
    assert found.code == 1, "so that a script notices"
    assert "duplicate-mac" in found.out
    hardware.conflicts = []
    assert run("hardware", "conflicts", "--json").json == []


def test_a_controller_is_forgotten(run: Run, hardware: Hardware) -> None:
    assert run("hardware", "forget", "https://bmc1").out == "forgot https://bmc1\n"
    assert hardware.forgotten == ["https://bmc1"]


def test_every_kind_of_component_can_be_asked_for() -> None:
    assert get_args(ComponentKind) == KINDS
