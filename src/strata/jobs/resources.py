"""What a job says that it needs: as people write it (``16G``, ``1h30m``, ``300W``, ``h200:2``), as far as they say it.

What is not said is told apart from what is said, so that a work environment's defaults fill the gaps and nothing else.
``needs`` is what a scheduler gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from strata.core.texts import In
from strata.core.units import SIZE, mebibytes, seconds, watts
from strata.schedulers.jobs import Accelerators, Count, Resources, Word

_LONGEST = 366 * 86_400

SizeText = Annotated[str, Meta(pattern=SIZE, max_length=20)]
TimeText = Annotated[str, Meta(pattern=r"^([0-9]{1,9}|([0-9]{1,9}(\.[0-9]{1,6})?[smhd]){1,4})$(?!\n)", max_length=40)]
PowerText = Annotated[str, Meta(pattern=r"^[0-9]{1,9}(\.[0-9]{1,6})?( ?[kMG]?W)?$(?!\n)", max_length=20)]
AcceleratorText = Annotated[
    str, Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.@+-]{0,63}:)?[1-9][0-9]{0,3}$(?!\n)", max_length=70)
]


class Asked(In, frozen=True, kw_only=True, omit_defaults=True):
    """What a job needs. Of an array: each of its tasks. None: it does not say."""

    nodes: Count | None = None
    """None: one."""
    tasks: Count | None = None
    """Processes that are started, over all nodes. None: one on each."""
    cores: Count | None = None
    """Processor cores for each of them. None: one."""
    memory: Count | SizeText | None = None
    """On each node: ``16G``, or MiB. None: what the queue gives."""
    accelerators: Accelerators | Annotated[int, Meta(ge=1, le=1024)] | AcceleratorText | None = None
    """On each node: how many, ``TYPE:COUNT``, or all that can be said of them."""
    time: Annotated[int, Meta(ge=1, le=_LONGEST)] | TimeText | None = None
    """After which it is ended: ``1h30m``, or seconds. None: what the queue gives."""
    licences: Annotated[Mapping[Word, Count], Meta(max_length=16)] = {}
    power: Count | PowerText | None = None
    """That each node may draw at most: ``300W``, or watts. Its nodes are capped to it while it runs, and are its alone
    for that; where a node has a lower cap already, that one stays."""

    def __post_init__(self) -> None:
        def put(name: str, value: object) -> None:
            msgspec.structs.force_setattr(self, name, value)

        if isinstance(self.memory, str):
            put("memory", mebibytes(self.memory))
        if isinstance(self.time, str):
            put("time", _whole(self.time, int(seconds(self.time)), _LONGEST))
        if isinstance(self.power, str):
            put("power", _whole(self.power, int(watts(self.power)), 10_000_000))
        if isinstance(self.accelerators, int):
            put("accelerators", Accelerators(count=self.accelerators))
        elif isinstance(self.accelerators, str):
            kind, _, count = self.accelerators.rpartition(":")
            put("accelerators", Accelerators(count=_whole(self.accelerators, int(count), 1024), type=kind or None))

    @property
    def said(self) -> dict[str, Any]:
        """What it says, by field."""
        return {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) not in (None, {})}

    @property
    def needs(self) -> Resources:
        """All of it, with what a scheduler takes to be meant by what is not said."""
        said = self.said
        return Resources(**{**said, "tasks": said.get("tasks", said.get("nodes", 1))})


def over(asked: Asked, defaults: Asked) -> tuple[Asked, tuple[str, ...]]:
    """What a job asks for where it says nothing of its own of what ``defaults`` say; and which fields those are."""
    said = asked.said
    taken = {name: value for name, value in defaults.said.items() if name not in said}
    # Of the two that belong together, what is said rules: one task on each of those nodes, or as few nodes as tasks.
    if taken.get("tasks", 1) < said.get("nodes", 1):
        del taken["tasks"]
    if taken.get("nodes", 1) > said.get("tasks", taken.get("nodes", 1)):
        del taken["nodes"]
    return Asked(**{**taken, **said}), tuple(sorted(taken))


def _whole(text: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise ValueError(f"{text!r} is not between 1 and {most}")
    return value
