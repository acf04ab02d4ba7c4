"""One simulated BMC as Redfish sees it: who may use it, sessions, reading, changing, expanding, error replies.

Knows paths and users; what there is at a path is said by the trees of each kind of BMC.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from typing import ClassVar

import msgspec

from strata.virtual.bmc.http import Reply, Request
from strata.virtual.redfish.body import (
    ODATA,
    ROOT,
    Json,
    Refusal,
    created,
    encode,
    error,
    etag,
    missing,
    not_allowed,
    read_json,
    refuse,
    resource,
)
from strata.virtual.redfish.events import EventDesk
from strata.virtual.redfish.query import queried
from strata.virtual.redfish.router import Call, Router
from strata.virtual.redfish.site import Site, part_uuid

SESSIONS = f"{ROOT}/SessionService/Sessions"

LOCK_OUT_AFTER = 5
"""Wrong passwords in a row, after which a BMC refuses the right one too."""


class Account(msgspec.Struct, frozen=True):
    """Who may use a BMC. Its ``repr`` does not show the password."""

    user: str
    password: str
    limit: int = 8
    """Sessions at a time."""
    expiry: float = 300.0
    """Seconds without a request after which a session ends."""

    def __repr__(self) -> str:
        return f"Account(user={self.user!r})"

    @property
    def basic(self) -> str:
        """The Authorization header that it accepts."""
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()


class Bmc:
    """One BMC. Its kind (of a node, a PDU...) says with ``router`` what resources it has."""

    router: ClassVar[Router]
    services: ClassVar[tuple[str, ...]]
    """What hangs off its root."""
    kind: ClassVar[str]
    """What it controls, as the catalogue of parts calls it."""
    manager_type: ClassVar[str] = "BMC"
    manages: ClassVar[Json] = {}

    def __init__(self, site: Site, name: str, account: Account, key: int) -> None:
        self.site = site
        self.name = name
        self.key = key
        """The node's number; of a BMC without a node, a number that no node has."""
        self.requests = 0
        self.wrong_passwords = 0
        self.sessions: dict[str, tuple[str, float]] = {}
        """Token → session id, time of the last use."""
        self.sessions_most = 0
        """How many were ever open at the same time."""
        self.revision = 0
        """Rises with every change that somebody made."""
        self.ntp: list[str] = []
        self.account = account
        self._basic = account.basic
        self._events: EventDesk | None = None
        self._session_count = 0
        self._failures = 0

    @property
    def events(self) -> EventDesk:
        if self._events is None:
            self._events = EventDesk(self.site, self.name)
        return self._events

    @property
    def locked(self) -> bool:
        """Whether too many wrong passwords were given."""
        return self._failures >= LOCK_OUT_AFTER

    def answer(self, request: Request, path: str, now: float) -> Reply:
        """The reply to ``request`` for the resource at ``path``."""
        self.requests += 1
        path = path.rstrip("/")
        method = request.method
        try:
            if path in ("/redfish", ROOT):
                if method not in ("GET", "HEAD"):
                    return not_allowed("GET, HEAD")
                return self._read(request, {"v1": f"{ROOT}/"} if path == "/redfish" else self._view(ROOT, request, now))
            if path == SESSIONS and method == "POST":
                return self._log_in(request, now)
            denied = self._check_user(request, now)
            if denied is not None:
                return denied
            if method == "GET" and not request.query:
                quick = self._quick(request, path, now)
                if quick is not None:
                    return quick
            return self._route(request, path, now)
        except Refusal as refusal:
            return refusal.reply

    def _route(self, request: Request, path: str, now: float) -> Reply:
        found = self.router.find(path[len(ROOT) + 1 :]) if path.startswith(f"{ROOT}/") else None
        if found is None:
            return missing(path)
        place, ids = found
        call = Call(path, ids, now, request)
        if request.method in ("GET", "HEAD") and place.view is not None:
            body = place.view(self, call)
            if body is not None and request.query:
                body = queried(body, request.query, lambda path: self._view(path, request, now))
            return missing(path) if body is None else self._read(request, body)
        handler = place.handlers.get(request.method)
        if handler is None:
            return not_allowed(place.allow)
        if "if-match" in request.headers and place.view is not None:
            current = place.view(self, call)
            if current is not None and request.headers["if-match"] not in (etag(encode(current)), "*"):
                return error(412, "PreconditionFailed", "The resource has changed: its ETag is another.")
        reply = handler(self, call)
        self.revision += 1
        return reply

    # -- what it is

    def part(self, kind: str, where: str) -> Json:
        """Maker, model and numbers of the part at ``where``."""
        return self.site.part(self.key, kind, where)

    def uuid(self, where: str) -> str:
        """The UUID of the part at ``where``."""
        return part_uuid(self.site.nodes.seed, self.key, where, self._swaps(where))

    def firmware(self, now: float) -> str:
        return "1.0-simulated"

    def swap(self, part: str) -> None:
        """Put another of the same kind in its place: ``Memory/DIMM3``, ``Processors/CPU1``, ``NetworkAdapters/NIC1``,
        ``System`` (the main board), ``Manager`` (the BMC itself)..."""
        self.site.swaps[self.key, part] = self._swaps(part) + 1
        self.revision += 1

    def _swaps(self, where: str) -> int:
        return self.site.swaps.get((self.key, where), 0)

    # -- what is done to it

    def restart(self) -> None:
        """The BMC itself restarts: sessions and subscriptions are gone."""
        self.sessions.clear()
        self.events.forget()

    def attend(self, now: float) -> None:
        """Somebody begins to listen."""

    def change_password(self, password: str) -> None:
        """From now on this one counts."""
        self.account = msgspec.structs.replace(self.account, password=password)
        self._basic = self.account.basic
        self._failures = 0

    # -- who asks

    def _check_user(self, request: Request, now: float) -> Reply | None:
        token = request.headers.get("x-auth-token")
        if token is not None:
            session = self.sessions.get(token)
            if session is not None and now - session[1] <= self.account.expiry:
                self.sessions[token] = (session[0], now)
                return None
            self.sessions.pop(token, None)
            return error(401, "NoValidSession", "There is no valid session.")
        given = request.headers.get("authorization")
        if given is None:
            return error(401, "NoValidSession", "Log in, or send a user and password.", _ASK)
        return None if self._right(given == self._basic) else _WRONG

    def _right(self, right: bool) -> bool:
        """Count wrong passwords; after too many in a row the right one is refused too."""
        if self.locked:
            return False
        self._failures = 0 if right else self._failures + 1
        self.wrong_passwords += not right
        return right

    def _log_in(self, request: Request, now: float) -> Reply:
        body = read_json(request.body)
        right = body.get("UserName") == self.account.user and body.get("Password") == self.account.password
        if not self._right(right):
            return _WRONG
        old = [token for token, (_, used) in self.sessions.items() if now - used > self.account.expiry]
        for token in old:
            del self.sessions[token]
        if len(self.sessions) >= self.account.limit:
            return error(503, "SessionLimitExceeded", "All sessions are in use.", (("Retry-After", "30"),))
        self._session_count += 1
        name, token = str(self._session_count), secrets.token_hex(16)
        self.sessions[token] = (name, now)
        self.sessions_most = max(self.sessions_most, len(self.sessions))
        body = resource(f"{SESSIONS}/{name}", "Session.v1_6_0", **self.session())
        return created(body, ("X-Auth-Token", token))

    def session(self) -> Json:
        """Any session: they are all of the one user."""
        return {"Name": "Session", "UserName": self.account.user, "Password": None}

    def session_ids(self) -> list[str]:
        """Those that are open."""
        return [name for name, _ in self.sessions.values()]

    def end_session(self, name: str) -> bool:
        """Log out; False if there is no such session."""
        token = next((token for token, (known, _) in self.sessions.items() if known == name), None)
        return token is not None and self.sessions.pop(token, None) is not None

    # -- what is asked

    def _quick(self, request: Request, path: str, now: float) -> Reply | None:
        """A reply that is at hand without a walk through the tables, if there is one."""
        return None

    def _view(self, path: str, request: Request, now: float) -> Json:
        """The resource at ``path``; a link to it where there is none."""
        found = self.router.find(path[len(ROOT) + 1 :])
        body = found[0].view(self, Call(path, found[1], now, request)) if found and found[0].view else None
        return {"@odata.id": path} if body is None else body

    def _read(self, request: Request, body: Json) -> Reply:
        encoded = encode(body)
        return self._tagged(request, encoded, etag(encoded))

    def _tagged(self, request: Request, encoded: bytes, tag: str) -> Reply:
        if request.headers.get("if-none-match") == tag:
            return Reply(304, headers=(("ETag", tag), *ODATA))
        return Reply(200, encoded, (("ETag", tag), *ODATA))


def read_fence(call: Call) -> tuple[int, int] | None:
    """The two numbers of the fence that came with a request; None without one."""
    text = call.request.headers.get("x-strata-fence")
    if text is None:
        return None
    epoch, _, generation = text.partition(".")
    if not (epoch.isdecimal() and generation.isdecimal() and len(text) < 38):
        refuse(400, "HeaderInvalid", "X-Strata-Fence is two numbers with a dot between them.")
    return int(epoch), int(generation)


FENCED = error(412, "PreconditionFailed", "A newer or equal fence was taken before.")
"""What a BMC says to a request whose fence is old."""
_ASK = (("WWW-Authenticate", 'Basic realm="simulated"'),)
_WRONG = error(401, "ResourceAtUriUnauthorized", "The user or password is wrong.", _ASK)
