"""The ``capmc`` command. Its exit status says whether the request was submitted; what came of it is in the reply."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from strata.capmc_cli.applets import APPLETS, Either, option
from strata.capmc_cli.wire import Failed, post, settings

MOST_INPUT = 10 * 2**20
SHORT = 64 * 1024
"""Bytes of a reply that is laid out for people; longer ones are for programs, who would have to wait for it."""

STAGED = {f"set_{kind}": kind for kind in ("mcdram_cfg", "numa_cfg", "ssd_enable")}
_SSD = {"enable": 1, "disable": 0}


def main() -> None:
    """The command."""
    do(run)


def do(command: Callable[[Sequence[str]], str | bytes]) -> None:
    """Run a command with the words that it was called with, and end with what it gives to print, or with why not."""
    try:
        shown = command(sys.argv[1:])
    except Failed as error:
        end(1, str(error), 2)
    end(0, shown, 1)


def end(status: int, text: str | bytes, stream: int) -> None:
    """Say it and be gone at once: nothing that is left open holds anybody up, and nothing more can be printed."""
    data = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
    data = data if data.endswith(b"\n") else data + b"\n"
    try:
        while data:
            data = data[os.write(stream, data) :]
    except OSError:
        status = status or 1
    os._exit(status)


def run(arguments: Sequence[str]) -> bytes:
    """Submit what the arguments ask for; what to print."""
    applet = arguments[0] if arguments else ""
    if applet == "json":
        return _raw(arguments[1:])
    if applet not in APPLETS:
        return _help(applet)
    call, taken, build = APPLETS[applet]
    options = _parse(applet, taken, arguments[1:])
    chosen = settings()
    if applet in STAGED:
        call, body = _staged(applet, options, chosen)
    else:
        body = build(options)
    return _shown(*post(f"/capmc/{call}", json.dumps(body, separators=(",", ":")).encode(), chosen))


def _parse(applet: str, options: Sequence[Either], arguments: Sequence[str]) -> Any:
    import argparse

    parser = argparse.ArgumentParser(prog=f"capmc {applet}", allow_abbrev=False)
    for either in options:
        place = parser.add_mutually_exclusive_group() if len(either) > 1 else parser
        for names, more in either:
            place.add_argument(*names, **more)
    return parser.parse_args(arguments)


def _help(applet: str) -> bytes:
    text = "usage: capmc APPLET [OPTIONS]\n\nSends a CAPMC request and prints the reply (JSON).\n"
    text += (
        "'capmc APPLET --help' shows the options of an applet; 'capmc json' sends what it reads on standard input.\n"
    )
    text += "\napplets:\n" + "".join(f"  {name}\n" for name in (*sorted(APPLETS), "json"))
    if applet in ("-h", "--help", "help"):
        return text.encode()
    raise Failed(text if not applet else f"capmc: no such applet: {applet[:60]}\n{text}")


def _raw(arguments: Sequence[str]) -> bytes:
    """Send what comes on standard input."""
    taken = option("-r", "--resource", required=True, metavar="/capmc/CALL", help="call that it is sent to")
    resource = _parse("json", [taken], arguments).resource
    if not resource.startswith("/") or any(c.isspace() or not c.isprintable() for c in resource):
        raise Failed(f"capmc json: not a resource: {resource[:80]!r}")
    chosen = settings()
    data = sys.stdin.buffer.read(MOST_INPUT + 1) if sys.stdin is not None else b""
    if len(data) > MOST_INPUT:
        raise Failed(f"capmc json: a request has at most {MOST_INPUT} bytes")
    return _shown(*post(resource, data, chosen))


def _staged(applet: str, options: Any, chosen: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Modes are set by node: without a list, of every node that has such a mode."""
    kind = STAGED[applet]
    if options.mode == "reset":
        return f"clr_{kind}", {"nids": options.nids or []}
    nids = options.nids
    if nids is None:
        _, reply = post(f"/capmc/get_{kind}", b"{}", chosen)
        try:
            nids = [one["nid"] for one in json.loads(reply).get("nids", ())]
        except (ValueError, AttributeError, TypeError, KeyError):
            raise Failed(f"{applet}: Internal server error: the nodes could not be listed") from None
    value = _SSD.get(options.mode, options.mode)
    return applet, {"nids": [{"nid": nid, kind: value} for nid in nids]}


def _shown(status: int, body: bytes) -> bytes:
    """The reply as it came, laid out for people if it is short. What is not CAPMC's (a proxy's error) becomes so."""
    whole = body.startswith(b'{"e":')
    if whole and len(body) > SHORT:
        return body
    try:
        found = json.loads(body)
        if not isinstance(found, dict):
            raise ValueError
    except ValueError:
        found = {}
    if "e" not in found:
        why = found.get("detail")
        said = f": {why}" if isinstance(why, str) else ""
        found = {"e": status, "err_msg": f"Internal server error{said}" if status >= 500 else f"HTTP {status}{said}"}
    return json.dumps(found, indent=2).encode()
