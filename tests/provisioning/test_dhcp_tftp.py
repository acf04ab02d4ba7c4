"""TFTP: iPXE for whoever asks, and nothing else for anybody."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from strata.core.errors import Unavailable
from strata.provisioning.dhcp.tftp import fill, find_ipxe, ipxe_folders, is_served, require_free, tftp

pytestmark = [pytest.mark.server, pytest.mark.slow]

HOST = "127.0.0.1"
READ, WRITE, DATA, ACK, ERROR, OPTIONS = range(1, 7)


class Refused(Exception):
    """The server said no."""


def fetch(port: int, name: bytes, options: dict[bytes, bytes] | None = None) -> bytes:
    """Read a file the way firmware does."""
    extra = b"".join(key + b"\x00" + value + b"\x00" for key, value in (options or {}).items())
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(60)
        sock.sendto(struct.pack("!H", READ) + name + b"\x00octet\x00" + extra, (HOST, port))
        found, size, expected = b"", 512, 1
        while True:
            packet, peer = sock.recvfrom(70_000)
            (kind, number) = struct.unpack("!HH", packet[:4])
            if kind == ERROR:
                raise Refused(packet[4:].rstrip(b"\x00").decode())
            if kind == OPTIONS:
                words = packet[2:].split(b"\x00")
                if b"blksize" in words:
                    size = int(words[words.index(b"blksize") + 1])
                sock.sendto(struct.pack("!HH", ACK, 0), peer)
                continue
            if number == expected & 0xFFFF:
                found += packet[4:]
                expected += 1
            sock.sendto(struct.pack("!HH", ACK, number), peer)
            if len(packet) < size + 4:
                return found


def put(port: int, name: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(60)
        sock.sendto(struct.pack("!H", WRITE) + name + b"\x00octet\x00", (HOST, port))
        packet = sock.recv(600)
    if packet[1] == ERROR:
        raise Refused(packet[4:].rstrip(b"\x00").decode())


@pytest.fixture
def ipxe(tmp_path: Path) -> Path:
    source = tmp_path / "ipxe"
    source.mkdir()
    for name, size in (("undionly.kpxe", 70_001), ("ipxe.efi", 5_120), ("other.rom", 10)):
        (source / name).write_bytes(os.urandom(size))
    (tmp_path / "secret").write_text("canary")
    return source


@pytest.fixture
async def port(tmp_path: Path, ipxe: Path) -> AsyncIterator[int]:
    root = tmp_path / "tftp"
    fill(root, [ipxe])
    (tmp_path / "tftp-secret").write_text("canary")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    server = tftp(root, HOST, port)
    await server.start()
    yield port
    await server.stop()


async def test_firmware_gets_ipxe_whole(port: int, ipxe: Path):
    for name in ("undionly.kpxe", "ipxe.efi"):
        assert await asyncio.to_thread(fetch, port, name.encode()) == (ipxe / name).read_bytes()


@pytest.mark.parametrize("size", [b"8", b"512", b"513", b"1024", b"1468", b"1469", b"65464"])
async def test_whatever_block_size_is_asked_for_the_file_is_the_same(port: int, ipxe: Path, size: bytes):
    got = await asyncio.to_thread(fetch, port, b"ipxe.efi", {b"blksize": size, b"tsize": b"0"})
    assert got == (ipxe / "ipxe.efi").read_bytes()


@pytest.mark.parametrize("size", [b"0", b"-1", b"99999999", b"x", b""])
async def test_a_senseless_block_size_does_no_harm(port: int, ipxe: Path, size: bytes):
    with contextlib.suppress(Refused):
        assert await asyncio.to_thread(fetch, port, b"ipxe.efi", {b"blksize": size}) == (ipxe / "ipxe.efi").read_bytes()
    assert await asyncio.to_thread(fetch, port, b"ipxe.efi") == (ipxe / "ipxe.efi").read_bytes()


@pytest.mark.parametrize(
    "name",
    [
        b"../secret",
        b"/../secret",
        b"../tftp-secret",
        b"/etc/passwd",
        b"./../../etc/passwd",
        b"..\\secret",
        b"other.rom",
        b"",
    ],
)
async def test_nothing_else_is_handed_out(port: int, tmp_path: Path, name: bytes):
    with pytest.raises(Refused):
        await asyncio.to_thread(fetch, port, name)
    with pytest.raises(Refused):
        await asyncio.to_thread(fetch, port, str(tmp_path / "secret").encode())


async def test_nothing_is_taken_in(port: int, tmp_path: Path):
    for name in (b"ipxe.efi", b"new"):
        with pytest.raises(Refused):
            await asyncio.to_thread(put, port, name)
    assert sorted(one.name for one in (tmp_path / "tftp").iterdir()) == ["ipxe.efi", "undionly.kpxe"]


async def test_a_server_that_dies_is_started_again(tmp_path: Path, ipxe: Path):
    fill(tmp_path / "tftp", [ipxe])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((HOST, 0))
        port = int(probe.getsockname()[1])
    server = tftp(tmp_path / "tftp", HOST, port)
    await server.start()
    try:
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        deadline = time.monotonic() + 60
        while not (server.restarts and is_served(HOST, port)):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)
        with pytest.raises(Unavailable, match="the port is taken"):
            require_free(HOST, port)
        assert await asyncio.to_thread(fetch, port, b"ipxe.efi") == (ipxe / "ipxe.efi").read_bytes()
    finally:
        await server.stop()
    require_free(HOST, port)


def test_without_ipxe_the_package_is_named(tmp_path: Path):
    with pytest.raises(Unavailable, match="apt-get install ipxe"):
        fill(tmp_path / "tftp", [tmp_path])


def test_what_lay_in_the_directory_before_is_gone(tmp_path: Path, ipxe: Path):
    (tmp_path / "tftp").mkdir()
    (tmp_path / "tftp" / "old").write_text("canary")
    fill(tmp_path / "tftp", [ipxe])
    assert not (tmp_path / "tftp" / "old").exists()


def test_a_site_adds_ipxe_for_machines_that_debian_has_none_for(tmp_path: Path) -> None:
    folders = ipxe_folders(tmp_path / "state")
    assert find_ipxe("ipxe-of-nobody.efi", folders) is None
    folders[0].mkdir(parents=True)
    (folders[0] / "ipxe-arm64.efi").write_bytes(b"MZ for ARM")
    (folders[0] / "another").write_bytes(b"not served")
    fill(tmp_path / "tftp", folders)
    assert (tmp_path / "tftp" / "ipxe-arm64.efi").read_bytes() == b"MZ for ARM"
    assert sorted(path.name for path in (tmp_path / "tftp").iterdir()) == [
        "ipxe-arm64.efi",
        "ipxe.efi",
        "undionly.kpxe",
    ]
    assert find_ipxe("ipxe-arm64.efi", folders) == folders[0] / "ipxe-arm64.efi"
