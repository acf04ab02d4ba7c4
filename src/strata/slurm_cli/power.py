"""``strata-slurm-resume``, ``strata-slurm-suspend``, ``strata-slurm-reboot``: what Slurm runs to have nodes switched.

Slurm gives each a hostlist and looks only at the exit status. Each says one thing to the service and ends; the engine
does the rest. While the service is away it is tried again: what Slurm asked for once it does not ask for a second time.
"""

from __future__ import annotations

import json
import os
import sys
import time

from strata.capmc_cli.wire import Away, Failed, post

CONFIG = "/etc/strata/slurm.json"
KEYS = ("url", "ca", "token_file", "workload", "log", "patience")
PATIENCE = 300.0
"""Seconds that a service that is away is tried again."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
_USAGE = """usage: strata-slurm-{action} HOSTLIST

{does} Slurm starts this program as its {setting}.
{config} names the service and the file with the token.
The exit status is 0 if Strata has accepted all nodes.
"""
_DOES = {
    "resume": ("Asks Strata to switch nodes on.", "ResumeProgram"),
    "suspend": ("Asks Strata to switch idle nodes off.", "SuspendProgram"),
    "reboot": ("Asks Strata to restart nodes.", "RebootProgram"),
}
_AGAIN = frozenset((408, 425, 429, 500, 502, 503, 504))
"""Answers after which it is tried again: a controller that changes hands, a Slurm that is busy."""


def resume() -> None:
    """ResumeProgram: nodes are wanted."""
    _main("resume")


def suspend() -> None:
    """SuspendProgram: nodes have been idle."""
    _main("suspend")


def reboot() -> None:
    """RebootProgram, with ``reboot_from_controller``: nodes are to be started anew."""
    _main("reboot")


def _main(action: str) -> None:
    os._exit(run(action, sys.argv[1:]))  # without taking the interpreter apart: that is a tenth of the time


def run(action: str, arguments: list[str]) -> int:
    """The exit status: 0 if it is on its way for all nodes."""
    if not arguments or not arguments[0].strip() or arguments[0].startswith("-"):
        does, setting = _DOES[action]
        return usage(_USAGE.format(action=action, does=does, setting=setting, config=CONFIG), arguments)
    nodes = arguments[0]
    try:
        chosen = settings()
    except Failed as error:
        _log({}, f"{action} {nodes}: {error}")
        return 1
    try:
        done, refused = _tell(action, nodes, chosen)
    except Failed as error:
        _log(chosen, f"{action} {nodes}: not done: {error}")
        return 1
    parts = [f"{action} {nodes}: {done or 'nothing to do'}"]
    parts += [f"not {one['nodes']}: {one['reason']}" for one in refused]
    _log(chosen, "; ".join(parts))
    return 1 if refused else 0


def usage(text: str, arguments: list[str]) -> int:
    """Print how a program is used, and return its exit status: 0 if that was asked for."""
    asked = arguments[:1] in (["-h"], ["--help"])
    stream = sys.stdout if asked else sys.stderr
    stream.write(text)
    stream.flush()
    return 0 if asked else 2


def settings() -> dict[str, str]:
    """Where the service is and who we are, from the file."""
    path = os.environ.get("STRATA_SLURM_CONFIG") or CONFIG
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 (pathlib would be a third of the start)
            given = json.load(file)
    except (OSError, ValueError) as error:
        raise Failed(f"{path}: {error}") from None
    if not isinstance(given, dict) or not given.get("url"):
        raise Failed(f'{path}: must be like {{"url": "https://HOST:8443", "token_file": ..., "ca": ...}}')
    wrong = sorted(set(given) - set(KEYS))
    if wrong:
        raise Failed(f"{path}: unknown {wrong[0]!r}; there are {', '.join(KEYS)}")
    return {key: str(value) for key, value in given.items()}


def place_of(chosen: dict[str, str]) -> dict[str, str]:
    """Where the service is, as the wire wants it."""
    place = {"os_service_url": chosen["url"], "os_cacert": chosen.get("ca", "")}
    return {key: value for key, value in place.items() if value}


def _tell(action: str, nodes: str, chosen: dict[str, str]) -> tuple[str, list[dict[str, str]]]:
    """The nodes for which it is wanted now, and those for which it was refused, once the service says something."""
    place = place_of(chosen)
    body = json.dumps({"action": action, "nodes": nodes}).encode()
    resource = f"/v1/slurm/{chosen.get('workload', 'slurm')}/power"
    token = token_of(chosen.get("token_file", ""))
    end = time.monotonic() + float(chosen.get("patience", PATIENCE))
    pause = _FIRST_PAUSE
    while True:
        try:
            status, answer = post(resource, body, place, token)
            if status not in _AGAIN:
                return _read(status, answer)
            trouble: Failed = Failed(_detail(status, answer))
        except Away as error:
            trouble = error
        if time.monotonic() + pause > end:
            raise trouble
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _read(status: int, answer: bytes) -> tuple[str, list[dict[str, str]]]:
    if status != 200:
        raise Failed(_detail(status, answer))
    try:
        found = json.loads(answer)
        return str(found["done"]), [{"nodes": one["nodes"], "reason": one["reason"]} for one in found["refused"]]
    except (ValueError, KeyError, TypeError):
        raise Failed(f"an answer that is not understood ({status})") from None


def _detail(status: int, answer: bytes) -> str:
    try:
        return f"{json.loads(answer)['detail']} ({status})"
    except (ValueError, KeyError, TypeError):
        return f"the service says {status}"


def token_of(path: str) -> str:
    """The token in a file that only we can read; none for a local socket."""
    if not path:
        return ""
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise Failed(f"{path}: others can read the token: chmod 600 {path}")
            token = file.read(4096).strip()
    except (OSError, ValueError) as error:
        raise Failed(f"{path}: {error}") from None
    if not token or not token.isprintable() or " " in token:
        raise Failed(f"{path}: holds no token")
    return token


def _log(chosen: dict[str, str], text: str) -> None:
    """To the file that the settings name, or to the system's log: Slurm keeps nothing of what its programs say."""
    line = text.replace("\n", " ")[:2000]
    path = chosen.get("log")
    if path:
        try:
            with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {line}\n")
            return
        except OSError as error:
            line = f"{line} ({path}: {error.strerror})"
    import syslog

    syslog.openlog("strata-slurm", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_INFO, line)
