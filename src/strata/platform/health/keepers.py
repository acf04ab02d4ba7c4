"""What the repository says of health: checks, and the policy for nodes that fail them."""

from __future__ import annotations

from collections.abc import Mapping

from strata.core.errors import BadRequest
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


class CheckKeeper:
    """Keeps checks."""

    def __init__(self, records: Records[HealthCheck]) -> None:
        self.records = records

    def said(self, name: str, record: HealthCheck) -> CheckEntry:
        """What the repository would say of a record."""
        return CheckEntry.of(record.spec, name=name)

    def made(self, spec: CheckEntry, author: str) -> HealthCheck:
        """The record of what is said; ``BadRequest`` where it cannot be."""
        return HealthCheck(spec=check(CheckSpec.of(spec), f"health-check {spec.name}"), author=author)

    def together(self, edits: Mapping[str, CheckEntry | None]) -> None:
        """Raise ``BadRequest`` where there would be more checks than agents run."""
        after = {*self.records.all, *edits} - {name for name, spec in edits.items() if spec is None}
        if len(after) > MOST_CHECKS:
            told = f"there would be {len(after)} checks; at most {MOST_CHECKS} are run"
            raise BadRequest(told, where="health-check", hint="a script can check several")


class PolicyKeeper:
    """Keeps the policy."""

    def __init__(self, records: Records[HealthPolicy]) -> None:
        self.records = records

    def said(self, name: str, record: HealthPolicy) -> HealthPolicyEntry:
        """What the repository would say of a record."""
        return HealthPolicyEntry.of(record, name=name)

    def made(self, spec: HealthPolicyEntry, author: str) -> HealthPolicy:
        """The record of what is said."""
        return HealthPolicy.of(spec)
