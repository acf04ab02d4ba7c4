"""Limits that a node's own kernel keeps: the range of its clock and the deepest sleep of its processors.

``Inband`` is what the service asks. Nodes that have an agent are asked through it (``AgentNodes``); for simulated nodes
``VirtualNodes`` makes the files that Linux has of cpufreq and cpuidle, a tree for each node that is asked about, which
``Sysfs`` reads and writes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from strata.core.errors import BadRequest, NotOffered, StrataError, Unavailable

Attribute = Literal["freq", "freq-min", "freq-max", "sleep-limit"]

FREQUENCIES = (1200000, 1400000, 1600000, 1800000, 2000000, 2200000, 2400000, 2600000, 2601000)
"""kHz that a virtual node's processors have."""
SLEEPS = ("POLL", "C1", "C1E", "C3", "C6", "C7")
_MOST_FILES = 4096  # bytes of a file that is read
_WITH_A_WRONG_ONE = "not changed: another limit of the same request cannot be had"


class Value(msgspec.Struct, frozen=True):
    """One reading, and when it was made; or why there is none."""

    value: int = 0
    time: float = 0.0
    trouble: str = ""


class Inband(Protocol):
    """Asks the kernels of many nodes. A node that cannot be asked says why, and holds nobody up."""

    async def choices(self, names: Sequence[str], attribute: Attribute) -> Mapping[str, Sequence[int] | StrataError]:
        """What the attribute may be."""
        ...

    async def get(
        self, names: Sequence[str], attributes: Sequence[Attribute]
    ) -> Mapping[str, Sequence[Value] | StrataError]:
        """What the attributes are."""
        ...

    async def set(
        self, names: Sequence[str], changes: Sequence[tuple[Attribute, int]]
    ) -> Mapping[str, Sequence[Value] | StrataError]:
        """Change the attributes, one after the other; what became of each."""
        ...


class Sysfs:
    """The files of one node's processors. Blocks: call it in a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def choices(self, attribute: Attribute) -> list[int]:
        """What the attribute may be, ascending."""
        if attribute == "sleep-limit":
            return list(range(len(self._states())))
        listed = self._policies()[0] / "scaling_available_frequencies"
        if listed.exists():
            return sorted({int(word) for word in _read(listed).split()})
        # Drivers that take any value in between (intel_pstate) list none.
        return [_number(self._policies()[0] / f"cpuinfo_{end}_freq") for end in ("min", "max")]

    def get(self, attribute: Attribute) -> int:
        """What it is."""
        match attribute:
            case "freq":
                return max(_number(policy / "scaling_cur_freq") for policy in self._policies())
            case "freq-min":
                return min(_number(policy / "scaling_min_freq") for policy in self._policies())
            case "freq-max":
                return max(_number(policy / "scaling_max_freq") for policy in self._policies())
            case "sleep-limit":
                allowed = [i for i, state in enumerate(self._states()) if _read(state / "disable").strip() == "0"]
                return max(allowed, default=0)

    def check(self, attribute: Attribute, value: int) -> None:
        """``BadRequest`` where the processors cannot have it, whatever else is set."""
        match attribute:
            case "freq-min" | "freq-max":
                for policy in self._policies():
                    low, high = (_number(policy / f"cpuinfo_{end}_freq") for end in ("min", "max"))
                    if not low <= value <= high:
                        raise BadRequest(f"{value} kHz is outside {low} to {high} kHz", where=attribute)
            case "sleep-limit":
                states = self._states()
                if not 0 <= value < len(states):
                    raise BadRequest(f"{value} is not a sleep state", where=attribute, hint=f"0 to {len(states) - 1}")
            case "freq":
                raise BadRequest("the frequency itself cannot be set, only its limits", where=attribute)

    def set(self, attribute: Attribute, value: int) -> None:
        """Change it on all processors."""
        self.check(attribute, value)
        if attribute == "sleep-limit":
            for number, state in enumerate(self._states()):
                _write(state / "disable", int(number > value))
        else:
            self._limit(attribute, value)

    def run(self) -> None:
        """Have the clock of a virtual node follow its limits: as fast as they allow."""
        for policy in self._policies():
            _write(policy / "scaling_cur_freq", _number(policy / "scaling_max_freq"))

    def _limit(self, attribute: Attribute, value: int) -> None:
        for policy in self._policies():
            other = _number(policy / ("scaling_max_freq" if attribute == "freq-min" else "scaling_min_freq"))
            if (attribute == "freq-min" and value > other) or (attribute == "freq-max" and value < other):
                raise BadRequest(f"{value} kHz is beyond the other limit, {other} kHz", where=attribute)
            _write(policy / f"scaling_{attribute.removeprefix('freq-')}_freq", value)

    def _policies(self) -> list[Path]:
        found = sorted((self._root / "cpufreq").glob("policy[0-9]*"))
        if not found:
            raise NotOffered("its kernel has no cpufreq", node=self._root.name)
        return found

    def _states(self) -> list[Path]:
        found = sorted((self._root / "cpu0" / "cpuidle").glob("state[0-9]*"), key=lambda path: int(path.name[5:]))
        if not found:
            raise NotOffered("its kernel has no cpuidle", node=self._root.name)
        return found


class VirtualNodes:
    """Nodes that aren't there: each has the files that its kernel would have, made when it is first asked."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def choices(self, names: Sequence[str], attribute: Attribute) -> Mapping[str, Sequence[int] | StrataError]:
        """What the attribute may be."""
        return await asyncio.to_thread(lambda: {name: _try(self.tree, name, attribute) for name in names})

    async def get(
        self, names: Sequence[str], attributes: Sequence[Attribute]
    ) -> Mapping[str, Sequence[Value] | StrataError]:
        """What the attributes are."""
        return await asyncio.to_thread(lambda: {name: read(self.tree(name), attributes) for name in names})

    async def set(
        self, names: Sequence[str], changes: Sequence[tuple[Attribute, int]]
    ) -> Mapping[str, Sequence[Value] | StrataError]:
        """Change the attributes."""
        return await asyncio.to_thread(lambda: {name: self._set(name, changes) for name in names})

    def _set(self, name: str, changes: Sequence[tuple[Attribute, int]]) -> Sequence[Value] | StrataError:
        tree = self.tree(name)
        done = write(tree, changes)
        tree.run()
        return done

    def tree(self, name: str) -> Sysfs:
        """The files of one node. Blocks."""
        # By digest: a node's name is not to be trusted as a path, and no directory has 100,000 entries.
        digest = hashlib.sha256(name.encode()).hexdigest()
        root = self._directory / digest[:2] / digest[2:18]
        if not (root / "made").exists():
            with contextlib.suppress(FileExistsError):
                _make(root)
        return Sysfs(root)


def read(tree: Sysfs, attributes: Sequence[Attribute]) -> Sequence[Value] | StrataError:
    """The attributes of one node, as far as it has them."""
    found = []
    for attribute in attributes:
        try:
            found.append(Value(tree.get(attribute), time.time()))
        except StrataError as error:
            found.append(Value(trouble=str(error)))
        except (OSError, ValueError) as error:
            return Unavailable(f"its kernel's files cannot be read: {type(error).__name__}")
    return found


def write(tree: Sysfs, changes: Sequence[tuple[Attribute, int]]) -> Sequence[Value] | StrataError:
    """Change one node, one attribute after the other; a change that fails does not keep the next from being tried. What
    the processors cannot have is found before anything is changed."""
    try:
        wrong = _wrong(tree, changes)
        if wrong:
            return [Value(trouble=wrong.get(attribute, _WITH_A_WRONG_ONE)) for attribute, _ in changes]
        return [_written(tree, attribute, value) for attribute, value in changes]
    except (OSError, ValueError) as error:
        return Unavailable(f"its kernel's files cannot be written: {type(error).__name__}")


def _wrong(tree: Sysfs, changes: Sequence[tuple[Attribute, int]]) -> Mapping[Attribute, str]:
    found: dict[Attribute, str] = {}
    for attribute, value in changes:
        try:
            tree.check(attribute, value)
        except StrataError as error:
            found[attribute] = str(error)
    return found


def _written(tree: Sysfs, attribute: Attribute, value: int) -> Value:
    try:
        tree.set(attribute, value)
        return Value(value, time.time())
    except StrataError as error:
        return Value(trouble=str(error))


def troubles(names: Sequence[str], values: Sequence[Value]) -> str:
    """Why a node is not as it was asked to be, its attributes called ``names``; empty: it is. The first of two settings
    of the same limit may fail harmlessly: the last one counts."""
    last = {name: value.trouble for name, value in zip(names, values, strict=True)}
    why: dict[str, list[str]] = {}
    for name, trouble in last.items():
        if trouble:
            why.setdefault(trouble, []).append(name)
    return "; ".join(f"{', '.join(names)}: {trouble}" for trouble, names in why.items())


def _try(tree: object, name: str, attribute: Attribute) -> Sequence[int] | StrataError:
    assert callable(tree)
    try:
        return tree(name).choices(attribute)  # type: ignore[no-any-return]
    except StrataError as error:
        return error
    except (OSError, ValueError) as error:
        return Unavailable(f"its kernel's files cannot be read: {type(error).__name__}")


def _make(root: Path) -> None:
    policy = root / "cpufreq" / "policy0"
    policy.mkdir(parents=True, exist_ok=True)
    low, high = FREQUENCIES[0], FREQUENCIES[-1]
    texts = {
        "scaling_available_frequencies": " ".join(map(str, reversed(FREQUENCIES))),
        "cpuinfo_min_freq": low,
        "cpuinfo_max_freq": high,
        "scaling_min_freq": low,
        "scaling_max_freq": high,
        "scaling_cur_freq": high,
    }
    for name, text in texts.items():
        _write(policy / name, text)
    for number, word in enumerate(SLEEPS):
        state = root / "cpu0" / "cpuidle" / f"state{number}"
        state.mkdir(parents=True, exist_ok=True)
        _write(state / "name", word)
        _write(state / "disable", 0)
    (root / "made").touch()


def _read(path: Path) -> str:
    with path.open(encoding="ascii", errors="replace") as file:
        return file.read(_MOST_FILES)


def _number(path: Path) -> int:
    return int(_read(path))


def _write(path: Path, value: object) -> None:
    path.write_text(f"{value}\n", encoding="ascii")
