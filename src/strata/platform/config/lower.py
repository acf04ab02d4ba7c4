"""What rooms keep that know nothing of repositories: boot profiles, power policies, and how commits reach nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from strata.core.errors import Refused
from strata.platform.rollouts.records import RolloutPolicy
from strata.power.policies.records import PolicyEntry, PolicyRecord, PolicyRecords, digest_of
from strata.provisioning.boot.profiles import Profiles
from strata.provisioning.boot.records import Profile, ProfileEntry
from strata.store.records import Records


class RolloutPolicyKeeper:
    """Keeps the policy by which commits reach nodes."""

    def __init__(self, records: Records[RolloutPolicy]) -> None:
        self.records = records

    def said(self, name: str, record: RolloutPolicy) -> RolloutPolicy:
        """What the repository would say of a record."""
        return record

    def made(self, spec: RolloutPolicy, author: str) -> RolloutPolicy:
        """The record of what is said."""
        return spec


class ProfileKeeper:
    """Keeps boot profiles."""

    variable = "minos"

    def __init__(self, profiles: Profiles) -> None:
        self._profiles = profiles
        self.records = profiles.records

    def said(self, name: str, record: Profile) -> ProfileEntry:
        """What the repository would say of a record."""
        return ProfileEntry.of(record, name=name)

    def made(self, spec: ProfileEntry, author: str) -> Profile:
        """The record of what is said; ``BadRequest`` where no node could boot by it."""
        profile = Profile.of(spec)
        self._profiles.check(spec.name, profile)
        return profile


class PowerPolicyKeeper:
    """Keeps power policies. The gate is that of every other way: a content was simulated, or somebody says why not."""

    def __init__(self, records: PolicyRecords, wall: Callable[[], float]) -> None:
        self._simulation = records.simulation
        self._wall = wall
        self.records = records.records

    def said(self, name: str, record: PolicyRecord) -> PolicyEntry:
        """What the repository would say of a record."""
        return PolicyEntry(name=name, text=record.text, enabled=record.enabled, without_simulation=record.unsimulated)

    def made(self, spec: PolicyEntry, author: str) -> PolicyRecord:
        """The record of what is said; ``Refused`` where its content was not simulated."""
        digest = digest_of(spec.text)
        if self._simulation(digest) is None and not spec.without_simulation:
            raise Refused(
                "this version of the policy has not been simulated yet",
                by="simulation",
                where=f"power-policy {spec.name}",
                hint="run: strata power simulate --policy FILE; or say why not: without_simulation: REASON",
            )
        return PolicyRecord(
            name=spec.name,
            text=spec.text,
            digest=digest,
            enabled=spec.enabled,
            author=author,
            time=self._wall(),
            unsimulated=spec.without_simulation,
        )

    def together(self, edits: Mapping[str, PolicyEntry | None]) -> None:
        """Raise ``Refused`` where two would run."""
        runs = {name for name, record in self.records.all.items() if record.enabled and name not in edits}
        new = [name for name, spec in edits.items() if spec is not None and spec.enabled]
        if runs and new:
            by_hand = min(runs)
            raise Refused(
                f"{by_hand} runs, which did not come from this commit",
                by="power-policy",
                where=f"power-policy {new[0]}",
                hint=f"strata power policy disable {by_hand}",
            )
