"""Follows a branch: looks at it time and again, reads what is new, and has it applied when its policy says so.

What cannot be read or applied changes nothing: the last good configuration stays, and the status says why. A branch
that was put somewhere else (a force-push) is never applied by itself, whatever the policy. Only one controller looks.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from strata.core.errors import BadRequest, Conflict, NotFound, Refused, StrataError
from strata.core.host.local_zone import LOCAL
from strata.fleet.access.principal import Principal
from strata.fleet.fleet import Fleet
from strata.fleet.recurring import Recurring
from strata.platform.config.git import Mirror, Reach, check_url
from strata.platform.config.reading import configuration_of
from strata.platform.config.records import Approval, Configuration, Followed, WatchSpec, WatchView
from strata.platform.config.windows import parse as parse_window
from strata.platform.duty import PLATFORM
from strata.platform.settings import PlatformSettings

if TYPE_CHECKING:
    from strata.platform.config.service import ConfigService

log = logging.getLogger(__name__)

NAME = "current"
_IDLE = 60.0
"""Seconds between two looks whether there is a branch to follow."""
SELF = Principal(name="config-watch", role="admin")
"""Whom the audit log names where a policy applies a commit."""


class _State(msgspec.Struct):
    """What is known of the branch."""

    where: tuple[str, ...] = ()
    seen: str = ""
    looked: float | None = None
    configuration: Configuration | None = None
    """What the commit ``seen`` comes to; None: it cannot be read."""
    waits_for: str = ""
    error: str = ""


class Watcher:
    """The branch that is followed, if one is. ``load``, ``start``, then ``stop``."""

    def __init__(self, fleet: Fleet, service: ConfigService) -> None:
        self._fleet = fleet
        self._duty = fleet.controller.leadership.duty(PLATFORM)
        self._service = service
        self._records = fleet.records(
            Followed, kind="config-watch", prefix="config/watch/", changed=lambda *_: self._changed()
        )
        settings = fleet.section(PlatformSettings)
        reach = Reach(ssh_config=settings.ssh_config, ca=settings.git_ca)
        self._mirror = Mirror(fleet.settings.state_dir / "config", reach=reach)
        self._state = _State()
        self._looking = asyncio.Lock()
        self._turn = Recurring("configuration", self._round, self._pause_s, trouble="the branch cannot be followed")
        self.load = self._records.start
        self.start = self._turn.start

    async def stop(self) -> None:
        """Look no more."""
        await self._turn.stop()
        await self._records.stop()

    @property
    def followed(self) -> Followed | None:
        """The branch, if there is one."""
        return self._records.find(NAME)

    def shown(self) -> dict[str, Any]:
        """What the status says of it."""
        followed, state = self.followed, self._state
        if followed is None:
            return {}
        waits = state.configuration is not None and state.seen != self._service.applied.commit
        return {
            "watch": WatchView.of(followed.spec, paused=followed.paused),
            "seen": state.seen,
            "looked": state.looked,
            "pending": state.seen if waits and not state.error else "",
            "waits_for": state.waits_for if waits else "",
            "error": state.error,
        }

    def pending(self) -> Configuration:
        """The configuration of the commit that waits."""
        found = self._state.configuration
        if found is None or found.commit == self._service.applied.commit:
            raise NotFound("no commit waits", where="config", hint="strata config status says what is there")
        return found

    # changing

    async def follow(self, who: Principal, spec: WatchSpec) -> None:
        """Follow another branch, or the same by another policy."""
        check_url(spec.url)
        if ".." in spec.branch or spec.branch.endswith((".lock", "/", ".")) or "//" in spec.branch:
            raise BadRequest("is not the name of a branch", where=repr(spec.branch)[:80])
        if spec.policy == "window":
            parse_window(spec.window)
        elif spec.window:
            raise BadRequest("a window goes with the policy 'window'", where="window")
        detail = {"url": spec.url, "branch": spec.branch, "policy": spec.policy}
        await self._records.put(who.name, NAME, Followed(spec=spec), detail=detail)

    async def forget(self, who: Principal) -> None:
        """Follow none."""
        if self.followed is None:
            raise NotFound("no branch is followed", where="config", hint="strata config watch URL follows one")
        await self._records.delete(who.name, NAME)

    async def pause(self, who: Principal, reason: str) -> None:
        """Apply nothing of it; with no reason: go on."""
        await self._replace(who, "pause" if reason else "resume", {"reason": reason} if reason else {}, paused=reason)

    async def approve(self, who: Principal, approval: Approval) -> None:
        """Let a commit be applied, and do it."""
        waiting = self.pending().commit
        if not waiting.startswith(approval.commit):
            raise Conflict(
                f"the commit that waits is {waiting[:12]}",
                where=f"commit {approval.commit[:12]}",
                hint="look at it with 'strata config pending', then approve that one",
            )
        said = {"commit": waiting, "remove_most": approval.remove_most}
        await self._replace(who, "approve", said, approved=waiting, remove_most=approval.remove_most)
        await self.look()

    async def look(self) -> None:
        """Look at it now."""
        if self.followed is None:
            raise NotFound("no branch is followed", where="config", hint="strata config watch URL")
        await self._round()

    async def _replace(self, who: Principal, action: str, said: Mapping[str, Any], **fields: Any) -> None:
        """``said``: what the audit log says of it."""

        def make(old: Followed | None) -> Followed:
            if old is None:
                raise NotFound("no branch is followed", where="config", hint="strata config watch URL")
            return msgspec.structs.replace(old, **fields)

        await self._records.change(who.name, NAME, make, action=action, detail=said)

    # looking

    def _changed(self) -> None:
        followed = self.followed
        if followed is None or _where(followed.spec) != self._state.where:
            self._state = _State()  # what was found on another branch is nothing of this one
        self._turn.soon()

    def _pause_s(self) -> float:
        return self.followed.spec.every if self.followed else _IDLE

    async def _round(self) -> None:
        async with self._looking:
            followed = self.followed
            if followed is None or not self._duty.here:
                return
            if (where := _where(followed.spec)) != self._state.where:
                self._state = _State(where=where)
            state = self._state
            try:
                newest = await self._mirror.fetch(followed.spec.url, followed.spec.branch)
                if newest != state.seen or state.configuration is None:
                    state.seen, state.configuration = newest, None
                    state.configuration = await configuration_of(self._mirror.directory, newest, followed.spec.system)
            except StrataError as error:
                self._note(str(error))
                return
            finally:
                state.looked = self._fleet.controller.clock.wall()
            await self._decide(followed, state.configuration)

    async def _decide(self, followed: Followed, configuration: Configuration) -> None:
        """Apply it, or say what it waits for."""
        applied = self._service.applied
        self._state.waits_for = ""
        if (applied.commit, applied.system) == (configuration.commit, configuration.system):
            self._note("")
            return
        approved = followed.approved == configuration.commit
        rolling = self._service.on_its_way(configuration.commit)
        if rolling is not None and not (rolling.failed and approved):
            self._state.waits_for = f"approval: {rolling.failed}" if rolling.failed else rolling.waits_for
            self._note("")
            return
        try:
            plan = await self._service.plan(SELF, configuration)
            self._state.waits_for = await self._waits_for(followed, applied.commit, configuration.commit)
            if not self._state.waits_for and plan.refused and not (approved and followed.remove_most):
                self._state.waits_for = f"approval with --remove-most: {plan.refused}"
            if not self._state.waits_for:
                done = await self._service.apply(SELF, configuration, remove_most=followed.remove_most and approved)
                words = "configuration is rolled out" if done.rollouts else "configuration applied"
                log.info(words, extra={"commit": done.commit[:12], "changes": len(done.changes)})
                if done.rollouts and approved:
                    await self._replace(
                        SELF, "begin", {}, approved="", remove_most=False
                    )  # a second try needs another one
            self._note("")
        except (BadRequest, Conflict, Refused, NotFound) as error:
            self._note(f"commit {configuration.commit[:12]}: {error}")

    async def _waits_for(self, followed: Followed, old: str, new: str) -> str:
        spec = followed.spec
        if followed.paused:
            return f"paused: {followed.paused}"
        if followed.approved == new:
            return ""
        if old and not await self._mirror.follows(old, new):
            return f"approval: the branch was put elsewhere, {new[:12]} does not come after {old[:12]}"
        if spec.policy == "manual":
            return "approval"
        if spec.policy == "window":
            now = dt.datetime.fromtimestamp(self._fleet.controller.clock.wall(), LOCAL)
            if not parse_window(spec.window).is_open(now):
                return f"the maintenance window ({spec.window})"
        return ""

    def _note(self, error: str) -> None:
        if error and error != self._state.error:
            log.warning("the configuration stays as it is", extra={"reason": error})
        self._state.error = error


def _where(spec: WatchSpec) -> tuple[str, ...]:
    """What makes another branch of it."""
    return spec.url, spec.branch, spec.system
