"""The audit log: who did what, and whether the record of it is whole."""

from strata.core.room import Room

ROOM = Room(
    services=(".service:AuditService",), routes=(".routes",), commands={"The service": {"audit": ".commands:audit"}}
)
