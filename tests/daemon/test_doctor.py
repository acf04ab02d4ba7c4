"""``strata doctor``: each thing that is wrong with a host is found, and how to mend it is said."""

from __future__ import annotations

import datetime
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from strata.daemon.doctor import Finding, Host, examine
from strata.daemon.settings import Option, Settings, read_settings


class Machine(Host):
    """A host on which all is well, unless told otherwise."""

    def __init__(self) -> None:
        self.missing: set[str] = set()
        self.unknown: set[str] = set()
        self.taken: dict[int, str] = {}
        self.follows: bool | None = True
        self.most_files = 1 << 20

    def which(self, program: str) -> str | None:
        return None if program in self.missing else f"/usr/bin/{program}"

    def resolves(self, name: str) -> bool:
        return name not in self.unknown

    def can_bind(self, address: str, port: int, *, udp: bool = False) -> str:
        return self.taken.get(port, "")

    def files(self) -> int:
        return self.most_files

    def synchronised(self) -> bool | None:
        return self.follows


def found(host: Host, state: Path, settings: Settings | None = None) -> dict[str, Finding]:
    return {one.check: one for one in examine(settings or Settings(), state, host, running=False)}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return folder


def test_nothing_is_found_where_all_is_well(state: Path) -> None:
    assert {one.verdict for one in found(Machine(), state).values()} == {"good"}


def test_each_fault_is_found_and_says_how_to_mend_it(state: Path) -> None:
    host = Machine()
    host.missing = {"nginx", "mksquashfs"}
    host.unknown = {socket.gethostname()}
    host.taken = {8443: "Address already in use"}
    host.follows, host.most_files = False, 1024
    state.chmod(0o755)
    seen = found(host, state)
    wrong = {check: (one.verdict, one.mend) for check, one in seen.items() if one.verdict != "good"}
    assert wrong == {
        "program nginx": ("bad", "apt-get install nginx-light"),
        "program mksquashfs": ("warning", "apt-get install squashfs-tools"),
        "state directory": ("bad", f"chmod 700 {state}"),
        "open files": ("warning", "LimitNOFILE=1048576 in the systemd unit, or ulimit -Hn before the start"),
        "clock": ("warning", "apt-get install chrony, and chronyc tracking"),
        "names": ("warning", "add them to DNS, or to /etc/hosts on this host and on whoever asks it"),
        "port 8443": ("bad", "stop the program that has it (ss -lptn sport = :8443), or choose another"),
    }


def test_what_a_layer_that_does_not_run_needs_is_not_missed(state: Path) -> None:
    host = Machine()
    host.missing = {"mksquashfs", "git", "nginx"}
    settings = read_settings(None, {"layers": Option("", ("hardware",)), "listen.tls": Option("", "false")})
    assert found(host, state, settings)["programs"].verdict == "good"


@pytest.mark.parametrize(("days", "verdict"), [(-1, "bad"), (3, "warning"), (100, "good")])
def test_a_certificate_is_told_of_before_it_ends(state: Path, days: int, verdict: str) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "strata")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=200))
        .not_valid_after(now + datetime.timedelta(days=days, hours=1))
        .sign(key, hashes.SHA256())
    )
    (state / "server.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (state / "broken.crt").write_text("no certificate")
    seen = found(Machine(), state)
    assert seen["certificate server.crt"].verdict == verdict
    assert seen["certificate broken.crt"].verdict == "bad"


def test_an_etcd_that_nobody_reaches_is_named(state: Path) -> None:
    with socket.socket() as listening, socket.socket() as closed:
        for one in (listening, closed):
            one.bind(("127.0.0.1", 0))
        listening.listen()
        good, bad = (f"127.0.0.1:{one.getsockname()[1]}" for one in (listening, closed))
        settings = read_settings(None, {"store.url": Option("", f"etcd://{good},{bad}/strata")})
        seen = found(Machine(), state, settings)
    assert (seen[f"etcd {good}"].verdict, seen[f"etcd {bad}"].verdict) == ("good", "bad")


@pytest.mark.slow
def test_the_command_examines_this_host_and_fails_where_something_is_bad(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "strata.cli", "doctor", "--json"]
    environment = {"PATH": os.environ["PATH"], "STRATA_STATE": str(tmp_path / "state"), "HOME": str(tmp_path)}
    good = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    checks = {one["check"] for one in json.loads(good.stdout)}
    assert {"configuration", "state directory", "disk", "open files", "clock", "names", "service"} <= checks
    (tmp_path / "strata.yaml").write_text("listen:\n  prot: 1\n")
    bad = subprocess.run(
        [*command, "--config", tmp_path / "strata.yaml"], env=environment, capture_output=True, text=True, check=False
    )
    (only,) = json.loads(bad.stdout)
    assert bad.returncode == 1
    assert only["verdict"] == "bad" and "line 2, column 3" in only["said"] and "did you mean port?" in only["said"]
