"""The rules that a policy may have, by their keys in the document. A new one: docs/how-to/add-to-strata.md."""

from __future__ import annotations

RULES = {
    "over-provisioned": "strata.power.policies.over_provisioned:OverProvisioned",
    "idle-pool": "strata.power.policies.idle_pool:IdlePool",
}
"""Key → ``module:class``, in the order in which they are asked."""
