"""SessionService: logging in and out. Somebody sees the sessions of their own; an administrator all."""

from __future__ import annotations

from strata.api.redfish.protocol.bodies import missing
from strata.api.redfish.protocol.errors import rejected
from strata.api.redfish.protocol.login import ACCOUNTS, SESSIONS, logins_of
from strata.api.redfish.protocol.messages import message
from strata.api.redfish.protocol.route import ROOT, Call, Json, Reply, Routes, collection, link
from strata.api.redfish.protocol.schemas import resource
from strata.api.redfish.resources.forms import service, when
from strata.core.errors import NotFound
from strata.fleet.access.logins import Logins
from strata.fleet.access.principal import Principal, Right
from strata.fleet.access.sessions import TIMEOUT, Session, TooManySessions

_SERVICE = f"{ROOT}/SessionService"
_SEE_ALL = Right("read", "credential")
_END_ALL = Right("delete", "credential")

ROUTES = Routes()


@ROUTES.get(_SERVICE)
async def _service(call: Call) -> Json:
    return service(
        _SERVICE,
        "Login sessions",
        enabled=call.services.find(Logins) is not None,
        SessionTimeout=TIMEOUT,
        Sessions=link(SESSIONS),
    )


@ROUTES.get(SESSIONS)
async def sessions(call: Call) -> Json:
    """The sessions that the caller may see."""
    found = [s for s in logins_of(call.services).sessions.all() if _may_see(call.who, s)]
    return collection(SESSIONS, "Session", "Sessions", [f"{SESSIONS}/{s.id}" for s in found])


@ROUTES.get(f"{SESSIONS}/{{session}}")
async def session(call: Call) -> Json:
    return _resource(_seen(call))


@ROUTES.post(SESSIONS, public=True)
async def log_in(call: Call) -> Reply:
    """Open a session; its token is in the ``X-Auth-Token`` of the answer and nowhere else."""
    sent = call.body or {}
    given: list[str] = []
    for name in ("UserName", "Password"):
        value = sent.get(name)
        if value is None:
            raise missing(name)
        if not isinstance(value, str):
            raise rejected(400, "PropertyValueError", name, about=name)
        given.append(value)
    try:
        token, opened, who = await logins_of(call.services).open(*given)
    except TooManySessions as error:
        raise rejected(503, "SessionLimitExceeded", hint=error.hint) from None
    headers = {"Location": f"{SESSIONS}/{opened.id}", "X-Auth-Token": token}
    body = _resource(opened)
    if logins_of(call.services).must_change_password(who):
        body["@Message.ExtendedInfo"] = [message("PasswordChangeRequired", f"{ACCOUNTS}/{who.credential}")]
    return Reply(status=201, body=body, headers=headers)


@ROUTES.delete(f"{SESSIONS}/{{session}}")
async def log_out(call: Call) -> Reply:
    found = _seen(call)
    if found.subject != call.who.name:
        call.who.require(_END_ALL)
    await logins_of(call.services).sessions.close(call.who, found.id)
    return Reply(status=204)


def _seen(call: Call) -> Session:
    found = logins_of(call.services).sessions.get(call.params["session"])
    if not _may_see(call.who, found):
        raise NotFound("no such session")
    return found


def _may_see(who: Principal, session: Session) -> bool:
    return session.subject == who.name or who.may(_SEE_ALL)


def _resource(session: Session) -> Json:
    return resource(
        f"{SESSIONS}/{session.id}",
        "Session",
        "Login session",
        UserName=session.user,
        Password=None,
        CreatedTime=when(session.created),
        SessionType="Redfish",
    )
