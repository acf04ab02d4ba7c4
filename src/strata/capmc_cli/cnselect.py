"""The ``cnselect`` command: which nodes were started with a memory or NUMA mode, as a list of NIDs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from strata.capmc_cli import nids
from strata.capmc_cli.capmc import do
from strata.capmc_cli.wire import Failed, post, settings


def main() -> None:
    """The command."""
    do(run)


def run(arguments: Sequence[str]) -> str:
    """Ask; what to print."""
    import argparse

    parser = argparse.ArgumentParser(
        prog="cnselect", description="Prints the NIDs of nodes by their modes.", allow_abbrev=False
    )
    parser.add_argument(
        "-e", "--expression", required=True, metavar="EXPRESSION", help="hbmcachepct.eq.N or numa_cfg.eq.X"
    )
    expression = parser.parse_args(arguments).expression
    status, body = post("/capmc/cnselect", json.dumps({"expression": expression}).encode(), settings())
    try:
        reply = json.loads(body)
        if reply["e"]:
            raise Failed(f"cnselect: {reply['err_msg']}")
        return nids.fold(reply["nids"])
    except (ValueError, KeyError, TypeError):
        raise Failed(f"cnselect: Internal server error ({status})") from None
