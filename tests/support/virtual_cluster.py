"""A whole virtual cluster as ``strata up`` makes it: QEMU nodes, and the service among them. Used through the command
line, as a person would; everything that it started is gone after ``down``."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from strata.cli.up import slurm as up_slurm
from strata.core.host import process as ps
from strata.virtual.qemu import description, network

POLL = 0.5


class Done(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cluster:
    """The cluster of one state directory."""

    def __init__(self, state: Path) -> None:
        self.state = state
        base = {name: value for name, value in os.environ.items() if not name.startswith("STRATA_")}
        self.environment = {**base, "STRATA_STATE": str(state)}

    # the command line

    def command(self, *arguments: object) -> list[str]:
        """``strata ARGUMENTS`` as a program."""
        return [sys.executable, "-m", "strata.cli", *map(str, arguments)]

    def run(self, *arguments: object, limit: float = 120.0) -> Done:
        """``strata ARGUMENTS``, whatever comes of it."""
        try:
            done = subprocess.run(
                self.command(*arguments),
                env=self.environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=limit,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            error.add_note(f"{error.stdout!r} {error.stderr!r}\n{self.workload()}")
            raise
        return Done(done.returncode, done.stdout, done.stderr)

    @contextlib.contextmanager
    def start(self, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        """``strata ARGUMENTS`` while it runs; it has ended afterwards."""
        with subprocess.Popen(
            self.command(*arguments),
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever runs the tests in the background ignores interrupts, and children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process:
            try:
                yield process
                process.wait(60)
            finally:
                process.kill()

    def strata(self, *arguments: object, limit: float = 120.0) -> Done:
        """``strata ARGUMENTS``, which must succeed."""
        done = self.run(*arguments, limit=limit)
        assert done.code == 0, f"strata {' '.join(map(str, arguments))}: {done.code}\n{done.out}\n{done.err}"
        return done

    def typed(self, commands: Sequence[str], folder: Path | None = None, **more: str) -> str:
        """What commands of a page print, one after the other in a shell; each must succeed."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", "\n".join(commands)],
            env={**self.environment, "PATH": path, **more},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=540,
            check=False,
        )
        assert done.returncode == 0, (commands, done.stdout, done.stderr)
        return done.stdout

    def json(self, *arguments: object, limit: float = 120.0) -> Any:
        """What ``strata ARGUMENTS --json`` says."""
        end = arguments.index("--") if "--" in arguments else len(arguments)
        return self.strata(*arguments[:end], "--json", *arguments[end:], limit=limit).json

    def sh(self, node: str, line: str, *options: str, limit: float = 120.0) -> str:
        """What a shell on a node prints for ``line``."""
        (found,) = self.json("node", "exec", *options, node, "--", "sh", "-c", line, limit=limit)
        assert (found["exit"], found["error"]) == (0, ""), found
        return str(found["output"])

    def inside(self, *argv: str, limit: float = 60.0, text: str = "") -> Done:
        """A command in the nodes' network, beside the service."""
        done = subprocess.run(
            [*network.prefix_of(self.described.namespace), *argv],
            input=text,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def power(self, node: str, reset: str) -> None:
        """Have a machine's controller do this, behind the service's back."""
        (machine,) = [one for one in self.described.nodes if one.name == node]
        url = f"{machine.bmc}/redfish/v1/Systems/1/Actions/ComputerSystem.Reset"
        login = f"user = root:{(self.folder / description.PASSWORD).read_text().strip()}"  # not on the command line
        body = json.dumps({"ResetType": reset})
        done = self.inside("curl", "-sf", "-m", "20", "-K", "-", "-X", "POST", "-d", body, url, text=login)
        assert done.code == 0, done

    # what is there

    @property
    def folder(self) -> Path:
        """Of the chassis."""
        return self.state / "virtual"

    @property
    def described(self) -> description.Description:
        """The chassis."""
        return description.read(self.folder)

    @property
    def service(self) -> ps.Process:
        """The process of the service."""
        found = ps.load(self.state / "serve.json")
        assert found is not None
        return found

    def qemu(self, node: str) -> int:
        """Pid of the node's QEMU; 0: it is off."""
        return next(item["pid"] or 0 for item in self.json("virtual", "list") if item["name"] == node)

    def node(self, name: str) -> dict[str, Any]:
        """One node as the service sees it."""
        found: dict[str, Any] = self.json("node", "show", name)
        return found

    def agent(self, name: str) -> dict[str, Any]:
        """What its agent says."""
        found: dict[str, Any] = self.json("node", "agent", name)
        return found

    def generation(self, name: str) -> int:
        """How many boots of it have begun."""
        (found,) = self.json("boot", "status", name)
        return int(found["generation"])

    def alerts(self) -> list[dict[str, Any]]:
        """All alerts, also those that are over."""
        found: list[dict[str, Any]] = self.json("alert", "list", "--all")
        return found

    def history(self, name: str, since: float) -> list[dict[str, Any]]:
        """How its facts changed since then (Unix seconds), oldest first."""
        changes: list[dict[str, Any]] = self.json("node", "history", name)
        return sorted((one for one in changes if one["time"] >= since), key=lambda one: float(one["time"]))

    # waiting

    def eventually(self, what: str, holds: Callable[[], Any], limit: float) -> Any:
        """Ask until the answer is true, and return it."""
        deadline = time.monotonic() + limit
        while not (found := holds()):
            if time.monotonic() > deadline:
                pytest.fail(f"not within {limit:g} s: {what}\n{self.story()}")
            time.sleep(POLL)
        return found

    def is_ready(self, *names: str) -> bool:
        """Whether all of them are what they should be."""
        found = self.json("node", "list", ",".join(names))
        return len(found) == len(names) and all(
            node["state"] == "ready" and node["facts"]["personality"]["value"] == "active" for node in found
        )

    def wait_ready(self, *names: str, limit: float = 180.0) -> float:
        """Until they are ready; how long that took."""
        began = time.monotonic()
        self.eventually(f"{', '.join(names)} ready", lambda: self.is_ready(*names), limit)
        return time.monotonic() - began

    def wait_alert(self, text: str, node: str = "", since: float = 0.0, limit: float = 60.0) -> dict[str, Any]:
        """Until there is an alert that says ``text``."""

        def there() -> dict[str, Any] | None:
            for alert in self.alerts():
                said = text in f"{alert['key']} {alert['message']}"
                if said and alert["last"] >= since and node in ("", alert["node"]):
                    return alert
            return None

        found: dict[str, Any] = self.eventually(f"an alert about {text}", there, limit)
        return found

    def story(self) -> str:
        """For whoever wonders why a test failed."""
        parts = []
        for arguments in (("node", "list"), ("alert", "list", "--all"), ("boot", "status")):
            with contextlib.suppress(subprocess.SubprocessError):
                parts.append(self.run(*arguments).out)
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            for node in self.described.nodes:
                parts.append(self.run("node", "why", node.name).out)
                parts.append(self.run("node", "agent", node.name).out)
                parts.append(self.run("node", "history", node.name, "--limit", "30").out)
                console = self.folder / description.NODES / node.name / "console.log"
                parts.append(console.read_text(errors="replace")[-1500:])
        with contextlib.suppress(OSError):
            parts.append((self.state / "serve.log").read_text(errors="replace")[-3000:])
        return "\n".join((*parts, self.workload()))

    def workload(self) -> str:
        """What its Slurm, if there is one, said last, and makes of nodes and jobs."""
        parts = []
        folder = self.state / up_slurm.FOLDER
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            parts.append((folder / "slurmctld.log").read_text(errors="replace")[-6000:])
            environment = up_slurm.environment(self.state)
            for what in ("nodes", "jobs"):
                asked = ["scontrol", "--oneliner", "show", what]
                done = subprocess.run(
                    asked, env=environment, capture_output=True, text=True, errors="replace", timeout=20, check=False
                )
                parts.append(done.stdout + done.stderr)
            parts.append((folder / "programs.log").read_text(errors="replace")[-1000:])
        return "\n".join(parts)

    def traces(self) -> list[str]:
        """Whatever is left of the cluster: processes, namespace, devices, files."""
        chassis = description.chassis_id(self.folder)
        found = [f"process {pid}: {line}" for pid, line in _commands() if str(self.state) in line]
        found += [f"process {pid}" for pid, line in _commands() if description.guest_mark(chassis) in line]
        found += [f"namespace {chassis}"] if network.exists(chassis) else []
        device = description.link_device(chassis)
        found += [f"device {device}"] if Path("/sys/class/net", device).exists() else []
        found += [f"folder {self.state}"] if self.state.exists() else []
        return found


def _commands() -> Iterator[tuple[int, str]]:
    """Every process but this one, with its command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                yield (
                    int(entry.name),
                    entry.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"),
                )


@contextlib.contextmanager
def virtual_cluster(command: str, limit: float = 540.0) -> Iterator[tuple[Cluster, Done]]:
    """A cluster that this ``strata up`` of a page brings up, and what it said; afterwards it is down, without a
    trace."""
    program, *arguments = shlex.split(command, comments=True)
    assert (program, arguments[0]) == ("strata", "up")
    with tempfile.TemporaryDirectory(prefix="vc-") as name:  # short: there are sockets in it
        cluster = Cluster(Path(name, "s"))
        try:
            said = cluster.run(*arguments, limit=limit)
            assert said.code == 0, f"{said.out}\n{said.err}\n{cluster.story()}"
            yield cluster, said
        finally:
            cluster.run("down", "--delete", limit=120)
        assert cluster.traces() == []
