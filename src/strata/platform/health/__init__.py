"""Whether nodes are fit for jobs: checks that their agents run, whether a failure counts, and what is done about it."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:HealthService",), routes=(".routes",), commands={"Their health": {"health": ".commands:health"}}
)
