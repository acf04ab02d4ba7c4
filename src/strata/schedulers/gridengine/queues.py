"""Queues of Grid Engine: what is asked, and what the answers say. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from xml.etree import ElementTree

from strata.schedulers.dates import duration
from strata.schedulers.gridengine.replies import tree
from strata.schedulers.jobs import JobSeen, Queue
from strata.schedulers.meanings import mebibytes

NAMES = ("qconf", "-sql")
"""Asks for the names of all queues."""
HOSTS = ("qhost", "-q", "-F", "gpu", "-xml")
"""Asks for all hosts, with what they have and how full their queues are."""

_NONE = ("NONE", "none", "")
_CLOSED = frozenset("dDsSCuEoc")


def settings_of(names: Sequence[str]) -> tuple[str, ...]:
    """Asks for the settings of queues."""
    return ("qconf", "-sq", ",".join(names))


def access_lists_of(names: Sequence[str]) -> tuple[str, ...]:
    """Asks who is in access lists."""
    return ("qconf", "-su", ",".join(names))


def settings(said: str) -> list[dict[str, str]]:
    """Of each queue, from the answer to ``settings_of``."""
    return _blocks(said, "qname")


def access_lists(said: str) -> dict[str, list[str]]:
    """Names of accounts, and of groups behind an ``@``, by list; from the answer to ``access_lists_of``."""
    return {
        told["name"]: [one for one in re.split(r"[\s,]+", told.get("entries", "")) if one not in _NONE]
        for told in _blocks(said, "name")
    }


def lists_of(told: Mapping[str, str]) -> frozenset[str]:
    """The access lists that a queue's settings name."""
    return _names(_plain(told.get("user_lists", ""))) | _names(_plain(told.get("xuser_lists", "")))


def _blocks(said: str, first: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []
    # A long value goes on in the next line behind a backslash.
    for line in re.sub(r"\\\n\s*", "", said).splitlines():
        name, _, value = line.partition(" ")
        if name == first:
            found.append({})
        if name and found:
            found[-1][name] = value.strip()
    return found


def queues(
    told: Iterable[Mapping[str, str]], hosts: str, lists: Mapping[str, Iterable[str]], seen: Iterable[JobSeen]
) -> list[Queue]:
    """From the answers. ``lists``: access list → accounts in it, groups resolved."""
    waits = Counter(job.queue for job in seen if job.state == "waiting")
    instances: dict[str, list[_Instance]] = {}
    for host in tree("qhost", hosts).iter("host"):
        for queue in host.iter("queue"):
            instances.setdefault(queue.get("name", ""), []).append(_Instance(host, queue))
    return [_queue(one, instances.get(one["qname"], []), lists, waits[one["qname"]] + waits[""]) for one in told]


class _Instance:
    """A queue on one host."""

    def __init__(self, host: ElementTree.Element, queue: ElementTree.Element) -> None:
        has = {value.get("name", ""): (value.text or "").strip() for value in host.findall("hostvalue")}
        has |= {value.get("name", ""): (value.text or "").strip() for value in host.findall("resourcevalue")}
        says = {value.get("name", ""): (value.text or "").strip() for value in queue.iter("queuevalue")}
        self.open = not set(says.get("state_string", "?")) & _CLOSED
        self.cores = int(has["num_proc"]) if has.get("num_proc", "").isdigit() else None
        self.memory = mebibytes(has.get("mem_total", ""))
        self.gpus = int(float(has["gpu"])) if re.fullmatch(r"[0-9.]+", has.get("gpu", "")) else 0
        slots, used = says.get("slots", ""), says.get("slots_used", "")
        self.slots = int(slots) if slots.isdigit() else 0
        self.free = self.open and used == "0"


def _queue(
    told: Mapping[str, str], instances: Sequence[_Instance], lists: Mapping[str, Iterable[str]], waiting: int
) -> Queue:
    cores = [min(one.slots, one.cores) if one.cores else one.slots for one in instances]
    memory = [one.memory for one in instances if one.memory is not None]
    gpus = max((one.gpus for one in instances), default=0)
    allowed, order = _plain(told.get("user_lists", "")), told.get("seq_no", "").partition(",")[0]
    return Queue(
        name=told["qname"],
        open=any(one.open for one in instances),
        most_time=duration(_plain(told.get("h_rt", ""))),
        node_cores=max(cores, default=None),
        node_memory=max(memory, default=None),
        accelerators={"": gpus} if gpus else {},
        free_nodes=sum(one.free for one in instances),
        nodes=len(instances),
        accounts=None if allowed in _NONE else _accounts(allowed, lists),
        not_accounts=_accounts(_plain(told.get("xuser_lists", "")), lists),
        projects=None if _plain(told.get("projects", "")) in _NONE else _names(_plain(told["projects"])),
        not_projects=_names(_plain(told.get("xprojects", ""))),
        waiting=waiting,
        priority=-int(order) if order.isdigit() else 0,
    )


def _plain(value: str) -> str:
    """The value for hosts that have none of their own (``NONE,[@gpu=physics]``)."""
    return value.partition(",[")[0].strip()


def _names(value: str) -> frozenset[str]:
    return frozenset(name for name in re.split(r"[\s,]+", value) if name not in _NONE)


def _accounts(value: str, lists: Mapping[str, Iterable[str]]) -> frozenset[str]:
    return frozenset(account for name in _names(value) for account in lists.get(name, ()))
