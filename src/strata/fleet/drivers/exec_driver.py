"""A site's own driver: a command that is run for each batch, with JSON in and out.

On standard input it gets one object::

    {"action": "act", "mutation": "set-bios", "timeout": 60.0,
     "nodes": [{"name": "n1", "uid": 1, "bmc": "", "goal": {"bios": "v2"}, "fence": [17, 4]}]}

or ``"action": "observe"`` with ``"variables"``, or ``"action": "permits"`` with ``"guard"``. On standard output it
answers with one object by node name: for act ``"done"``, ``"failed"``, ``"unknown"``, ``"fenced"`` or
``{"outcome": ..., "reason": ...}``; for observe ``{"bios": "v2"}``; for permits ``""`` (yes) or why not. A node that it
leaves out is unknown, unseen, not permitted.

Whatever the command does, this does not raise: a wrong answer, a bad exit or silence leaves the outcome unknown. The
command is never given to a shell, gets a minimal environment, and its whole process group is killed at the time limit.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from strata.core.column import Column
from strata.core.driver import Batch, Outcomes
from strata.core.errors import BadRequest
from strata.core.input.decoding import UNREADABLE
from strata.core.model import UNKNOWN, Mutation
from strata.core.state import Outcome
from strata.fleet.drivers.subprocesses import Finished, run_command

MOST_OUTPUT = 64 << 20
"""Bytes that are read of an answer."""
LONGEST_REASON = 500

_WORDS = {outcome.name.lower(): outcome for outcome in Outcome}
_encode = msgspec.json.Encoder().encode


class ExecDriver:
    """Implements ``strata.core.driver.Driver`` by running a command."""

    def __init__(
        self, name: str, command: Sequence[str], timeout: float = 60.0, env: Mapping[str, str] | None = None
    ) -> None:
        if not command or not all(isinstance(word, str) and word and "\0" not in word for word in command):
            raise BadRequest("an exec driver needs a command: a list of words", where=f"driver {name}")
        if not timeout > 0:
            raise BadRequest("the timeout must be above 0 seconds", where=f"driver {name}")
        self.name = name
        self._command = tuple(command)
        self._timeout = timeout
        self._env = dict(env or {})

    async def act(self, mutation: Mutation, batch: Batch) -> Outcomes:
        """Run the command for the batch, unless the lead has run out."""
        if time.monotonic() >= batch.valid_until:
            return Outcomes.all(
                Outcome.FENCED, len(batch), "this controller stopped leading the node before the command was started"
            )
        limit = min(self._timeout, mutation.timeout)
        answer = await self._ask({"action": "act", "mutation": mutation.name, "timeout": limit}, batch, limit)
        if isinstance(answer, str):
            return Outcomes.all(Outcome.UNKNOWN, len(batch), answer)
        codes = np.full(len(batch), Outcome.UNKNOWN, dtype=np.int8)
        reasons: dict[int, str] = {}
        for at, name in enumerate(batch.names):
            outcome, reason = _outcome(answer.get(name))
            codes[at] = outcome
            if reason:
                reasons[at] = reason
        return Outcomes(codes, reasons)

    async def observe(self, variables: Sequence[str], batch: Batch) -> Mapping[str, Column]:
        """What the command saw; nothing, and why, when its answer cannot be used."""
        answer = await self._ask({"action": "observe", "variables": list(variables)}, batch, self._timeout)
        if isinstance(answer, str):
            nothing = Column((), np.zeros(len(batch), dtype=np.int32), dict.fromkeys(range(len(batch)), answer))
            return dict.fromkeys(variables, nothing)
        seen = [answer.get(name) for name in batch.names]
        found = {}
        for variable in variables:
            said = [node.get(variable) if isinstance(node, dict) else None for node in seen]
            column = Column.of(map(_value, said))
            unseen = np.flatnonzero(column.codes == 0).tolist()
            reasons = {place: _nothing_of(variable, seen[place], said[place]) for place in unseen}
            found[variable] = Column(column.words, column.codes, reasons)
        return found

    async def permits(self, guard: str, batch: Batch) -> Sequence[str]:
        """What the command says; everything but an empty text is a no."""
        answer = await self._ask({"action": "permits", "guard": guard}, batch, self._timeout)
        if isinstance(answer, str):
            return [answer] * len(batch)
        return [_reason(answer.get(name, "the command did not say")) for name in batch.names]

    async def _ask(self, question: dict[str, Any], batch: Batch, limit: float) -> dict[str, Any] | str:
        """The command's answer by node, or why there is none that can be used."""
        body = _encode({**question, "nodes": _nodes(batch)})
        finished = await run_command(self._command, body, limit, MOST_OUTPUT, self._env)
        return finished if isinstance(finished, str) else _answer(finished)


def _nodes(batch: Batch) -> list[dict[str, Any]]:
    goals = {variable: column.values() for variable, column in batch.goals.items()}
    return [
        {
            "name": name,
            "uid": uid,
            "bmc": batch.bmcs[at] if batch.bmcs else "",
            "goal": {variable: values[at] for variable, values in goals.items()},
            "fence": [epoch, batch.generation],
        }
        for at, (name, uid, epoch) in enumerate(
            zip(batch.names, batch.uids.tolist(), batch.epochs.tolist(), strict=True)
        )
    ]


def _answer(finished: Finished) -> dict[str, Any] | str:
    if finished.status != 0:
        how = f"status {finished.status}" if finished.status > 0 else f"signal {-finished.status}"
        said = f": {finished.errors}" if finished.errors else ""
        return f"the command ended with {how}{said}"[:LONGEST_REASON]
    try:
        answer = msgspec.json.decode(finished.output)
    except UNREADABLE as error:
        return f"the command's output is not JSON: {error}"[:LONGEST_REASON]
    return answer if isinstance(answer, dict) else "the command's output is not a JSON object by node name"


def _outcome(said: Any) -> tuple[Outcome, str]:
    word, reason = (said.get("outcome"), said.get("reason", "")) if isinstance(said, dict) else (said, "")
    if said is None:
        return Outcome.UNKNOWN, "the command did not say"
    outcome = _WORDS.get(word) if isinstance(word, str) else None
    if outcome is None:
        return Outcome.UNKNOWN, f"the command said {_short(word)}; known are {', '.join(_WORDS)}"
    return outcome, _short(reason) if reason else ""


def _value(said: Any) -> str | None:
    """A value as text; anything else was not seen."""
    return said[:256] if isinstance(said, str) and said else None


def _nothing_of(variable: str, node: Any, said: Any) -> str:
    """Why an answer about a node does not tell what a variable is."""
    if node is None:
        return "the command did not say anything of it"
    if not isinstance(node, dict):
        return f"the command said {_short(node)}, not an object of variables"[:LONGEST_REASON]
    if said in (None, "", UNKNOWN):
        return f"the command does not know {variable}"
    return f"the command said {_short(said)} for {variable}, not a text"[:LONGEST_REASON]


def _reason(said: Any) -> str:
    return said[:LONGEST_REASON] if isinstance(said, str) else f"the command said {_short(said)}, not a text"


def _short(said: Any) -> str:
    return (said if isinstance(said, str) else repr(said))[:LONGEST_REASON]
