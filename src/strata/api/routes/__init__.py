"""One module per resource. Each route declares the right it needs; none holds logic."""

from __future__ import annotations

from strata.api.routes import (
    alerts,
    audit,
    bmc_credentials,
    bmcs,
    brakes,
    consoles,
    credentials,
    desires,
    documents,
    emergency,
    fabric,
    groups,
    hardware_events,
    hardware_inventory,
    jobs,
    node_state,
    nodes,
    power,
    service,
    watch,
)

HANDLERS = [
    *nodes.HANDLERS,
    *node_state.HANDLERS,
    *desires.HANDLERS,
    *documents.HANDLERS,
    *brakes.HANDLERS,
    *groups.HANDLERS,
    *jobs.HANDLERS,
    *watch.HANDLERS,
    *audit.HANDLERS,
    *bmcs.HANDLERS,
    *bmc_credentials.HANDLERS,
    *emergency.HANDLERS,
    *fabric.HANDLERS,
    *consoles.HANDLERS,
    *credentials.HANDLERS,
    *service.HANDLERS,
    *alerts.HANDLERS,
    *hardware_events.HANDLERS,
    *hardware_inventory.HANDLERS,
    *power.HANDLERS,
]
