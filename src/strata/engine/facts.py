"""The facts of all nodes, kept fresh: when which driver looks, what a look changes, what a fact implies, its age.

Knows drivers only by name, and nothing of plans.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from strata.core.column import Codes, Column, Indices, span
from strata.core.distinct import among, distinct
from strata.core.model import OPEN_SYMBOLS, UNKNOWN, WANTED, Model
from strata.core.redact import redact
from strata.engine.effects import Change, Look, Seen, Told
from strata.engine.progress import Phase, Progress, Urgency
from strata.engine.settings import EngineSettings
from strata.engine.table import NEVER, FleetTable, Mask, Times, VariableColumns

_LONGEST = 300
"""Characters of a reason."""
_WANTED = OPEN_SYMBOLS.index(WANTED) + 1


class _Observer:
    """One driver that looks: when it looks next at each node, and at whom it is looking."""

    def __init__(self, driver: str, variables: tuple[str, ...], interval: float) -> None:
        self.driver = driver
        self.variables = variables
        self.interval = interval
        self.next: Times = np.zeros(0)
        self.looking = np.zeros(0, dtype=bool)
        self.blind = np.zeros(0, dtype=np.int8)
        self.blind_since: Times = np.zeros(0)
        self.told: Times = np.zeros(0)
        """When somebody last told of a node what this driver sees: looks begun before that saw an older world."""
        self.troubles: dict[int, str] = {}
        """Why the last look at a node showed nothing, of the few of which that is known."""

    def grow(self, size: int) -> None:
        old = len(self.next)
        self.next = np.r_[self.next, np.zeros(size - old)]
        self.looking = np.r_[self.looking, np.zeros(size - old, dtype=bool)]
        self.blind = np.r_[self.blind, np.zeros(size - old, dtype=np.int8)]
        self.blind_since = np.r_[self.blind_since, np.full(size - old, NEVER)]
        self.told = np.r_[self.told, np.full(size - old, -NEVER)]

    def noted(self, nodes: Indices, columns: Mapping[str, Column], issued: float, detail: str) -> Mask:
        """Keep of each node how often, since when and why looks showed nothing; of which this one did."""
        blind = np.ones(len(nodes), dtype=bool)
        for column in columns.values():
            blind &= column.codes == 0
        here = span(nodes)
        if blind.any():
            self.blind[here] = np.where(blind, np.minimum(self.blind[here] + 1, 20), 0)
            self.blind_since[here] = np.where(blind, np.minimum(self.blind_since[here], issued), NEVER)
        else:
            self.blind[here] = 0
            self.blind_since[here] = NEVER
        if self.troubles:
            for node in self.troubles.keys() & set(nodes.tolist()):
                del self.troubles[node]
        if blind.any():
            why = {place: reason for column in columns.values() for place, reason in column.reasons.items()}
            for place in np.flatnonzero(blind).tolist():
                if reason := why.get(place, detail):
                    self.troubles[int(nodes[place])] = reason
        return blind

    def clear_failures(self, nodes: Indices) -> None:
        """As if nobody had looked yet."""
        self.blind[nodes] = 0
        self.blind_since[nodes] = NEVER
        for node in nodes.tolist() if self.troubles else ():
            self.troubles.pop(node, None)


class Silence(msgspec.Struct, frozen=True):
    """A driver that sees nothing of a node: since when, and what its last look came to (empty: it did not say)."""

    driver: str
    since: float
    why: str


class _Proof(NamedTuple):
    """One ``Implication`` over the table: where ``column`` has the fact ``code``, the other is ``proves``."""

    column: VariableColumns
    code: int
    proves: int
    source: str


class Facts:
    """Keeps the table's facts."""

    def __init__(
        self, model: Model, settings: EngineSettings, table: FleetTable, progress: Progress, random: np.random.Generator
    ) -> None:
        self._model = model
        self._settings = settings
        self._table = table
        self._progress = progress
        self._random = random
        self._looks: dict[int, tuple[str, Indices, float]] = {}
        self._next_look = 1
        self._lost: dict[tuple[str, str], tuple[str, ...]] = {}
        self._mutations = list(model.mutations.values())
        """By number, as ``Progress.mutation`` holds them."""
        self._promises = [model.effects(mutation) for mutation in self._mutations]
        self._aged_at = -NEVER
        self._proofs: dict[str, list[_Proof]] = {}
        """By the variable that is proved, in an order in which each is settled before it proves another."""
        self._proved_by: dict[str, list[str]] = {}
        for rule in model.implications():
            column, other = table.columns[rule.variable], table.columns[rule.other]
            proof = _Proof(column, column.word_code(rule.value), other.word_code(rule.proves), rule.variable)
            self._proofs.setdefault(rule.other, []).append(proof)
            self._proved_by.setdefault(rule.variable, []).append(rule.other)
        self.changes: list[Change] = []
        """Fact changes since the shell last took them."""
        self.observers: dict[str, _Observer] = {}
        for variable in model.variables.values():
            if variable.observer and variable.observer not in self.observers:
                watched = [v for v in model.variables.values() if v.observer == variable.observer]
                ages = [v.ages_out_after for v in watched if v.ages_out_after is not None]
                interval = min(ages) * settings.refresh if ages else settings.resync
                self.observers[variable.observer] = _Observer(
                    variable.observer, tuple(v.name for v in watched), interval
                )

    def grow(self, size: int) -> None:
        """Make room for ``size`` nodes."""
        for observer in self.observers.values():
            observer.grow(size)

    def schedule_look(self, nodes: Indices, drivers: tuple[str, ...] | None, when: float) -> None:
        """Have ``drivers`` (None: all) look at ``nodes`` at ``when`` or earlier."""
        here = span(nodes)
        for name in self.observers if drivers is None else drivers:
            observer = self.observers.get(name)
            if observer is not None:
                observer.next[here] = np.minimum(observer.next[here], when)

    def poll(self, nodes: Indices, variable: str, when: float) -> None:
        """Look for the effect of a step on ``variable``."""
        self.schedule_look(nodes, (self._model.variables[variable].observer,), when)

    def forget(self, nodes: Indices, variables: tuple[str, ...]) -> None:
        """What was believed of ``variables`` is not believed any more, and nobody has looked since."""
        here = span(nodes)
        for name in variables:
            column = self._table.columns[name]
            column.fact[here] = 0
            column.unseen[here] = column.implied[here] = False
            for other in self._proved_by.get(name, ()):
                proved = self._table.columns[other]
                by_this = proved.implied[here] & (proved.source[here] == proved.source_code(_implied_by(name)))
                self.forget(nodes[by_this], (other,))

    def forget_all(self, nodes: Indices, now: float) -> None:
        """Believe nothing, and look at everything anew: how a controller takes nodes over."""
        self.forget(nodes, tuple(self._table.columns))
        self.schedule_look(nodes, None, now)
        for observer in self.observers.values():
            observer.clear_failures(nodes)

    def silence(self, variable: str, node: int) -> Silence | None:
        """Who should see ``variable`` of ``node`` and sees nothing; None if the last look showed something."""
        observer = self.observers.get(self._model.variables[variable].observer)
        if observer is None or not observer.blind.item(node):
            return None
        # What a device says may echo what it was sent, and be long. Cleaned here: few ask, and very many may be silent.
        why = redact(observer.troubles.get(node, ""))[:_LONGEST]
        return Silence(observer.driver, observer.blind_since.item(node), why)

    def seen(self, now: float, reports: Iterable[Seen]) -> None:
        """Looks came back. What was asked of one driver at one time is taken in together: what one costs hardly
        depends on how many nodes it is about."""
        known = ((*self._looks.pop(report.look), report) for report in reports if report.look in self._looks)
        for (driver, issued, detail), alike in itertools.groupby(known, lambda one: (one[0], one[2], one[3].detail)):
            parts = list(alike)
            counts = [len(nodes) for _, nodes, _, _ in parts]
            columns = {
                name: Column.joined(
                    [
                        self._understood(name, report.columns[name]) if name in report.columns else Column.same(None, n)
                        for n, (_, _, _, report) in zip(counts, parts, strict=True)
                    ]
                )
                for name in self.observers[driver].variables
            }
            self._take_in(now, driver, np.concatenate([nodes for _, nodes, _, _ in parts]), columns, issued, detail)

    def _take_in(
        self, now: float, driver: str, nodes: Indices, columns: Mapping[str, Column], issued: float, detail: str
    ) -> None:
        observer, progress, here = self.observers[driver], self._progress, span(nodes)
        observer.looking[here] = False
        # A look that was begun before the last act on a node saw the world before it.
        valid = progress.alive[here] & (progress.epoch[here] > 0) & (issued >= progress.acted_at[here])
        told = observer.told[here] > issued
        if told.any():
            # So did one that was begun before somebody told; it goes by what was told when these are looked at next.
            nodes, valid = nodes[~told], valid[~told]
            here = span(nodes)
            columns = {name: column.take(~told) for name, column in columns.items()}
        blind = observer.noted(nodes, columns, issued, detail)
        wait = self._until_next(observer, nodes, blind)
        polled = nodes[progress.phase[here] == Phase.SETTLING]
        progress.poll[polled] = np.minimum(progress.poll[polled] * 2, self._settings.longest_poll)
        # Whoever asked for a look while this one was under way gets it: this one may have seen the world before.
        observer.next[here] = np.minimum(observer.next[here], np.where(valid, now + wait, now))
        if not valid.all():
            nodes, columns = nodes[valid], {name: column.take(valid) for name, column in columns.items()}
        self.believe(nodes, columns, driver, issued)

    def _understood(self, name: str, column: Column) -> Column:
        """What was seen, without words that the variable does not have: those are nothing that is known."""
        variable = self._model.variables[name]
        if variable.open or set(column.words) <= set(variable.values):
            return column
        strange = [code for code, word in enumerate(column.words, 1) if word not in variable.values]
        bad = among(column.codes, strange)
        said = {
            int(place): f"{name} is said to be {column.words[column.codes[place] - 1][:40]!r}, "
            f"which is none of {', '.join(variable.values)}"
            for place in np.flatnonzero(bad)
        }
        return Column(column.words, np.where(bad, 0, column.codes).astype(np.int32), {**column.reasons, **said})

    def told(self, now: float, report: Told) -> None:
        """Somebody says what is so, without being asked: as good as a look that shows it at once."""
        progress, nodes, columns = self._progress, report.nodes, report.columns
        at = now if report.at is None else report.at
        ours = progress.alive[nodes] & (progress.epoch[nodes] > 0)
        # While a driver is at work on a node one could not tell which side of it is told: it is looked at afterwards.
        valid = ours & (progress.phase[nodes] != Phase.ACTING) & (at >= progress.acted_at[nodes])
        for name in columns:
            valid &= self._table.columns[name].seen[nodes] <= at  # what was seen since is newer than what is told
        observers = [
            observer for observer in self.observers.values() if not columns.keys().isdisjoint(observer.variables)
        ]
        self.schedule_look(nodes[ours & ~valid], tuple(observer.driver for observer in observers), now)
        if not valid.all():
            nodes, columns = nodes[valid], {name: column.take(valid) for name, column in columns.items()}
        for observer in observers:
            observer.told[nodes] = at
            if columns.keys() >= set(observer.variables):
                blind = observer.noted(nodes, {name: columns[name] for name in observer.variables}, at, "")
                # Nobody need look for a while, unless somebody has asked for it since.
                asked = (observer.next[nodes] >= at) & (observer.next[nodes] <= now)
                observer.next[nodes] = np.where(
                    asked, observer.next[nodes], at + self._until_next(observer, nodes, blind)
                )
            else:
                # A look that is under way is not believed any more, and would have shown more than this.
                self.schedule_look(nodes[observer.looking[nodes]], (observer.driver,), now)
        self.believe(nodes, columns, report.source, at)

    def _until_next(self, observer: _Observer, nodes: Indices, blind: Mask) -> Times:
        """Seconds until these are to be looked at again: sooner where nothing was seen, or an act is to show."""
        here = span(nodes)
        wait = np.full(len(nodes), observer.interval)
        if blind.any():
            again = self._settings.blind_look * 2.0 ** (observer.blind[nodes[blind]] - 1.0)
            wait[blind] = np.minimum(again, observer.interval)
        settling = self._progress.phase[here] == Phase.SETTLING
        np.minimum(wait, self._progress.poll[here], out=wait, where=settling)
        jittered: Times = wait * self._random.uniform(0.8, 1.0, len(nodes))
        return jittered

    def believe(self, nodes: Indices, columns: Mapping[str, Column], source: str, at: float) -> None:
        """Take facts over. What could not be seen stays as it was until it has aged."""
        lost: list[tuple[Indices, tuple[str, ...]]] = []
        all_here = span(nodes)
        for name, column in columns.items():
            mine = self._table.columns[name]
            codes = mine.encode(column)
            known = codes != 0
            some, here = nodes, all_here
            if known.all():
                mine.unseen[here] = False
            else:
                unseen = mine.fact[here] == 0
                if mine.provable:
                    unseen |= mine.implied[here]
                unseen &= ~known
                # That a look shows nothing once more is no news.
                self._progress.touch(nodes[unseen & ~mine.unseen[here]], Urgency.NEWS)
                mine.unseen[here] = unseen
                some, codes = nodes[known], codes[known]
                here = span(some)
            changed = mine.fact[here] != codes
            mine.fact[here] = codes
            if mine.provable:
                changed |= mine.implied[here]
                mine.implied[here] = False
            mine.seen[here] = at
            mine.source[here] = mine.source_code(source)
            if changed.any():
                self._progress.touch(some[changed], Urgency.NEWS)
            new = mine.last[here] != codes
            if new.any():
                lost += self._record_with(name, some[new], codes[new], source, nodes, column.reasons)
        self._lose(lost, columns, at)

    def imply(self, now: float) -> None:
        """What nobody sees is known where another fact proves it, is as old as that, and ends with it."""
        for name, proofs in self._proofs.items():
            column = self._table.columns[name]
            nodes = np.flatnonzero((column.fact == 0) | column.implied | (column.seen < now - _limit(column)))
            nodes = nodes[self._progress.alive[nodes] & (self._progress.epoch[nodes] > 0)] if len(nodes) else nodes
            if not len(nodes):
                continue
            codes, seen = np.zeros(len(nodes), dtype=np.int32), np.full(len(nodes), -NEVER)
            source = np.zeros(len(nodes), dtype=np.int16)
            clash = np.zeros(len(nodes), dtype=bool)
            for proof in proofs:
                when = proof.column.seen[nodes]
                lasts = proof.column.implied[nodes] | (when >= now - _limit(proof.column))
                holds = lasts & (proof.column.fact[nodes] == proof.code)
                clash |= holds & (codes != 0) & (codes != proof.proves)
                newest = holds & (when > seen)
                codes[newest], seen[newest] = proof.proves, when[newest]
                source[newest] = column.source_code(_implied_by(proof.source))
            codes[clash] = 0  # somebody is wrong, and nobody knows who
            self._take_proved(name, nodes[codes != 0], codes[codes != 0], seen[codes != 0], source[codes != 0], now)
            self._drop_proved(name, nodes[(codes == 0) & column.implied[nodes]])

    def _take_proved(
        self, name: str, nodes: Indices, codes: Codes, seen: Times, source: npt.NDArray[np.int16], now: float
    ) -> None:
        column = self._table.columns[name]
        changed = ~column.implied[nodes] | (column.fact[nodes] != codes)
        # What was seen once, and is not any more for as long as a fact lasts, was looked at in vain.
        column.unseen[nodes] |= (column.fact[nodes] != 0) & ~column.implied[nodes]
        column.fact[nodes], column.seen[nodes], column.source[nodes] = codes, seen, source
        column.implied[nodes] = True
        self._progress.touch(nodes[changed], Urgency.NEWS)
        lost: list[tuple[Indices, tuple[str, ...]]] = []
        new = column.last[nodes] != codes
        for one in distinct(source[new]).tolist():
            some = new & (source == one)
            lost += self._record(name, nodes[some], codes[some], column.sources[one], implied=True)
        self._lose(lost, (), now)

    def _drop_proved(self, name: str, nodes: Indices) -> None:
        if not len(nodes):
            return
        column = self._table.columns[name]
        column.fact[nodes] = 0
        column.implied[nodes] = False
        self._progress.touch(nodes, Urgency.NEWS)
        # A proof that is looked at anew may well be there again: history has nothing to tell yet.
        gone = column.last[nodes] != 0
        for proof in self._proofs[name]:
            gone &= (proof.column.fact[nodes] != 0) | (proof.column.last[nodes] != proof.code)
        if gone.any():
            some = nodes[gone]
            self._record(name, some, np.zeros(len(some), dtype=np.int32), "", cause="nothing proves it any more")

    def _lose(self, lost: list[tuple[Indices, tuple[str, ...]]], columns: Collection[str], at: float) -> None:
        """Forget what is lost with what was seen at ``at``; ``columns``: what that look saw."""
        for victims, names in lost:
            others = tuple(name for name in names if name not in columns)
            self.forget(victims, others)
            for name in names:
                mine = self._table.columns[name]
                # What this very look saw is how it is afterwards.
                mine.before[victims[mine.seen[victims] < at] if name in columns else victims] = 0
            observers = dict.fromkeys(self._model.variables[name].observer for name in others)
            self.schedule_look(victims, tuple(observers), at)

    def mark_unrecorded(self, variable: str, nodes: Indices) -> None:
        """What was noted of ``variable`` did not get into the log: whoever sees it next notes it again."""
        column = self._table.columns[variable]
        column.last[nodes] = column.before[nodes] = 0

    def age(self, now: float) -> None:
        """Facts past their age are unknown. Looked at once a second at most."""
        if now < self._aged_at + 1:
            return
        self._aged_at = now
        ours = self._progress.alive & (self._progress.epoch > 0)
        for name, column in self._table.columns.items():
            limit = column.variable.ages_out_after
            if limit is None:
                continue
            old = np.flatnonzero(ours & (column.fact != 0) & ~column.implied & (column.seen < now - limit))
            if len(old):
                zero = np.zeros(len(old), dtype=np.int32)
                self._record(name, old, zero, "", cause=f"not seen for {limit:g} s")
                column.fact[old] = 0
                column.unseen[old] = True
                self._progress.touch(old, Urgency.NEWS)

    def looks(self, now: float, urgent: Indices) -> list[Look]:
        """The looks that are due."""
        out: list[Look] = []
        # Not while a driver is at work on a node: one could not tell which side of it was seen.
        ours = self._progress.alive & (self._progress.epoch > 0) & (self._progress.phase != Phase.ACTING)
        hurried = np.zeros(len(ours), dtype=bool)
        hurried[urgent] = True
        for observer in self.observers.values():
            due = ours & (observer.next <= now) & ~observer.looking
            for urgency, part in ((0, due & hurried), (1, due & ~hurried)):
                nodes = np.flatnonzero(part)
                observer.looking[nodes] = True
                observer.next[nodes] = NEVER
                for start in range(0, len(nodes), self._settings.look_batch):
                    chunk = nodes[start : start + self._settings.look_batch]
                    self._looks[self._next_look] = (observer.driver, chunk, now)
                    out.append(Look(self._next_look, observer.driver, observer.variables, chunk, urgency))
                    self._next_look += 1
        return out

    def next_wakeup(self, now: float) -> float:
        """When the next look or the next ageing is due."""
        ours = self._progress.alive & (self._progress.epoch > 0) & (self._progress.phase != Phase.ACTING)
        soonest = NEVER
        for observer in self.observers.values():
            times = observer.next[ours & ~observer.looking]
            if len(times):
                soonest = min(soonest, float(times.min()))
        return min(soonest, max(now, self._aged_at + 1.0)) if ours.any() else NEVER

    def _record_with(
        self, name: str, nodes: Indices, codes: Codes, source: str, seen: Indices, reasons: Mapping[int, str]
    ) -> list[tuple[Indices, tuple[str, ...]]]:
        """Note changes of one variable, with why it is so where whoever saw it knows; ``reasons``: by place in
        ``seen``."""
        why = {int(seen[place]): redact(text)[:_LONGEST] for place, text in reasons.items()}
        told = np.array([why.get(node, "") for node in nodes.tolist()], dtype=object) if why else None
        if told is None:
            return self._record(name, nodes, codes, source)
        lost = []
        for text in dict.fromkeys(told.tolist()):
            alike = told == text
            lost += self._record(name, nodes[alike], codes[alike], source, because=text)
        return lost

    def _record(
        self,
        name: str,
        nodes: Indices,
        codes: Codes,
        source: str,
        cause: str = "",
        *,
        implied: bool = False,
        because: str = "",
    ) -> list[tuple[Indices, tuple[str, ...]]]:
        """Note changes of one variable, grouped; return what is lost with them. ``because``: why it is so, where that
        is not the doing of a mutation."""
        column = self._table.columns[name]
        progress, here = self._progress, span(nodes)
        doing = np.where(progress.phase[here] >= Phase.ACTING, progress.mutation[here], -1)
        old = column.last[nodes]
        again = codes == column.before[here]
        symbols = column.symbols(nodes)
        if column.variable.open:
            symbols[(column.goal[nodes] == 0) & (codes > 1)] = _WANTED  # whatever came: nobody wants another
        column.last[here] = codes
        column.before[here] = np.where(codes, codes, column.before[here])
        width, kinds = len(column.words), len(column.variable.symbols) + 2
        key = (((doing + 1).astype(np.int64) * width + old) * width + codes) * kinds + symbols
        key = key * 2 + again
        lost = []
        for group in distinct(key).tolist():
            members = nodes[key == group]
            rest, seen_again = divmod(group, 2)
            rest, symbol = divmod(rest, kinds)
            rest, new_code = divmod(rest, width)
            doing_code, old_code = divmod(rest, width)
            ours = doing_code > 0 and name in self._promises[doing_code - 1]
            new = column.words[new_code]
            why = cause
            if ours and not why and not seen_again:
                why = self._cause(doing_code - 1, name, old_code, symbol)
            self.changes.append(Change(name, column.words[old_code], new, source, why or because, members))
            victims = self._lost_with(name, new)
            if old_code and new_code and not cause and not ours and not implied:
                # A surprise: whatever else we believed of these nodes may be out of date too.
                victims = tuple(self._table.columns)
            if victims:
                lost.append((members, victims))
        return lost

    def _cause(self, mutation: int, variable: str, old: int, symbol: int) -> str:
        """The mutation under way, if what was seen is its doing: what it promises, or what its own variable passes
        through meanwhile. Where it began is not, if nobody had seen that before."""
        declared = self._mutations[mutation]
        seen = (UNKNOWN, *self._model.variables[variable].symbols)[symbol]
        if variable == declared.variable:
            return "" if not old and seen in declared.start else declared.name
        return declared.name if self._promises[mutation][variable] in (UNKNOWN, seen) else ""

    def _lost_with(self, variable: str, value: str) -> tuple[str, ...]:
        if value == UNKNOWN:
            return ()  # we lost sight of it; that changes nothing about the others
        key = (variable, value)
        if key not in self._lost:
            self._lost[key] = tuple(self._model.lost_with({variable: value}))
        return self._lost[key]


def _implied_by(variable: str) -> str:
    """The source of what ``variable`` proves."""
    return f"implied by {variable}"


def _limit(column: VariableColumns) -> float:
    """Seconds for which a fact lasts."""
    return NEVER if column.variable.ages_out_after is None else column.variable.ages_out_after
