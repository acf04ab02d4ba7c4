"""The ``cnselect`` command: which nodes were started with a memory or NUMA mode, as a list of NIDs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from strata.capmc_cli import nids
from strata.capmc_cli.capmc import end
from strata.capmc_cli.wire import Failed, post, settings


def main() -> None:
    """The command."""
    try:
        shown = run(sys.argv[1:])
    except Failed as error:
        end(1, str(error), 2)
    end(0, shown, 1)


def run(arguments: Sequence[str]) -> str:
    """Ask; what to print."""
    import argparse

    parser = argparse.ArgumentParser(prog="cnselect", allow_abbrev=False)
    parser.add_argument("-e", "--expression", required=True, metavar="hbmcachepct.eq.N|numa_cfg.eq.X")
    expression = parser.parse_args(arguments).expression
    status, body = post("/capmc/cnselect", json.dumps({"expression": expression}).encode(), settings())
    try:
        reply = json.loads(body)
        if reply["e"]:
            raise Failed(f"cnselect: {reply['err_msg']}")
        return nids.fold(reply["nids"])
    except (ValueError, KeyError, TypeError):
        raise Failed(f"cnselect: Internal server error ({status})") from None
