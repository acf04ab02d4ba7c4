"""The Debian package on a Debian 12 that has nothing yet: ``python tests/fresh/package.py``.

Makes the package and the machine (see ``machine``); there it is installed by apt, the host is examined, and a simulated
fleet is brought up; then a later version is installed over it, and everything that was said before is still there.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fresh.machine import FreshMachine, Here, is_root

REPOSITORY = Path(__file__).resolve().parents[2]
VERSIONS = ("0.1.0", "0.1.1")

_RUN = """
set -e
cd /srv
export DEBIAN_FRONTEND=noninteractive STRATA_STATE=/var/tmp/fleet
say() { printf '\\n== %s\\n' "$*"; }
apt-get -qq update
install() {
    apt-get -qq -y install --no-install-recommends "./strata_$1"_*.deb > apt.log 2>&1 || { tail -20 apt.log; exit 1; }
}
say install "$1"
install "$1"
strata version
strata serve --check
say the host
strata doctor || true
say a simulated fleet
strata up --simulated --nodes 16
strata node list --group-by state
strata group create kept 'n[1-3]'
strata node hold n5 --reason 'kept over the upgrade'
strata stop
say upgrade to "$2"
install "$2"
dpkg-query -W strata
strata up || true  # one node is held, so that not all are ready
strata group show kept
test "$(strata node list state:held --folded)" = n00005
strata down --delete < /dev/null
say remove
apt-get -qq -y remove strata > apt.log 2>&1
test ! -e /usr/bin/strata
test ! -e /usr/lib/strata
echo 'the package: passed'
"""


def main() -> int:
    """Install the Debian package on a machine that has nothing but its base system."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--keep", type=Path, help="a folder that the machine is left in, and found in the next time")
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
            for version in VERSIONS:
                command = [
                    sys.executable,
                    REPOSITORY / "deploy/deb.py",
                    "--out",
                    machine.root / "srv",
                    "--version",
                    version,
                ]
                subprocess.run(command, check=True)
            return machine.run(_RUN, *VERSIONS)
        finally:
            if not given.keep:
                machine.remove()


if __name__ == "__main__":
    raise SystemExit(main())
