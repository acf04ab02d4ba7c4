"""Switching this machine's own kernel over: the one thing the agent does that cannot be undone."""

from __future__ import annotations

import os
import subprocess
import time


def restart() -> None:
    """Reboot now; stubborn machines are helped by the kernel's own key."""
    os.sync()
    try:
        subprocess.run(["reboot", "-f"], timeout=10, capture_output=True)
    except (OSError, subprocess.TimeoutExpired):
        time.sleep(0.1)
    with open("/proc/sysrq-trigger", "w") as trigger:  # noqa: PTH123 - not a file of ours
        trigger.write("b")
