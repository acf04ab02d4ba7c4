"""What can be true of a node and how it can be changed, as data.

A layer declares variables, mutations, guards and budgets (``Layer``); ``Model.of`` puts layers together and checks
that they fit. A site adds its own layer from YAML (``strata.core.modelfile``). Nothing here knows how a mutation
is carried out: that is a driver (``strata.core.driver``).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeVar

import msgspec

from strata.core.errors import BadRequest
from strata.core.xname import TYPES, type_named

UNKNOWN = "unknown"
"""The value of a variable that nobody has seen, or that was last seen too long ago."""

ABSENT = "absent"
"""The value of an open variable (an image, a configuration) that a node does not have at all."""

OTHER = "other"
"""Planner's name for: an open variable has some value, and not the one desired."""

WANTED = "wanted"
"""Planner's name for: an open variable has just the value desired."""

OPEN_SYMBOLS = (ABSENT, OTHER, WANTED)
"""The known values of an open variable, as the planner sees them."""

ANY = "*"
"""In ``Mutation.start``: any value, known or unknown."""

Values = frozenset[str]

_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,62}\Z")


class Variable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that can be true of a node.

    A *closed* variable has a small set of ``values``. An *open* one (``open=True``, no values) can be
    anything, and is planned as unknown / absent / other / wanted.
    """

    name: str
    values: tuple[str, ...] = ()
    open: bool = False
    ages_out_after: float | None = None
    """Seconds after which a fact is unknown again unless it was seen anew. None: it does not age."""
    lost_when: Mapping[str, Values] = {}
    """Other variables and values with which this one cannot outlive (the OS does not outlive power off): when the
    other takes such a value, by a mutation or by itself, this one is unknown until seen again. So is whatever is
    lost with this one in turn."""
    implies: Mapping[str, Mapping[str, str]] = {}
    """Values of this one, each with what it proves of other variables: an agent that speaks (``os`` up) proves that its
    node has power. Where nobody sees the other, it is known by this, for as long as this is. It must be declared the
    other way round too: this one is lost with every other value of what it proves."""
    observer: str = ""
    """The driver that can look. Empty: nobody looks, the fact only arrives (from an agent, say)."""
    nothing: str = ""
    """Open variables only: the value that says that there is nothing, and nothing is wanted (``none``). Where another
    is wanted it is the same as absent, from the moment that it is. Empty: there is no such value."""
    canary: bool = False
    """Open variables only: a value with which no node is ready yet is tried on one node, and the others that want it
    wait until that one is ready."""
    doc: str = ""

    @property
    def symbols(self) -> tuple[str, ...]:
        """The known values that the planner distinguishes (without ``unknown``)."""
        return OPEN_SYMBOLS if self.open else self.values


class Implication(NamedTuple):
    """``variable`` seen as ``value`` proves that ``other`` is ``proves``."""

    variable: str
    value: str
    other: str
    proves: str


class Mutation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One declared step: ``variable`` goes from one of ``start`` to ``to``."""

    name: str
    variable: str
    start: Values
    """Values it may start from. Holds ``unknown`` if it is right whatever the value was."""
    to: str
    """The value afterwards; for an open variable ``wanted`` or ``absent``."""
    requires: Mapping[str, Values] = {}
    """Other variables and the values that they must have."""
    excludes: Mapping[str, Values] = {}
    """Other variables and the values that they must not have. ``unknown`` is excluded only if named."""
    sets: Mapping[str, str] = {}
    """Other variables that it changes too, and to what."""
    forgets: tuple[str, ...] = ()
    """Other variables that are unknown afterwards."""
    cost: float = 1.0
    """What it costs the machine; by habit, the seconds that it usually takes."""
    timeout: float = 60.0
    """Seconds within which the fact must show it, counted from the start."""
    batch: int = 1000
    """Most nodes in one call of the driver."""
    driver: str = ""
    guards: tuple[str, ...] = ()
    """Questions that must all be answered with yes just before."""
    destructive: bool = False
    """It can hurt what runs on the node. Never done while a fact that it starts from, requires or excludes is
    unknown, even where ``start`` or ``requires`` would allow that."""
    idempotent: bool = False
    """Doing it twice is the same as once: it is sent again now and then while its effect does not show. Any other step
    is tried again only after its ``timeout``."""
    on_failure: Literal["unknown", "unchanged"] = "unknown"
    """What to believe of every variable that it touches when the driver says that it failed."""
    doc: str = ""

    @property
    def touches(self) -> tuple[str, ...]:
        """Every variable that it changes: its own, those it sets, those it forgets."""
        return (self.variable, *self.sets, *self.forgets)


class Guard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A question that needs a strongly consistent answer just before a step. Asked of ``driver``."""

    name: str
    driver: str = ""
    ask_again_after: float = 10.0
    """Seconds until a node that was told no asks again."""
    by_hand: bool = False
    """Asked of what people do by hand (set a cap), and of no mutation."""
    doc: str = ""


LIMITS = "limit"
"""The ``per`` of a budget whose buckets are the limits that are set while Strata runs (``strata.core.node.Limit``)."""


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much may happen at once, in each bucket. At least one of ``limit``, ``percent`` and ``rate``; all must hold.

    Several controllers share a budget by the nodes that each leads. One that brakes only destructive mutations, with
    ``limit`` or ``percent``, counts a node from the first step of a chain that leads through one of them until the node
    is at its goal again.
    """

    name: str
    mutations: tuple[str, ...] = ()
    """Which it brakes. Empty: all, or all of ``driver``."""
    driver: str = ""
    destructive_only: bool = False
    per: str = "fleet"
    """The bucket: ``fleet``; ``group:NAME``; ``group`` (each group by itself); a type of location of which each is a
    bucket (``cabinet``, ``chassis``...); or ``label:KEY`` (each value by itself: ``label:pdu``); or ``limit`` (each
    limit that is set while Strata runs, by a rollout, has its own number; nobody goes beyond it, whatever is stuck)."""
    limit: float | None = None
    """The most at once. Counts nodes, or adds up ``weight``."""
    percent: float | None = None
    """The same as a percentage of the whole bucket; at least one node may always be changed."""
    rate: float | None = None
    """Starts a second."""
    weight: str = ""
    """A label whose number each node counts for (``watts``); a node without it counts 1."""
    unavailable: bool = False
    """Count every member of the bucket that is not at its goal, rather than those being changed."""
    standing: bool = False
    """Count also the members on which the change is in force, or may be: how many may be *on*, not only starting."""
    doc: str = ""

    def brakes(self, mutation: Mutation) -> bool:
        """Whether it says how much of ``mutation`` may happen at once."""
        if self.destructive_only and not mutation.destructive:
            return False
        if self.driver and mutation.driver != self.driver:
            return False
        return not self.mutations or mutation.name in self.mutations


class Layer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one layer declares. It may name another layer's variables; ``Model.of`` checks that they are there."""

    variables: tuple[Variable, ...] = ()
    mutations: tuple[Mutation, ...] = ()
    guards: tuple[Guard, ...] = ()
    budgets: tuple[Budget, ...] = ()
    excludes: Mapping[str, Mapping[str, Values]] = {}
    """Conditions that it adds to another layer's mutations: mutation → variable → values it must not have."""
    forgets: Mapping[str, tuple[str, ...]] = {}
    """Variables of its own that are unknown after another layer's mutations: mutation → variables."""
    asks: Mapping[str, tuple[str, ...]] = {}
    """Guards that it adds to another layer's mutations: mutation → guards."""
    timeouts: Mapping[str, float] = {}
    """Seconds that another layer's mutations get instead of what was declared: how long a boot takes is the site's to
    know."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that fit together. Made by ``Model.of``."""

    variables: Mapping[str, Variable]
    mutations: Mapping[str, Mutation]
    guards: Mapping[str, Guard]
    budgets: Mapping[str, Budget]

    @classmethod
    def of(cls, *layers: Layer) -> Model:
        """Put layers together; raise ``BadRequest`` on the first declaration that contradicts another."""
        mutations = _by_name("mutation", (m for layer in layers for m in layer.mutations))
        for layer in layers:
            for said in ("excludes", "forgets", "asks", "timeouts"):
                for name in getattr(layer, said):
                    if name not in mutations:
                        raise BadRequest(f"no such mutation: {name}", where=said)
            for name, more in layer.excludes.items():
                own = mutations[name].excludes
                both = {k: own.get(k, values()) | more.get(k, values()) for k in {**own, **more}}
                mutations[name] = msgspec.structs.replace(mutations[name], excludes=both)
            for name, lost in layer.forgets.items():
                forgotten = (*mutations[name].forgets, *lost)
                mutations[name] = msgspec.structs.replace(mutations[name], forgets=forgotten)
            for name, asked in layer.asks.items():
                guards = (*mutations[name].guards, *asked)
                mutations[name] = msgspec.structs.replace(mutations[name], guards=guards)
            for name, timeout in layer.timeouts.items():
                mutations[name] = msgspec.structs.replace(mutations[name], timeout=timeout)
        model = cls(
            variables=_by_name("variable", (v for layer in layers for v in layer.variables)),
            mutations=mutations,
            guards=_by_name("guard", (g for layer in layers for g in layer.guards)),
            budgets=_by_name("budget", (b for layer in layers for b in layer.budgets)),
        )
        model._validate()
        return model

    def effects(self, mutation: Mutation) -> dict[str, str]:
        """Every variable that ``mutation`` changes and its value afterwards, with all that is forgotten."""
        changed = {
            mutation.variable: mutation.to,
            **mutation.sets,
            **dict.fromkeys(mutation.forgets, UNKNOWN),
        }
        return {**changed, **dict.fromkeys(self.lost_with(changed), UNKNOWN)}

    def lost_with(self, changed: Mapping[str, str]) -> list[str]:
        """The variables that become unknown when those in ``changed`` take these values."""
        lost: dict[str, str] = {}
        news = dict(changed)
        while news:
            now: dict[str, str] = {}
            for variable in self.variables.values():
                if variable.name in changed or variable.name in lost:
                    continue
                for other, fatal in variable.lost_when.items():
                    value = news.get(other)
                    if value is not None and (value == UNKNOWN or value in fatal):
                        now[variable.name] = UNKNOWN
            lost |= now
            news = now
        return list(lost)

    def implications(self) -> list[Implication]:
        """All that is declared of facts that prove others; whatever is proved comes before what it proves in turn.

        Raises ``BadRequest`` where variables prove each other in a circle.
        """
        left = {
            name: [(other, value, proved) for value, others in v.implies.items() for other, proved in others.items()]
            for name, v in self.variables.items()
            if v.implies
        }
        found: list[Implication] = []
        while left:
            proved = {other for rules in left.values() for other, _, _ in rules}
            first = [name for name in left if name not in proved]
            if not first:
                raise BadRequest(
                    f"{', '.join(left)} imply each other in a circle", where=f"variable {next(iter(left))}"
                )
            found += [Implication(name, value, other, to) for name in first for other, value, to in left.pop(name)]
        return found

    def ruled_out(self, variable: str, wanted: Iterable[str]) -> frozenset[str]:
        """What cannot be wanted while ``variable`` is any of ``wanted``: the variables that are lost with it."""
        parts = [frozenset(self.lost_with({variable: value})) for value in wanted]
        return frozenset.intersection(*parts) if parts else frozenset()

    def check_value(self, variable: str, value: str) -> None:
        """Raise unless ``variable`` is declared and may be desired to have ``value``."""
        declared = self.variables.get(variable)
        if declared is None:
            raise BadRequest(
                f"no such state variable; known are {', '.join(sorted(self.variables)) or 'none'}",
                where=variable,
            )
        if not value or value == UNKNOWN:
            raise BadRequest(f"{value!r} cannot be desired", where=variable)
        if not declared.open and value not in declared.values:
            raise BadRequest(f"{value!r} is not one of {', '.join(declared.values)}", where=variable)

    def _validate(self) -> None:
        for variable in self.variables.values():
            where = f"variable {variable.name}"
            if variable.open == bool(variable.values):
                raise BadRequest("give either values or open: true", where=where)
            if variable.nothing and not variable.open:
                raise BadRequest("only an open variable can have 'nothing'", where=where)
            if variable.canary and not variable.open:
                raise BadRequest("only an open variable can have a canary: say open: true", where=where)
            reserved = {UNKNOWN, ANY, ""} & set(variable.values)
            if reserved or len(set(variable.values)) != len(variable.values):
                raise BadRequest(f"values must be distinct and none of {UNKNOWN!r}, {ANY!r}, ''", where=where)
            if variable.ages_out_after is not None and not variable.ages_out_after > 0:
                raise BadRequest("ages_out_after must be above 0 seconds", where=where)
            for other, fatal in variable.lost_when.items():
                self._symbol_check(where, other, fatal)
        self._validate_implications()
        for mutation in self.mutations.values():
            self._validate_mutation(mutation)
        for guard in self.guards.values():
            if not guard.ask_again_after > 0:
                raise BadRequest("ask_again_after must be above 0 seconds", where=f"guard {guard.name}")
        for budget in self.budgets.values():
            self.check_budget(budget)

    def _validate_implications(self) -> None:
        rules = self.implications()
        for rule in rules:
            where = f"variable {rule.variable}"
            for name, value in ((rule.variable, rule.value), (rule.other, rule.proves)):
                self._symbol_check(where, name, {value})
                if value in (OTHER, WANTED):
                    raise BadRequest(
                        f"{name}={value} stands for different values on different nodes, so that it proves nothing",
                        where=where,
                    )
            said = f"{rule.variable}={rule.value} cannot imply {rule.other}={rule.proves}"
            if rule.variable in self.lost_with({rule.other: rule.proves}):
                raise BadRequest(f"{said}: {rule.variable} is lost when {rule.other} is that", where=where)
            for value in self.variables[rule.other].symbols:
                if value != rule.proves and rule.variable not in self.lost_with({rule.other: value}):
                    told = f"{said}: {rule.variable} outlives {rule.other}={value}"
                    raise BadRequest(told, where=where, hint=f"say lost_when: {{{rule.other}: {value}}}")
        # In this order what is proved of a variable is complete before what follows from that.
        proved: dict[tuple[str, str], dict[str, str]] = {}
        for rule in reversed(rules):
            known = proved.setdefault((rule.variable, rule.value), {})
            for other, value in {rule.other: rule.proves, **proved.get((rule.other, rule.proves), {})}.items():
                if known.setdefault(other, value) != value:
                    told = f"{rule.variable}={rule.value} implies both {other}={known[other]} and {other}={value}"
                    raise BadRequest(told, where=f"variable {rule.variable}")

    def _validate_mutation(self, mutation: Mutation) -> None:
        where = f"mutation {mutation.name}"
        self._symbol_check(where, mutation.variable, mutation.start, unknown_ok=True)
        if mutation.to == OTHER:
            raise BadRequest(f"a mutation of an open variable must lead to {WANTED!r} or {ABSENT!r}", where=where)
        self._symbol_check(where, mutation.variable, {mutation.to})
        if not mutation.start:
            raise BadRequest("names no value to start from", where=where)
        for name, values in (*mutation.requires.items(), *mutation.excludes.items()):
            self._symbol_check(where, name, values, unknown_ok=True)
        for name, value in mutation.sets.items():
            self._symbol_check(where, name, {value})
        for name in mutation.forgets:
            self._symbol_check(where, name, ())
        if len(set(mutation.touches)) != len(mutation.touches):
            raise BadRequest("changes one variable in two ways (variable, sets, forgets)", where=where)
        for name in mutation.guards:
            if name not in self.guards:
                raise BadRequest(f"no such guard: {name}", where=where)
        if not mutation.cost > 0 or not mutation.timeout > 0 or mutation.batch < 1:
            raise BadRequest("cost and timeout must be above 0 and batch at least 1", where=where)

    def check_budget(self, budget: Budget) -> None:
        """Raise ``BadRequest`` for one that cannot hold: that is worse than none, as somebody counts on it."""
        where = f"budget {budget.name}"
        numbers = (budget.limit, budget.percent, budget.rate)
        if budget.per == LIMITS and (numbers != (None, None, None) or not budget.destructive_only or budget.weight):
            told = "one per limit is destructive_only, and its numbers are those of the limits"
            raise BadRequest(told, where=where, hint="leave out limit, percent, rate and weight")
        if budget.per != LIMITS and numbers == (None, None, None):
            raise BadRequest("give limit, percent or rate", where=where)
        if budget.limit is not None and not (budget.limit > 0 if budget.weight else budget.limit >= 1):
            least = "above 0" if budget.weight else "at least 1 node"
            raise BadRequest(
                f"limit must be {least}, not {budget.limit:g}", where=where, hint="to let nothing start, use a freeze"
            )
        if budget.percent is not None and not 0 < budget.percent <= 100:
            hint = "at least one node may always be changed"
            raise BadRequest(f"percent must be above 0 and at most 100, not {budget.percent:g}", where=where, hint=hint)
        if budget.rate is not None and not 0 < budget.rate < math.inf:
            raise BadRequest(f"rate must be above 0 starts a second, not {budget.rate:g}", where=where)
        if budget.unavailable and budget.standing:
            raise BadRequest("a budget counts either unavailable or standing nodes: give one of the two", where=where)
        for name in budget.mutations:
            if name not in self.mutations:
                raise BadRequest(f"no such mutation: {name}", where=where)
        if not any(map(budget.brakes, self.mutations.values())):
            limits = [f"driver {budget.driver}"] if budget.driver else []
            limits += ["destructive_only"] if budget.destructive_only else []
            raise BadRequest(f"it brakes nothing: no mutation fits {' and '.join(limits) or 'it'}", where=where)
        _check_bucket(budget.per, where)

    def _symbol_check(self, where: str, name: str, values: Iterable[str], *, unknown_ok: bool = False) -> None:
        variable = self.variables.get(name)
        if variable is None:
            raise BadRequest(f"no such variable: {name}", where=where)
        allowed = {*variable.symbols, UNKNOWN} if unknown_ok else set(variable.symbols)
        wrong = sorted(set(values) - allowed)
        if wrong:
            raise BadRequest(f"{name} has no value {wrong[0]!r}; it has {', '.join(variable.symbols)}", where=where)


def _check_bucket(per: str, where: str) -> None:
    """Raise unless ``per`` says how nodes are divided into the buckets of a budget."""
    kind, colon, name = per.partition(":")
    if per == LIMITS:
        return
    if (kind == "fleet" and not colon) or (kind == "group" and bool(colon) == bool(name)) or (kind == "label" and name):
        return
    hint = "fleet, group, group:NAME, label:KEY, or a type of location of which each is a bucket, such as cabinet"
    if colon or kind in ("fleet", "group", "label"):
        raise BadRequest(f"per is {per[:80]!r}", where=where, hint=hint)
    try:
        type_named(kind)
    except BadRequest:
        close = difflib.get_close_matches(kind[:60].lower(), ("fleet", "group", *map(str.lower, TYPES)), 1)
        meant = f"did you mean {close[0]!r}? " if close else ""
        raise BadRequest(
            f"per is {per[:80]!r}, which is no way to divide nodes", where=where, hint=f"{meant}{hint}"
        ) from None


def values(*names: str) -> Values:
    """A set of values, written short: ``values("off", "unknown")``."""
    return frozenset(names)


_T = TypeVar("_T", Variable, Mutation, Guard, Budget)


def _by_name(kind: str, items: Iterable[_T]) -> dict[str, _T]:
    found: dict[str, _T] = {}
    for item in items:
        if not _NAME.match(item.name):
            raise BadRequest(
                "a name is a small letter, then up to 62 small letters, digits, '-', '_' and '.', such as power",
                where=f"{kind} {item.name!r}",
            )
        if item.name in found:
            raise BadRequest("declared twice", where=f"{kind} {item.name}")
        found[item.name] = item
    return found
