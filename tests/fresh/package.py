"""The Debian package on a Debian 12 that has nothing yet: ``python tests/fresh/package.py``.

Makes the machine (see ``machine``) and two packages: of an earlier state of this repository (the last release, or what
``--from`` names), and of the present one. The earlier is installed by apt, the host is examined, a simulated fleet is
brought up and told things; then the present one is installed over it, and everything that was said is still there.
What is typed for that is taken from the documentation: the blocks that say ``run by: make test-deb``, as they stand.
Before that, the container file makes an image of the present package upon the same Debian, and a fleet comes up in it;
after that, systemd is booted there, and starts the service.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs.docs_support import claimed
from fresh.machine import FreshMachine, Here, is_root

REPOSITORY = Path(__file__).resolve().parents[2]
VERSIONS = ("0.1.0", "0.2.0")
"""As the pages name them."""
TARGET = "make test-deb"
"""What blocks say that are run here."""
PACKAGING = ("requirements.lock", "deploy/deb.py")
"""What an earlier state must have as it is today: its package is made with the Python packages of today's ``.venv``."""

_RUN = """
set -e
cd /srv
export DEBIAN_FRONTEND=noninteractive STRATA_STATE=/var/tmp/fleet
say() { printf '\\n== %s\\n' "$*"; }
printf 'APT::Get::Assume-Yes "true";\nAPT::Install-Recommends "false";\nquiet "2";\n' > /etc/apt/apt.conf.d/90shown
apt-get update
install() {
    while read -r line; do
        say "$line"
        case $line in
            'strata doctor') $line || true ;;  # a machine that has nothing yet lacks something
            *) $line < /dev/null > said.log 2>&1 || { tail -20 said.log; exit 1; } ;;
        esac
    done <<END
$1
END
}
install "$1"
strata version
strata serve --check
say a simulated fleet
strata up --simulated --nodes 16
strata node list --group-by state
strata group create kept 'n[1-3]'
strata node hold n5 --reason 'kept over the upgrade'
strata node set n7 power=off
strata auth token create --role viewer > token
strata node history n2 --json > history
strata stop
install "$2"
dpkg-query -W strata | grep -F "$3"
zcat /usr/share/man/man1/strata.1.gz | grep '^.SS strata node why$'
strata up || true  # one node is held, so that not all are ready
strata group show kept
test "$(strata node list state:held --folded)" = n00005
test "$(strata node list want:power=off --folded)" = n00007
strata auth token list --columns role | grep -q viewer
python3 - "$(strata node history n2 --json | base64 -w0)" <<'END'
import base64, json, sys
before, now = json.load(open("history")), json.loads(base64.b64decode(sys.argv[1]))
assert before and all(one in now for one in before), "history was lost"
END
strata audit verify
strata store check
strata down --delete < /dev/null
echo 'the upgrade: passed'
"""

_REMOVED = """
set -e
apt-get -qq -y remove strata > apt.log 2>&1
test ! -e /usr/bin/strata
test ! -e /usr/lib/strata
echo 'the package: passed'
"""


_BOOTED = """
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get -qq -y install --no-install-recommends systemd dbus > apt.log 2>&1
# Its own devices, network and settings of the kernel: systemd minds those of a whole machine.
unshare --mount --pid --ipc --uts --net --cgroup --fork --kill-child sh -e -c '
    mount -t proc proc /proc
    mount -t sysfs -o ro sysfs /sys
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
    mount -t tmpfs -o mode=755 run /run
    mount -t tmpfs -o mode=755 dev /dev
    for one in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "/dev/${one%:*}" c 1 "${one#*:}"; done
    mkdir /dev/pts /dev/shm
    mount -t devpts -o newinstance,ptmxmode=666 devpts /dev/pts
    ln -s pts/ptmx /dev/ptmx
    exec env -i container=fresh PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=multi-user.target' &
outer=$!
trap 'kill -9 $outer' EXIT
until pid=$(cat /proc/$outer/task/$outer/children) && [ -n "$pid" ]; do sleep 0.1; done
inside() { nsenter -t $pid --mount --pid --ipc --uts --net --cgroup "$@"; }
until inside systemctl list-units > units.log 2>&1; do kill -0 $outer; sleep 0.2; done
while read -r line; do
    printf '\\n== %s\\n' "$line"
    inside $line < /dev/null
done <<END
$1
END
for _ in $(seq 300); do ! inside strata status > status.log 2>&1 || break; sleep 0.2; done
inside strata status || { cat status.log; inside journalctl --no-pager -n 50; exit 1; }
test "$(inside systemctl is-enabled strata)" = enabled
inside systemctl stop strata
echo 'the unit: passed'
"""

_CONTAINED = """
set -e
tar -C "$1" -c . | podman import -q - docker.io/library/debian:bookworm-slim
for line in "$2" "$3"; do printf '\\n== %s\\n' "$line"; done
$2 > build.log 2>&1 || { tail -20 build.log; exit 1; }
# In a network of its own: the port is published there.
exec unshare --net bash -e -c '
    ip link set lo up
    $1 > run.log 2>&1 &
    until id=$(podman ps -q) && [ -n "$id" ]; do kill -0 $! || { cat run.log; exit 1; }; sleep 0.2; done
    trap "podman stop -t 60 $id > stop.log; wait" EXIT
    for _ in $(seq 300); do podman exec $id strata status > status.log 2>&1 && break; sleep 0.2; done
    podman exec $id strata status || { cat run.log; exit 1; }
    curl -sfk -o front.html https://127.0.0.1:8443/
    podman exec $id strata up --simulated --nodes 4 --listen 127.0.0.1:0 --state-dir /var/lib/strata/tried
    podman exec $id strata down --delete --state-dir /var/lib/strata/tried < /dev/null
    echo "the container: passed"' bash "$3"
"""


class Shown(NamedTuple):
    """The lines of the pages that are run here."""

    earlier: str
    """They install the earlier package,"""
    present: str
    """and the present one."""
    booted: str
    """Where systemd has booted."""
    contained: str
    """Where the repository is, and its package."""


def shown() -> Shown:
    """Of the blocks that name this target: by what they begin with."""
    named = [[command.text for command in block.commands] for block in claimed(TARGET)]
    beginnings = (*(f"apt-get install ./strata_{version}_" for version in VERSIONS), "systemctl ", "podman ")
    return Shown(
        *("\n".join(line for lines in named if lines[0].startswith(words) for line in lines) for words in beginnings)
    )


def contained(root: Path, package: Path, scratch: Path, lines: str) -> int:
    """Make an image of the package by the container file, upon the Debian in ``root``, and try it; the status."""
    (scratch / "dist").mkdir(parents=True)
    shutil.copy(package, scratch / "dist")
    (scratch / "deploy").symlink_to(REPOSITORY / "deploy")
    # Files in a folder of our own, and no limits raised: it also works where this machine is a container itself.
    (scratch / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\nrunroot = "{scratch}/run"\ngraphroot = "{scratch}/images"\n'
    )
    (scratch / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n[engine]\nruntime = "runc"\n'
    )
    kept = {
        "CONTAINERS_STORAGE_CONF": str(scratch / "storage.conf"),
        "CONTAINERS_CONF": str(scratch / "containers.conf"),
        "BUILDAH_ISOLATION": "chroot",
    }
    build, run = lines.splitlines()
    command = ["bash", "-c", _CONTAINED, "bash", str(root), build, run]
    return subprocess.run(command, cwd=scratch, env={**os.environ, **kept}, check=False).returncode


def main() -> int:
    """Install the Debian package on a machine that has nothing but its base system."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--keep", type=Path, help="a folder that the machine is left in, and found in the next time")
    parser.add_argument("--from", dest="revision", help="the commit to upgrade from. Default: the last release")
    given = parser.parse_args()
    if not is_root():
        print("a fresh machine needs root: it has namespaces and mounts of its own", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="fresh-", dir="/var/tmp") as scratch:
        machine = FreshMachine(
            (given.keep or Path(scratch) / "root").resolve(), Here(Path("/"), Path.home(), os.environ), {}
        )
        try:
            if not machine.made:
                machine.make()
            earlier = Path(scratch) / "earlier"
            _take(given.revision or _last_release(), earlier)
            for source, version in zip((earlier, REPOSITORY), VERSIONS, strict=True):
                out = machine.root / "srv"
                subprocess.run(
                    [sys.executable, source / "deploy/deb.py", "--out", out, "--version", version], check=True
                )
            package = next((machine.root / "srv").glob(f"strata_{VERSIONS[1]}_*.deb"))
            lines = shown()
            return (
                contained(machine.root, package, Path(scratch) / "images", lines.contained)
                or machine.run(_RUN, lines.earlier, lines.present, VERSIONS[1])
                or machine.run(_BOOTED, lines.booted)
                or machine.run(_REMOVED)
            )
        finally:
            if not given.keep:
                machine.remove()


def _last_release() -> str:
    """The last tag; where nothing is tagged yet, the oldest state that is packaged as this one is."""
    for words in (["describe", "--tags", "--abbrev=0"], ["log", "-1", "--format=%H", "--", *PACKAGING]):
        found = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, text=True, check=False)
        if found.returncode == 0:
            return found.stdout.strip()
    raise SystemExit("this is no clone: name a commit with --from")


def _take(revision: str, folder: Path) -> None:
    """The repository as it was at ``revision``, with what is built here in its place: that is not what is upgraded."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    subprocess.run(["git", "archive", "-o", str(archive), revision], cwd=REPOSITORY, check=True)
    shutil.unpack_archive(archive, folder)
    for built in ("src/strata/dashboard/static", "src/strata/jobs/native/built"):
        if (REPOSITORY / built).is_dir():
            shutil.copytree(REPOSITORY / built, folder / built, dirs_exist_ok=True)


if __name__ == "__main__":
    raise SystemExit(main())
