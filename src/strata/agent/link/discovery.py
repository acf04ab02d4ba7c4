"""A machine that nobody knows yet: it says what it is, and waits to be adopted."""

from __future__ import annotations

import sys
import time

from ..boot import Boot
from ..errors import AgentError
from ..files import read_text
from ..host.inventory import inventory
from ..host.power import restart
from ..paths import Paths
from .http import post, tls_context

_LONGEST_PAUSE = 60.0


def discover(boot: Boot, paths: Paths) -> None:
    """Say hello until a controller has adopted the machine, then reboot into its own boot."""
    seen = inventory(paths)
    hello = {
        "macs": [nic["mac"] for nic in seen["nics"] if len(nic["mac"]) == 17],
        "uuid": read_text(paths.sys("class/dmi/id/product_uuid"), 64),
        "serial": read_text(paths.sys("class/dmi/id/product_serial"), 128),
        "inventory": seen,
    }
    context = tls_context(paths.authority)
    pause = 1.0
    while True:
        for url in boot.controllers:
            try:
                reply = post(url, "/agent/v1/hello", hello, context)
            except AgentError as error:
                print(f"strata-agent: not heard yet: {error}", file=sys.stderr, flush=True)
                continue
            if reply.get("adopted"):
                print("strata-agent: adopted; rebooting into this node's own boot", file=sys.stderr, flush=True)
                restart()
                return
            wait = reply.get("wait")
            pause = min(300.0, max(1.0, float(wait))) if isinstance(wait, (int, float)) else 20.0
            break
        else:
            pause = min(_LONGEST_PAUSE, pause * 2)
        time.sleep(pause)
