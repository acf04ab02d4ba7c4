"""How patient the engine is. Times are seconds on the monotonic clock."""

from __future__ import annotations

import msgspec


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every knob, with its reason. The defaults suit real hardware."""

    refresh: float = 0.5
    """A fact is looked at again after this part of its age, so that one lost look does not make it unknown."""
    look_batch: int = 1000
    """Nodes in one look. Small enough that an urgent look never waits long behind a sweep."""
    look_timeout: float = 60.0
    """A look that has not come back by then is given up."""
    first_poll: float = 0.5
    """After a step was accepted, look for its effect this soon; then each time twice as long..."""
    longest_poll: float = 10.0
    """...but never longer than this."""
    blind_look: float = 2.0
    """A node that could not be seen is looked at again after this, then each time twice as long, up to the refresh
    interval: dead controllers cost little."""
    hopeless_after: float = 60.0
    """A step whose effect cannot come any more (the node that boots has no power) has failed when that was seen for
    this long: longer than power that is cycled stays off."""
    repeat_unknown: float = 30.0
    """An idempotent step whose outcome is unknown is sent again when its effect has not shown for this long..."""
    repeat_every: float = 300.0
    """...and one that was accepted after this: the device may have forgotten it."""
    backoff: float = 5.0
    """Wait after the first failure; doubles with each, with jitter."""
    longest_backoff: float = 300.0
    failures_to_fault: int = 3
    """Failed steps in a row until the node is in a fault state."""
    relapses_to_fault: int = 3
    """Times that a node may fall from its goal by itself, each within ``stable_after``, until it is faulted."""
    stable_after: float = 600.0
    """A node that stayed at its goal for this long has its failures and relapses forgiven."""
    fault_retry: float = 1800.0
    """A faulted node is tried once more after this. 0: only a person retries it."""
    stop_ratio: float = 0.5
    """Failure-rate stop: no more starts of a mutation while more than this part of the recent ones failed..."""
    stop_minimum: int = 10
    """...and at least so many did..."""
    stop_window: float = 300.0
    """...recently meaning within this."""
    stop_cooldown: float = 300.0
    """A stopped mutation is probed again after this, on ``stop_probe`` nodes at a time."""
    stop_probe: int = 5
    resync: float = 300.0
    """Every node is looked at by the planner at least this often, changed or not."""
