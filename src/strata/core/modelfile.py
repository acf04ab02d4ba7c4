"""A model in YAML: variables, mutations, guards, budgets and the site's own drivers, read into a ``Layer``.

    extends: built-in            # left out: the file is a whole model by itself
    variables:
      power: [off, on]           # short for {values: [off, on]}
      image: {open: true, ages_out_after: 90, lost_when: {power: off}, observer: node}
      os: {values: [down, up], lost_when: {power: off}, implies: {up: {power: on}}, observer: node}
    mutations:
      power-on: {variable: power, from: off, to: on, cost: 30, driver: pdu}
      load: {variable: image, from: "*", to: wanted, requires: {power: on}}
    guards: {no-running-job: {driver: slurm}}
    budgets: {inrush: {mutations: [power-on], per: cabinet, limit: 8}}
    excludes: {power-off: {image: wanted}}      # conditions added to mutations of the layers below
    timeouts: {boot: 900}                       # seconds that mutations of the layers below get instead of theirs
    drivers: {pdu: {exec: [/usr/local/sbin/pdu], timeout: 30}}

Every scalar is read as text and turned into what its place asks for: ``off`` is the value "off" and not a
boolean. Where several values may stand, one may stand without brackets. Reads no file and runs no command.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, get_args

import msgspec

from strata.core.errors import BadRequest
from strata.core.input.yamltree import tree
from strata.core.model import ANY, UNKNOWN, Budget, Guard, Layer, Model, Mutation, Values, Variable

BUILT_IN = "built-in"
"""What ``extends`` may name: the layers that Strata brings along."""

_T = TypeVar("_T")
_S = TypeVar("_S", bound=msgspec.Struct)


class ExecSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A driver that is a command: run per batch with JSON in and out, never through a shell."""

    name: str
    command: tuple[str, ...]
    timeout: float = 60.0
    """Seconds after which the command is stopped and its outcome is unknown."""
    env: Mapping[str, str] = {}
    """Added to the small environment that the command gets."""


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """What one file declares, and the layers that it builds on."""

    source: str
    layer: Layer
    below: tuple[Layer, ...] = ()
    drivers: tuple[ExecSpec, ...] = ()

    def model(self) -> Model:
        """The whole model; raise ``BadRequest`` if the file contradicts itself or what it builds on."""
        try:
            return Model.of(*self.below, self.layer)
        except BadRequest as error:
            hint = error.hint
            if not self.below and error.detail.startswith("no such"):
                hint = f"to build on Strata's own layers say 'extends: {BUILT_IN}'"
            raise BadRequest(error.detail, where=f"{self.source}: {error.where}", hint=hint) from None


def parse(text: str, *, source: str, layers: Sequence[Layer] = (), always_extends: bool = False) -> ModelFile:
    """Read a model file. ``layers`` are the built-in ones, used if the file extends them (or ``always_extends``).

    Raises ``BadRequest`` that names ``source``, the path of keys, what was found and what would be accepted.
    """
    top = _Section(source, (), tree(text, source))
    top.only("extends", "doc", "variables", "mutations", "guards", "budgets", "excludes", "timeouts", "drivers")
    extends = top.one_of("extends", (BUILT_IN, ""))
    below = tuple(layers) if extends or always_extends else ()
    variables = top.each("variables", _variable)
    known = {variable.name: variable for layer in below for variable in layer.variables}
    known |= {variable.name: variable for variable in variables}
    layer = Layer(
        variables=variables,
        mutations=top.each("mutations", lambda name, section: _mutation(name, section, known)),
        guards=top.each("guards", _guard),
        budgets=top.each("budgets", _budget),
        excludes={name: section.table() for name, section in top.sections("excludes")},
        timeouts={name: top.sub("timeouts").scalar(name, float, 0.0) for name, _ in top.sections("timeouts")},
    )
    return ModelFile(source=source, layer=layer, below=below, drivers=top.each("drivers", _driver))


def _variable(name: str, section: _Section) -> Variable:
    if isinstance(section.data, list):
        return Variable(name=name, values=section.words())
    section.only(*_fields(Variable))
    proved = {
        value: {other: word.text() for other, word in section.sub("implies").sections(value)}
        for value, _ in section.sections("implies")
    }
    return section.filled(Variable, name=name, implies=proved)


def _mutation(name: str, section: _Section, known: Mapping[str, Variable]) -> Mutation:
    section.only(
        *("variable", "from", "to", "requires", "excludes", "sets", "forgets", "cost", "timeout", "batch"),
        *("driver", "guard", "guards", "destructive", "idempotent", "on_failure", "doc"),
    )
    section.needs("variable", "from", "to")
    variable = section.scalar("variable", str, "")
    if variable not in known:
        raise section.sub("variable").error(f"no such variable: {variable}; known are {', '.join(known) or 'none'}")
    start: Values = frozenset(section.sub("from").words())
    if ANY in start:
        start = frozenset((UNKNOWN, *known[variable].symbols))
    return section.filled(
        Mutation,
        name=name,
        start=start,
        guards=section.sub("guard").words() + section.sub("guards").words(),
        on_failure=section.one_of("on_failure", ("unknown", "unchanged")) or "unknown",
    )


def _guard(name: str, section: _Section) -> Guard:
    section.only("driver", "ask_again_after", "doc")
    return section.filled(Guard, name=name)


def _budget(name: str, section: _Section) -> Budget:
    section.only(*_fields(Budget))
    return section.filled(Budget, name=name)


def _fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """What a file may say of one: all but its name, which stands before it."""
    return tuple(field for field in kind.__struct_fields__ if field != "name")


def _driver(name: str, section: _Section) -> ExecSpec:
    section.only("exec", "timeout", "env")
    section.needs("exec")
    spec = section.filled(ExecSpec, name=name, command=section.sub("exec").words())
    if not spec.command or not spec.timeout > 0:
        raise section.error("exec must be a command with its arguments, and timeout above 0 seconds")
    return spec


class _Section:
    """A place in the file: its data, and the path of keys that leads there."""

    def __init__(self, source: str, path: tuple[str, ...], data: Any) -> None:
        self.source = source
        self.path = path
        self.data = data

    def error(self, detail: str) -> BadRequest:
        """What to raise about this place."""
        return BadRequest(detail, where=f"{self.source}: {'.'.join(self.path)}" if self.path else self.source)

    def mapping(self) -> dict[str, Any]:
        """The data as keys and values; nothing at all is an empty mapping."""
        if self.data == "":
            return {}
        if not isinstance(self.data, dict):
            raise self.error(f"found {_kind(self.data)}; expected a mapping (key: value)")
        return self.data

    def only(self, *keys: str) -> None:
        """Raise unless every key is one of ``keys``."""
        for key in self.mapping():
            if key not in keys:
                close = difflib.get_close_matches(key[:60], keys, 1)
                meant = f"; did you mean {close[0]!r}?" if close else ""
                raise self.error(f"unknown key {key[:60]!r}{meant} Accepted are {', '.join(keys)}")

    def needs(self, *keys: str) -> None:
        """Raise unless every one of ``keys`` is there."""
        missing = [key for key in keys if key not in self.mapping()]
        if missing:
            raise self.error(f"{' and '.join(missing)} missing")

    def sub(self, key: str) -> _Section:
        """The place under ``key``; empty if there is none."""
        return _Section(self.source, (*self.path, key), self.mapping().get(key, ""))

    def sections(self, key: str) -> list[tuple[str, _Section]]:
        """Every place under the mapping at ``key``."""
        below = self.sub(key)
        return [(name, below.sub(name)) for name in below.mapping()]

    def each(self, key: str, read: Callable[[str, _Section], _T]) -> tuple[_T, ...]:
        """``read`` every place under the mapping at ``key``."""
        return tuple(read(name, section) for name, section in self.sections(key))

    def text(self) -> str:
        """The data as one word."""
        if not isinstance(self.data, str):
            raise self.error(f"found {_kind(self.data)}; expected one value")
        return self.data

    def words(self) -> tuple[str, ...]:
        """The data as words: a list, or one by itself, or none."""
        if isinstance(self.data, list):
            return tuple(_Section(self.source, (*self.path, str(at)), one).text() for at, one in enumerate(self.data))
        return (self.text(),) if self.text() else ()

    def table(self) -> dict[str, Values]:
        """The data as variables with their sets of values."""
        return {name: frozenset(self.sub(name).words()) for name in self.mapping()}

    def one_of(self, key: str, choices: Sequence[str]) -> str:
        """The word at ``key``, which must be one of ``choices``; empty if it is not there."""
        below = self.sub(key)
        if key in self.mapping() and below.text() not in choices:
            raise below.error(f"found {below.text()[:60]!r}; expected {' or '.join(filter(None, choices))}")
        return below.text()

    def filled(self, kind: type[_S], **known: Any) -> _S:
        """The data as a ``kind``, but for what is ``known`` of it; what the file leaves out is as ``kind`` has it."""
        said: dict[str, Any] = {}
        for field in msgspec.structs.fields(kind):
            below = self.sub(field.name)
            if field.name in known or field.name not in self.mapping():
                continue
            if field.type == tuple[str, ...]:
                said[field.name] = below.words()
            elif field.type == Mapping[str, Values]:
                said[field.name] = below.table()
            elif field.type == Mapping[str, str]:
                said[field.name] = {name: word.text() for name, word in self.sections(field.name)}
            else:
                of_them, *_ = get_args(field.type) or (field.type,)
                said[field.name] = self.scalar(field.name, of_them, None)
        return kind(**said, **known)

    def scalar(self, key: str, kind: type[Any], default: Any) -> Any:
        """The value at ``key`` as ``kind``, or ``default``."""
        if key not in self.mapping():
            return default
        below = self.sub(key)
        text = below.text()
        try:
            value = msgspec.convert(text, kind, strict=False)
            if kind is not float or math.isfinite(value):
                return value
        except msgspec.ValidationError:
            pass
        expected = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "text")
        raise below.error(f"found {text[:60]!r}; expected {expected}")


def _kind(data: Any) -> str:
    """What was found, without showing it: it may be large."""
    return "a list" if isinstance(data, list) else "a mapping" if isinstance(data, dict) else "a single value"
