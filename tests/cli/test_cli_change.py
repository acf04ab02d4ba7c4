"""``strata node set``, ``hold``, ``release``, ``add``, ``delete``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import fake_server
import pytest
from cli_support import Run
from fake_server import Call, FakeServer, show_status

from strata.cli import converge
from strata.cli.client import Client
from strata.cli.output import STATE_ORDER

CLASS = {
    "count": 3,
    "nodeset": "n[1-3]",
    "status": "plan",
    "steps": [{"mutation": "power-on"}, {"mutation": "boot"}],
    "cost": 90.0,
    "reason": "",
}


@pytest.fixture
def fleet(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    monkeypatch.setattr(converge, "_SETTLED_FOR", 0.0)
    monkeypatch.setattr(converge, "_POLL", 0.0)
    for number in range(1, 5):
        server.add_node(f"n{number}")
    return server


def test_setting_says_how_many_changed(fleet: FakeServer, run: Run) -> None:
    result = run("node", "set", "n[1-2]", "power=on", "image=v1|v2", "--unset", "config")
    assert result.code == 0
    assert result.out.startswith("2 of 2 nodes changed, revision ")
    assert fleet.bodies[-1] == {
        "select": "n[1-2]",
        "set": {"power": ["on"], "image": ["v1", "v2"]},
        "unset": ["config"],
    }


@pytest.mark.parametrize("arguments", [["power=on"], ["n1"], ["n1", "power="], ["n1", "--unset", "a", "--dry-run"], []])
def test_setting_without_nodes_or_values_is_wrong_usage(fleet: FakeServer, run: Run, arguments: list[str]) -> None:
    assert run("node", "set", *arguments).code == 2
    assert fleet.requests == []


def test_nodes_that_failed_are_folded_by_reason(fleet: FakeServer, run: Run) -> None:
    results = [{"node": f"n{n}", "ok": n == 1, "status": 409, "error": "" if n == 1 else "too late"} for n in (1, 2, 3)]
    import json

    body = json.dumps({"results": results, "changed": 1, "revision": 9}).encode()
    fleet.answer_next(200, "application/json", body)
    result = run("node", "set", "n[1-3]", "power=on")
    assert result.code == 1
    assert result.err == "n[2-3]: too late\n"


def test_a_whole_fleet_is_accepted_as_a_job(fleet: FakeServer, run: Run) -> None:
    fleet.job_above = 1
    result = run("node", "set", "*", "power=on")
    assert result.code == 0
    assert result.out == "accepted as operation j1: 4 nodes\n"
    assert "strata operation wait j1" in result.err


@pytest.mark.slow
def test_waiting_follows_the_job_and_then_the_nodes(fleet: FakeServer, run: Run) -> None:
    fleet.job_above = 1
    result = run("node", "set", "*", "power=on", "--wait")
    assert result.code == 0
    assert "operation j1: 4/4" in result.err
    assert "at goal: 4/4" in result.err


def test_waiting_ends_with_3_when_some_cannot_get_there(fleet: FakeServer, run: Run) -> None:
    fleet.nodes["n2"]["state"] = "unreachable"
    result = run("node", "set", "n[1-2]", "power=on", "--wait")
    assert result.code == 3
    assert "1 ready, 1 unreachable" in result.err


def test_waiting_ends_with_1_when_time_is_up(fleet: FakeServer, run: Run) -> None:
    fleet.nodes["n2"]["state"] = "converging"
    result = run("node", "set", "n[1-2]", "power=on", "--wait", "--timeout", "0s")
    assert result.code == 1
    assert "1 converging" in result.err


def test_a_node_that_changes_its_state_between_two_questions_is_not_lost() -> None:
    """It has left the state that is asked for first, and was not yet in the one that is asked for last."""

    class Moving:
        def get(self, _: str, query: dict[str, object]) -> dict[str, int]:
            return {"total": {None: 3, "ready": 2}.get(query.get("state"), 0)}

    found = converge.state_counts(cast("Client", Moving()), "n[1-3]")
    assert found == {**dict.fromkeys(STATE_ORDER, 0), "ready": 2, "converging": 1}


def test_waiting_does_not_end_before_the_states_show_the_change(
    fleet: FakeServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def status(fake: FakeServer, call: Call) -> dict[str, Any]:
        asked.append(fake.revision)
        behind = show_status(fake, call)
        return {**behind, "revision": behind["revision"] - (len(asked) < 4)}

    monkeypatch.setattr(fake_server, "ROUTES", [("GET", "/v1/status", "", status), *fake_server.ROUTES])
    assert run("node", "set", "n1", "power=on", "--wait").code == 0
    assert len(asked) == 4


def test_no_state_of_before_the_change_is_printed(fleet: FakeServer, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def status(fake: FakeServer, call: Call) -> dict[str, Any]:
        asked.append(fake.revision)
        if len(asked) == 2:
            fake.nodes["n1"]["state"] = "held"
        behind = show_status(fake, call)
        return {**behind, "revision": behind["revision"] - (len(asked) < 2)}

    monkeypatch.setattr(fake_server, "ROUTES", [("GET", "/v1/status", "", status), *fake_server.ROUTES])
    result = run("node", "set", "n1", "power=off", "--wait")
    assert [line for line in result.err.splitlines() if line.startswith("at goal:")] == ["at goal: 0/1 1 held"]


def test_waiting_on_a_passing_state_holds_on_to_the_nodes(fleet: FakeServer, run: Run) -> None:
    fleet.nodes["n3"]["state"] = "faulted"
    run("node", "set", "state:faulted", "power=on", "--wait")
    desired = [body for body in fleet.bodies if body]
    assert desired[0]["select"] == "n3"


def test_another_try_is_waited_for_by_the_names_of_the_nodes(fleet: FakeServer, run: Run) -> None:
    fleet.nodes["n3"]["state"] = "faulted"
    result = run("node", "retry", "state:faulted", "--wait", "--timeout", "0s")
    assert (result.code, "not all got there: 1 converging" in result.err) == (1, True)


def test_a_release_is_waited_for(fleet: FakeServer, run: Run) -> None:
    run("node", "hold", "n3", "--reason", "x")
    result = run("node", "release", "state:held", "--wait")
    assert (result.code, "at goal: 1/1" in result.err) == (0, True)


def test_a_dry_run_shows_the_plan_and_changes_nothing(fleet: FakeServer, run: Run) -> None:
    fleet.plan = {"nodes": 3, "classes": [CLASS], "totals": {"power-on": 3, "boot": 3}}
    result = run("node", "set", "n[1-3]", "power=on", "--dry-run")
    assert result.code == 0
    assert result.lines[1].split() == ["3", "n[1-3]", "plan", "90", "power-on", "→", "boot"]
    assert result.lines[-1] == "3 nodes: power-on ×3, boot ×3"
    assert [request[:2] for request in fleet.requests] == [("POST", "/v1/plan")]


def test_a_plan_with_an_unreachable_class_is_exit_code_3(fleet: FakeServer, run: Run) -> None:
    hopeless = {**CLASS, "status": "unreachable", "steps": [], "reason": "no mutation leads to os=up"}
    fleet.plan = {"nodes": 6, "classes": [CLASS, hopeless], "totals": {}}
    result = run("plan", "@all", "os=up")
    assert result.code == 3
    assert "no mutation leads to os=up" in result.out
    assert result.lines[-1] == "6 nodes: 3 cannot get there"
    assert fleet.bodies[-1] == {"select": "@all", "set": {"os": ["up"]}}


@pytest.mark.parametrize(
    "command",
    [
        ["node", "delete", "", "--yes"],
        ["node", "set", "", "power=off"],
        ["node", "hold", " ", "--reason", "x"],
        ["node", "release", ""],
        ["node", "retry", ""],
        ["node", "list", ""],
        ["plan", "", "power=off"],
        ["watch", ""],
    ],
    ids=" ".join,
)
def test_an_empty_word_is_never_every_node(fleet: FakeServer, run: Run, command: list[str]) -> None:
    result = run(*command)
    assert (result.code, "empty word" in result.err) == (2, True)
    assert fleet.requests == []


def test_a_plan_of_files_sends_their_desires(fleet: FakeServer, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text("kind: desire\nname: d\nselect: '*'\nset: {power: on}\n---\nkind: node\nname: n9\n")
    result = run("plan", "-f", file)
    assert result.code == 0
    assert [document["name"] for document in fleet.bodies[-1]["documents"]] == ["d"]
    assert "left out" in result.err


def test_holding_and_releasing(fleet: FakeServer, run: Run) -> None:
    assert run("node", "hold", "n[1-2]", "--reason", "DIMM").out == "held n[1-2]\n"
    assert run("node", "hold", "n1", "--reason", "DIMM").out == "nothing to do: 0 nodes held\n"
    assert run("node", "release", "n[1-4]").out == "released n[1-2]\n"
    assert run("node", "hold", "n1").code == 2


def test_retrying(fleet: FakeServer, run: Run) -> None:
    fleet.nodes["n2"]["state"] = "faulted"
    assert run("node", "retry", "n[1-4]").out == "retried n2\n"
    assert run("node", "retry", "n[1-4]").out == "nothing to do: 0 nodes retried\n"
    assert run("node", "retry").code == 2


def test_adding_nodes_by_nodeset(fleet: FakeServer, run: Run) -> None:
    result = run("node", "add", "x[01-03]", "--role", "login", "--label", "rack=7")
    assert (result.code, result.out) == (0, "added 3 of 3 nodes\n")
    assert fleet.nodes["x02"]["labels"] == {"rack": "7"}
    assert fleet.nodes["x02"]["role"] == "login"


def test_adding_nodes_that_are_there_is_a_conflict_told_once(fleet: FakeServer, run: Run) -> None:
    result = run("node", "add", "n[3-6]")
    assert result.code == 5
    assert result.out == "added 2 of 4 nodes\n"
    assert result.err == "n[3-4]: is there already\n"


def test_what_belongs_to_one_node_is_not_given_to_many(fleet: FakeServer, run: Run) -> None:
    assert run("node", "add", "x[1-2]", "--nid", "4").code == 2
    assert run("node", "add", "x1", "--nid", "4").code == 0
    assert run("node", "add").code == 2
    assert fleet.nodes["x1"]["nid"] == 4


def test_a_node_is_added_with_its_network_ports(fleet: FakeServer, run: Run) -> None:
    boot = "mac=52:54:00:12:34:56,address=10.77.0.11,name=boot"
    assert run("node", "add", "x1", "--interface", boot, "--interface", "port=sw/Eth1/5").code == 0
    assert fleet.nodes["x1"]["interfaces"] == [
        {"mac": "52:54:00:12:34:56", "address": "10.77.0.11", "name": "boot"},
        {"port": "sw/Eth1/5"},
    ]
    assert "boot 52:54:00:12:34:56 10.77.0.11" in run("node", "show", "x1").out
    assert "at sw/Eth1/5" in run("node", "show", "x1").out
    assert run("node", "add", "x[2-3]", "--interface", boot).code == 2
    assert "mac, address, name, port" in run("node", "add", "x2", "--interface", "mak=1").err
    assert "has no 'mak'" in run("node", "edit", "x1", "--interface", "mak=1").err


def test_a_range_bomb_is_refused_here(fleet: FakeServer, run: Run) -> None:
    result = run("node", "add", "n[0-99999999]")
    assert result.code == 1
    assert fleet.requests == []


def test_adding_nodes_from_a_file(fleet: FakeServer, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "n.csv"
    file.write_text("name,location\nx1,x1000c0s0b0n0\n")
    assert run("node", "add", "-f", file).code == 0
    assert fleet.nodes["x1"]["location"] == "x1000c0s0b0n0"
    assert run("node", "add", "-f", file, "--role", "x").code == 2
    assert run("node", "add", "-f", "-", stdin="kind: node\nname: y1\n").code == 0
    assert "y1" in fleet.nodes


def test_many_nodes_are_added_in_batches(fleet: FakeServer, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strata.fleet.nodes.commands.change.CREATE_BATCH", 4)
    result = run("node", "add", "x[1-10]")
    assert result.out == "added 10 of 10 nodes\n"
    assert [len(body["nodes"]) for body in fleet.bodies] == [4, 4, 2]


def test_deleting_asks_and_without_a_terminal_wants_to_be_told(fleet: FakeServer, run: Run) -> None:
    result = run("node", "delete", "n1")
    assert result.code == 2
    assert "--yes" in result.err
    assert "n1" in fleet.nodes


def test_deleting_forgets_the_nodes(fleet: FakeServer, run: Run) -> None:
    assert run("node", "delete", "n[1-2]", "--yes").out == "deleted 2 of 2 nodes\n"
    assert sorted(fleet.nodes) == ["n3", "n4"]


def test_deleting_goes_on_past_a_node_that_fails(fleet: FakeServer, run: Run) -> None:
    fleet.faults.append(lambda handler: False)  # the listing
    fleet.refuse_next(409, "is being changed", title="Conflict")
    result = run("node", "delete", "n[1-2]", "--yes")
    assert result.code == 1
    assert "n1: is being changed" in result.err
    assert "n2" not in fleet.nodes
