"""``strata node exec``, ``node agent``, ``personality`` and ``boot unknown`` against a fake service."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import fake_server
import pytest
from cli_support import Run
from fake_server import Call, FakeServer, Refusal

from strata.provisioning.personalities.commands import DERIVED
from strata.provisioning.personalities.records import PersonalitySpec, PersonalityView

Json = dict[str, Any]


def result(node: str, output: str = "", **more: Any) -> Json:
    return {"node": node, "exit": 0, "output": output, "truncated": False, "error": "", **more}


class Agents:
    """What the fake service knows of them."""

    def __init__(self) -> None:
        self.asked: list[Json] = []
        self.pages: list[list[Json]] = []
        self.cancelled: list[str] = []
        self.sets: dict[str, Json] = {}
        self.adopted: list[Json] = []

    def begin(self, _: FakeServer, call: Call) -> tuple[int, Json]:
        self.asked.append(call.body)
        return 201, {"id": "r1", "total": sum(map(len, self.pages)), "done": 0, "state": "running", "items": []}

    def show(self, _: FakeServer, call: Call) -> Json:
        after = int(call.query["after"])
        items = self.pages.pop(0)
        state = "running" if self.pages else "done"
        return {"id": "r1", "total": 4, "done": after + len(items), "state": state, "items": items, "next": after}

    def cancel(self, _: FakeServer, call: Call) -> tuple[int, None]:
        self.cancelled.append(call.name)
        return 204, None

    def put_set(self, _: FakeServer, call: Call) -> Json:
        view = {
            "name": call.name,
            "description": "",
            "digest": "sha256:" + "ab" * 32,
            "problem": "",
            "releases": {"system": "sha256:" + "cd" * 32},
            "wanted": 2,
            "running": 1,
            "revision": 5,
            **call.body,
        }
        self.sets[call.name] = view
        return view

    def show_set(self, _: FakeServer, call: Call) -> Json:
        if call.name not in self.sets:
            raise Refusal(404, "no such personality", title="Not found")
        return self.sets[call.name]

    def agent(self, _: FakeServer, call: Call) -> Json:
        member = {"name": "system", "state": "error", "ready": False, "restarts": 3, "since": 1.0, "reason": "ended"}
        return {
            "node": call.name,
            "attached": True,
            "contact": 1.7e9,
            "generation": 4,
            "profile": "default@abc",
            "uptime": 100.0,
            "set": "compute",
            "set_digest": "sha256:00",
            "state": "error",
            "reason": "system: \x1b[2Jended",
            "members": [member],
            "problems": [],
            "failure": "switch: broken",
            "pending": 0,
        }

    def adopt(self, _: FakeServer, call: Call) -> tuple[int, Json]:
        self.adopted.append({"mac": call.name, **call.body})
        return 201, {"name": call.body["name"]}


@pytest.fixture
def agents(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> Agents:
    made = Agents()
    unknown = [{"mac": "52:54:00:00:00:09", "macs": [], "serial": "S9", "uuid": "", "peer": "10.0.0.9"}]
    listed = {"items": [item | {"first": 1.7e9, "last": 1.7e9, "inventory": {}} for item in unknown]}
    one = "([^/]+)"
    routes = [
        ("POST", "/v1/exec", "", made.begin),
        ("GET", f"/v1/exec/{one}", "after wait", made.show),
        ("DELETE", f"/v1/exec/{one}", "", made.cancel),
        ("GET", "/v1/personalities", "", lambda _, call: {"items": list(made.sets.values())}),
        ("GET", f"/v1/personalities/{one}", "", made.show_set),
        ("PUT", f"/v1/personalities/{one}", "", made.put_set),
        ("DELETE", f"/v1/personalities/{one}", "", lambda _, call: (204, made.sets.pop(call.name) and None)),
        ("GET", f"/v1/nodes/{one}/agent", "", made.agent),
        ("GET", "/v1/boot/unknown", "", lambda _, call: listed),
        ("POST", f"/v1/boot/unknown/{one}", "", made.adopt),
        ("DELETE", f"/v1/boot/unknown/{one}", "", lambda _, call: (204, None)),
    ]
    monkeypatch.setattr(fake_server, "ROUTES", [*routes, *fake_server.ROUTES])
    return made


def test_equal_outputs_are_printed_once_with_whose_they_are(run: Run, agents: Agents) -> None:
    agents.pages = [[result("n2", "a\tb\nsecond\n"), result("n1", "a\tb\nsecond\n"), result("n3", "other\n")]]
    got = run("node", "exec", "@compute", "--", "uname", "-a")
    assert got.code == 0
    assert got.out.splitlines() == ["n[1-2]: a       b", "n[1-2]: second", "n3: other"]
    assert agents.asked == [{"select": "@compute", "argv": ["uname", "-a"], "where": "", "timeout": 60.0}]


def test_results_that_come_little_by_little_are_gathered_or_streamed(run: Run, agents: Agents) -> None:
    agents.pages = [[result("n1", "same\n")], [], [result("n2", "same\n")]]
    assert run("node", "exec", "*", "--", "x").out == "n[1-2]: same\n"
    agents.pages = [[result("n1", "same\n")], [], [result("n2", "same\n")]]
    assert run("node", "exec", "--stream", "*", "--", "x").out == "n1: same\nn2: same\n"


def test_interrupting_ends_it_everywhere(run: Run, agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    agents.pages = [[result("n1", "early\n")], [result("n2")]]
    shown = agents.show
    calls = iter(range(9))

    def interrupted(client: Any, path: str, params: Any = None) -> Any:
        if next(calls):
            raise KeyboardInterrupt
        return shown(None, type("Asked", (), {"query": params})())  # type: ignore[arg-type]

    monkeypatch.setattr("strata.cli.client.Client.get", interrupted)
    got = run("node", "exec", "*", "--", "sleep", "100")
    assert got.code == 130 and agents.cancelled == ["r1"]
    assert got.out == "n1: early\n" and "1 node had not answered" in got.err


def test_options_of_the_command_are_its_own(run: Run, agents: Agents) -> None:
    agents.pages = [[result("n1")]]
    assert run("node", "exec", "n1", "--minos", "--timeout", "5s", "--", "ls", "--json", "-l").code == 0
    assert agents.asked[0]["argv"] == ["ls", "--json", "-l"]
    assert (agents.asked[0]["where"], agents.asked[0]["timeout"]) == ("minos", 5.0)


def test_failures_are_told_folded_and_the_exit_code_is_1(run: Run, agents: Agents) -> None:
    gone = "its agent gave no answer"
    agents.pages = [
        [
            result("n1", "oops\n", exit=2),
            result("n2", exit=None, error=gone),
            result("n3", exit=None, error=gone),
            result("n4", "x\n", truncated=True),
        ]
    ]
    got = run("node", "exec", "*", "--", "false")
    assert got.code == 1
    assert f"n[2-3]: {gone}" in got.err and "n1: exit 2" in got.err and "n4: the output was cut off" in got.err


def test_results_as_json(run: Run, agents: Agents) -> None:
    agents.pages = [[result("n2", "b"), result("n1", "a")]]
    got = run("node", "exec", "--json", "*", "--", "x")
    assert [(item["node"], item["output"]) for item in json.loads(got.out)] == [("n1", "a"), ("n2", "b")]


def test_what_a_node_prints_cannot_drive_the_terminal(run: Run, agents: Agents) -> None:
    agents.pages = [[result("n1", "\x1b[2Jgone\n")]]
    assert run("node", "exec", "n1", "--", "x").out == "n1: \\x1b[2Jgone\n"


def test_minos_and_member_exclude_each_other_and_a_command_is_needed(run: Run, agents: Agents) -> None:
    assert run("node", "exec", "--minos", "--member", "a", "n1", "--", "x").code == 2
    assert run("node", "exec", "n1").code == 2


def _receive(asked: Json, root: Path) -> subprocess.CompletedProcess[bytes]:
    """What a node would do with a copy, under ``root``."""
    *shell, path, mode, size = asked["argv"]
    return subprocess.run(
        [*shell, f"{root}{path}", mode, size], input=base64.b64decode(asked["stdin"]), capture_output=True, check=False
    )


def test_a_copied_file_is_there_whole_with_its_permissions(run: Run, agents: Agents, tmp_path: Path) -> None:
    source, node = tmp_path / "fix.sh", tmp_path / "node"
    source.write_bytes(b"#!/bin/sh\n\x00\xff")
    source.chmod(0o750)
    node.mkdir()
    agents.pages = [[result("n1"), result("n2")]]
    assert run("cp", source, "n[1-2] state:ready:/fix.sh").code == 0
    asked = agents.asked[0]
    assert asked["select"] == "n[1-2] state:ready"
    done = _receive(asked, node)
    assert (done.returncode, done.stderr) == (0, b"")
    (copy,) = node.iterdir()
    assert copy.read_bytes() == source.read_bytes() and copy.stat().st_mode & 0o777 == 0o750


def test_a_copy_that_does_not_arrive_whole_leaves_the_old_file(run: Run, agents: Agents, tmp_path: Path) -> None:
    source, node = tmp_path / "a", tmp_path / "node"
    source.write_text("new")
    node.mkdir()
    (node / "a").write_text("old")
    agents.pages = [[result("n1")]]
    assert run("cp", source, "n1:/a").code == 0
    cut = {**agents.asked[0], "stdin": base64.b64encode(b"n").decode()}
    assert _receive(cut, node).returncode != 0
    assert [file.read_text() for file in node.iterdir()] == ["old"]


@pytest.mark.parametrize(
    "words", [["a"], [":/a"], ["n1:a"], ["n1:/a", "--mode", "rwx"], ["n1:/a", "--minos", "--member=m"]]
)
def test_a_copy_that_cannot_be_meant_is_refused(run: Run, agents: Agents, tmp_path: Path, words: list[str]) -> None:
    source = tmp_path / "a"
    source.write_bytes(b"x")
    assert run("cp", source, *words).code == 2
    source.write_bytes(bytes(2**20 + 1))
    assert "more than 1024 KiB" in run("cp", source, "n1:/a").err
    assert not agents.asked


def test_an_personality_is_written_listed_shown_and_deleted(run: Run, agents: Agents, tmp_path: Path) -> None:
    file = tmp_path / "compute.yaml"
    file.write_text("name: compute\nmembers:\n  - {name: system, release: 'debian:12', ready: {kind: tcp, port: 80}}\n")
    got = run("personality", "put", str(file))
    assert got.code == 0 and "debian:12" in got.out and "tcp" in got.out
    assert "compute" in run("personality", "list").out
    assert json.loads(run("personality", "show", "compute", "--json").out)["members"][0]["name"] == "system"
    assert run("personality", "delete", "compute").code == 0
    assert run("personality", "show", "compute").code == 1


def test_what_put_takes_no_notice_of_is_just_what_show_adds() -> None:
    shown, written = PersonalityView.__struct_fields__, PersonalitySpec.__struct_fields__
    assert set(DERIVED) == set(shown) - set(written) - {"name"}


def test_a_field_that_nobody_knows_is_not_thrown_away_in_silence(run: Run, agents: Agents, tmp_path: Path) -> None:
    file = tmp_path / "compute.json"
    file.write_text('{"name": "compute", "members": [], "running": 3, "runing": 3}')
    run("personality", "put", str(file))
    assert agents.sets["compute"]["runing"] == 3, "the service gets it, and says no"
    assert agents.sets["compute"]["running"] == 1


@pytest.mark.parametrize("text", ["[1, 2]", "members: []", "{", "name: 5\nmembers: []"])
def test_a_file_that_is_no_personality_is_refused_by_name(run: Run, agents: Agents, tmp_path: Path, text: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(text)
    got = run("personality", "put", str(file))
    assert got.code == 1 and "bad.yaml" in got.err and not agents.sets


def test_an_agent_is_shown_with_the_reasons_of_its_members(run: Run, agents: Agents) -> None:
    out = run("node", "agent", "n1").out
    assert "switch: broken" in out and "\\x1b[2Jended" in out
    assert any(line.split()[:4] == ["system", "error", "no", "3"] for line in out.splitlines())


@pytest.mark.parametrize(("personality", "told"), [("error", True), ("fatal", True), ("active", False)])
def test_a_node_whose_images_are_in_trouble_is_shown_with_the_reason(
    server: FakeServer, run: Run, agents: Agents, personality: str, told: bool
) -> None:
    fact = {"value": personality, "seen": 1.0, "source": "node", "age": 2.0}
    server.add_node("n1", facts={"personality": fact})
    got = run("node", "show", "n1")
    assert got.code == 0
    assert ("agent says    system: \\x1b[2Jended; switch: broken" in got.out) == told
    assert (("GET", "/v1/nodes/n1/agent") in [request[:2] for request in server.requests]) == told


def test_an_unknown_machine_is_listed_adopted_and_forgotten(run: Run, agents: Agents) -> None:
    assert "S9" in run("boot", "unknown", "list").out
    assert run("boot", "unknown", "adopt", "52:54:00:00:00:09", "new1", "--address", "10.0.0.9").code == 0
    assert (agents.adopted[0]["mac"], agents.adopted[0]["address"]) == ("52:54:00:00:00:09", "10.0.0.9")
    assert run("boot", "unknown", "forget", "52:54:00:00:00:09").out == "forgot 52:54:00:00:00:09\n"
