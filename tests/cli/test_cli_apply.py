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
    assert [request[0] for request in server.requests[-3:]] == ["GET", "GET", "POST"]


def test_a_dry_run_changes_nothing(server: FakeServer, run: Run, site: Path) -> None:
    result = run("apply", "-f", site, "--dry-run")
    assert result.lines[-1] == "3 would change, 0 unchanged"
    assert (server.nodes, server.groups, server.documents) == ({}, {}, {})


def test_only_nodes_that_differ_are_changed_at_the_revision_that_was_seen(
    server: FakeServer, run: Run, site: Path
) -> None:
    run("apply", "-f", site)
    server.nodes["n2"]["role"] = "login"
    before = server.nodes["n2"]["revision"]
    result = run("apply", "-f", site)
    assert actions(result.lines) == [["node", "n2", "changed"]]
    puts = [request for request in server.requests if request[0] == "PUT" and "/nodes/" in request[1]]
    assert [request[1] for request in puts] == ["/v1/nodes/n2"]
    assert puts[0][2]["if-match"] == f'"{before}"'
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


def test_a_node_that_somebody_else_changed_meanwhile_is_reported(server: FakeServer, run: Run, site: Path) -> None:
    run("apply", "-f", site)
    server.nodes["n2"]["role"] = "login"
    server.faults.append(lambda handler: False)  # the listing
    server.refuse_next(412, "it has changed since", title="Precondition failed")
    result = run("apply", "-f", site)
    assert result.code == 1
    assert actions(result.lines) == [["node", "n2", "failed"]]
    assert "it has changed since" in result.out


def test_groups_are_compared_by_their_members(server: FakeServer, run: Run, tmp_path: Path) -> None:
    server.groups["g"] = {"name": "g", "members": "n[1-2]", "description": "", "count": 2, "revision": 1}
    file = tmp_path / "g.yaml"
    file.write_text("kind: group\nname: g\nmembers: n2,n1\n")
    assert run("apply", "-f", file).out == "0 changed, 1 unchanged\n"
    file.write_text("kind: group\nname: g\nmembers: n1\n")
    assert actions(run("apply", "-f", file).lines) == [["group", "g", "changed"]]
    assert server.groups["g"]["members"] == "n1"


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
    assert "bad.yaml document 1" in result.err
    assert server.requests == []


def test_documents_are_listed_shown_and_deleted(server: FakeServer, run: Run, site: Path) -> None:
    run("apply", "-f", site)
    assert run("document", "list").lines[1].split() == ["ready", "@gpu", "power=on", "0", "2", "admin"]
    assert "select    @gpu" in run("document", "show", "ready").out
    assert run("document", "delete", "ready").out == "deleted document ready\n"
    assert run("document", "show", "ready").code == 1


def test_an_address_that_the_file_leaves_to_the_service_is_no_difference(
    server: FakeServer, run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "n1.yaml"
    file.write_text("kind: node\nname: n1\ninterfaces: [{mac: 52-54-00-00-00-0A, name: boot}]\n")
    run("apply", "-f", file)
    server.nodes["n1"]["interfaces"] = [{"mac": "52:54:00:00:00:0a", "name": "boot", "address": "10.77.0.10"}]
    assert run("apply", "-f", file).out == "0 changed, 1 unchanged\n"
    server.nodes["n1"]["interfaces"][0]["mac"] = "52:54:00:00:00:0b"
    assert run("apply", "-f", file).lines[-1] == "1 changed, 0 unchanged"
