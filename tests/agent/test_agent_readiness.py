"""A member that was ready is looked at again: one that has stopped doing its work is told of, and left to run."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agent_process import AgentProcess
from fake_controller import Controller
from personality_support import member, personality, release_of

from strata.agent.personality.ready import listens, lost, top

pytestmark = [pytest.mark.slow, pytest.mark.server]

WORKING = "while :; do sleep 0.2; done\n"
WIPING = """
touch /run/up
until test -e /gate/wipe; do sleep 0.1; done
busybox rm -rf /usr /etc /bin /sbin /lib /opt /srv /data
while :; do read -t 1 nothing < /dev/zero; done
"""


def reported(site: Controller) -> dict[str, Any]:
    found: dict[str, Any] = site.state()["set"]["members"][0]
    return found


def working(site: Controller, folder: Path, gate: Path, within: float) -> dict[str, Any]:
    """A personality that is ready for as long as there is a file in ``gate``."""
    gate.mkdir()
    (gate / "up").touch()
    ready = {"kind": "file", "path": "/gate/up", "within": within, "every": 0.2}
    mounts = [{"source": str(gate), "target": "/gate"}]
    release = release_of(site, folder, WORKING)
    return personality("compute", "a", member("system", release, ready=ready, mounts=mounts))


def run_set(site: Controller, wanted: dict[str, Any]) -> None:
    assert site.do("load", set=wanted)["ok"]
    started = site.do("start", digest=wanted["digest"])
    assert started["ok"], started


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_port_is_ready_while_somebody_listens_there_and_nobody_is_bothered(family: int, host: str) -> None:
    with socket.socket(family) as server:
        server.bind((host, 0))
        port = server.getsockname()[1]
        assert not listens(os.getpid(), port), "bound is not listening"
        server.listen()
        assert listens(os.getpid(), port)
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not listens(os.getpid(), port)


def test_a_member_whose_check_fails_later_is_in_error_with_the_reason_and_runs_on(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    gate = tmp_path / "gate"
    run_set(site, working(site, tmp_path / "a", gate, within=600))
    (gate / "up").unlink()
    told = site.wait_state("error")["set"]
    assert told["reason"] == "system: it runs, and is not ready any more: there is no /gate/up"
    assert (reported(site)["ready"], reported(site)["restarts"]) == (False, 0)
    done = site.do("exec", argv=["true"], where="minos")
    assert done["ok"]
    (gate / "up").touch()
    site.wait_state("active")
    assert reported(site)["restarts"] == 0, "what works again was never touched"


def test_a_member_that_stays_unready_is_given_up_and_still_not_touched(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    gate = tmp_path / "gate"
    wanted = working(site, tmp_path / "a", gate, within=1)
    run_set(site, wanted)
    (gate / "up").unlink()
    told = site.wait_state("fatal")["set"]
    assert "is not ready any more, not for 1 s: there is no /gate/up" in told["reason"]
    assert reported(site)["restarts"] == 0
    (gate / "up").touch()
    site.wait_state("active")
    (gate / "up").unlink()
    site.wait_state("fatal")
    assert site.do("stop")["ok"], "the controller may have it started anew"
    (gate / "up").touch()
    assert site.do("start", digest=wanted["digest"])["ok"]


def test_an_agent_that_is_started_again_goes_on_with_a_member_that_is_not_ready(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    gate = tmp_path / "gate"
    run_set(site, working(site, tmp_path / "a", gate, within=600))
    (gate / "up").unlink()
    site.wait_state("error")
    node.kill()
    heard = len(site.exchanges)
    node.start()
    site.wait(lambda: len(site.exchanges) > heard)
    assert reported(site)["state"] == "error", "what it knew, it knows"
    (gate / "up").touch()
    site.wait_state("active")
    assert reported(site)["restarts"] == 0


def test_a_member_whose_root_was_wiped_is_not_ready_whatever_it_answers(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    gate = tmp_path / "gate"
    gate.mkdir()
    release = release_of(site, tmp_path / "a", WIPING)
    ready = {"kind": "started", "within": 600, "every": 0.2}
    mounts = [{"source": str(gate), "target": "/gate"}]
    run_set(site, personality("compute", "a", member("system", release, ready=ready, mounts=mounts)))
    (gate / "wipe").touch()
    told = site.wait_state("error")["set"]
    assert "its root was wiped" in told["reason"] or "is gone from its root" in told["reason"]


def whiteout(place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(0, 0))


def test_what_a_service_may_remove_is_no_loss(tmp_path: Path) -> None:
    image, written = tmp_path / "image", tmp_path / "written"
    for name in ("usr/bin", "etc/x", "opt/x", "mnt"):
        (image / name).mkdir(parents=True)
    had = top(image)
    assert had == ["etc", "opt", "usr"], "an empty place is nothing to lose"
    one: Any = SimpleNamespace(argv=["/usr/bin/serve"])
    whiteout(written / "opt")
    assert lost(one, written, had) == ""
    whiteout(written / "usr/bin/serve")
    assert lost(one, written, had) == "/usr/bin/serve is gone from its root"
    whiteout(written / "etc")
    assert lost(one, written, had) == "its root was wiped: /etc, /opt are gone"
