"""What the repository says of health: checks, and the policy for nodes that fail them."""

from __future__ import annotations

from collections.abc import Mapping

from strata.core.errors import BadRequest
from strata.platform.config.keeper import Keeper
from strata.platform.health.records import (
    MOST_CHECKS,
    CheckEntry,
    CheckSpec,
    HealthCheck,
    HealthPolicy,
    HealthPolicyEntry,
    check,
)
from strata.store.records import Records


def checks_keeper(records: Records[HealthCheck]) -> Keeper:
    """Keeps checks."""

    def made(spec: CheckEntry, author: str) -> HealthCheck:
        return HealthCheck(spec=check(CheckSpec.of(spec), f"health-check {spec.name}"), author=author)

    def together(edits: Mapping[str, CheckEntry | None]) -> None:
        after = {*records.all, *edits} - {name for name, spec in edits.items() if spec is None}
        if len(after) > MOST_CHECKS:
            told = f"there would be {len(after)} checks; at most {MOST_CHECKS} are run"
            raise BadRequest(told, where="health-check", hint="a script can check several")

    return Keeper(records, made, lambda name, record: CheckEntry.of(record.spec, name=name), together)


def policy_keeper(records: Records[HealthPolicy]) -> Keeper:
    """Keeps the policy."""
    return Keeper(
        records,
        lambda spec, author: HealthPolicy.of(spec),
        lambda name, record: HealthPolicyEntry.of(record, name=name),
    )
