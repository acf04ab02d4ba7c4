"""A small Redfish client: kept connections to all BMCs, sessions that are reused and given back.

Knows HTTP, logins and what a BMC did to us before (silent, busy, refused our password); ``redfish_power`` and
its neighbours know what to ask. It never follows a redirect to another host, never reads more than ``max_body``,
never sends a request twice unless the BMC said that it did nothing with the first, and puts no secret into
an error.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec

from strata.core.errors import Conflict, DeviceError, NotOffered, StrataError, Unavailable
from strata.core.fault_isolation import contained
from strata.hardware.bmc.redfish.connections import Reply
from strata.hardware.bmc.redfish.endpoint import (
    ROOT,
    SESSIONS,
    Credentials,
    Endpoint,
    Features,
    Json,
    RedfishSettings,
    Target,
    below,
    parse,
    path_of,
    text,
)
from strata.hardware.bmc.redfish.reply import Answer, header, judge
from strata.hardware.bmc.redfish.session import JSON, Sessions
from strata.hardware.bmc.redfish.wire import Pins, Raw, Tls, Wire

__all__ = [
    "ROOT",
    "SESSIONS",
    "Answer",
    "Credentials",
    "Endpoint",
    "Features",
    "Json",
    "Pins",
    "Raw",
    "RedfishClient",
    "RedfishSettings",
    "Target",
]  # fmt: skip

MOST_HOPS = 3
"""Redirects within one host that a read follows."""


class RedfishClient:
    """Talks to any number of BMCs. Close it: that logs out."""

    def __init__(
        self,
        credentials: Credentials | Callable[[str], Credentials],
        *,
        settings: RedfishSettings | None = None,
        tls: Tls = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings or RedfishSettings()
        self.clock = clock
        self._wire = Wire(self.settings, tls, clock)
        self._sessions = Sessions(self._wire, credentials)
        self._bmcs: dict[str, Endpoint] = {}
        self._targets: dict[str, Target] = {}

    async def __aenter__(self) -> RedfishClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def requests(self) -> int:
        """Requests sent so far."""
        return self._wire.requests

    async def close(self) -> None:
        """Log out everywhere, as far as BMCs answer within a second or two, and close the connections."""
        open_ones = {t.bmc.base: t for t in self._targets.values() if t.bmc.token or t.bmc.stale or t.bmc.ghosts}
        waiting = iter([target for target in open_ones.values() if not (target.bmc.dead or target.bmc.locked)])
        await asyncio.gather(*(self._log_out_all(waiting) for _ in range(64)))
        await self._wire.close()

    async def _log_out_all(self, waiting: Iterator[Target]) -> None:
        for target in waiting:
            with suppress(StrataError), contained(target.address):
                await self._sessions.log_out(target.bmc, target.address)

    # -- what is known

    def target(self, address: str) -> Target:
        """What ``address`` names. Raises ``DeviceError`` for a bad address."""
        found = self._targets.get(address)
        if found is None:
            origin, service, resource = parse(address)
            bmc = self._bmcs.get(origin + service)
            if bmc is None:
                bmc = self._bmcs[origin + service] = Endpoint(origin, service, self.settings.per_bmc)
            found = self._targets[address] = Target(address, bmc, resource)
        return found

    def bmc(self, address: str) -> Endpoint:
        """What is known of the BMC at ``address``. Raises ``DeviceError`` for a bad address."""
        return self.target(address).bmc

    def unlock(self, address: str) -> None:
        """A person has set the password right: try the BMC again."""
        bmc = self.bmc(address)
        bmc.locked = ""
        bmc.refused = 0

    async def features(self, address: str) -> Features:
        """What the BMC's service root says that it can do. Asked once."""
        bmc = self.bmc(address)
        if bmc.features is None:
            bmc.features = _features((await self.get(address, f"{ROOT}/")).body)
        return bmc.features

    # -- requests

    async def get(self, address: str, path: str, *, timeout: float = 0.0) -> Answer:
        """Read a resource. Raises ``DeviceError``, also when there is no answer."""
        return await self.request(address, "GET", path, timeout=timeout)

    async def request(
        self,
        address: str,
        method: str,
        path: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        begin_before: float = float("inf"),
        timeout: float = 0.0,
        private: bool = False,
    ) -> Answer:
        """One request, with a login before it where there is none. Not begun after ``begin_before`` (``Unavailable``).

        ``OutcomeUnknown`` when what was asked may have happened, ``Conflict`` when the BMC has a newer fence
        or version, ``NotOffered`` when it has no such thing, ``DeviceError`` for everything else that it does wrong.

        What is answered to a ``private`` one is not repeated in errors.
        A BMC that was silent is asked all the same: whoever wants to spare it looks at ``Endpoint.dead_until``.
        """
        bmc = self.bmc(address)
        data = body if body is None or isinstance(body, Raw) else Raw(msgspec.json.encode(body), JSON)
        hops = 0
        async with bmc.busy:
            while True:
                self._check(bmc, begin_before)
                auth, ours = await self._sessions.headers(bmc, address)
                self._check(bmc, begin_before)
                reply = await self._wire.send(bmc, method, path, data, {**auth, **(headers or {})}, timeout=timeout)
                if reply.status == 401:
                    self._ended(bmc, ours)
                    continue
                bmc.refused = 0
                moved = _moved(bmc, method, path, reply) if 300 <= reply.status < 400 and hops < MOST_HOPS else ""
                if not moved:
                    return judge(bmc, method, path, reply, self.clock(), private=private)
                path, hops = moved, hops + 1

    async def patch(self, address: str, path: str, change: object, *, tag: str = "", private: bool = False) -> Answer:
        """Change a resource, if it is still as it is read now; ``Conflict`` if somebody else was faster.

        ``tag``: the ETag that it was read with before, where the change depends on what was read.
        """
        bmc = self.bmc(address)
        etag = tag or await self._etag(address, path)
        while True:
            try:
                return await self.request(address, "PATCH", path, change, headers=_if_match(bmc, etag), private=private)
            except Conflict:
                # Nothing was done. Some compare their own tags wrongly (a weak one never matches; quotes are doubled):
                # where the resource has not changed, the tag is right and the comparison is wrong.
                if not etag or bmc.etags == "none" or await self._etag(address, path) != etag:
                    raise
                bmc.etags = "strong" if bmc.etags == "as-told" and etag.startswith("W/") else "none"

    async def tree(self, address: str, path: str) -> Json:
        """A collection with its members, in as few requests as the BMC allows.

        A member that could not be read is its ``@odata.id`` with the reason in ``@Message.ExtendedInfo``.
        """
        bmc, features = self.bmc(address), await self.features(address)
        if not features.expand:
            return await self._whole(address, (await self.get(address, path)).body)
        query = f"{path}?$expand={features.expand}($levels=1)"
        try:
            body = (await self.get(address, query, timeout=self.settings.timeout)).body
        except DeviceError as wrong:
            modest = features._replace(expand="")
            if bmc.dead:
                bmc.features = modest  # perhaps the question was too much for it
            if not wrong.reply or self._quiet(bmc):
                raise
            body = (await self.get(address, path)).body  # raises where there is no such thing
            bmc.features = modest  # it promised too much
        return await self._whole(address, body)

    async def _whole(self, address: str, body: Json) -> Json:
        """``body`` with all of its members: further pages read, and each that is only a link."""
        bmc = self.bmc(address)
        members = body.get("Members")
        if not isinstance(members, list):
            return body  # that is a flaw, which ``judge`` has noted
        most, found, page = self.settings.max_members, list(members), body
        while len(found) < most and (following := path_of(bmc, page.get("Members@odata.nextLink"))):
            page = (await self.get(address, following)).body
            more = page.get("Members")
            if not isinstance(more, list) or not more:
                break
            found += more
        return {**body, "Members": [await self._member(address, member) for member in found[:most]]}

    async def _member(self, address: str, member: object) -> Json:
        if not isinstance(member, Mapping):
            return {"@Message.ExtendedInfo": [{"Message": "the member is no object"}]}
        path = path_of(self.bmc(address), member)
        if len(member) > 1 or not path:
            return member
        try:
            return (await self.get(address, path)).body
        except StrataError as wrong:
            if self.bmc(address).dead or self._quiet(self.bmc(address)):
                raise
            return {**member, "@Message.ExtendedInfo": [{"Message": str(wrong)}]}

    async def _etag(self, address: str, path: str) -> str:
        answer = await self.get(address, path)
        return answer.etag or text(answer.body.get("@odata.etag"))

    # -- what goes on and on

    @asynccontextmanager
    async def stream(self, address: str, path: str, accept: str) -> AsyncIterator[aiohttp.StreamReader]:
        """A body without end, at ``path``."""
        bmc = self.bmc(address)
        while True:
            auth, ours = await self._signed(bmc, address)
            async with self._wire.stream(bmc, path, {**auth, "Accept": accept}) as response:
                if response.status != 401:
                    judge(bmc, "GET", path, Reply(response.status, b"", response.headers), self.clock())
                    yield response.content
                    return
            self._ended(bmc, ours)

    @asynccontextmanager
    async def socket(self, address: str, path: str) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        """A WebSocket at ``path`` of the BMC's host."""
        bmc = self.bmc(address)
        while True:
            auth, ours = await self._signed(bmc, address)
            try:
                async with self._wire.socket(bmc, path, auth) as socket:
                    yield socket
                    return
            except aiohttp.WSServerHandshakeError as wrong:
                if wrong.status != 401:
                    told = f"it answered {wrong.status} instead of opening a WebSocket"
                    raise NotOffered(told, node=bmc.base, request=f"GET {path}") from wrong
            self._ended(bmc, ours)

    async def _signed(self, bmc: Endpoint, address: str) -> tuple[Mapping[str, str], bool]:
        async with bmc.busy:
            self._check(bmc, float("inf"))
            return await self._sessions.headers(bmc, address)

    def _ended(self, bmc: Endpoint, ours: bool) -> None:
        """A 401: the session ran out, and nothing was done; or, with a password just given, that was wrong."""
        if ours:
            self._sessions.refused(bmc)
        self._sessions.over(bmc)

    def _quiet(self, bmc: Endpoint) -> bool:
        """Whether it asked to be left alone for a while."""
        return self.clock() < bmc.quiet_until

    def _check(self, bmc: Endpoint, begin_before: float) -> None:
        now = self.clock()
        if now > begin_before:
            raise Unavailable("not begun: no time is left", where=bmc.base)
        if bmc.locked:
            raise DeviceError(
                f"not tried: it {bmc.locked}",
                node=bmc.base,
                hint="correct its credentials (strata hardware credentials set), and unlock it",
            )
        if now < bmc.quiet_until:
            raise DeviceError(f"not tried: busy for another {bmc.quiet_until - now:.0f} s", node=bmc.base)


def _features(root: Json) -> Features:
    expand = below(root, "ProtocolFeaturesSupported", "ExpandQuery")
    how = "." if expand.get("NoLinks") is True else "*" if expand.get("ExpandAll") is True else ""
    return Features(text(root.get("Vendor")), text(root.get("Product")), text(root.get("RedfishVersion")), how, root)


def _moved(bmc: Endpoint, method: str, path: str, reply: Reply) -> str:
    """Where a read is redirected to on the same host; empty: nowhere that we go. Credentials stay home."""
    where = header(reply, "Location")
    if method != "GET" or not where:
        return ""
    parts = urlsplit(urljoin(bmc.base + path, where))
    if f"{parts.scheme}://{parts.netloc}" != bmc.origin or not parts.path.startswith(f"{bmc.path}/redfish"):
        return ""
    found = parts.path.removeprefix(bmc.path)
    return f"{found}?{parts.query}" if parts.query else found


def _if_match(bmc: Endpoint, etag: str) -> Mapping[str, str]:
    if not etag or bmc.etags == "none":
        return {}
    return {"If-Match": etag.removeprefix("W/") if bmc.etags == "strong" else etag}
