"""Configuration on a node: put into real containers, whole; kept as it was delivered; taken away again."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from agent_process import AgentProcess, make_image
from fake_controller import Controller
from personality_support import SERVICE, member, personality

from strata.agent.delivery import live, packages
from strata.agent.delivery.beneath import Beneath
from strata.agent.errors import CommandFailed

pytestmark = [pytest.mark.slow, pytest.mark.server]

SYSTEMCTL = """#!/bin/sh
# An init that behaves: a unit has a file when it runs, and one when it is enabled.
state=/etc/units
verb=$1
shift
case $verb in
show)
    shift 2
    first=1
    for unit; do
        test "$first" = 1 || echo
        first=0
        echo "Id=$unit"
        test -e $state/$unit.running && echo ActiveState=active || echo ActiveState=inactive
        test -e $state/$unit.enabled && echo UnitFileState=enabled || echo UnitFileState=disabled
        test "$unit" = nothing.service && echo LoadState=not-found || echo LoadState=loaded
    done ;;
start) test "$2" != broken.service || { echo "Job for broken.service failed"; exit 1; }; echo > $state/$2.running ;;
stop) busybox rm -f $state/$2.running ;;
enable) echo > $state/$2.enabled ;;
disable) busybox rm -f $state/$2.enabled ;;
daemon-reload) ;;
*) exit 64 ;;
esac
"""


DPKG = """#!/bin/sh
# A package manager that behaves: a package has a line in its database, and a mirror has what can be had.
state=/var/lib/dpkg/status
case ${0##*/} in
dpkg-query)
    shift 4
    code=0
    for name; do
        line=$(busybox grep "^$name " $state)
        test -n "$line" || { echo "dpkg-query: no packages found matching $name"; code=1; continue; }
        set -- $line
        printf '%s\\t%s\\tinstalled\\n' "$1" "$2"
    done
    exit $code ;;
apt-get)
    for last; do :; done
    case " $* " in *" update "*) echo > /etc/updated; exit 0 ;; esac
    test -e /etc/updated || { echo "E: Unable to locate package $last"; exit 100; }
    case $last in
    nowhere) echo "E: Unable to locate package nowhere"; exit 100 ;;
    *=*) new="${last%%=*} ${last#*=}" ;;
    *) new="$last 1.0" ;;
    esac
    busybox sed -i "/^${new%% *} /d" $state
    echo "$new" >> $state ;;
esac
"""


def file(path: str, text: str, **more: Any) -> dict[str, Any]:
    return {
        "path": path,
        "text": text,
        "mode": 0o644,
        "owner": "root",
        "group": "",
        "drift": "report",
        "reload": [],
        **more,
    }


def service(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "enabled": True, "running": True, "drift": "report", **more}


def overlay(revision: str, files: list[dict[str, Any]], **kinds: Any) -> dict[str, Any]:
    """As the controller sends it; looked at four times a second."""
    contents, entries = {}, []
    for entry in files:
        data = entry["text"].encode()
        sha = hashlib.sha256(data).hexdigest()
        contents[sha] = base64.b64encode(data).decode()
        entries.append({**{key: value for key, value in entry.items() if key != "text"}, "sha": sha})
    rest = {kind: kinds.get(kind, []) for kind in ("users", "groups", "packages", "services", "mounts", "sysctls")}
    manifest = json.dumps({"check": 0.25, "files": entries, **rest})
    digest = "sha256:" + hashlib.sha256(manifest.encode()).hexdigest()
    return {"revision": revision, "digest": digest, "manifest": manifest, "contents": contents}


class Running:
    """A node whose personality runs: one member, with an init that behaves."""

    def __init__(self, tmp_path: Path, site: Controller) -> None:
        self.site = site
        more = {"bin/systemctl": SYSTEMCTL, "bin/dpkg-query": DPKG, "bin/apt-get": DPKG}
        more |= {"var/lib/dpkg/status": "chrony 4.3\n", "etc/units/.keep": "", "etc/passwd": "root:x:0:0::/:/bin/sh\n"}
        folder = tmp_path / "image"
        folder.mkdir()
        image = make_image(folder, SERVICE, more=more)
        ready = {"kind": "command", "argv": ["/bin/test", "-e", "/etc/up"], "within": 60}
        made = (
            "busybox chmod 755 /bin/systemctl /bin/dpkg-query /bin/apt-get; "
            "for it in mkdir mount umount env; do busybox ln -s busybox /bin/$it; done"
        )
        argv = ["/bin/sh", "-c", f"{made}; touch /etc/up; while :; do sleep 1; done"]
        release = site.site.release(image)
        self.set = personality("compute", "a", member("system", release, init=True, argv=argv, ready=ready))

    def start(self) -> None:
        assert self.site.do("load", set=self.set)["ok"]
        started = self.site.do("start", digest=self.set["digest"])
        assert started["ok"], started
        self.site.wait_state("active")

    def configure(self, wanted: dict[str, Any]) -> dict[str, Any]:
        self.site.overlay = wanted
        done = self.site.do("configure", revision=wanted["revision"], digest=wanted["digest"])
        if done["ok"]:
            self.in_force(wanted)
        return done

    def in_force(self, wanted: dict[str, Any]) -> None:
        self.site.wait(lambda: self.config()["digest"] == wanted["digest"])

    def config(self) -> dict[str, Any]:
        return self.site.state()["config"]

    def sh(self, script: str) -> str:
        done = self.site.do("exec", argv=["sh", "-c", script], where="system")
        return base64.b64decode(done["output"]).decode()

    def drift(self, *, corrected: bool = False) -> dict[str, dict[str, Any]]:
        """What drifted, once something has."""
        found = [one for one in self.config()["drift"] if one["corrected"] == corrected]
        return {one["where"]: one for one in found}


@pytest.fixture
def running(tmp_path: Path, site: Controller, node: AgentProcess) -> Running:
    return Running(tmp_path, site)


def test_a_member_has_its_files_before_it_starts_and_services_once_it_runs(running: Running) -> None:
    wanted = overlay(
        "r1",
        [file("/etc/site.conf", "n0001\n", mode=0o640, owner="ann")],
        users=[{"name": "ann", "uid": 1000, "gid": None, "comment": "", "home": "/home/ann", "shell": "/bin/sh"}],
        services=[service("clock.service")],
    )  # fmt: skip
    running.site.overlay = wanted
    running.set["members"][0]["argv"][2] = (
        "busybox cp /etc/site.conf /etc/at-start; " + running.set["members"][0]["argv"][2]
    )
    running.start()
    running.in_force(wanted)
    assert running.config()["revision"] == "r1"
    assert running.sh("cat /etc/at-start; busybox stat -c '%a %u %g' /etc/site.conf") == "n0001\n640 1000 1000\n"
    assert running.sh("cat /etc/passwd") == "root:x:0:0::/:/bin/sh\nann:*:1000:1000::/home/ann:/bin/sh\n"
    assert running.sh("ls /etc/units") == "clock.service.enabled\nclock.service.running\n"


def test_what_is_delivered_no_more_is_removed_and_commands_run_only_for_what_changed(running: Running) -> None:
    running.start()
    reload = ["/bin/sh", "-c", "echo reloaded >> /etc/reloads"]
    first = overlay(
        "r1", [file("/etc/a.conf", "1\n", reload=reload), file("/etc/b.conf", "1\n"), file("/etc/c.conf", "1\n")]
    )
    assert running.configure(first)["ok"]
    running.sh("echo mine > /etc/d.conf; echo edited > /etc/b.conf")
    running.site.wait(lambda: "/etc/b.conf" in running.drift())  # what is there has been looked at
    running.sh("echo 1 > /etc/b.conf")
    running.site.wait(lambda: not running.drift())
    second = overlay("r2", [file("/etc/a.conf", "1\n", reload=reload), file("/etc/b.conf", "2\n")])
    done = running.configure(second)
    assert done["ok"], done
    assert (
        running.sh("cat /etc/a.conf /etc/b.conf /etc/d.conf; test -e /etc/c.conf || echo gone") == "1\n2\nmine\ngone\n"
    )
    assert running.sh("cat /etc/reloads") == "reloaded\n", "the file did not change the second time"


def test_drift_is_seen_and_handled_by_policy(running: Running) -> None:
    running.start()
    wanted = overlay(
        "r1",
        [
            file("/etc/told.conf", "as delivered\n"),
            file("/etc/gone.conf", "as delivered\n"),
            file("/etc/kept.conf", "as delivered\n", drift="correct"),
            file("/etc/mode.conf", "as delivered\n", drift="correct"),
        ],
        services=[service("told.service"), service("kept.service", drift="correct")],
        mounts=[
            {"target": "/mnt/scratch", "source": "scratch", "type": "tmpfs", "options": "size=1m", "drift": "correct"}
        ],
    )
    done = running.configure(wanted)
    assert done["ok"], done
    assert "scratch /mnt/scratch tmpfs" in running.sh("cat /proc/mounts")
    running.sh(
        "busybox umount /mnt/scratch; "
        "echo edited > /etc/told.conf; busybox rm /etc/gone.conf /etc/kept.conf; busybox chmod 777 /etc/mode.conf; "
        "systemctl stop -- told.service; systemctl stop -- kept.service"
    )
    corrected = {"/etc/kept.conf", "/etc/mode.conf", "kept.service", "/mnt/scratch"}
    running.site.wait(lambda: corrected == running.drift(corrected=True).keys() and len(running.drift()) == 3)
    told = running.drift()
    assert {where: one["how"] for where, one in told.items()} == {
        "/etc/told.conf": "has another content",
        "/etc/gone.conf": "is missing",
        "told.service": "is inactive",
    }
    assert running.sh("cat /etc/told.conf; test -e /etc/gone.conf || echo gone") == "edited\ngone\n", (
        "reported, and left alone"
    )
    assert running.sh("cat /etc/kept.conf; busybox stat -c %a /etc/mode.conf") == "as delivered\n644\n"
    assert "scratch /mnt/scratch tmpfs" in running.sh("cat /proc/mounts")
    assert "kept.service.running" in running.sh("ls /etc/units") and "told.service.running" not in running.sh(
        "ls /etc/units"
    )
    assert running.config()["digest"] == wanted["digest"], (
        "it is in force all the same: nobody acts on what is reported"
    )
    running.sh(
        "echo as delivered > /etc/told.conf; echo as delivered > /etc/gone.conf; systemctl start -- told.service"
    )
    running.site.wait(lambda: not running.drift())
    assert running.configure(overlay("r2", []))["ok"]
    assert "/mnt/scratch" not in running.sh("cat /proc/mounts"), "what is mounted no more is unmounted"


def test_packages_are_installed_and_their_removal_is_seen_and_handled_by_policy(running: Running) -> None:
    running.start()
    many = [service(f"unit-{number:03d}.service") for number in range(60)]
    wanted = overlay(
        "r1",
        [],
        packages=[
            {"name": "chrony", "version": "", "drift": "report"},
            {"name": "htop", "version": "", "drift": "report"},
            {"name": "munge", "version": "0.5.15", "drift": "correct"},
        ],
        services=many,
    )
    done = running.configure(wanted)
    assert done["ok"], done
    assert running.sh("cat /var/lib/dpkg/status") == "chrony 4.3\nhtop 1.0\nmunge 0.5.15\n", (
        "what the image has is left alone"
    )
    running.sh("echo munge 0.4 > /var/lib/dpkg/status")
    running.site.wait(lambda: "munge" in running.drift(corrected=True) and len(running.drift()) == 2)
    assert {where: (one["what"], one["how"]) for where, one in running.drift().items()} == {
        "chrony": ("package", "is not installed"),
        "htop": ("package", "is not installed"),
    }, "reported, and left alone; and of sixty services none is taken for another"
    assert running.drift(corrected=True)["munge"]["how"] == "is 0.4"
    assert running.sh("cat /var/lib/dpkg/status") == "munge 0.5.15\n"
    running.sh("printf 'chrony 4.3\\nhtop 1.0\\n' >> /var/lib/dpkg/status")
    running.site.wait(lambda: not running.drift())
    unknown = overlay("r2", [], packages=[{"name": "nowhere", "version": "", "drift": "report"}])
    assert "Unable to locate package nowhere" in running.configure(unknown)["error"]


def test_what_a_real_dpkg_has_is_understood(tmp_path: Path) -> None:
    below = Beneath(Path("/"))
    with below:
        assert packages.manager(below) == "dpkg"
    with Beneath(tmp_path) as nothing:
        assert packages.manager(nothing) == ""
    inside = live.runner(lambda argv: (argv, lambda: None))
    wanted = [{"name": "dash"}, {"name": "no-such-package"}, {"name": "tar", "version": "0"}]
    found = packages.differ(inside, "dpkg", wanted)
    assert found.keys() == {"no-such-package", "tar"}
    assert found["no-such-package"] == "is not installed" and found["tar"].startswith("is 1.")
    with pytest.raises(CommandFailed, match="neither dpkg nor rpm"):
        packages.install(inside, "", {"name": "dash"})


def test_what_cannot_be_in_force_is_said_and_the_former_configuration_stays(running: Running) -> None:
    running.start()
    good = overlay("r1", [file("/etc/a.conf", "good\n")])
    assert running.configure(good)["ok"]
    bad = overlay("r2", [file("/etc/a.conf", "bad\n"), file("/etc/units", "is a folder\n")])
    done = running.configure(bad)
    assert not done["ok"] and "/etc/units is a folder" in done["error"]
    assert running.sh("cat /etc/a.conf; ls -a /etc | busybox grep strata || echo clean") == "good\nclean\n"
    lied = {**overlay("r3", [file("/etc/a.conf", "other\n")]), "digest": good["digest"]}
    running.site.overlay = lied
    assert "does not match its digest" in running.site.do("configure", revision="r3", digest="")["error"]
    broken = overlay("r4", [], services=[service("broken.service")])
    assert "Job for broken.service failed" in running.configure(broken)["error"]
    assert running.config()["digest"] == "", "what is half in force is not told as in force"
    assert running.configure(good)["ok"]
    assert running.sh("cat /etc/a.conf") == "good\n"


def test_a_restarted_agent_and_a_restarted_member_have_the_configuration(
    running: Running, site: Controller, node: AgentProcess
) -> None:
    running.start()
    wanted = overlay("r1", [file("/etc/a.conf", "1\n")], services=[service("clock.service")])
    assert running.configure(wanted)["ok"]
    before = site.state()
    node.kill()
    node.start()
    site.wait(lambda: site.state()["agent"]["started"] > before["agent"]["started"])
    running.in_force(wanted)
    running.sh("echo edited > /etc/a.conf")
    site.wait(lambda: "/etc/a.conf" in running.drift())
    pid = node.inside("pgrep", "-f", "touch /etc/up").split()[0]
    node.inside("kill", "-9", pid)
    site.wait(lambda: site.state()["set"]["members"][0]["restarts"] == 1)
    running.in_force(wanted)
    assert running.sh("cat /etc/a.conf; ls /etc/units") == "1\nclock.service.enabled\nclock.service.running\n"
    site.wait(lambda: not running.drift())
