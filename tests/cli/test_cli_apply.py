"""``strata apply`` and ``strata document``: files become what the service holds, and twice is the same as once."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_support import Run
from fake_server import FakeServer

SITE = """\
kind: nodes
nodes: n[1-3]
role: compute
labels: {rack: "7"}
---
kind: group
name: gpu
members: n[1-2]
description: with GPUs
---
kind: desire
name: ready
select: "@gpu"
set: {power: on}
"""


@pytest.fixture
def site(tmp_path: Path) -> Path:
    file = tmp_path / "site.yaml"
    file.write_text(SITE)
    return file


def actions(result_lines: list[str]) -> list[list[str]]:
    return [line.split()[:3] for line in result_lines[1:-1]]


def test_everything_is_created_then_nothing_changes(server: FakeServer, run: Run, site: Path) -> None:
    first = run("apply", "-f", site)
    assert first.code == 0
    assert actions(first.lines) == [
        ["node", "n[1-3]", "created"],
        ["group", "gpu", "created"],
        ["desire", "ready", "created"],
    ]
    assert first.lines[-1] == "3 changed, 0 unchanged"
    assert server.documents["ready"]["set"] == {"power": ["on"]}
    second = run("apply", "-f", site)
    assert second.out == "0 changed, 3 unchanged\n"
    assert [request[:2] for request in server.requests] == [("POST", "/v1/apply")] * 2, "one request for all of it"


def test_what_is_applied_is_waited_for(server: FakeServer, run: Run, site: Path) -> None:
    result = run("apply", "-f", site, "--wait", "--timeout", "0s")
    states = {node["state"] for node in server.nodes.values()}
    assert states
    assert (result.code == 0) == (states == {"ready"})
    assert "at goal: " in result.err
    assert "at goal: " not in run("apply", "-f", site, "--dry-run", "--wait").err


def test_a_dry_run_changes_nothing(server: FakeServer, run: Run, site: Path) -> None:
    result = run("apply", "-f", site, "--dry-run")
    assert result.lines[-1] == "3 would change, 0 unchanged"
    assert (server.nodes, server.groups, server.documents) == ({}, {}, {})


def test_only_nodes_that_differ_are_changed(server: FakeServer, run: Run, site: Path) -> None:
    run("apply", "-f", site)
    server.nodes["n2"]["role"] = "login"
    assert actions(run("apply", "-f", site).lines) == [["node", "n2", "changed"]]
    assert server.nodes["n2"]["role"] == "compute"


def test_what_a_file_does_not_say_of_a_node_stays(server: FakeServer, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "n1.yaml"
    file.write_text("kind: node\nname: n1\nnid: 7\nbmc: 10.1.0.7\nlocation: x1000c0s0b0n0\n")
    run("apply", "-f", file)
    file.write_text("kind: node\nname: n1\nlabels: {rack: '7'}\n")
    assert run("apply", "-f", file).lines[-1] == "1 changed, 0 unchanged"
    node = server.nodes["n1"]
    assert (node["nid"], node["bmc"], node["location"]) == (7, "10.1.0.7", "x1000c0s0b0n0")
    assert node["labels"] == {"rack": "7"}
    assert run("apply", "-f", file).out == "0 changed, 1 unchanged\n"


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ("node n2: location", "line 1 document 1"),
        ("group gpu: n9", "line 6 document 2"),
        ("document 'ready': image=v9", "line 11 document 3"),
        ("body data.documents[0].set", "line 11 document 3"),
        ("$.groups[0].members", "line 6 document 2"),
    ],
)
def test_what_the_service_says_is_wrong_names_the_file_the_line_and_the_document(
    server: FakeServer, run: Run, site: Path, where: str, place: str
) -> None:
    server.refuse_next(400, "that is wrong", where=where)
    result = run("apply", "-f", site)
    assert result.code == 1
    assert f"{site} {place}: {where.removeprefix('body data.')}" in result.err.replace("\n", "")
    assert "that is wrong" in result.err


def test_a_document_about_a_group_that_is_not_there_is_told_so(server: FakeServer, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text("kind: desire\nname: d\nselect: '@gpus'\nset: {power: on}\n")
    for result in (run("apply", "-f", file, "--dry-run"), run("apply", "-f", file)):
        assert result.code == 0
        assert f"{file} line 1 document 1: there is no group gpus" in result.err.replace("\n", "")
        assert "did you mean" not in result.err


def test_a_group_that_may_have_been_meant_is_named(server: FakeServer, run: Run, tmp_path: Path) -> None:
    server.groups["compute"] = {"name": "compute"}
    file = tmp_path / "d.yaml"
    text = "kind: desire\nname: {0}\nselect: '@{0}'\nset: {{power: on}}\n---\n"
    file.write_text(text.format("cmpute") + text.format("lgoin") + "kind: group\nname: login\nmembers: ''\n")
    told = run("apply", "-f", file, "--dry-run").err.replace("\n", "")
    assert "there is no group cmpute yet" in told and "did you mean compute?" in told and "did you mean login?" in told


def test_many_nodes_are_all_checked_before_the_first_is_written(
    server: FakeServer, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strata.fleet.desires.commands.apply.PART", 2)
    file = tmp_path / "n.yaml"
    file.write_text("kind: nodes\nnodes: n[1-5]\n")
    server.faults.append(lambda handler: False)
    server.refuse_next(409, "location is that of n9", where="node n3")
    assert run("apply", "-f", file).code != 0
    assert server.nodes == {}
    assert run("apply", "-f", file).code == 0
    assert len(server.nodes) == 5


def test_pruning_deletes_documents_that_no_file_holds(server: FakeServer, run: Run, site: Path) -> None:
    server.documents["old"] = {"name": "old", "select": "*", "set": {"power": ["off"]}, "priority": 0}
    result = run("apply", "-f", site, "--prune", "--json")
    deleted = [change for change in result.json["changes"] if change["action"] == "deleted"]
    assert [change["name"] for change in deleted] == ["old"]
    assert "old" not in server.documents


def test_standard_input_is_a_file_too(server: FakeServer, run: Run) -> None:
    assert run("apply", "-f", "-", stdin=SITE).code == 0
    assert "ready" in server.documents


def test_files_without_documents_are_wrong_usage(server: FakeServer, run: Run, tmp_path: Path) -> None:
    empty = tmp_path / "e.yaml"
    empty.write_text("# nothing\n")
    assert run("apply", "-f", empty).code == 2
    assert server.requests == []


def test_a_bad_file_changes_nothing_at_all(server: FakeServer, run: Run, tmp_path: Path, site: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("kind: desire\nname: x\n")
    result = run("apply", "-f", site, "-f", bad)
    assert result.code == 1
    assert "bad.yaml line 1 document 1" in result.err
    assert server.requests == []


def test_documents_are_listed_shown_and_deleted(server: FakeServer, run: Run, site: Path) -> None:
    run("apply", "-f", site)
    assert run("document", "list").lines[1].split() == ["ready", "@gpu", "power=on", "0", "2", "admin"]
    assert "select    @gpu" in run("document", "show", "ready").out
    assert run("document", "delete", "ready").out == "deleted document ready\n"
    assert run("document", "show", "ready").code == 1
