"""Members that fail, that cannot be killed, and that are a whole system: real images, real containers."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, make_image
from fake_controller import Controller
from personality_support import SERVICE, member, personality, release_of

pytestmark = [pytest.mark.slow, pytest.mark.server]

FAILING = """
if test -e /gate/fail; then until test -e /gate/open; do sleep 0.1; done; exit 7; fi
touch /run/up; until test -e /gate/fail; do sleep 0.1; done; exit 7
"""


def reported(site: Controller, name: str) -> dict[str, Any]:
    return next(entry for entry in site.state()["set"]["members"] if entry["name"] == name)


def run_set(site: Controller, wanted: dict[str, Any]) -> None:
    assert site.do("load", set=wanted)["ok"]
    started = site.do("start", digest=wanted["digest"])
    assert started["ok"], started


def test_one_member_that_fails_is_given_up_in_the_end_and_the_other_never_notices(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    well, ill = release_of(site, tmp_path / "a"), release_of(site, tmp_path / "b", FAILING, name="svc")
    gate = tmp_path / "gate"
    failing = member("svc", ill, mounts=[{"source": str(gate), "target": "/gate"}])
    compute = personality("compute", "a", member("system", well), failing)
    run_set(site, compute)
    before = reported(site, "system")
    (gate / "fail").touch()
    site.wait_state("error")
    again = site.do("start", digest=compute["digest"])
    assert again["ok"], f"the agent is at it by itself: {again}"
    (gate / "open").touch()
    fatal = site.wait_state("fatal")["set"]
    assert "svc: ended with status 7" in fatal["reason"]
    assert reported(site, "svc")["restarts"] == 3, "asking for what is being done anyway begins nothing anew"
    assert reported(site, "system") == before
    given_up = site.do("start", digest=compute["digest"])
    assert "given up after 4 tries" in given_up["error"]
    assert site.do("stop")["ok"]


@contextlib.contextmanager
def silent_device(node: AgentProcess, where: Path) -> Iterator[subprocess.Popen[str]]:
    """A device on the node that answers nothing, until this ends."""
    device = subprocess.Popen(
        node.command(sys.executable, str(Path(__file__).with_name("silent_device.py")), str(where)),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert device.stdout is not None
    try:
        assert device.stdout.readline() == "mounted\n"
        yield device
    finally:
        node.inside("umount", "-l", str(where))
        for child in Path(f"/proc/{device.pid}/task/{device.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        device.kill()
        device.wait()
        device.stdout.close()


def test_a_member_that_cannot_be_killed_is_not_taken_for_stopped(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    asking = "touch /run/up; ls /device/file; while :; do sleep 1; done\n"
    old, new = release_of(site, tmp_path / "a", asking), release_of(site, tmp_path / "b", serial=2)
    where = tmp_path / "node/device"
    blocked = member("system", old, mounts=[{"source": str(where), "target": "/device"}])
    first = personality("compute", "a", blocked, member("side", new))
    second = personality("compute", "b", member("system", new), member("side", new))
    with silent_device(node, where) as device:
        run_set(site, first)
        side = reported(site, "side")
        assert device.stdout is not None
        assert device.stdout.readline() == "asked\n"
        refused = site.do("switch", seconds=120, set=second)
        assert not refused["ok"]
        assert "member system: killed, and not gone after 10 s" in refused["error"]
        broken = site.wait_state("error", first["digest"])["set"]
        assert "not gone" in broken["reason"]
        assert "not gone" in site.do("stop", seconds=120)["error"]
        assert len(node.inside("pgrep", "-f", "/service").split()) == 1, "the one that the kernel holds, and no other"
    assert site.do("start", digest=first["digest"])["ok"], "the members that could be stopped"
    site.wait(lambda: reported(site, "system")["state"] == "active")
    assert site.wait_state("active", first["digest"])
    changed = site.do("switch", set=second)
    assert changed["ok"], changed
    assert reported(site, "side")["restarts"] == 0 == side["restarts"]


def test_a_set_that_cannot_start_from_its_images_does_not_cost_the_one_that_runs(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    good = release_of(site, tmp_path / "a")
    first = personality("compute", "a", member("system", good))
    run_set(site, first)
    before = reported(site, "system")
    stranger = {"argv": ["/bin/sh", "/service"], "env": [], "cwd": "/", "user": "nobody"}
    other = release_of(site, tmp_path / "b", SERVICE + "# other\n", serial=2, config=stranger)
    for digest, broken, why in (
        ("b", member("system", good, argv=["/usr/sbin/missing"]), "there is no /usr/sbin/missing in its image"),
        ("c", member("system", other), "user 'nobody' is not in its /etc/passwd"),
    ):
        refused = site.do("switch", set=personality("compute", digest, broken))
        assert why in refused["error"]
        assert site.wait_state("active", first["digest"])["set"]["reason"]
        assert reported(site, "system") == before


def test_a_full_init_is_the_first_process_of_its_own_system(
    tmp_path: Path, site: Controller, node: AgentProcess
) -> None:
    """Busybox's init: it insists on being process 1, mounts, starts what its table says, and again what ends."""
    folder = tmp_path / "a"
    folder.mkdir()
    table = "::sysinit:/bin/busybox mount -t tmpfs none /mnt\n::respawn:/bin/busybox sh /service\n"
    service = 'echo "up, $container" >> /mnt/log; echo $$ > /run/service; touch /run/up; while :; do sleep 1; done\n'
    image = make_image(folder, service, more={"etc/inittab": table, "mnt/.keep": "", "etc/hostname": "image"})
    release = site.site.release(image)
    init = member("system", release, init=True, argv=["/bin/busybox", "init"])
    run_set(site, personality("full", "a", init))
    site.wait_state("active")

    def inside(script: str) -> str:
        done = site.do("exec", argv=["/bin/busybox", "sh", "-c", script], where="system")
        return base64.b64decode(done["output"]).decode()

    first, told = inside("cat /proc/1/cmdline; echo; cat /mnt/log").splitlines()
    assert first.rstrip("\0").replace("\0", " ") in ("/bin/busybox init", "init")
    assert told == "up, oci", "the word by which an init knows that it is in a container"
    assert inside("cat /etc/hostname").strip() == os.uname().nodename
    assert "cgroup" in inside("/bin/busybox awk '$5 == \"/sys/fs/cgroup\" && $6 ~ /^rw/' /proc/self/mountinfo")
    inside("kill -9 $(cat /run/service)")
    deadline = time.monotonic() + 60
    while inside("cat /mnt/log").count("up") < 2:
        assert time.monotonic() < deadline
    assert reported(site, "system")["restarts"] == 0, "what its init looks after is its init's affair"
    assert site.do("stop")["ok"]
    assert not node.inside("pgrep", "-f", "/service")
