"""``strata power queue`` against a fake service, and what is read from ``squeue --json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fake_server
import pytest
from cli_support import Run
from fake_server import Call, FakeServer

from strata.core.errors import BadRequest
from strata.power.queue.squeue import read

Json = dict[str, Any]


def pending(job: int, **more: Any) -> Json:
    """A job that waits, as Slurm 22.05 tells of it."""
    usual = {
        "job_id": job, "job_state": "PENDING", "state_reason": "Resources", "node_count": 2, "partition": "all",
        "priority": 1000 - job, "time_limit": 30, "user_name": "ada", "end_time": 0,
    }  # fmt: skip
    return usual | more


def squeue(*jobs: Json) -> str:
    return json.dumps({"meta": {"Slurm": {"version": {"major": 22, "minor": 5}}}, "errors": [], "jobs": jobs})


class Queue:
    """What the fake service was told."""

    def __init__(self) -> None:
        self.view: Json = {
            "time": None, "author": "", "good_until": None, "fresh": False, "waiting": [], "running": [],
        }  # fmt: skip

    def show(self, server: FakeServer, call: Call) -> Json:
        return self.view

    def tell(self, server: FakeServer, call: Call) -> Json:
        body = call.body or {}
        self.view = {"time": 1.7e9, "author": "slurm", "good_until": 1.7e9 + body["good_for"], "fresh": True} | {
            "waiting": body["waiting"], "running": body["running"],
        }  # fmt: skip
        return self.view


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    found = Queue()
    routes = [("GET", "/v1/power/queue", "", found.show), ("POST", "/v1/power/queue", "", found.tell)]
    monkeypatch.setattr(fake_server, "ROUTES", [*fake_server.ROUTES, *routes])
    return found


def test_the_queue_is_imported_and_listed(server: FakeServer, run: Run, queue: Queue, tmp_path: Path) -> None:
    assert "Nobody has told of the queue yet" in run("power", "queue", "list").err
    file = tmp_path / "queue.json"
    running = {"job_id": 9, "job_state": "RUNNING", "end_time": 1_794_760_000}
    held = pending(3, state_reason="JobHeldUser")
    file.write_text(squeue(pending(1, time_limit=None), held, running))
    done = run("power", "queue", "import", file, "--good-for", "120")
    assert done.code == 0 and done.lines == ["1 job waiting, 1 job running"]
    assert "1 job left out: held, or waiting for another job or a date" in done.err
    assert queue.view["good_until"] == 1.7e9 + 120
    assert queue.view["running"] == [{"job": "9", "ends": 1_794_760_000.0}]
    done = run("power", "queue", "list")
    assert done.lines[1].split() == ["1", "ada", "all", "2", "none"] and "Told by slurm" in done.err
    assert run("power", "queue", "list", "--json").json == queue.view["waiting"]
    queue.view["fresh"] = False
    assert "policies ignore it" in run("power", "queue", "list").err


def test_whoever_has_the_highest_priority_comes_first() -> None:
    found = read(squeue(pending(1, priority=5), pending(2, priority=7), pending(3, priority=7)))
    assert [one["job"] for one in found.body["waiting"]] == ["2", "3", "1"]


def test_newer_versions_wrap_numbers_and_list_states() -> None:
    wrapped = pending(
        1, job_state=["PENDING"], node_count={"set": True, "infinite": False, "number": 4},
        time_limit={"set": True, "infinite": True, "number": 0}, partition="all,night",
    )  # fmt: skip
    [job] = read(squeue(wrapped)).body["waiting"]
    assert (job["nodes"], job["time_limit"], job["queue"]) == (4, None, "all")


def test_a_queue_that_is_too_long_is_cut_and_the_rest_counted() -> None:
    found = read(squeue(*(pending(number) for number in range(10_003))))
    assert (len(found.body["waiting"]), found.too_many) == (10_000, 3)


@pytest.mark.parametrize("text", ["", "[]", '{"jobs": 3}', '{"jobs": [{}]}', "JOBID PARTITION"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="not what squeue --json prints"):
        read(text)
