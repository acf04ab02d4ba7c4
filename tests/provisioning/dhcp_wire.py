"""A boot network of two network namespaces: ours with a server in it, and one with machines."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from strata.core.node import Node

_T = TypeVar("_T")
_NUMBER = itertools.count(1)
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)

SERVER = "10.77.0.1"
MACHINE_MAC = "52:54:00:00:00:0b"


def ip(*words: str) -> str:
    """Run ``ip``."""
    done = subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=120)
    return done.stdout


class Wire:
    """``boot`` connects the two; ``other`` does too, and nobody was told of it."""

    def __init__(self) -> None:
        self.ours, self.theirs = (f"strata-test-{os.getpid()}-{next(_NUMBER)}" for _ in range(2))
        try:
            for name in (self.ours, self.theirs):
                ip("netns", "add", name)
                ip("-n", name, "link", "set", "lo", "up")
            for number, link in enumerate(("boot", "other")):
                ip("-n", self.ours, "link", "add", link, "type", "veth", "peer", "name", link, "netns", self.theirs)
                ip("-n", self.ours, "address", "add", f"10.{77 + number}.0.1/24", "dev", link)
                ip("-n", self.theirs, "link", "set", link, "address", f"52:54:00:00:0{number}:0b")
                for name in (self.ours, self.theirs):
                    ip("-n", name, "link", "set", link, "up")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Leave nothing behind."""
        for name in (self.ours, self.theirs):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True, timeout=120)

    def run(self, *command: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run something on the machines' side."""
        return subprocess.run(
            ["ip", "netns", "exec", self.theirs, *command], capture_output=True, text=True, timeout=timeout, check=False
        )

    def leased(self, link: str, directory: Path) -> dict[str, str]:
        """What busybox's client gets on a link; nothing if nobody answers."""
        script, told = directory / "script", directory / "told"
        told.unlink(missing_ok=True)
        script.write_text(f'#!/bin/sh\n[ "$1" = bound ] && env > {told}\nexit 0\n')
        script.chmod(0o755)
        self.run("busybox", "udhcpc", "-i", link, "-f", "-q", "-n", "-t", "3", "-T", "1", "-s", str(script))
        if not told.exists():
            return {}
        return dict(line.partition("=")[::2] for line in told.read_text().splitlines())

    def inside(self, work: Callable[[], _T]) -> _T:
        """Do something on the machines' side: sockets that it opens are there."""
        found: list[_T] = []
        wrong: list[BaseException] = []

        def there() -> None:
            try:
                with Path(f"/run/netns/{self.theirs}").open("rb") as handle:
                    if _libc.setns(handle.fileno(), _CLONE_NEWNET):
                        raise OSError(ctypes.get_errno(), "setns")
                found.append(work())
            except BaseException as error:
                wrong.append(error)

        thread = threading.Thread(target=there)
        thread.start()
        thread.join()
        if wrong:
            raise wrong[0]
        return found[0]


class Server:
    """DHCP, TFTP and router advertisements on our side of a wire."""

    def __init__(self, wire: Wire, networks: str, nodes: list[Node], state: Path) -> None:
        program = Path(__file__).with_name("dhcp_process.py")
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", wire.ours, sys.executable, str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        told = {"networks": networks, "nodes": msgspec.to_builtins(nodes), "state": str(state)}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told) + "\n")
        self.process.stdin.flush()
        self.said: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.hear("ready", "error")

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.said.append(json.loads(line))
                self._news.notify_all()

    def hear(self, *kinds: str, within: float = 60.0) -> dict[str, Any]:
        """The first thing of such a kind that it says (or has said)."""
        deadline = time.monotonic() + within
        with self._news:
            while True:
                for line in self.said:
                    if set(kinds) & set(line):
                        return line
                assert self._news.wait(deadline - time.monotonic()), f"it says {self.said}"

    def stop(self) -> None:
        """End it."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self._reader.join()
        self.process.stdout.close()
