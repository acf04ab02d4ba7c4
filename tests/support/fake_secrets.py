"""Credentials of controllers and the red button, in memory."""

from __future__ import annotations

from collections.abc import Sequence

from strata.core.errors import BadRequest, Conflict, NotFound, Refused
from strata.fleet.access.principal import Principal
from strata.fleet.operations.records import Operation
from strata.hardware.bmc.records import Many, ManyOutcome
from strata.hardware.credentials.records import BmcCredentialSpec, BmcCredentialView, CertificateAcceptance
from strata.hardware.emergency.records import EmergencyReport, EmergencyRequest
from strata.hardware.emergency.service import confirmation
from support.fake_ground import Ground, address, job


class FakeCredentials:
    """Who we are to the controllers; passwords are not even kept."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    async def credentials(self, who: Principal) -> Sequence[BmcCredentialView]:
        return [self.ground.keys[pattern] for pattern in sorted(self.ground.keys)]

    async def put(self, who: Principal, spec: BmcCredentialSpec) -> BmcCredentialView:
        if "://" not in spec.pattern and spec.pattern != "default":
            raise BadRequest("neither an address nor default", where="pattern")
        view = BmcCredentialView(pattern=spec.pattern, user=spec.user, author=who.name, changed=1.0, used_by=0)
        self.ground.keys[spec.pattern] = view
        return view

    async def delete(self, who: Principal, pattern: str) -> None:
        if self.ground.keys.pop(pattern, None) is None:
            raise NotFound("no credential has this pattern", where=pattern)

    async def rotate(self, who: Principal, select: str) -> Operation:
        names = await self.ground.owned(who, select)
        if not names:
            raise BadRequest("none of the selected nodes has a controller", where="select")
        return job("rotate-bmc-passwords", len(names))

    async def accept_certificate(self, who: Principal, acceptance: CertificateAcceptance) -> None:
        if acceptance.address not in {address(name) for name in await self.ground.facade.node_names(who, "*")}:
            raise NotFound("no certificate of it is known", where=acceptance.address)
        if acceptance.sha256:
            raise Conflict("it shows another", where=acceptance.address)


class FakeEmergency:
    """The red button."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground

    async def power_off(self, who: Principal, request: EmergencyRequest) -> EmergencyReport:
        names = await self.ground.owned(who, request.select)
        if not names:
            raise BadRequest("no node is selected", where="select")
        if request.confirm != confirmation(len(names)):
            raise Refused("that takes power away", by="confirmation", where="confirm")
        outcome: Many = await self.ground.do(who, request.select, "emergency-off")
        assert isinstance(outcome, ManyOutcome)
        return EmergencyReport(outcome=outcome, frozen=tuple(f"node:{name}" for name in names), seconds=0.1)
