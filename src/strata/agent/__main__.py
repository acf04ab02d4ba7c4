"""Run the agent of this node."""

from __future__ import annotations

import sys
import time

from .boot import take_boot
from .errors import AgentError
from .link.ciphers import prefer_fast_cipher
from .paths import Paths


def main() -> None:
    """Started by the minimal OS, and started again should it end."""
    paths = Paths()
    prefer_fast_cipher(paths)
    try:
        boot = take_boot(paths)
    except AgentError as error:
        print(f"strata-agent: {error}", file=sys.stderr, flush=True)
        time.sleep(10)
        raise SystemExit(1) from None
    if boot.discovery:
        from .link.discovery import discover

        discover(boot, paths)
    else:
        from .node import Node

        Node(boot, paths).run()


if __name__ == "__main__":
    main()
