"""Sessions with BMCs: one each, used again and again, and given back.

A BMC has few (eight are common) and keeps those that nobody ends for half an hour. So each one that may be
open is remembered: the one in use, those that were said to be over, and one whose login got no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn
from urllib.parse import urlsplit

from strata.core.errors import DeviceError, OutcomeUnknown, StrataError
from strata.hardware.bmc.redfish.connections import NotConnected
from strata.hardware.bmc.redfish.endpoint import SESSIONS, Credentials, Endpoint, Json, items, path_of
from strata.hardware.bmc.redfish.reply import header, judge
from strata.hardware.bmc.redfish.wire import Raw, Wire

JSON = "application/json"

MOST_SESSIONS = 32
"""Sessions looked at when searching for one that got lost."""

MOST_STALE = 4
"""Sessions remembered of which it is not certain that they have ended."""

LOG_OUT_TRIES = 4
"""Ending a session twice does no harm."""


class Sessions:
    """Logs in and out. ``credentials``: of all, or by address."""

    def __init__(self, wire: Wire, credentials: Credentials | Callable[[str], Credentials]) -> None:
        self._wire = wire
        self._credentials = credentials

    async def headers(self, bmc: Endpoint, address: str) -> tuple[Mapping[str, str], bool]:
        """What says who we are, with a login where one is needed; whether a refusal means a wrong password."""
        fresh = False
        if not bmc.token and not self._basic(bmc):
            fresh = await self._log_in(bmc, address)
        if bmc.token:
            return {"X-Auth-Token": bmc.token}, fresh
        return {"Authorization": self._who(address).basic()}, True

    def over(self, bmc: Endpoint) -> None:
        """The BMC said that our session has ended."""
        if bmc.token and bmc.session and bmc.session not in bmc.stale:
            bmc.stale = [*bmc.stale[1 - MOST_STALE :], bmc.session]
        bmc.token = ""

    def refused(self, bmc: Endpoint) -> NoReturn:
        """The BMC did not take our password; after a few in a row it is not asked again."""
        self.over(bmc)
        if self._wire.clock() < bmc.full_until:
            # It may only want sessions. Should the password be wrong, the next login tells, and that is the second.
            bmc.refused, bmc.quiet_until = 1, bmc.full_until
            full = "all its sessions are taken, and it takes no password with a request"
            raise DeviceError(full, node=bmc.base, hint="end sessions of others, or wait until they run out")
        bmc.refused += 1
        if bmc.refused >= self._wire.settings.wrong_passwords:
            bmc.locked = f"refused the password {bmc.refused} times"
        raise DeviceError(
            "the password was refused", node=bmc.base, hint="correct its credentials: strata hardware credentials set"
        )

    async def log_out(self, bmc: Endpoint, address: str) -> None:
        """Give back whatever session may be open, as far as the BMC answers."""
        own, bmc.token = {"X-Auth-Token": bmc.token} if bmc.token else {}, ""
        await self._end_others(bmc, address, own)
        for _ in range(LOG_OUT_TRIES if own else 0):
            if bmc.dead or await self._end(bmc, bmc.session, own, gone=(401, 404)):
                break
        bmc.session = ""
        await self._end_others(bmc, address, {})

    async def _end_others(self, bmc: Endpoint, address: str, auth: Mapping[str, str]) -> None:
        """End what may be open besides the session in use; without ``auth``, with the password."""
        for _ in range(LOG_OUT_TRIES):
            if bmc.dead or not (bmc.ghosts or bmc.stale):
                return
            try:
                who = self._who(address)
            except StrataError:
                return  # they are gone, and with them what could be looked for
            way = auth or {"Authorization": who.basic()}
            if bmc.ghosts:
                await self._tidy(bmc, who.user, way)
            for path in list(bmc.stale):
                await self._end(bmc, path, way)

    def _basic(self, bmc: Endpoint) -> bool:
        """Whether to send the password with each request."""
        return self._wire.settings.auth == "basic" or bmc.sessionless or self._wire.clock() < bmc.full_until

    def _who(self, address: str) -> Credentials:
        return self._credentials if isinstance(self._credentials, Credentials) else self._credentials(address)

    async def _log_in(self, bmc: Endpoint, address: str) -> bool:
        """Get a session; False if somebody else just did, or if there is none to be had."""
        async with bmc.door:
            if bmc.token or self._basic(bmc):
                return False
            who = self._who(address)
            if bmc.ghosts and (why := await self._tidy(bmc, who.user, {"Authorization": who.basic()})):
                raise DeviceError(f"{why}; an earlier session of ours may still be open there", node=bmc.base)
            before, bmc.ghosts = bmc.ghosts, True  # until we know better: the caller may be cancelled, too
            try:
                reply = await self._wire.send(bmc, "POST", SESSIONS, Raw(who.login(), JSON), {}, harmless=True)
            except DeviceError as wrong:
                if isinstance(wrong.__cause__, NotConnected):
                    bmc.ghosts = before  # never connected, so nothing can be open
                raise
            if reply.status >= 400:
                bmc.ghosts = before
            if reply.status in (401, 403):
                self.refused(bmc)
            if reply.status >= 400 and b"SessionLimitExceeded" in reply.body:
                bmc.full_until = self._wire.clock() + self._wire.settings.full_for
                return False
            if reply.status in (404, 405, 501):
                bmc.sessionless = True  # sushy-tools' emulator, old firmware
                return False
            try:
                answer = judge(bmc, "POST", SESSIONS, reply, self._wire.clock(), private=True)
            except OutcomeUnknown as wrong:
                raise DeviceError("the reply to the login is not JSON", node=bmc.base) from wrong
            token = header(reply, "X-Auth-Token").strip()
            if answer.status not in (200, 201) or not (token and token.isascii()):
                raise DeviceError("the login gave no token", node=bmc.base, request=f"POST {SESSIONS}")
            bmc.token = token
            bmc.session = path_of(bmc, urlsplit(answer.location).path) or path_of(bmc, answer.body)
            bmc.ghosts = before or not bmc.session
            if before:
                await self._tidy(bmc, who.user, {"X-Auth-Token": token})
            for path in list(bmc.stale):
                await self._end(bmc, path, {"X-Auth-Token": token})
            return True

    async def _end(self, bmc: Endpoint, path: str, auth: Mapping[str, str], *, gone: tuple[int, ...] = (404,)) -> bool:
        """End a session; whether it is certain that it has ended. ``gone``: what says that there is no such session."""
        if path.startswith(f"{SESSIONS}/"):
            try:
                reply = await self._wire.send(bmc, "DELETE", path, None, auth, harmless=True)
                if reply.status not in gone:
                    judge(bmc, "DELETE", path, reply, self._wire.clock())
            except StrataError:
                return False
        if path in bmc.stale:
            bmc.stale.remove(path)
        return True

    async def _tidy(self, bmc: Endpoint, user: str, auth: Mapping[str, str]) -> str:
        """End the sessions of our user: the answer to a login got lost, so one of them may be nobody's.

        Another client of that user logs in again; the account is Strata's own. Why it could not be done: try again
        before the next login. Where ``auth`` is not taken (some only take sessions), the login itself comes first.
        """
        try:
            told = await self._look(bmc, SESSIONS, auth)
            if told is None:
                return ""
            for path in [path_of(bmc, member) for member in items(told, "Members")][:MOST_SESSIONS]:
                body = await self._look(bmc, path, auth) if path and path != bmc.session else None
                if body is not None and body.get("UserName") == user and not await self._end(bmc, path, auth):
                    return "it does not end a session"
        except StrataError as wrong:
            return wrong.detail
        bmc.ghosts = False
        return ""

    async def _look(self, bmc: Endpoint, path: str, auth: Mapping[str, str]) -> Json | None:
        """The resource at ``path``; None where we may not see it, or it is gone."""
        reply = await self._wire.send(bmc, "GET", path, None, auth)
        if reply.status in (401, 403, 404):
            return None
        return judge(bmc, "GET", path, reply, self._wire.clock()).body
