"""One module per resource. Each route declares the right it needs; none holds logic."""

from __future__ import annotations

from strata.api.routes import (
    audit,
    brakes,
    credentials,
    desires,
    documents,
    groups,
    jobs,
    node_state,
    nodes,
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
    *credentials.HANDLERS,
    *service.HANDLERS,
]
