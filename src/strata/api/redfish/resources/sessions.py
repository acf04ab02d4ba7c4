"""SessionService: logging in and out. Somebody sees the sessions of their own; an administrator all."""

from __future__ import annotations

from strata.api.redfish.protocol.bodies import missing
from strata.api.redfish.protocol.errors import rejected
from strata.api.redfish.protocol.login import ACCOUNTS, SESSIONS, logins_of
from strata.api.redfish.protocol.messages import message
from strata.api.redfish.protocol.route import ROOT, Call, Json, Reply, Route, collection, link
from strata.api.redfish.resources.event_body import timestamp
from strata.core.errors import NotFound
from strata.fleet.access.logins import Logins
from strata.fleet.access.principal import Principal, Right
from strata.fleet.access.sessions import TIMEOUT, Session, TooManySessions

_SERVICE = f"{ROOT}/SessionService"
_SEE_ALL = Right("read", "credential")
_END_ALL = Right("delete", "credential")


async def service(call: Call) -> Json:
    """The session service."""
    return {
        "@odata.id": _SERVICE,
        "@odata.type": "#SessionService.v1_1_9.SessionService",
        "Id": "SessionService",
        "Name": "Login sessions",
        "ServiceEnabled": call.services.find(Logins) is not None,
        "SessionTimeout": TIMEOUT,
        "Status": {"State": "Enabled", "Health": "OK"},
        "Sessions": link(SESSIONS),
    }


async def sessions(call: Call) -> Json:
    """The sessions that the caller may see."""
    found = [s for s in logins_of(call.services).sessions.all() if _may_see(call.who, s)]
    return collection(SESSIONS, "Session", "Sessions", [f"{SESSIONS}/{s.id}" for s in found])


async def session(call: Call) -> Json:
    """One session."""
    return _resource(_seen(call))


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


async def log_out(call: Call) -> Reply:
    """End a session."""
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
    return {
        "@odata.id": f"{SESSIONS}/{session.id}",
        "@odata.type": "#Session.v1_7_1.Session",
        "Id": session.id,
        "Name": "Login session",
        "UserName": session.user,
        "Password": None,
        "CreatedTime": timestamp(session.created),
        "SessionType": "Redfish",
    }


ROUTES: tuple[Route, ...] = (
    Route(template=_SERVICE, get=service),
    Route(template=SESSIONS, get=sessions, post=log_in, public=frozenset({"POST"})),
    Route(template=f"{SESSIONS}/{{session}}", get=session, delete=log_out),
)
