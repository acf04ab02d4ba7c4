"""Personalities on a node: real squashfs images, real mounts, real containers."""

from __future__ import annotations

import base64
import time
from pathlib import Path

import pytest
from agent_process import AgentProcess
from fake_controller import Controller
from personality_support import SERVICE, member, personality, release_of

pytestmark = [pytest.mark.slow, pytest.mark.server]

BROKEN = "echo cannot find my libraries; exit 4\n"


def test_a_set_is_loaded_started_entered_and_stopped(tmp_path: Path, site: Controller, node: AgentProcess) -> None:
    own = {"path": "/etc/node.conf", "mode": 0o640, "content": base64.b64encode(b"node=n0001\n").decode()}
    system = member("system", release_of(site, tmp_path / "a"), files=[own], env={"GREETING": "good day"})
    compute = personality("compute", "a", system)
    assert site.do("load", set=compute)["ok"]
    assert site.wait_state("idle", compute["digest"])["set"]["name"] == "compute"
    assert site.state()["loaded"] == [compute["digest"]]
    assert site.state()["images"] == sorted({member["release"]["squashfs"] for member in compute["members"]})
    started = site.do("start", digest=compute["digest"])
    assert started["ok"], started
    assert site.wait_state("active")["set"]["members"][0]["ready"]
    inside = site.do("exec", argv=["cat", "/etc/node.conf"], where="system")
    assert base64.b64decode(inside["output"]) == b"node=n0001\n"
    assert site.wait(lambda: [line for line in site.logs if line[1:] == ["system", "good day from /service"]])
    assert site.do("stop")["ok"]
    assert site.wait_state("idle")["set"]["digest"] == compute["digest"]
    assert "crun" not in node.inside("ps", "ax")


def test_a_change_leaves_equal_members_alone_and_a_broken_one_goes_back(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    good, other = release_of(site, tmp_path / "a"), release_of(site, tmp_path / "b", SERVICE + "# other\n", serial=2)
    broken = release_of(site, tmp_path / "c", BROKEN, serial=3)
    first = personality("compute", "a", member("system", good), member("side", good))
    site.do("load", set=first)
    site.do("start", digest=first["digest"])
    before = {entry["name"]: entry for entry in site.wait_state("active")["set"]["members"]}

    second = personality("compute", "b", member("system", other), member("side", good))
    changed = site.do("switch", set=second)
    assert changed["ok"], changed
    after = site.wait_state("active", second["digest"])["set"]
    assert {entry["name"]: entry for entry in after["members"]}["side"] == before["side"]

    third = personality("compute", "c", member("system", broken), member("side", good))
    refused = site.do("switch", set=third)
    assert not refused["ok"]
    assert "ended with status 4" in refused["error"]
    assert "cannot find my libraries" in refused["error"]
    back = site.wait_state("active", second["digest"])["set"]
    assert "cannot find my libraries" in back["reason"]


def test_a_dead_member_is_started_again_and_given_up_after_some_tries(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    once = "touch /run/up; sleep 0.3; exit 7\n"
    compute = personality("compute", "a", member("system", release_of(site, tmp_path / "a", once)))
    site.do("load", set=compute)
    site.do("start", digest=compute["digest"])
    fatal = site.wait_state("fatal")["set"]
    assert "error" in {exchange["state"]["set"]["state"] for exchange in site.exchanges}, "it was said meanwhile"
    assert fatal["members"][0]["restarts"] == 3
    assert "status 7" in fatal["reason"]
    assert site.do("stop")["ok"]


def test_a_killed_agent_is_started_again_and_its_members_never_notice(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    compute = personality("compute", "a", member("system", release_of(site, tmp_path / "a")))
    site.do("load", set=compute)
    site.do("start", digest=compute["digest"])
    before = site.wait_state("active")
    unfinished = site.send("exec", argv=["sleep", "50"], where="system")
    while not node.inside("pgrep", "-f", "sleep 50"):
        time.sleep(0.05)
    node.kill()
    node.start()
    site.wait(lambda: site.state()["agent"]["started"] > before["agent"]["started"])
    after = site.wait_state("active")
    assert after["set"] == before["set"]
    assert len(site.redeemed) == 1
    assert site.wait(lambda: site.results.get(unfinished))["unknown"]
    pid = node.inside("pgrep", "-f", "/service").split()[0]
    node.inside("kill", "-9", pid)
    again = site.wait(lambda: site.state()["set"]["members"][0]["restarts"] == 1 and site.state()["set"])
    assert again["name"] == "compute"
    site.wait_state("active")


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_a_command_that_is_ended_in_a_member_takes_its_children_with_it_and_nothing_else(
    tmp_path: Path, site: Controller, node: AgentProcess, how: str
) -> None:
    compute = personality("compute", "a", member("system", release_of(site, tmp_path / "a")))
    site.do("load", set=compute)
    site.do("start", digest=compute["digest"])
    site.wait_state("active")
    members = node.inside("pgrep", "-o", "-f", "/service")  # not what it starts, before that is something else
    argv, tree = ["sh", "-c", "sleep 11111 & (sleep 22222; true) & sleep 33333"], "sleep (11111|22222|33333)"
    name = site.send("exec", argv=argv, where="system", timeout=3 if how == "timeout" else 600)
    deadline = time.monotonic() + 60
    while len(node.inside("pgrep", "-x", "-f", tree).split()) < 3 and not site.results.get(name):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if how == "cancel":
        site.send("cancel", of=name)
    result = site.wait(lambda: site.results.get(name))
    assert result["error"] == ("stopped after 3 s" if how == "timeout" else "cancelled")
    while left := node.inside("pgrep", "-x", "-f", tree):  # a killed process is there until the kernel is done with it
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.02)
    assert node.inside("pgrep", "-o", "-f", "/service") == members
    assert site.do("exec", argv=["echo"], where="system")["ok"], "the agent goes on"


def test_a_controller_that_goes_away_changes_nothing_and_results_wait_for_it(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    compute = personality("compute", "a", member("system", release_of(site, tmp_path / "a")))
    site.do("load", set=compute)
    site.do("start", digest=compute["digest"])
    before = site.wait_state("active")["set"]
    word = tmp_path / "word"
    late = site.send("exec", argv=["sh", "-c", f"until test -e {word}; do sleep 0.1; done; echo done"], where="minos")
    while not node.inside("pgrep", "-f", "echo done"):
        time.sleep(0.05)
    site.close()
    word.touch()
    while node.inside("pgrep", "-f", "echo done"):  # the command ends while nobody listens
        time.sleep(0.05)
    back = Controller(site.site, site.port)
    try:
        assert base64.b64decode(back.wait(lambda: back.results.get(late))["output"]) == b"done\n"
        assert back.wait_state("active")["set"] == before
    finally:
        site.__dict__.update(back.__dict__)  # the fixture closes the one that runs
