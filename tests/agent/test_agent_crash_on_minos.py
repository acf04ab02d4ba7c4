"""A kernel that panics on an emulated machine: the crash kernel that the agent loaded says why, and reboots."""

from __future__ import annotations

import base64
import http.server
import json
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from fake_controller import controller

from strata.provisioning.minos.tree import File
from support.minos import Machine, built, initrd_with
from support.signed_builds import open_builds

pytestmark = [pytest.mark.slow, pytest.mark.server]

RESERVED = "160M"
MAC = "52:54:00:00:00:03"
CRASH = "echo my word >/dev/kmsg; echo c >/proc/sysrq-trigger"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def boot_files() -> Iterator[int]:
    """The port at which the build's files are served, on loopback."""
    handler = partial(Quiet, directory=str(built()))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_a_panic_is_followed_by_the_kernels_last_words_and_a_reboot(tmp_path: Path, boot_files: int) -> None:
    builds = open_builds(built(), built().with_name("signing"))
    digest = builds.digest("latest", "x86_64")
    network = ("-netdev", "user,id=n1,net=10.0.3.0/24", "-device", f"virtio-net-pci,netdev=n1,romfile=,mac={MAC}")
    with controller(tmp_path / "site") as site:
        boot = site.boot(urls=[f"https://10.0.3.2:{site.port}"])
        boot["minos"] = {"url": f"http://10.0.3.2:{boot_files}/{digest}", **builds.digests(digest)}
        boot["net"] = {"interfaces": [{"mac": MAC, "address": "10.0.3.15/24", "gateway": "10.0.3.2", "dns": []}]}
        extra = {"etc/strata/boot.json": File(0o100600, json.dumps(boot).encode())}
        initrd = initrd_with(extra, tmp_path / "initrd")
        with Machine(initrd, *network, "-m", "768", append=f"crashkernel={RESERVED} hugepages=16") as machine:
            machine.wait_for("strata-agent: a crash kernel is loaded")
            left = site.do("exec", argv=["ls", "/run/strata"], where="minos")["output"]
            assert b"crash" not in base64.b64decode(left), "its files are gone from memory"
            site.send("exec", argv=["sh", "-c", CRASH], where="minos")
            machine.wait_for("Kernel panic - not syncing: sysrq triggered crash")
            machine.wait_for("Linux version")
            machine.wait_for("running the crash hook")
            machine.wait_for("==== last lines of the crashed kernel's log")
            machine.wait_for("my word")
            machine.wait_for("Kernel panic - not syncing: sysrq triggered crash")
            machine.wait_for("==== end of the crashed kernel's log")
            machine.wait_for("rebooting after the crash")
            machine.ended()
            assert len(site.redeemed) == 1, "no agent runs in a crash kernel"
