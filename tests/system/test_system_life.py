"""A whole life: up, everything that one does with a fleet, a crash, down; then the backup lives on elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest
from system_support import Done, World, book_of, connect, eventually, strata

from strata.cli.up import background
from strata.cli.up import simulated as up_simulated
from strata.core.host import process as ps

pytestmark = [pytest.mark.server, pytest.mark.slow]

NODES = 64


class Life:
    """The fleet that ``strata up`` made in a directory."""

    def __init__(self, state: Path) -> None:
        self.state = state

    def run(self, *arguments: object, code: int = 0, **environment: str) -> Done:
        """A command that ends with ``code``."""
        done = strata(self.state, *arguments, **environment)
        assert done.code == code, f"strata {' '.join(map(str, arguments))}: {done}"
        return done

    def up(self) -> Done:
        """Start, or start again, and wait until every node is ready."""
        done = self.run("up", "--simulated", "--nodes", NODES, "--time-scale", 100)
        assert f": {NODES} ready." in done.out
        return done

    def pid(self, record: str) -> int:
        """The process that a record names."""
        process = ps.load(self.state / record)
        assert process is not None
        return process.pid

    def fact(self, node: str, variable: str) -> str:
        """What is so."""
        return str(self.run("node", "show", node, "--json").json["facts"][variable]["value"])

    def effects(self) -> dict[str, int]:
        """What the nodes were told up to now."""
        address = json.loads((self.state / up_simulated.SIMULATOR_LOG).read_text())["address"]
        return dict(book_of(address)["counts"])

    def processes(self) -> set[int]:
        """Everything that runs for it: the two processes and what they started."""
        found: set[int] = set()
        todo = [self.pid(background.SERVICE), self.pid(up_simulated.SIMULATOR)]
        while todo:
            pid = todo.pop()
            found.add(pid)
            todo += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return found


@pytest.mark.timeout(600)
def test_a_whole_life(world: World) -> None:
    life = Life(world.directory / "a" / "state")
    try:
        said = life.up().out
        assert str(life.state / "admin.sock") in said
        look(life)
        change(life)
        brake(life)
        whole_fleet(life)
        backup = world.directory / "kept.backup"
        shutil.copy(look_after(life), backup)
        over_tls(life, (life.state / "url").read_text().strip())
        crash(life)
        leave_nothing(life, world.directory)
    finally:
        strata(life.state, "down", "--delete")
    restored(world, backup)


def look(life: Life) -> None:
    """Lists, reasons, the past, plans."""
    assert len(life.run("node", "list", "--json").json) == NODES
    assert life.run("node", "list", "--folded", "@compute", "state:ready").out.startswith("n[")
    assert life.run("group", "list", "--json").json
    assert "at its goal" in life.run("node", "why", "n00001").out
    changes = life.run("node", "history", "n00001", "--since", "1h", "--json").json
    assert ("power", "off", "on", "power-on") in {(c["variable"], c["old"], c["new"], c["cause"]) for c in changes}
    plan = life.run("node", "plan", "n00001", "image=v2", "--json").json
    assert [step["mutation"] for step in plan["steps"]][:3] == ["leave-workload", "switch-image", "configure"]
    assert "cannot both be true" in life.run("node", "plan", "n00001", "power=off", "os=up", code=3).out
    many = life.run("plan", "@compute", "image=v2", "--json").json
    assert many["totals"]["switch-image"] == many["nodes"]
    assert life.run("status", "--json").json["by_state"]["ready"] == NODES
    limits = Path(f"/proc/{life.pid(background.SERVICE)}/limits").read_text()
    core = next(line.split() for line in limits.splitlines() if line.startswith("Max core file size"))
    assert core[4:6] == ["0", "0"], "what it holds in memory is written to no disk"


def change(life: Life) -> None:
    """A node goes where it is wanted, ``--wait`` stays until it is there, and ends where there is no way."""
    life.run("node", "set", "n00002", "image=v2", "--wait")
    assert life.fact("n00002", "image") == "v2"
    life.run("node", "set", "n00002", "power=off", "os=up", "--wait", code=3)
    assert life.fact("n00002", "power") == "on"
    life.run("node", "set", "n00002", "--unset", "power", "--unset", "os", "--wait")
    assert life.run("node", "retry", "*").out == "nothing to do: 0 nodes retried\n"
    life.run("node", "edit", "n[00001-00002]", "--label", "rack=7", "--label", "trial=1")
    life.run("node", "edit", "n00002", "--unlabel", "trial", "--location", "x1000c7s7b1n1")
    edited = life.run("node", "show", "n00002", "--json").json
    assert (edited["labels"]["rack"], edited["location"]) == ("7", "x1000c7s7b1n1")
    assert "trial" not in edited["labels"]
    assert "simulated" in edited["labels"]
    life.run("node", "edit", "n[00001-00002]", "--bmc", "http://127.0.0.1:9", code=2)
    life.run("node", "edit", "n00001", code=2)


def brake(life: Life) -> None:
    """What is held or frozen is left alone, and says why."""
    before = life.effects()
    life.run("node", "hold", "n00003", "--reason", "new DIMM")
    life.run("freeze", "--node", "n00004", "--reason", "trial")
    life.run("node", "set", "n[00003-00004]", "config=r9")
    assert "new DIMM" in life.run("node", "why", "n00003").out
    assert "frozen" in life.run("node", "why", "n00004").out
    assert life.run("node", "list", "n[00003-00004]", "--json").json[0]["state"] == "held"
    assert life.effects() == before
    life.run("node", "release", "n00003")
    life.run("thaw", "--node", "n00004")
    life.run("node", "set", "n[00003-00004]", "config=r9", "--wait")
    assert life.fact("n00004", "config") == "r9"


def whole_fleet(life: Life) -> None:
    """Work on many nodes is a job."""
    client = connect(life.state)
    body = {"select": "*", "set": {"config": ["r10"]}, "unset": []}
    accepted = client.request("POST", "/v1/desires", body=body, headers={"Prefer": "respond-async"})
    client.close()
    assert accepted.status == 202
    life.run("operation", "wait", accepted.body["id"])
    (job,) = life.run("operation", "list", "--json").json
    assert (job["state"], job["done"]) == ("done", NODES)
    life.run("node", "set", "*", "config=r10", "--wait")
    assert life.fact(f"n{NODES:05d}", "config") == "r10"


def look_after(life: Life) -> str:
    """Audit, check, back up; the backup."""
    assert {"hold.set", "hold.release", "freeze.set"} <= {
        record["action"] for record in life.run("audit", "list", "--json").json
    }
    life.run("audit", "verify")
    life.run("store", "check")
    made = life.run("store", "backup", "--json").json
    life.run("node", "set", "n00001", "config=after-the-backup")
    return str(made["path"])


def over_tls(life: Life, url: str) -> None:
    """Through nginx: a token may do what its role may, no token nothing."""
    token = life.state / "viewer.token"
    life.run("auth", "token", "create", "--role", "viewer", "-o", token)
    far = ("--url", url, "--ca", life.state / "ca" / "ca.crt")
    assert life.run(*far, "--token-file", token, "status", "--json").json["nodes"] == NODES
    life.run(*far, "--token-file", token, "node", "hold", "n00001", "--reason", "x", code=4)
    life.run(*far, "status", code=4)
    life.run("auth", "token", "revoke", life.run("auth", "token", "list", "--json").json[0]["id"])
    eventually("the token is dead", lambda: strata(life.state, *far, "--token-file", token, "status").code != 0, 60)


def crash(life: Life) -> None:
    """kill -9; up again goes on where it was, with the same simulated nodes."""
    life.run("node", "set", "n00001", "config=after-the-backup", "--wait")
    before, simulator = life.effects(), life.pid(up_simulated.SIMULATOR)
    os.kill(life.pid(background.SERVICE), signal.SIGKILL)
    life.up()
    assert life.pid(up_simulated.SIMULATOR) == simulator
    assert life.fact("n00001", "config") == "after-the-backup"
    assert life.effects() == before


def leave_nothing(life: Life, outside: Path) -> None:
    """Down: no process, no file."""
    processes = life.processes()
    assert len(processes) >= 4  # nginx has at least a master and a worker
    life.run("down", "--delete")
    eventually("they are gone", lambda: not [pid for pid in processes if ps.find(pid) is not None], 60)
    assert sorted(path.name for path in outside.iterdir()) == ["kept.backup"]


def restored(world: World, backup: Path) -> None:
    """What the backup holds lives on in another place."""
    controller = world.controller("again", None)
    done = strata(controller.state, "store", "restore", backup)
    assert done.code == 0, done
    assert strata(controller.state, "store", "check").code == 0
    controller.start()
    controller.wait_ready()
    desires = controller.client.get("/v1/nodes/n00001")["desires"]
    assert desires["config"]["values"] == ["r10"]
    assert controller.client.get("/v1/nodes/n00002")["desires"]["image"]["values"] == ["v2"]
    assert controller.client.get("/v1/audit/verify")["ok"]
    assert controller.client.get("/v1/nodes", {"limit": 1})["total"] == NODES
