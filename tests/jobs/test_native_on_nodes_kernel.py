"""``strata-run`` on the kernel that nodes have, Debian 12's own: this machine's may know more system calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from strata.jobs.native import program
from strata.provisioning.minos.tree import pack, regular
from support.minos import LATEST, Machine, built, unpack
from support.native import compiled

pytestmark = [pytest.mark.slow, pytest.mark.server]

ATTEMPTS = ("unmount", "cover", "nest", "write-proc", "look-at-proc", "devices", "keys", "handles", "other-numbers")

BEGIN = """#!/bin/busybox sh
/bin/busybox mkdir -p /bin
/bin/busybox --install -s /bin
mkdir /proc /sys /mnt
mount -t proc proc /proc; mount -t sysfs sys /sys
insmod /overlay.ko
mount -t tmpfs -o mode=755 tmpfs /mnt; mkdir -p /mnt/etc /mnt/proc /mnt/sys /mnt/dev /mnt/tmp
echo 'user:x:1000:1000::/:/bin/sh' > /mnt/etc/passwd
mkdir -p /mnt/bin /mnt/image/bin /mnt/image/dev /mnt/image/proc /mnt/image/tmp /mnt/image/sys
cp /bin/busybox /try/* /mnt/bin; cp /bin/busybox /try/escape /mnt/image/bin
for name in sh id ls readlink touch; do ln -s busybox /mnt/image/bin/$name; done
for name in sh su mount grep; do ln -s busybox /mnt/bin/$name; done
exec switch_root /mnt /bin/try
"""
TRY = f"""#!/bin/busybox sh
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
run() {{ su -s /bin/sh user -c "strata-run --root /image $*" 2>&1; }}
echo; echo "TRIED plain $(run -- id -u)"
echo "TRIED layer $(run --bind /etc:/a/b/c:ro -- ls /a/b/c)"
echo "TRIED writable $(run --writable -- touch /new) $?"
echo "TRIED pid $(run --pid -- readlink /proc/self)"
for more in -- "--pid --" "--writable --"; do
    for name in {" ".join(ATTEMPTS)}; do
        said=$(run $more /bin/escape $name); echo "TRIED $name $? $(echo "$said" | grep WORKED)"
    done
done
echo "TRIED all"
while :; do /bin/busybox sleep 60; done
"""


def test_programs_start_and_stay_in_on_the_kernel_of_nodes(runner: Path, tmp_path: Path) -> None:
    escape = compiled(Path(__file__).with_name("escapes.c"), tmp_path / "escape", "-static")
    minos = unpack(built() / LATEST / "initrd")
    overlay = next(data for name, data in minos.items() if name.endswith("/overlay.ko"))
    initrd = tmp_path / "initrd"
    initrd.write_bytes(
        pack(
            {
                "init": regular(BEGIN.encode(), executable=True),
                "overlay.ko": regular(overlay),
                "bin/busybox": regular(Path("/bin/busybox").read_bytes(), executable=True),
                "try/try": regular(TRY.encode(), executable=True),
                "try/escape": regular(escape.read_bytes(), executable=True),
                "try/strata-run": regular(program("strata-run").read_bytes(), executable=True),
            }
        )
    )
    with Machine(initrd, append="quiet") as machine:
        machine.wait_for("TRIED all", within=240)
        tried = [line.strip().removeprefix("TRIED ") for line in machine.console if line.startswith("TRIED ")]
    assert tried[:4] == ["plain 1000", "layer passwd", "writable  0", "pid 2"]
    assert tried[4:-1] == [f"{name} 1" for name in ATTEMPTS] * 3
