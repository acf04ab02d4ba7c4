"""What rooms keep that know nothing of repositories: boot profiles and power policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from strata.core.errors import Refused
from strata.platform.config.keeper import Keeper
from strata.power.policies.records import PolicyEntry, PolicyRecord, PolicyRecords
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.boot.records import Profile, ProfileEntry


def profiles_keeper(profiles: Profiles) -> Keeper:
    """Keeps boot profiles."""

    def made(spec: ProfileEntry, author: str) -> Profile:
        profile = Profile.of(spec)
        profiles.check(spec.name, profile)
        return profile

    return Keeper(profiles.records, made, lambda name, record: ProfileEntry.of(record, name=name), variable="minos")


def power_policies_keeper(policies: PolicyRecords, wall: Callable[[], float]) -> Keeper:
    """Keeps power policies. The gate is that of every other way: a content was simulated, or somebody says why not."""

    def made(spec: PolicyEntry, author: str) -> PolicyRecord:
        where, unsimulated = f"power-policy {spec.name}", spec.without_simulation
        digest = policies.check_simulated(spec.text, unsimulated, where=where, say="without_simulation: REASON")
        return PolicyRecord.of(spec, digest=digest, author=author, time=wall(), unsimulated=unsimulated)

    def said(name: str, record: PolicyRecord) -> PolicyEntry:
        return PolicyEntry.of(record, without_simulation=record.unsimulated)

    def together(edits: Mapping[str, PolicyEntry | None]) -> None:
        runs = {name for name, record in policies.records.all.items() if record.enabled and name not in edits}
        new = [name for name, spec in edits.items() if spec is not None and spec.enabled]
        if runs and new:
            by_hand = min(runs)
            raise Refused(
                f"{by_hand} runs, which did not come from this commit",
                by="power-policy",
                where=f"power-policy {new[0]}",
                hint=f"strata power policy disable {by_hand}",
            )

    return Keeper(policies.records, made, said, together)
