"""The agent where it belongs: on the minimal OS, in an emulated machine, with real containers and block devices."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from agent_process import make_image
from fake_controller import Controller, controller

from strata.provisioning.minos.tree import File
from support.minos import Machine, initrd_with

pytestmark = [pytest.mark.slow, pytest.mark.server]

SERVICE = "echo started; touch /run/up; while :; do sleep 1; done\n"
BROKEN = "echo no luck; exit 4\n"
MEGABYTES = 40
MAC = "52:54:00:00:00:02"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Controller]:
    with controller(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(scope="module")
def machine(site: Controller, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    boot = site.boot(urls=[f"https://10.0.3.2:{site.port}"])
    boot["net"] = {"interfaces": [{"mac": MAC, "address": "10.0.3.15/24", "gateway": "10.0.3.2", "dns": []}]}
    extra = {"etc/strata/boot.json": File(0o100600, json.dumps(boot).encode())}
    initrd = initrd_with(extra, tmp_path_factory.mktemp("boot") / "initrd")
    network = ("-netdev", "user,id=n1,net=10.0.3.0/24", "-device", f"virtio-net-pci,netdev=n1,romfile=,mac={MAC}")
    with Machine(initrd, *network) as running:
        running.wait_for("Linux version")
        yield running


@pytest.fixture(scope="module")
def images(site: Controller, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    made = {}
    for name, service, padding in (("small", SERVICE, 0), ("big", SERVICE, MEGABYTES << 20), ("broken", BROKEN, 0)):
        folder = tmp_path_factory.mktemp(name)
        made[name] = site.site.release(make_image(folder, service, padding=padding), name=name)
        if padding:
            made["padding"] = {"sha256": hashlib.sha256((folder / "tree/padding").read_bytes()).hexdigest()}
    return made


def personality(release: dict[str, Any], mode: str = "ram") -> dict[str, Any]:
    member = {
        "name": "system", "release": release, "mode": mode,
        "ready": {"kind": "file", "path": "/run/up", "within": 60}, "restart": {"most": 3, "backoff": 0.2},
    }  # fmt: skip
    digest = hashlib.sha256(json.dumps(member, sort_keys=True).encode()).hexdigest()
    return {"name": f"{release['name']}-{mode}", "digest": f"sha256:{digest}", "members": [member]}


def shell(site: Controller, script: str, where: str = "minos") -> str:
    result = site.do("exec", argv=["sh", "-c", script], where=where, seconds=120, timeout=100)
    return base64.b64decode(result["output"]).decode()


def test_its_first_report_says_what_it_is_and_that_it_runs_nothing_yet(machine: Machine, site: Controller) -> None:
    first = site.wait(lambda: site.exchanges and site.exchanges[0], 240)
    assert first["state"]["set"]["state"] == "idle"
    assert site.wait(lambda: site.inventories, 60)[0]["dmi"]["sys_vendor"] == "QEMU"


def test_a_set_runs_is_changed_goes_back_and_survives_its_agent(
    machine: Machine, site: Controller, images: dict[str, dict[str, Any]]
) -> None:
    small, big = personality(images["small"]), personality(images["big"])
    assert site.do("load", set=small)["ok"]
    started = site.do("start", digest=small["digest"])
    assert started["ok"], started
    assert shell(site, "echo $$; cat /proc/1/cmdline", "system").endswith("/service\x00")

    changed = site.do("switch", set=big, seconds=120)
    assert changed["ok"], changed

    changed = site.do("switch", set=personality(images["big"], "demand"), seconds=120)
    assert changed["ok"], changed
    assert shell(site, "busybox sha256sum /padding", "system").split()[0] == images["padding"]["sha256"]
    assert shell(site, "ls /run/strata/images").strip() == "", "its memory was given back"

    refused = site.do("switch", set=personality(images["broken"]), seconds=120)
    assert not refused["ok"] and "no luck" in refused["error"]
    state = site.wait_state("active")
    assert state["set"]["name"] == "big-demand"

    since = state["agent"]["started"]
    site.send("exec", argv=["sh", "-c", "kill -9 $PPID"], where="minos")
    back = site.wait(lambda: site.state()["agent"]["started"] > since and site.state(), 60)
    assert back["set"] == state["set"]
    assert shell(site, "cat /service | busybox wc -l", "system").strip() == "1"


def test_limits_have_a_stand_in_here_that_says_so(machine: Machine, site: Controller) -> None:
    result = site.do("limits", max_khz=2000000, cstate_max=1)
    now = json.loads(base64.b64decode(result["output"]))
    assert (now["max_khz"], now["cstate_max"], now["stand_in"]) == (2000000, 1, True)


def test_a_command_in_a_member_that_takes_too_long_is_ended_there(machine: Machine, site: Controller) -> None:
    result = site.do("exec", argv=["sleep", "77"], where="system", timeout=1)
    assert result["error"] == "stopped after 1 s"
    assert shell(site, "while ps | grep -q '[s]leep 77'; do sleep 0.1; done; echo gone") == "gone\n"


def test_it_reboots_when_told(machine: Machine, site: Controller) -> None:
    assert site.do("reboot")["ok"]
    machine.ended(60)
