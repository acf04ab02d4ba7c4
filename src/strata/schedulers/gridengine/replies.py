"""What Grid Engine's commands are asked, and what they print: pure.

A host is drained where all its queues are disabled. Grid Engine keeps no reason for that, so the hosts whose queue was
disabled by us are in a host group, one for each queue, which administrators see too (``qconf -shgrpl``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.etree import ElementTree

from strata.core.errors import DeviceError
from strata.schedulers.protocol import UNSEEN_JOB, NodeSeen

HOSTS = ("qhost", "-q", "-j", "-xml")
"""Asks for all hosts, their queues and the jobs on them."""
GROUPS = ("qconf", "-shgrpl")
"""Asks for the names of all host groups."""
NEW_GROUP = ("qconf", "-Ahgrp", "/dev/stdin")
"""Makes a host group, as ``empty_group`` describes it."""

_STATES = frozenset("aACDsSudEoPc")
"""Of a queue: alarms, calendars, suspended, unreachable, disabled, error, orphaned, preempted, ambiguous."""
_AWAY = "u"
_DISABLED = "d"
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]")


class Host(NamedTuple):
    """A host as ``qhost`` tells of it."""

    queues: Mapping[str, str]
    """Queue → its state, as letters."""
    used: int
    """Slots that are taken."""
    jobs: tuple[str, ...]


def hosts(said: str) -> dict[str, Host]:
    """Hosts by name, from the answer to ``HOSTS``."""
    hosts = tree("qhost", said).iter("host")
    return {host.get("name", ""): _host(host) for host in hosts if host.get("name") != "global"}


def tree(command: str, said: str) -> ElementTree.Element:
    """The XML that ``command`` has printed."""
    try:
        return ElementTree.fromstring(said)
    except ElementTree.ParseError as error:
        raise DeviceError(f"not XML: {error}", node=command, reply=said[-200:]) from None


def _host(host: ElementTree.Element) -> Host:
    values = [
        {value.get("name", ""): (value.text or "").strip() for value in queue.iter("queuevalue")}
        for queue in host.iter("queue")
    ]
    names = [queue.get("name", "") for queue in host.iter("queue")]
    # Whoever does not say how many slots are taken has not said that none is.
    used = sum(int(found) if (found := value.get("slots_used", "")).isdigit() else 1 for value in values)
    states = {name: value.get("state_string", "?") for name, value in zip(names, values, strict=True)}
    return Host(states, used, tuple(dict.fromkeys(_job(job) for job in host.iter("job"))))


def _job(job: ElementTree.Element) -> str:
    task = next((value.text for value in job.iter("jobvalue") if value.get("name") == "taskid"), None)
    return f"{job.get('name', UNSEEN_JOB)}.{task.strip()}" if task else job.get("name", UNSEEN_JOB)


def group(mark: str, queue: str) -> str:
    """The host group of those whose ``queue`` we disabled."""
    return f"@{_UNFIT.sub('_', mark)}_{queue}"


def our_groups(said: str, mark: str) -> dict[str, str]:
    """Our groups, from the answer to ``GROUPS``: queue → group."""
    prefix = group(mark, "")
    return {name.removeprefix(prefix): name for name in said.split() if name.startswith(prefix)}


def nodes(found: Mapping[str, Host], ours: Mapping[str, frozenset[str]]) -> dict[str, NodeSeen]:
    """Hosts as the protocol has them. ``ours``: queue → hosts whose queue we disabled."""
    return {name: _seen(name, host, ours) for name, host in found.items()}


def _seen(name: str, host: Host, ours: Mapping[str, frozenset[str]]) -> NodeSeen:
    drained = all(map(is_disabled, host.queues.values()))
    marked = [queue for queue in host.queues if name in ours.get(queue, ())]
    return NodeSeen(
        state=" ".join(f"{queue}:{state or '-'}" for queue, state in sorted(host.queues.items())) or "in no queue",
        understood=all(set(state) <= _STATES for state in host.queues.values()),
        drained=drained,
        down=bool(host.queues) and all(_AWAY in state for state in host.queues.values()),
        reason=f"disabled by us: {', '.join(marked)}" if drained and marked else "",
        ours=drained and bool(marked),
        jobs=host.jobs or ((UNSEEN_JOB,) if host.used else ()),
    )


def is_disabled(state: str) -> bool:
    """Whether somebody disabled a queue that has this state."""
    return _DISABLED in state


def disable(instances: Sequence[str]) -> tuple[str, ...]:
    """The command that has no more jobs started in queues of hosts (``main.q@n1``)."""
    return ("qmod", "-d", *instances)


def enable(instances: Sequence[str]) -> tuple[str, ...]:
    """The command that has jobs started there again."""
    return ("qmod", "-e", *instances)


def members(name: str) -> tuple[str, ...]:
    """Asks which hosts are in a group."""
    return ("qconf", "-shgrp_resolved", name)


def put_into(name: str, those: Sequence[str]) -> tuple[str, ...]:
    """The command that puts hosts into a group."""
    return ("qconf", "-aattr", "hostgroup", "hostlist", " ".join(those), name)


def take_from(name: str, those: Sequence[str]) -> tuple[str, ...]:
    """The command that takes hosts out of a group."""
    return ("qconf", "-dattr", "hostgroup", "hostlist", " ".join(those), name)


def empty_group(name: str) -> str:
    """What ``NEW_GROUP`` reads."""
    return f"group_name {name}\nhostlist NONE\n"
