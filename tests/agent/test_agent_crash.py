"""The crash kernel that the agent keeps loaded: from where, checked how, and with which parameters."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strata.agent.errors import AgentError, Corrupt, Unreachable
from strata.agent.host import crash
from strata.agent.host.crash import crash_command_line, fetch_checked, load_crash_kernel
from strata.agent.paths import Paths

FILES = {"/build/vmlinuz": b"a kernel" * 1000, "/build/initrd": b"an initrd" * 1000}


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


class BootFiles(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = FILES.get(self.path)
        self.send_response(200 if body else 404)
        self.end_headers()
        self.wfile.write(body or b"nothing")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), BootFiles) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/build"
        server.shutdown()
        thread.join()


@pytest.fixture
def minos(url: str) -> dict[str, str]:
    return {
        "url": url,
        "vmlinuz": digest(FILES["/build/vmlinuz"]),
        "initrd": digest(FILES["/build/initrd"]),
    }


@pytest.fixture
def machine(tmp_path: Path) -> Paths:
    """Memory is reserved, and nothing loaded."""
    paths = Paths(run=tmp_path / "run", root=tmp_path / "root")
    paths.run.mkdir()
    paths.sys("kernel").mkdir(parents=True)
    paths.sys("kernel/kexec_crash_size").write_text(f"{160 << 20}\n")
    paths.sys("kernel/kexec_crash_loaded").write_text("0\n")
    paths.proc("").mkdir()
    paths.proc("cmdline").write_text("initrd=initrd initrd=fragment console=ttyS0,115200 crashkernel=160M panic=5\n")
    return paths


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Instead of the machine's own kernel: what it was given to start."""
    given: list[Any] = []

    def take(kernel: Path, initrd: Path, line: str) -> None:
        given.append((kernel.read_bytes(), initrd.read_bytes(), line))

    monkeypatch.setattr(crash, "_kexec_file_load", take)
    return given


def test_the_kernel_and_initrd_of_this_boot_are_loaded_and_leave_nothing_in_memory(
    machine: Paths, minos: dict[str, str], kernel: list[Any]
) -> None:
    assert load_crash_kernel(minos, machine)
    line = "console=ttyS0,115200 panic=5 nr_cpus=1 irqpoll reset_devices panic=10"
    assert kernel == [(FILES["/build/vmlinuz"], FILES["/build/initrd"], line)]
    assert list(machine.run.iterdir()) == []


@pytest.mark.parametrize(("name", "value"), [("kexec_crash_size", "0"), ("kexec_crash_loaded", "1")])
def test_nothing_is_fetched_where_no_memory_is_reserved_or_one_is_loaded(
    machine: Paths, kernel: list[Any], name: str, value: str
) -> None:
    machine.sys(f"kernel/{name}").write_text(value)
    assert not load_crash_kernel({"url": "http://127.0.0.1:1/none"}, machine)
    machine.sys(f"kernel/{name}").unlink()
    if name == "kexec_crash_size":
        assert not load_crash_kernel({}, machine), "a kernel that knows of no crash kernels"
    assert kernel == []


@pytest.mark.parametrize("name", ["vmlinuz", "initrd"])
def test_a_file_that_is_not_what_the_node_booted_is_never_loaded(
    machine: Paths, minos: dict[str, str], kernel: list[Any], name: str
) -> None:
    for wrong in (digest(b"something else"), ""):
        with pytest.raises(Corrupt, match=f"{name} is not what this node booted"):
            load_crash_kernel({**minos, name: wrong}, machine)
    assert kernel == []
    assert list(machine.run.iterdir()) == []


def test_boot_data_that_names_no_files_is_an_error_that_says_so(machine: Paths) -> None:
    with pytest.raises(AgentError, match="does not say where to fetch it"):
        load_crash_kernel({}, machine)


def test_a_kernel_that_refuses_is_told_with_how_much_is_reserved(
    machine: Paths, minos: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(crash, "_kexec_file_load", refuse)
    with pytest.raises(AgentError, match=r"160 MiB are reserved.*Cannot assign"):
        load_crash_kernel(minos, machine)
    assert list(machine.run.iterdir()) == []


def test_what_is_not_there_not_reachable_or_endless_is_given_up(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Unreachable, match="404"):
        fetch_checked(f"{url}/other", "", tmp_path / "file")
    with pytest.raises(Unreachable, match="cannot be fetched"):
        fetch_checked("http://127.0.0.1:1/vmlinuz", "", tmp_path / "file")
    for address in ("https://127.0.0.1:1/vmlinuz", "http://127.0.0.1/vmlinuz", "file:///etc/passwd"):
        with pytest.raises(AgentError, match="not an address"):
            fetch_checked(address, "", tmp_path / "file")
    monkeypatch.setattr(crash, "_LARGEST", 1000)
    with pytest.raises(Corrupt, match="larger"):
        fetch_checked(f"{url}/vmlinuz", digest(FILES["/build/vmlinuz"]), tmp_path / "file")


def test_the_crash_kernel_does_not_take_what_would_fill_its_memory() -> None:
    running = (
        "BOOT_IMAGE=vmlinuz console=tty0 hugepagesz=1G hugepages=64 crashkernel=256M,high crashkernel=64M,low nosmt"
    )
    assert crash_command_line(running).split()[:-4] == ["console=tty0", "nosmt"]
