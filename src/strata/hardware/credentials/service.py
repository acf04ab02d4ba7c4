"""Requests about who we are to the BMCs. Secrets go in and never come out."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from strata.core import intset
from strata.core.errors import BadRequest, Conflict, StrataError
from strata.core.fault_isolation import contained
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.fleet.operations.records import Operation, Step
from strata.fleet.tasks import all_cancelled, beside
from strata.hardware.credentials.credentials import (
    PREFIX,
    BmcCredentials,
    CredentialRecord,
    base_of,
    check_pattern,
    decode,
    encode,
    is_exact,
)
from strata.hardware.credentials.pins import Pins
from strata.hardware.credentials.records import BmcCredentialSpec, BmcCredentialView, CertificateAcceptance
from strata.hardware.credentials.rotation import Rotation
from strata.store.protocol import Op, Put

JOB = "rotate-bmc-passwords"

_CHUNK = 32  # BMCs whose password is changed at one time
_BREATH = 5000  # addresses that are looked up before others get a turn


class BmcCredentialService:
    """Credentials of BMCs. Registers its operation when it is made.

    ``unlock`` has the BMC at an address tried again: its credential is another now."""

    def __init__(
        self,
        service: Fleet,
        credentials: BmcCredentials,
        rotation: Rotation,
        pins: Pins,
        unlock: Callable[[str], None],
    ) -> None:
        self._service = service
        self._credentials = credentials
        self._rotation = rotation
        self._pins = pins
        self._unlock = unlock
        self._tasks: set[asyncio.Task[None]] = set()
        credentials.changed = self._changed
        service.operations.register(JOB, self._rotate_many)

    async def stop(self) -> None:
        """Stop what is under way."""
        self._credentials.changed = None
        await all_cancelled(self._tasks)

    async def start(self) -> None:
        """Bring every secret under the key that seals now, if an older one still opens it."""
        store = self._service.controller.store
        ops: list[Op] = []
        expect = {}
        for entry in (await store.range(PREFIX)).entries:
            try:
                record = decode(entry.value)
                fresh = self._credentials.resealed(record)
            except (StrataError, ValueError):
                continue  # its lookup says what is wrong
            if fresh is not None:
                ops.append(Put(entry.key, encode(fresh)))
                expect[entry.key] = entry.modified
        if ops:
            await self._service.ledger.commit_many("strata", "bmc-credential.reseal", f"{len(ops)}", ops, expect)

    async def credentials(self, who: Principal) -> Sequence[BmcCredentialView]:
        """All credentials of BMCs, without their secrets."""
        used = await self._uses()
        records = self._credentials.records
        return [_view(records[pattern], used[pattern]) for pattern in sorted(records)]

    async def put(self, who: Principal, spec: BmcCredentialSpec) -> BmcCredentialView:
        """Create or replace the credential of a pattern of addresses. The most specific pattern that fits counts."""
        self._service.need_whole_fleet(who, "a credential of BMCs")
        pattern = _pattern(spec.pattern)
        record = CredentialRecord(
            pattern=pattern,
            user=spec.user,
            sealed=self._credentials.sealed(pattern, spec.password),
            author=who.name,
            changed=self._service.controller.clock.wall(),
        )
        await self._credentials.kept.put(who.name, pattern, record, action="set", detail={"user": spec.user})
        return _view(record, (await self._uses())[pattern])

    async def delete(self, who: Principal, pattern: str) -> None:
        """Forget the credential of a pattern."""
        self._service.need_whole_fleet(who, "a credential of BMCs")
        await self._credentials.kept.delete(who.name, _pattern(pattern))

    async def rotate(self, who: Principal, select: str) -> Operation:
        """Give every selected node's BMC a new random password of its own: an operation."""
        registry = self._service.registry
        nodes = self._service.owned(who, select)
        first: dict[str, int] = {}
        for index in nodes.tolist():
            if bmc := registry.node_at(index).bmc:
                with suppress(ValueError):  # what is written there is no address
                    first.setdefault(base_of(bmc), index)
        if not first:
            raise BadRequest("none of the selected nodes has a BMC", where="select")
        uids = registry.uids[sorted(first.values())]
        arguments = {"uids": intset.pack(uids), "author": who.name}
        return (await self._service.operations.start(JOB, who.name, len(uids), arguments)).shown()

    async def accept_certificate(self, who: Principal, acceptance: CertificateAcceptance) -> None:
        """Accept another certificate from a BMC than the one that it showed first."""
        self._service.need_whole_fleet(who, "the certificate of a BMC")
        try:
            await self._pins.accept(acceptance.address, who.name, acceptance.sha256)
        except ValueError:
            raise BadRequest("not an address", where="address", hint="such as https://10.0.0.1") from None

    def _changed(self, pattern: str, meant: Callable[[str], bool]) -> None:
        if is_exact(pattern):
            with suppress(StrataError, ValueError):
                self._unlock(pattern)
            return
        beside(self._tasks, self._unlock_many(meant))

    async def _unlock_many(self, meant: Callable[[str], bool]) -> None:
        async for bmc in self._addresses():
            with suppress(StrataError, ValueError):  # ValueError: what is written there is no address
                if meant(bmc):
                    self._unlock(bmc)

    async def _uses(self) -> Counter[str]:
        """How many nodes' BMCs each pattern is the best for."""
        used: Counter[str] = Counter()
        async for bmc in self._addresses():
            with suppress(ValueError):  # what is written there is no address
                used[self._credentials.route(bmc)] += 1
        return used

    async def _addresses(self) -> AsyncIterator[str]:
        """Those of all nodes' BMCs."""
        for number, node in enumerate(list(self._service.registry.nodes), 1):
            if node is not None and node.bmc:
                yield node.bmc
            if number % _BREATH == 0:
                await asyncio.sleep(0)

    async def _rotate_many(self, arguments: Mapping[str, Any], position: Any) -> AsyncIterator[Step]:
        registry = self._service.registry
        uids = intset.unpack(arguments["uids"])
        for start in range(position or 0, len(uids), _CHUNK):
            indices = registry.indices_of(uids[start : start + _CHUNK])
            nodes = [registry.node_at(index) for index in indices[indices >= 0].tolist()]
            results = await asyncio.gather(*(self._rotate_one(node.bmc, arguments["author"]) for node in nodes))
            failed = [(node.name, why) for node, why in zip(nodes, results, strict=True) if why]
            yield Step(position=start + _CHUNK, done=len(nodes) - len(failed), failed=failed)

    async def _rotate_one(self, address: str, author: str) -> str:
        try:
            with contained(address):
                await self._rotation.rotate(address, author)
        except Conflict:
            return "somebody else changed its credential at the same time"
        except StrataError as error:
            return str(error)
        return ""


def _pattern(text: str) -> str:
    try:
        return check_pattern(text)
    except ValueError:
        raise BadRequest("neither an address nor a pattern of some", where="pattern", hint="https://10.0.0.*") from None


def _view(record: CredentialRecord, used: int) -> BmcCredentialView:
    doubt = "a change of its password was interrupted; rotate it again" if record.pending else ""
    return BmcCredentialView.of(record, used_by=used, doubt=doubt)
