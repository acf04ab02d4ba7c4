"""The audit log: who did what, and whether the record of it is whole."""

from strata.core.room import Room

ROOM = Room(
    services=("strata.fleet.audit.service:AuditService",),
    routes=("strata.fleet.audit.routes",),
    commands={"The service": {"audit": "strata.fleet.audit.commands:audit"}},
)
