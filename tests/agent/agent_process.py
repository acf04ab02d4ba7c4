"""The agent as a process of its own, in a mount namespace where it may mount and run containers as on a node."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strata.agent.boot import take_boot
from strata.agent.node import Node
from strata.agent.paths import Paths

_PREPARE = """
mount --make-rprivate /
umount -R /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec "$@"
"""


class AgentProcess:
    """A namespace that stays while agents in it are killed and started again, as on a node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "run"
        folder.mkdir(parents=True, exist_ok=True)
        self._log = (folder / "agent.log").open("ab")
        self._holder = subprocess.Popen(
            ["unshare", "-m", "-p", "-f", "--kill-child", "--mount-proc", "sh", "-ec", _PREPARE, "sh", "sleep", "1000"],
            stdout=subprocess.DEVNULL,
            stderr=self._log,
        )
        self._inside = self._wait_inside()
        self.agent: subprocess.Popen[bytes] | None = None

    def start(self, boot: dict[str, Any] | None = None) -> None:
        """Start the agent, with a boot fragment or as one that is started again."""
        if boot is not None:
            (self.folder / "boot.json").write_text(json.dumps(boot))
        command = [sys.executable, "-W", "error", __file__, str(self.run), str(self.folder / "boot.json")]
        self.agent = subprocess.Popen(
            self.command(*command), stdout=self._log, stderr=self._log, cwd=Path(__file__).parents[2]
        )

    def kill(self) -> None:
        """As a crash would: nothing is told to the agent."""
        assert self.agent is not None
        for child in Path(f"/proc/{self.agent.pid}/task/{self.agent.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        self.agent.kill()
        self.agent.wait()

    def inside(self, *command: str) -> str:
        """Run something in the agent's namespace."""
        done = subprocess.run(self.command(*command), capture_output=True, text=True, timeout=300)
        assert done.returncode not in (126, 127), (
            done.stderr
        )  # it was not run at all: what it did not say means nothing
        return done.stdout

    def command(self, *command: str) -> list[str]:
        """How to run something in the agent's namespace."""
        return ["nsenter", "-t", str(self._inside), "-m", "-p", *command]

    def close(self) -> None:
        if self.agent is not None and self.agent.poll() is None:
            self.kill()
        os.kill(self._inside, signal.SIGKILL)  # the namespace's first process: everything in it ends
        self._holder.wait()
        self._log.close()

    def _wait_inside(self) -> int:
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children")
        for _ in range(6000):
            pids = children.read_text().split()
            if pids and b"sleep" in Path(f"/proc/{pids[0]}/cmdline").read_bytes()[:5]:
                return int(pids[0])
            time.sleep(0.01)
        raise AssertionError(f"no namespace: {(self.folder / 'agent.log').read_text()}")


@contextlib.contextmanager
def agent_process(folder: Path) -> Iterator[AgentProcess]:
    """A place for one agent."""
    process = AgentProcess(folder)
    try:
        yield process
    finally:
        process.close()


def make_image(folder: Path, service: str, *, padding: int = 0, more: dict[str, str] | None = None) -> Path:
    """A squashfs with a static shell, a service script, and more files, by path."""
    tree = folder / "tree"
    for name in ("bin", "proc", "sys", "dev", "etc", "tmp", "run"):
        (tree / name).mkdir(parents=True)
    busybox = tree / "bin/busybox"
    busybox.write_bytes(Path("/bin/busybox").read_bytes())
    busybox.chmod(0o755)
    for name in ("sh", "sleep", "echo", "cat", "id", "touch", "ls", "test"):
        (tree / "bin" / name).symlink_to("busybox")
    for name, text in {"service": service, **(more or {})}.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    if padding:
        (tree / "padding").write_bytes(os.urandom(padding))
    image = folder / "image.squashfs"
    subprocess.run(["mksquashfs", tree, image, "-quiet", "-noappend"], check=True, stdout=subprocess.DEVNULL)
    return image


def main() -> None:
    """What runs inside."""
    paths = Paths(run=Path(sys.argv[1]))
    paths.given = Path(sys.argv[2])
    Node(take_boot(paths), paths, crun=("crun", "--cgroup-manager=disabled")).run()


if __name__ == "__main__":
    main()
