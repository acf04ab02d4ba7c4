"""A machine on a virtual cluster's network that is none of its nodes: a network namespace with a cable to the bridge,
and whatever a person can do there."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from strata.virtual.qemu import network

_numbers = itertools.count()
_LEASE = """#!/bin/sh
[ "$1" = bound ] || exit 0
ip addr add $ip/$mask dev $interface
echo "$ip $siaddr ${boot_file:--}"
"""


class Reply(NamedTuple):
    """What a server said."""

    status: int
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode(errors="replace")


class Visitor:
    """One machine with one port."""

    def __init__(self, namespace: str, folder: Path, mac: str) -> None:
        self.mac = mac
        self._prefix = network.prefix_of(namespace)
        self._folder = folder

    def run(self, *argv: str, limit: float = 30.0, data: bytes = b"") -> bytes:
        """A command there, which must succeed."""
        done = subprocess.run([*self._prefix, *argv], input=data, capture_output=True, timeout=limit, check=False)
        assert done.returncode == 0, (argv, done.stdout, done.stderr)
        return done.stdout

    def take_address(self, address: str) -> None:
        """Use this address, whoever's it is."""
        self.run("ip", "addr", "flush", "dev", "eth0", "scope", "global")
        self.run("ip", "addr", "add", f"{address}/24", "dev", "eth0")

    def ask_for_address(self) -> tuple[str, str, str]:
        """By DHCP, as iPXE would: address, server, and what it is told to boot."""
        script = self._folder / "lease"
        script.write_text(_LEASE)
        script.chmod(0o755)
        asked = ["busybox", "udhcpc", "-i", "eth0", "-n", "-q", "-f", "-t", "5", "-T", "2", "-s", str(script)]
        said = self.run(*asked, "-x", "0x4d:69505845", "-O", "bootfile").decode().split("\n")
        address, server, boot = next(line for line in said if line.count(" ") == 2).split()
        return address, server, boot

    def get(self, url: str, *options: str) -> Reply:
        """What is there."""
        out = self.run("curl", "-s", "-m", "20", "-o", "-", "-w", "\n%{http_code}", *options, url)
        body, _, status = out.rpartition(b"\n")
        return Reply(int(status), body)

    def post(self, url: str, body: Any, *options: str) -> Reply:
        """What comes of saying ``body`` there."""
        # On standard input: a command line is for all to see.
        out = self.run(
            "curl",
            *("-s", "-m", "20", "-o", "-", "-w", "\n%{http_code}", "-H", "Content-Type: application/json"),
            *("--data-binary", "@-", *options, url),
            data=json.dumps(body).encode(),
        )
        text, _, status = out.rpartition(b"\n")
        return Reply(int(status), text)


@contextlib.contextmanager
def visitor(chassis: str, bridge: str, folder: Path, mac: str) -> Iterator[Visitor]:
    """A machine on ``bridge`` in the namespace ``chassis``; gone afterwards."""
    number = next(_numbers)
    name, port = f"strata-test-{os.getpid()}-{number}", f"visit{number}"
    _ip("netns", "add", name)
    try:
        _ip("-n", name, "link", "add", "eth0", "address", mac, "type", "veth", "peer", "name", port, "netns", chassis)
        _ip("-n", chassis, "link", "set", port, "master", bridge, "up")
        _ip("-n", name, "link", "set", "eth0", "up")
        yield Visitor(name, folder, mac)
    finally:
        _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=120)


def boot_data(fragment: bytes) -> dict[str, Any]:
    """What a fragment tells the machine that boots with it."""
    archive = gzip.decompress(fragment)
    begin = archive.index(b"{", archive.index(b"etc/strata/boot.json"))
    found: dict[str, Any] = json.JSONDecoder().raw_decode(archive[begin:].decode(errors="replace"))[0]
    return found


def signing_request(name: str, folder: Path) -> tuple[str, Path]:
    """A request for a certificate for ``name``, and the file of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    file = folder / f"{name}-{next(_numbers)}.key"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return request.public_bytes(serialization.Encoding.PEM).decode(), file
