"""Where a component is: the xname grammar of HPE Cray's system management (``x1000c0s3b0n1``).

An xname is a walk down a tree of component types, one letter and number a step; the table below is the whole
grammar. Forms follow CSM's ``hms-xname``; two of its parents that contradict the written form (an HSN board under
its BMC, a node's FPGA under its enclosure) are here the component that the text is under, and a partition with a
dot (``p1.2``) is a type of its own. Knows nothing of which components exist, nor of the nodes that are placed in
them: a node may well have no location.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from strata.core.errors import BadRequest

_ANY = 999_999
"""The highest number of a component whose type sets no limit."""


class ComponentType(msgspec.Struct, frozen=True):
    """One type of component: its name, the type it sits in, its letter and the numbers that it may have."""

    name: str
    parent: str
    letter: str
    low: int = 0
    high: int = _ANY
    also: str = ""
    """Another letter that is understood, and never written."""


TYPES: Mapping[str, ComponentType] = {
    t.name: t
    for t in (
        ComponentType("System", "", "s", 0, 0),
        ComponentType("SMSBox", "", "sms"),
        ComponentType("Partition", "", "p"),
        ComponentType("Subpartition", "Partition", "."),
        ComponentType("CDU", "System", "d"),
        ComponentType("CDUMgmtSwitch", "CDU", "w"),
        ComponentType("Cabinet", "System", "x", 0, 9999),
        ComponentType("CabinetCDU", "Cabinet", "d", 0, 1),
        ComponentType("CabinetBMC", "Cabinet", "b", 0, 0),
        ComponentType("CEC", "Cabinet", "e", 0, 1),
        ComponentType("CabinetPDUController", "Cabinet", "m", 0, 3),
        ComponentType("CabinetPDU", "CabinetPDUController", "p", 0, 7),
        ComponentType("CabinetPDUNic", "CabinetPDUController", "i", 0, 3),
        ComponentType("CabinetPDUOutlet", "CabinetPDU", "j", 1),
        ComponentType("CabinetPDUPowerConnector", "CabinetPDU", "v", 1),
        ComponentType("Chassis", "Cabinet", "c", 0, 7),
        ComponentType("ChassisBMC", "Chassis", "b", 0, 0),
        ComponentType("ChassisBMCNic", "ChassisBMC", "i", 0, 3),
        ComponentType("CMMRectifier", "Chassis", "t", 0, 9),
        ComponentType("CMMFpga", "Chassis", "f", 0, 0),
        ComponentType("ComputeModule", "Chassis", "s"),
        ComponentType("NodePowerConnector", "ComputeModule", "v", 1, 2, also="j"),
        ComponentType("NodeEnclosure", "ComputeModule", "e"),
        ComponentType("NodeEnclosurePowerSupply", "NodeEnclosure", "t"),
        ComponentType("NodeBMC", "ComputeModule", "b"),
        ComponentType("NodeBMCNic", "NodeBMC", "i", 0, 3),
        ComponentType("NodeFpga", "NodeBMC", "f", 0, 0),
        ComponentType("Node", "NodeBMC", "n"),
        ComponentType("VirtualNode", "Node", "v"),
        ComponentType("Processor", "Node", "p", 0, 3),
        ComponentType("Memory", "Node", "d"),
        ComponentType("NodeAccel", "Node", "a"),
        ComponentType("NodeAccelRiser", "Node", "r", 0, 7),
        ComponentType("NodeNic", "Node", "i", 0, 3),
        ComponentType("NodeHsnNic", "Node", "h", 0, 3),
        ComponentType("StorageGroup", "Node", "g"),
        ComponentType("Drive", "StorageGroup", "k"),
        ComponentType("RouterModule", "Chassis", "r"),
        ComponentType("RouterFpga", "RouterModule", "f", 0, 1),
        ComponentType("RouterTOR", "RouterModule", "t"),
        ComponentType("RouterTORFpga", "RouterTOR", "f", 0, 1),
        ComponentType("RouterBMC", "RouterModule", "b"),
        ComponentType("RouterBMCNic", "RouterBMC", "i", 0, 3),
        ComponentType("RouterPowerConnector", "RouterModule", "v", 1, 2),
        ComponentType("HSNBoard", "RouterModule", "e"),
        ComponentType("HSNAsic", "RouterModule", "a", 0, 3),
        ComponentType("HSNLink", "HSNAsic", "l"),
        ComponentType("HSNConnector", "RouterModule", "j", 1),
        ComponentType("HSNConnectorPort", "HSNConnector", "p", 0, 2),
        ComponentType("MgmtSwitch", "Chassis", "w", 1),
        ComponentType("MgmtSwitchConnector", "MgmtSwitch", "j", 1),
        ComponentType("MgmtHLSwitchEnclosure", "Chassis", "h", 1),
        ComponentType("MgmtHLSwitch", "MgmtHLSwitchEnclosure", "s", 1, 9),
    )
}
"""Every component type, by name."""

ALIASES: Mapping[str, str] = {
    "blade": "ComputeModule",
    "slot": "ComputeModule",
    "bmc": "NodeBMC",
    "pdu": "CabinetPDU",
    "switch": "MgmtSwitch",
}
"""Short names that administrators use for component types."""

_BY_LOWER = {name.lower(): name for name in TYPES} | dict(ALIASES)


class Xname(msgspec.Struct, frozen=True):
    """A parsed location. ``text`` is the one canonical form (lower case, no leading zeros)."""

    type: str
    text: str
    ordinals: tuple[int, ...]
    """The number of every step from the cabinet (or other root) down to this component."""

    @property
    def parent(self) -> Xname | None:
        """The component that this one sits in; None at the root."""
        above = TYPES[self.type].parent
        return self._upper(above) if above else None

    def ancestor(self, type_name: str) -> Xname | None:
        """The component of type ``type_name`` that this one is in (or is); None if it is in none such."""
        wanted = type_named(type_name).name
        return self._upper(wanted) if wanted in _FORMS[self.type].line else None

    def _upper(self, type_name: str) -> Xname:
        if type_name == self.type:
            return self
        if type_name == "System":
            return SYSTEM
        form = _FORMS[type_name]
        ordinals = self.ordinals[: len(form.letters)]
        return Xname(type_name, form.template % ordinals, ordinals)

    def __str__(self) -> str:
        return self.text


class _Form(msgspec.Struct, frozen=True):
    """How a type is written; derived from the table."""

    name: str
    letters: tuple[str, ...]
    lows: tuple[int, ...]
    highs: tuple[int, ...]
    template: str
    line: frozenset[str]
    """The type itself and all that it can be in."""


def _form(kind: ComponentType) -> _Form:
    chain = [kind]
    while chain[0].parent:
        chain.insert(0, TYPES[chain[0].parent])
    line = frozenset(step.name for step in chain)
    if chain[0].name == "System" and len(chain) > 1:
        del chain[0]  # the system itself is not written in the names of what it holds
    letters = tuple(step.letter for step in chain)
    return _Form(
        name=kind.name,
        letters=letters,
        lows=tuple(step.low for step in chain),
        highs=tuple(step.high for step in chain),
        template="".join(f"{letter}%d" for letter in letters),
        line=line,
    )


_FORMS: dict[str, _Form] = {name: _form(kind) for name, kind in TYPES.items()}
_BY_LETTERS: dict[tuple[str, ...], _Form] = {form.letters: form for form in _FORMS.values()}
_BY_LETTERS |= {(*_FORMS[kind.name].letters[:-1], kind.also): _FORMS[kind.name] for kind in TYPES.values() if kind.also}
_BELOW: dict[str, dict[str, ComponentType]] = {name: {} for name in ("", *TYPES)}
for _kind in TYPES.values():
    _BELOW[_kind.parent] |= dict.fromkeys(filter(None, (_kind.letter, _kind.also)), _kind)
_FOLLOWS = _BELOW | {"": _BELOW[""] | _BELOW["System"], "System": {}}
"""What may be written after a component of each type; "" is the beginning."""

_NUMBERS = re.compile(r"([0-9]+)")
_LONGEST = 80

SYSTEM = Xname("System", "s0", (0,))
"""The whole machine: the parent of every cabinet."""


def parse(text: str) -> Xname:
    """Read an xname; raise ``BadRequest`` that says what was found, where, and what could stand there."""
    # One split and one look-up by the letters: a whole fleet is read in a fraction of a second.
    parts = _NUMBERS.split(text.lower() if len(text) <= _LONGEST else text[: _LONGEST + 1])
    form = _BY_LETTERS.get(tuple(parts[:-1:2]))
    if form is None or parts[-1] or len(text) > _LONGEST:
        raise _explain(text)
    ordinals = tuple(map(int, parts[1::2]))
    for number, low, high in zip(ordinals, form.lows, form.highs, strict=True):
        if not low <= number <= high:
            raise _explain(text)
    return Xname(form.name, form.template % ordinals, ordinals)


def type_named(name: str) -> ComponentType:
    """The component type with this name, in any case, or alias (``slot``, ``pdu``); raise ``BadRequest`` if none."""
    found = _BY_LOWER.get(name.lower())
    if found is None:
        known = ", ".join(sorted(_BY_LOWER))
        raise BadRequest("no such component type", where=repr(name)[:80], hint=f"known are {known}")
    return TYPES[found]


def letters_of(name: str) -> tuple[str, ...]:
    """The letters before the numbers in an xname of this type, as ``type_named`` takes it."""
    return _FORMS[type_named(name).name].letters


def _explain(text: str) -> BadRequest:
    """Walk ``text`` step by step to the first thing that is wrong with it."""
    where = f"xname {text[:_LONGEST]!r}"
    if len(text) > _LONGEST:
        return BadRequest(f"{len(text)} characters; the longest xname has {_LONGEST}", where=where)
    lower, place, above = text.lower(), 0, ""
    while place < len(lower):
        letters, number = re.findall(r"([^0-9]*)([0-9]*)", lower[place:])[0]
        choices = _FOLLOWS[above]
        kind = choices.get(letters)
        if kind is None:
            after = f"after {text[:place]} ({above})" if place else "at the beginning"
            expected = ", ".join(sorted(choices)) or "nothing more"
            return BadRequest(f"found {letters or number!r} {after}; expected {expected}", where=where)
        if not number:
            return BadRequest(f"a number must follow {letters!r} at character {place + 1}", where=where)
        if not kind.low <= int(number) <= kind.high:
            return BadRequest(
                f"{kind.name} {letters}{number} at character {place + 1}: the number is {kind.low} to {kind.high}",
                where=where,
            )
        place, above = place + len(letters) + len(number), kind.name
    return BadRequest("empty; expected a cabinet (x1000) or a component in it (x1000c0s3b0n1)", where=where)
