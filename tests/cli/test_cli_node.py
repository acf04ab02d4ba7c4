"""``strata node``: looking at nodes."""

from __future__ import annotations

import time
from urllib.parse import parse_qs, urlsplit

import pytest
from cli_support import Run
from fake_server import FakeServer

STEP = {
    "mutation": "power-off",
    "variable": "power",
    "to": "off",
    "cost": 20.0,
    "destructive": True,
    "guards": ["no-running-job"],
}


@pytest.fixture
def fleet(server: FakeServer) -> FakeServer:
    fact = {"value": "on", "seen": time.time() - 12, "source": "bmc", "age": 12.0}
    want = {"values": ["on"], "author": "alice", "revision": 4, "origin": "compute-ready"}
    for number in range(1, 5):
        server.add_node(f"n{number}", facts={"power": fact}, desires={"power": want}, groups=["compute"])
    server.nodes["n3"].update(state="faulted", fault="boot failed 3 times")
    server.groups["compute"] = {"name": "compute", "members": "n[1-4]", "description": "", "count": 4, "revision": 1}
    return server


def asked(server: FakeServer, index: int = -1) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(server.requests[index][1]).query).items()}


def test_a_listing_shows_a_row_for_each_node(fleet: FakeServer, run: Run) -> None:
    result = run("node", "list")
    assert result.code == 0
    assert result.lines[0].split() == ["NAME", "STATE", "LOCATION", "ROLE", "GROUPS", "DOING", "FAULT", "HOLD"]
    assert [line.split()[:2] for line in result.lines[1:]] == [
        ["n1", "ready"],
        ["n2", "ready"],
        ["n3", "faulted"],
        ["n4", "ready"],
    ]
    assert "boot failed 3 times" in result.lines[3]


def test_a_listing_says_why_nodes_are_held(fleet: FakeServer, run: Run) -> None:
    run("node", "hold", "n2", "--reason", "fan is loud")
    assert "fan is loud" in run("node", "list").lines[2]
    assert [node["hold"] and node["hold"]["reason"] for node in run("node", "list", "--json").json][:2] == [
        None, "fan is loud",
    ]  # fmt: skip


def test_terms_on_the_line_are_one_selector(fleet: FakeServer, run: Run) -> None:
    result = run("node", "list", "@compute", "state:faulted", "--columns", "name,fault")
    assert [line.split()[0] for line in result.lines] == ["NAME", "n3"]
    assert asked(fleet) == {"select": "@compute state:faulted", "fields": "fault,name", "limit": "10000"}


def test_json_has_whole_nodes(fleet: FakeServer, run: Run) -> None:
    result = run("node", "list", "n[1-2]", "--json")
    assert [node["name"] for node in result.json] == ["n1", "n2"]
    assert result.json[0]["facts"]["power"]["value"] == "on"
    assert "fields" not in asked(fleet)


def test_a_folded_listing_is_one_nodeset(fleet: FakeServer, run: Run) -> None:
    assert run("node", "list", "--folded", "--state", "ready").out == "n[1-2,4]\n"


def test_grouping_by_state_folds_each(fleet: FakeServer, run: Run) -> None:
    assert [line.split() for line in run("node", "list", "--group-by", "state").lines] == [
        ["STATE", "NODES"],
        ["ready", "n[1-2,4]"],
        ["faulted", "n3"],
    ]


def test_the_service_sorts_what_it_can(fleet: FakeServer, run: Run) -> None:
    result = run("node", "list", "--sort", "-name", "--limit", "2")
    assert [line.split()[0] for line in result.lines[1:]] == ["n4", "n3"]
    assert asked(fleet)["sort"] == "-name"
    assert asked(fleet)["limit"] == "2"


def test_sorting_and_matching_here_come_before_the_limit(fleet: FakeServer, run: Run) -> None:
    result = run("node", "list", "--sort", "-fault", "--limit", "1")
    assert result.lines[1].split()[0] == "n3"
    assert run("node", "list", "--match", "fault=boot*", "--limit", "1").lines[1].split()[0] == "n3"


def test_an_unknown_column_is_wrong_usage_that_lists_them(fleet: FakeServer, run: Run) -> None:
    for arguments in (["--columns", "colour"], ["--sort", "colour"], ["--match", "colour=red"]):
        result = run("node", "list", *arguments)
        assert result.code == 2
        assert "location" in result.err


def test_a_node_is_shown_with_what_is_and_what_is_wanted(fleet: FakeServer, run: Run) -> None:
    fleet.nodes["n1"].update(
        hold={"node": "n1", "reason": "DIMM", "author": "bob", "since": 1.0},
        doing={"mutation": "boot", "since": time.time() - 30, "deadline": time.time() + 30},
    )
    result = run("node", "show", "n1")
    assert result.code == 0
    assert "hold          DIMM (bob, since" in result.out
    assert "doing         boot (30s)" in result.out
    assert result.lines[-1].split() == ["power", "on", "on", "12s", "ago", "bmc", "alice", "(compute-ready)"]


def test_a_node_that_nobody_has_seen_is_shown(server: FakeServer, run: Run) -> None:
    server.add_node(
        "n1", state="unknown", facts={"power": {"value": "unknown", "seen": None, "source": "", "age": None}}
    )
    assert run("node", "show", "n1").lines[-1].split() == ["power", "unknown", "-", "-", "-", "-"]


def test_a_node_that_is_not_there_is_an_error(fleet: FakeServer, run: Run) -> None:
    result = run("node", "show", "n9")
    assert (result.code, result.out) == (1, "")
    assert result.err == "strata: n9: no such node\n"


def test_json_has_the_columns_that_were_asked_for(fleet: FakeServer, run: Run) -> None:
    result = run("node", "list", "n[1-2]", "--json", "--columns", "name,facts,doing")
    assert [set(node) for node in result.json] == [{"name", "facts", "doing"}] * 2
    assert result.json[0]["facts"]["power"]["value"] == "on"


def test_why_tells_the_reason_the_blocker_and_what_comes_next(fleet: FakeServer, run: Run) -> None:
    fleet.why = {
        "nodes": "n1",
        "count": 1,
        "state": "waiting",
        "summary": "power must be off, and a job runs",
        "lines": ["power is on (bmc, 12 s ago)"],
        "next": {"mutation": "power-off", "observe": [], "when": time.time() + 61},
        "blocked_by": [{"kind": "guard", "name": "no-running-job", "detail": "job 17"}],
    }
    assert run("node", "why", "n1").lines == [
        "n1 is waiting: power must be off, and a job runs",
        "  power is on (bmc, 12 s ago)",
        "  held up by guard no-running-job: job 17",
        "  next: power-off, in 1m1s",
    ]


@pytest.mark.parametrize(
    ("following", "text"),
    [
        ({"mutation": None, "observe": ["os", "image"], "when": 0.0}, "look at os, image, now"),
        ({"mutation": "boot", "observe": [], "when": None}, "boot, as soon as nothing holds it up"),
    ],
)
def test_why_says_when(fleet: FakeServer, run: Run, following: dict[str, object], text: str) -> None:
    fleet.why = {
        "nodes": "n[1-3]",
        "count": 3,
        "state": "waiting",
        "summary": "s",
        "lines": [],
        "next": following,
        "blocked_by": [],
    }
    assert run("node", "why", "n[1-3]").lines == ["each of n[1-3] (3) is waiting: s", f"  next: {text}"]


def test_a_plan_lists_its_steps(fleet: FakeServer, run: Run) -> None:
    fleet.node_plan = {"status": "plan", "steps": [STEP], "observe": [], "cost": 20.0, "reason": ""}
    result = run("node", "plan", "n1", "power=off", "image=v1|v2")
    assert result.code == 0
    assert result.lines[0] == "n1 needs 1 step, cost 20"
    assert result.lines[2].split() == ["1", "power-off", "power=off", "20", "destructive,", "no-running-job"]
    assert asked(fleet) == {"set": "power=off,image=v1|v2"}


def test_a_goal_that_cannot_be_reached_is_exit_code_3(fleet: FakeServer, run: Run) -> None:
    fleet.node_plan = {
        "status": "unreachable",
        "steps": [],
        "observe": [],
        "cost": 0.0,
        "reason": "nothing leads to os=up",
    }
    result = run("node", "plan", "n1")
    assert result.code == 3
    assert result.out == "n1 cannot get there (nothing leads to os=up)\n"
    assert run("node", "plan", "n1", "--json").code == 3


def test_a_plan_that_must_look_first_says_at_what(fleet: FakeServer, run: Run) -> None:
    fleet.node_plan = {"status": "observe", "steps": [], "observe": ["os"], "cost": 0.0, "reason": ""}
    assert run("node", "plan", "n1").out == "n1 must first be looked at: os\n"


def test_history_is_told_from_old_to_new(fleet: FakeServer, run: Run) -> None:
    fleet.history = [
        {
            "time": 200.0,
            "nodes": "n[1-2]",
            "variable": "power",
            "old": "off",
            "new": "on",
            "source": "bmc",
            "cause": "power-on",
        },
        {
            "time": 100.0,
            "nodes": "n1",
            "variable": "power",
            "old": "unknown",
            "new": "off",
            "source": "bmc",
            "cause": "",
        },
    ]
    result = run("node", "history", "n[1-2]", "--since", "@50", "--until", "@300")
    assert [line.split()[2:6] for line in result.lines[1:]] == [
        ["n1", "power", "unknown", "off"],
        ["n[1-2]", "power", "off", "on"],
    ]
    assert asked(fleet) == {"select": "n[1-2]", "since": "50.000", "until": "300.000", "limit": "1000"}
    assert [change["time"] for change in run("node", "history", "n1", "--json").json] == [100.0, 200.0]


def test_the_state_at_a_past_time(fleet: FakeServer, run: Run) -> None:
    result = run("node", "history", "n1", "--at", "@150")
    assert result.lines[0].startswith("n1 at ")
    assert result.lines[2].split() == ["power", "on"]
    assert asked(fleet) == {"time": "150.000"}
    assert run("node", "history", "n1", "--at", "1h", "--since", "2h").code == 2
    assert run("node", "history", "n1", "--at", "@9999999999").code == 2


def test_a_time_that_cannot_be_read_is_wrong_usage(fleet: FakeServer, run: Run) -> None:
    result = run("node", "history", "n1", "--since", "yesterday")
    assert result.code == 2
    assert "an hour ago" in result.err


def test_power_that_is_known_by_implication_says_so_and_who_is_silent(fleet: FakeServer, run: Run) -> None:
    since = time.time() - 720
    silence = {"driver": "bmc", "since": since, "why": "https://10.0.0.7: no answer"}
    now = time.time()
    os = {"value": "up", "seen": now, "source": "node", "age": 1.0, "implied": False, "silence": None}
    power = {**os, "value": "on", "source": "implied by os", "implied": True, "silence": silence}
    fleet.nodes["n1"]["facts"] = {"power": power, "os": os}
    shown = run("node", "show", "n1")
    (row,) = [line for line in shown.lines if line.startswith("power")]
    assert "implied by os" in row
    assert shown.lines[-1].startswith("bmc has not seen power since ")
    assert shown.lines[-1].endswith(": https://10.0.0.7: no answer")
    listed = run("node", "list", "n1", "--columns", "name,facts")
    assert "power=on (implied by os),os=up" in listed.lines[1]


def test_a_node_that_is_off_says_so_where_nobody_sees_its_os(server: FakeServer, run: Run) -> None:
    off = {"value": "off", "seen": 1.0, "source": "bmc", "age": 1.0, "implied": False, "silence": None}
    silence = {"driver": "node", "since": 1.0, "why": ""}
    server.add_node("n1", facts={"power": off, "os": {**off, "value": "unknown", "silence": silence}})
    assert run("node", "show", "n1").lines[-1].endswith(": it is off")


def test_ssh_goes_to_the_address_and_knows_the_host_by_its_name(
    fleet: FakeServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("os.execvp", lambda program, words: started.append(words))
    fleet.nodes["n1"]["interfaces"] = [
        {"mac": "52:54:00:00:00:01"},
        {"mac": "52:54:00:00:00:02", "address": "10.0.0.7"},
    ]
    assert run("ssh", "root@n1", "--jump", "gate", "--", "ls", "-l").code == 0
    assert started == [
        ["ssh", "-o", "HostKeyAlias=n1", "-o", "ConnectTimeout=10", "-J", "gate", "--", "root@10.0.0.7", "ls", "-l"]
    ]
    fleet.nodes["n2"]["interfaces"] = []
    assert "no address is known of it" in run("ssh", "n2").err


def test_top_shows_what_needs_somebody_before_what_moves(fleet: FakeServer, run: Run) -> None:
    doing = {"mutation": "boot", "since": time.time() - 30}
    fleet.nodes["n4"].update(state="converging", doing=doing)
    fleet.alerts = [{"severity": "critical", "state": "open", "node": "n3", "message": "power lost\x1b[2J"}]
    told = {"nodes": "n2", "state": "waiting", "blocked_by": [{"kind": "back-off", "name": "power-on"}]}
    fleet.nodes["n2"].update(state="waiting")
    fleet.why = told
    shown = run("top", "--once").lines
    assert any(line.split() == ["n2", "waiting", "-", "back-off", "power-on"] for line in shown)
    fleet.nodes["n2"].update(state="ready")
    shown = run("top", "--once").lines
    assert shown[0].startswith("4 nodes   controller here, up ")
    assert shown[2].split() == ["#", "2", "ready", ">", "1", "converging", "X", "1", "faulted"]
    assert [mark for mark in "#>X" if mark in shown[1]] == ["#", ">", "X"]
    assert "critical n3: power lost" in "\n".join(shown) and "\x1b" not in "\n".join(shown)
    rows = [
        line.split() for line in shown[shown.index("Node            State        Doing                       Why") :]
    ]
    assert rows[1][:2] == ["n3", "faulted"] and rows[2][:3] == ["n4", "converging", "boot"]
