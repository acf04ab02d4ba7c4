"""How patient the engine is: its section of the configuration file. Times are measured on the monotonic clock."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.settings_section import Section
from strata.core.units import Seconds

Part = Annotated[float, Meta(gt=0, le=1)]
Count = Annotated[int, Meta(ge=1)]


class EngineSettings(Section, frozen=True, kw_only=True):
    """How patient the engine is with nodes. The defaults suit real hardware."""

    refresh: Part = 0.5
    """A fact is looked at again after this part of its age, so that one lost look does not make it unknown."""
    look_batch: Count = 1000
    """Nodes in one look. Small enough that an urgent look never waits long behind a sweep."""
    look_timeout: Seconds = Seconds(60)
    """A look that has not come back by then is given up."""
    first_poll: Seconds = Seconds(0.5)
    """After a step was accepted, look for its effect this soon; then each time twice as long..."""
    longest_poll: Seconds = Seconds(10)
    """...but never longer than this."""
    blind_look: Seconds = Seconds(2)
    """A node that could not be seen is looked at again after this, then each time twice as long, up to the refresh
    interval: dead BMCs cost little."""
    hopeless_after: Seconds = Seconds(60)
    """A step whose effect cannot come any more (the node that boots has no power) has failed when that was seen for
    this long: longer than power that is cycled stays off."""
    repeat_unknown: Seconds = Seconds(30)
    """An idempotent step whose outcome is unknown is sent again when its effect has not shown for this long..."""
    repeat_every: Seconds = Seconds(300)
    """...and one that was accepted after this: the device may have forgotten it."""
    backoff: Seconds = Seconds(5)
    """Wait after the first failure; doubles with each, with jitter..."""
    longest_backoff: Seconds = Seconds(300)
    """...up to this."""
    failures_to_fault: Count = 3
    """Failed steps in a row until the node is in a fault state."""
    relapses_to_fault: Count = 3
    """Times that a node may fall from its goal by itself, each within ``stable_after``, or come back to where it was by
    steps that all succeeded, until it is faulted."""
    stable_after: Seconds = Seconds(600)
    """A node that stayed at its goal for this long has its failures and relapses forgiven."""
    fault_retry: Seconds = Seconds(1800)
    """A faulted node is tried once more after this. 0: only a person retries it."""
    stop_ratio: Part = 0.5
    """Failure-rate stop: no more starts of a mutation while more than this part of the recent ones failed..."""
    stop_minimum: Count = 10
    """...and at least so many did..."""
    stop_window: Seconds = Seconds(300)
    """...recently meaning within this."""
    stop_cooldown: Seconds = Seconds(300)
    """A stopped mutation is probed again after this, on ``stop_probe`` nodes at a time."""
    stop_probe: Count = 5
    """Enough to see whether it was the nodes or the mutation."""
    resync: Seconds = Seconds(300)
    """Every node is looked at by the planner at least this often, changed or not."""

    def check(self) -> None:
        """That nothing is done without a pause."""
        for name in self.__struct_fields__:
            if name != "fault_retry" and not getattr(self, name) > 0:
                raise BadRequest("must be above 0", where=name)
