"""Who is in a group, where the scheduler is: its queues name groups, and jobs belong to accounts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from strata.core.errors import DeviceError
from strata.schedulers.runner import Runner


async def members(runner: Runner, groups: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """Group → accounts in it. A group that is not there has nobody in it."""
    if not groups:
        return {}
    found: list[str] = []
    for group in groups:
        try:
            found += (await runner.run("getent", "group", "--", group)).splitlines()
        except DeviceError:
            continue
    return read(found, (await runner.run("getent", "passwd")).splitlines())


def read(groups: Sequence[str], accounts: Sequence[str]) -> Mapping[str, frozenset[str]]:
    """From lines of group(5) and passwd(5): who is listed, and whose own group it is."""
    own: dict[str, set[str]] = {}
    for line in accounts:
        name, _, _, gid, *_ = (*line.split(":"), "", "", "", "")
        own.setdefault(gid, set()).add(name)
    named = {}
    for line in groups:
        name, _, gid, listed = (*line.split(":"), "", "", "")[:4]
        named[name] = frozenset({*filter(None, listed.split(",")), *own.get(gid, ())})
    return named
