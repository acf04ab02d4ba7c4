"""What can be asked of reservations: made, seen, ended at whichever target keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from strata.core.errors import BadRequest, Denied, NotFound, StrataError
from strata.fleet.access.principal import Principal, Right
from strata.fleet.fleet import Fleet
from strata.jobs.accounts import LocalAccounts
from strata.jobs.reservations.records import ReservationList, ReservationRequest, ReservationView, Unread
from strata.jobs.submission.service import JobService
from strata.jobs.submission.targets import Target
from strata.schedulers.kinds import RESERVATION_KINDS
from strata.schedulers.reservations import Reservation, identifier


class ReservationService:
    """Over all targets of jobs. Schedulers are asked each time: they alone know."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._jobs = fleet.of(JobService)
        self._accounts = fleet.of(LocalAccounts)
        self._clock = fleet.controller.clock.wall

    async def all(self, who: Principal, target: str | None = None) -> ReservationList:
        """Reservations of all targets, as their schedulers tell of them now. Whoever runs jobs alone sees what is kept
        for their account."""
        targets = [self._target(target)] if target else list(self._jobs.targets.values())
        if target:
            targets[0].reservations()  # says that it has none
        asked = [one for one in targets if one.kind in RESERVATION_KINDS]
        found = await asyncio.gather(*map(self._of, asked))
        items = [view for views, _ in found for view in views]
        if not who.may(Right("read", "others-job")) and who.role == "user":
            mine = await self._own_account(who)
            items = [view for view in items if mine in view.accounts]
        items.sort(key=lambda view: (view.target, view.start or 0.0, view.id))
        return ReservationList(items=tuple(items), unread=tuple(one for _, one in found if one is not None))

    async def make(self, who: Principal, asked: ReservationRequest) -> ReservationView:
        """Have a scheduler keep nodes free for some accounts, for a time. Jobs name its id. A scheduler says no in
        its own words."""
        self._fleet.need_whole_fleet(who, "a reservation")
        target = self._target(asked.target)
        keeper = target.reservations()
        if asked.start is not None and asked.start < self._clock() - 60:
            raise BadRequest("is over already", where="start")
        for account in asked.accounts:
            await self._accounts.named(account)
        detail = {"accounts": list(asked.accounts), "nodes": asked.nodes, "seconds": asked.seconds}
        await self._fleet.ledger.commit(
            who.name, "reservation.create", f"{target.name}/{asked.name}", (), detail=detail
        )
        ident = await keeper.reserve(asked)
        for view in (await self._of(target))[0]:
            if view.id != ident:
                continue
            if view.nodes and len(view.nodes) < asked.nodes:
                # Slurm keeps what there is, and does not say that it is less than was asked for.
                await keeper.remove(ident)
                told = f"{target.name} keeps {len(view.nodes)} nodes then, and {asked.nodes} are asked for"
                raise BadRequest(told, where="nodes")
            return view
        # Some take a moment to show what they took.
        start = asked.start if asked.start is not None else self._clock()
        kept = Reservation(
            id=ident,
            name=asked.name,
            state="waiting",
            start=start,
            end=start + asked.seconds,
            accounts=asked.accounts,
            nodes=(),
        )
        return _view(target, kept)

    async def end(self, who: Principal, target: str, ident: str) -> None:
        """End a reservation. Some schedulers end the jobs in it, others refuse while there are any."""
        self._fleet.need_whole_fleet(who, "a reservation")
        found = self._target(target)
        keeper, ident = found.reservations(), identifier(ident)
        await self._fleet.ledger.commit(who.name, "reservation.delete", f"{target}/{ident}", ())
        await keeper.remove(ident)

    async def _of(self, target: Target) -> tuple[Sequence[ReservationView], Unread | None]:
        try:
            found = await target.reservations().all(self._clock())
        except StrataError as error:
            return (), Unread(target=target.name, trouble=str(error))
        return [_view(target, one) for one in found], None

    def _target(self, name: str) -> Target:
        found = self._jobs.targets.get(name)
        if found is None:
            names = ", ".join(self._jobs.targets) or "none"
            raise NotFound(f"there is no target {name}", where="target", hint=f"there are: {names}")
        return found

    async def _own_account(self, who: Principal) -> str:
        try:
            return (await self._accounts.of(who)).name
        except Denied:
            return ""


def _view(target: Target, one: Reservation) -> ReservationView:
    return ReservationView(**msgspec.structs.asdict(one), target=target.name, kind=target.kind)
