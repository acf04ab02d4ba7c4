"""A real sshd, for what speaks to other machines by ssh."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.slurm import free_port


@contextmanager
def sshd(directory: Path, hosts: str = "cluster-login") -> Iterator[Path]:
    """A real sshd on loopback, and the configuration by which it is ``hosts`` (a pattern). That says not to check host
    keys, as many do."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)], check=True)
    port, login = free_port(), pwd.getpwuid(os.getuid()).pw_name
    (directory / "sshd").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {directory}/host\nAuthorizedKeysFile {directory}/user.pub\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n",
        encoding="utf-8",
    )
    key = (directory / "host.pub").read_text(encoding="utf-8")
    (directory / "known").write_text(f"cluster-login {key}", encoding="utf-8")
    config = directory / "ssh"
    config.write_text(
        f"Host {hosts}\nHostName 127.0.0.1\nHostKeyAlias cluster-login\nPort {port}\nUser {login}\n"
        f"IdentityFile {directory}/user\nUserKnownHostsFile {directory}/known\nStrictHostKeyChecking no\n",
        encoding="utf-8",
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    with (directory / "log").open("wb") as log:
        program = shutil.which("sshd", path="/usr/sbin")  # it starts itself anew, and has to know where it is
        assert program, "sshd is missing: install the Debian package openssh-server"
        process = subprocess.Popen([program, "-D", "-e", "-f", str(directory / "sshd")], stderr=log)
    try:
        for _ in range(300):
            if b"Server listening" in (directory / "log").read_bytes():
                break
            time.sleep(0.05)
        yield config
    finally:
        process.terminate()
        process.wait()
