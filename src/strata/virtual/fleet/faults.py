"""How simulated nodes behave: how long things take, and what goes wrong how often. Data only."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strata.core.errors import BadRequest

SECONDS = {
    "power-on": 5.0,
    "power-off": 4.0,
    "boot": 45.0,
    "enrol": 0.5,
    "load-image": 15.0,
    "switch-image": 12.0,
    "start-personality": 3.0,
    "stop-personality": 3.0,
    "configure": 8.0,
    "join-workload": 0.5,
    "leave-workload": 1.0,
    "check-health": 5.0,
    "repair": 3.0,
}
"""How long each mutation takes on a node of middling speed."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """How long things take, and what a node draws. Durations spread from 0.75 to 1.5 of these, by seed."""

    seconds: Mapping[str, float] = msgspec.field(default_factory=lambda: dict(SECONDS))
    """Per mutation."""
    scale: float = 1.0
    """Multiplies all durations; 0 makes every action complete at once."""
    notice: float = 10.0
    """Seconds until the workload manager sees that a node stopped answering."""
    job_share: float = 0.0
    """Of the time slots of a node that is in the workload manager: how many hold a job."""
    job_length: float = 300.0
    """Seconds: the length of a slot."""
    standby_watts: float = 20.0
    idle_watts: float = 250.0
    busy_watts: float = 700.0


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What goes wrong. Probabilities per try unless said; rates are per node and hour. Default: nothing does."""

    request_lost: float = 0.0
    """A request never arrives: the outcome is unknown and nothing happened."""
    reply_lost: float = 0.0
    """A request is carried out and its reply is lost: the outcome is unknown."""
    duplicated: float = 0.0
    """A request arrives twice."""
    refused: float = 0.0
    """The device says no."""
    ignored: float = 0.0
    """The device says yes and does nothing."""
    boot_fails: float = 0.0
    """The OS does not come up: it is down as before."""
    boot_hangs: float = 0.0
    """The OS starts, and its agent never answers."""
    personality_fails: float = 0.0
    """The personality ends in ``error`` when it is started; a changed one does not start, and the node goes back to
    the one before."""
    drain_lies: float = 0.0
    """The workload manager says that the node has left while a job still runs there."""
    power_null: float = 0.0
    """Share of windows in which a BMC gives no power state."""
    power_lies: float = 0.0
    """Share of windows in which it gives the wrong one."""
    agent_silent: float = 0.0
    """Share of windows in which a look at a healthy agent gives nothing."""
    window: float = 60.0
    """Seconds that such a lie or silence lasts."""
    bmc_dead: float = 0.0
    """Share of BMCs that never answer."""
    power_losses: float = 0.0
    """Rate at which a node loses power."""
    hangs: float = 0.0
    """Rate at which a kernel stops: powered, silent, its jobs lost."""
    panics: float = 0.0
    """Rate at which a kernel panics and resets the machine: powered, OS down, its jobs lost."""
    agent_deaths: float = 0.0
    """Rate at which only the agent dies: jobs go on, nobody answers for the node."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not value >= 0 or (name not in RATES and name != "window" and value > 1) or self.window <= 0:
                raise BadRequest(f"{value!r} is neither a probability nor a rate", where=f"faults.{name}")


RATES = ("power_losses", "hangs", "panics", "agent_deaths")
"""The fields that are rates: hazards that strike by themselves, in this order."""

NO_FAULTS = Faults()
