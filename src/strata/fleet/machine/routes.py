"""The whole machine: one answer in columns, a stream of what changes, and the last hours."""

from __future__ import annotations

from typing import Annotated

from litestar import get
from litestar.params import QueryParameter
from litestar.response import Stream

from strata.api import sse
from strata.api.routing import Routes
from strata.api.services import Asked, Watchers
from strata.core.texts import Out
from strata.fleet.machine.records import MachineChanges
from strata.fleet.machine.service import MachineService

_TAG = "machine"
Since = Annotated[float | None, QueryParameter(ge=0, le=1e11, description="Unix seconds. Default: an hour ago.")]


class MachineEvent(Out, frozen=True, kw_only=True):
    """One event of the stream, field by field."""

    event: str = "changes"
    data: str
    id: str = ""


@get(
    "/v1/machine/follow",
    tags=[_TAG],
    **sse.streamed(
        "node",
        event=MachineEvent,
        described="Events `changes`: `data` is a MachineChanges as JSON. Follow first, then ask for the "
        "machine, then take in what comes: it is all there. Another `roster` means: ask for the machine anew.",
    ),
)
async def follow_machine(ask: Asked) -> Stream:
    """What changes in the machine from now on, at most twice a second; nothing is resumed."""
    ask.of(Watchers).check_room()
    beats = ask.of(MachineService).follow(ask.who)

    def shown(changes: MachineChanges) -> bytes:
        return b"event: changes\ndata: %s\n\n" % sse.encode(changes)

    return sse.stream(beats, ask.of(Watchers), shown)


_ROUTES = Routes(MachineService, "node", tag=_TAG)
_ROUTES.get("show_machine", "/v1/machine", MachineService.machine)
_ROUTES.get("machine_history", "/v1/machine/history", MachineService.history, since=Since)
