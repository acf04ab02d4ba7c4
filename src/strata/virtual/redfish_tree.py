"""One simulated controller as Redfish sees it: its resources, sessions, actions and error replies.

Knows one node of a ``SimNodes`` and the time; knows neither sockets nor who else lives in the process.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Mapping
from hashlib import blake2b

import msgspec
import numpy as np

from strata.core.state import Outcome
from strata.virtual.http import Manner, Reply, Request
from strata.virtual.nodes import SimNodes
from strata.virtual.rules import REASONS

ROOT = "/redfish/v1"
SYSTEM, CHASSIS, MANAGER = f"{ROOT}/Systems/1", f"{ROOT}/Chassis/1", f"{ROOT}/Managers/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"
SESSIONS = f"{ROOT}/SessionService/Sessions"

RESETS = {"On": "power-on", "ForceOn": "power-on", "ForceOff": "power-off", "GracefulShutdown": "power-off"}
FLAVOURS = (("On", "ForceOff", "GracefulShutdown"), ("On", "ForceOff"), ("ForceOn", "GracefulShutdown", "ForceOff"))
"""What makes of controllers allow; a node's make is its index modulo these."""

LOCK_OUT_AFTER = 5
"""Wrong passwords in a row, after which a controller refuses the right one too."""

Json = dict[str, object]


class Account(msgspec.Struct, frozen=True):
    """Who may use a controller. Its ``repr`` does not show the password."""

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
    """One controller and its one system."""

    def __init__(self, nodes: SimNodes, node: int, account: Account) -> None:
        self.name = nodes.names[node]
        self.resets: list[str] = []
        """Every ResetType that the controller accepted, in order."""
        self.requests = 0
        self.wrong_passwords = 0
        self.sessions: dict[str, tuple[str, float]] = {}
        """Token → session id, time of the last use."""
        self._nodes = nodes
        self._idx = np.array([node], dtype=np.int64)
        self._account = account
        self._basic = account.basic
        self._allowed = FLAVOURS[node % len(FLAVOURS)]
        self._boot: Json = {"BootSourceOverrideEnabled": "Disabled", "BootSourceOverrideTarget": "None"}
        self._session_count = 0
        self._failures = 0

    def answer(self, request: Request, path: str, now: float, *, actions: bool = True) -> Reply:
        """The reply to ``request`` for the resource at ``path``."""
        self.requests += 1
        path = path.rstrip("/")
        if path in ("/redfish", ROOT):
            return self._read(request, _version() if path == "/redfish" else self._root())
        if path == SESSIONS and request.method == "POST":
            return self._log_in(request, now)
        denied = self._check_user(request, now)
        if denied is not None:
            return denied
        if path == RESET:
            return self._reset(request, now) if request.method == "POST" else _not_allowed("POST")
        if path == SYSTEM and request.method == "PATCH":
            return self._set_boot(request, now)
        if path.startswith(SESSIONS + "/"):
            return self._session(request, path)
        body = self._resource(path, now, actions=actions)
        if body is None:
            return error(404, "ResourceMissingAtURI", f"There is no resource at {path}.")
        return self._read(request, body)

    # -- who asks

    def _check_user(self, request: Request, now: float) -> Reply | None:
        token = request.headers.get("x-auth-token")
        if token is not None:
            session = self.sessions.get(token)
            if session is not None and now - session[1] <= self._account.expiry:
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
        if self._failures >= LOCK_OUT_AFTER:
            return False
        self._failures = 0 if right else self._failures + 1
        self.wrong_passwords += not right
        return right

    def _log_in(self, request: Request, now: float) -> Reply:
        body = _body(request)
        if body is None:
            return _MALFORMED
        right = body.get("UserName") == self._account.user and body.get("Password") == self._account.password
        if not self._right(right):
            return _WRONG
        old = [token for token, (_, used) in self.sessions.items() if now - used > self._account.expiry]
        for token in old:
            del self.sessions[token]
        if len(self.sessions) >= self._account.limit:
            return error(503, "SessionLimitExceeded", "All sessions are in use.", (("Retry-After", "30"),))
        self._session_count += 1
        name, token = str(self._session_count), secrets.token_hex(16)
        self.sessions[token] = (name, now)
        uri = f"{SESSIONS}/{name}"
        return Reply(201, _json(self._session_body(name)), (("X-Auth-Token", token), ("Location", uri), *_ODATA))

    def _session(self, request: Request, path: str) -> Reply:
        name = path.rpartition("/")[2]
        token = next((token for token, (known, _) in self.sessions.items() if known == name), None)
        if token is None:
            return error(404, "ResourceMissingAtURI", f"There is no session {name}.")
        if request.method == "DELETE":
            del self.sessions[token]
            return Reply(204, headers=_ODATA)
        return self._read(request, self._session_body(name), "GET, HEAD, DELETE")

    # -- what is asked

    def _read(self, request: Request, body: Json, allow: str = "GET, HEAD") -> Reply:
        if request.method not in ("GET", "HEAD"):
            return _not_allowed(allow)
        encoded = _json(body)
        tag = _etag(encoded)
        if request.headers.get("if-none-match") == tag:
            return Reply(304, headers=(("ETag", tag), *_ODATA))
        return Reply(200, encoded, (("ETag", tag), *_ODATA))

    def _reset(self, request: Request, now: float) -> Reply:
        body = _body(request)
        if body is None:
            return _MALFORMED
        kind = body.get("ResetType")
        if kind is None:
            return error(400, "ActionParameterMissing", "The action needs the parameter ResetType.")
        if not isinstance(kind, str) or kind not in self._allowed:
            return error(400, "ActionParameterValueNotInList", f"ResetType is one of {', '.join(self._allowed)}.")
        try:
            fence = _fence(request.headers.get("x-strata-fence"))
        except ValueError:
            return error(400, "HeaderInvalid", "X-Strata-Fence is two numbers with a dot between them.")
        epochs = np.array([fence[0]], dtype=np.int64) if fence else None
        before = len(self._nodes.effects)
        acted = self._nodes.act(RESETS[kind], self._idx, now=now, epochs=epochs, generation=fence[1] if fence else 0)
        outcome = Outcome(int(acted.codes[0]))
        if outcome is Outcome.FENCED:
            return error(412, "PreconditionFailed", "A newer or equal fence was taken before.")
        if outcome is Outcome.FAILED:
            return error(500, "InternalError", f"The request failed: {REASONS[acted.why[0]]}.")
        if len(self._nodes.effects) > before:
            self.resets.append(kind)
        if outcome is Outcome.UNKNOWN:
            return Reply(204, manner=Manner.CLOSED)
        return Reply(204, headers=_ODATA)

    def _set_boot(self, request: Request, now: float) -> Reply:
        body = _body(request)
        if body is None:
            return _MALFORMED
        current = _etag(_json(self._system(now, actions=True)))
        if request.headers.get("if-match", current) not in (current, "*"):
            return error(412, "PreconditionFailed", "The resource has changed: its ETag is another.")
        boot = body.get("Boot")
        if not isinstance(boot, dict) or set(boot) - set(self._boot) or set(body) != {"Boot"}:
            return error(400, "PropertyUnknown", f"Only Boot can be changed: {', '.join(self._boot)}.")
        self._boot |= boot
        return Reply(204, headers=_ODATA)

    # -- what there is

    def _resource(self, path: str, now: float, *, actions: bool) -> Json | None:
        if path == SYSTEM:
            return self._system(now, actions=actions)
        if path == f"{CHASSIS}/Power":
            return self._power(now)
        if path == CHASSIS:
            return self._thing(CHASSIS, "Chassis.v1_21_0.Chassis", ChassisType="Sled", Power=_link(f"{CHASSIS}/Power"))
        if path == MANAGER:
            return self._thing(MANAGER, "Manager.v1_17_0.Manager", ManagerType="BMC", FirmwareVersion="1.0-simulated")
        if path == f"{ROOT}/SessionService":
            timeout = int(self._account.expiry)
            return _resource(
                path,
                "SessionService.v1_1_8.SessionService",
                Id="SessionService",
                Name="Sessions",
                SessionTimeout=timeout,
                Sessions=_link(SESSIONS),
            )
        if path == SESSIONS:
            return _collection(path, "Session", [f"{SESSIONS}/{name}" for name, _ in self.sessions.values()])
        for one in (SYSTEM, CHASSIS, MANAGER):
            if path == one.rpartition("/")[0]:
                return _collection(path, "ComputerSystem" if one is SYSTEM else path.rpartition("/")[2][:-1], [one])
        return None

    def _root(self) -> Json:
        return _resource(
            f"{ROOT}/",
            "ServiceRoot.v1_15_0.ServiceRoot",
            Id="RootService",
            Name=f"Simulated controller of {self.name}",
            RedfishVersion="1.17.0",
            Systems=_link(f"{ROOT}/Systems"),
            Chassis=_link(f"{ROOT}/Chassis"),
            Managers=_link(f"{ROOT}/Managers"),
            SessionService=_link(f"{ROOT}/SessionService"),
            Links={"Sessions": _link(SESSIONS)},
        )

    def _system(self, now: float, *, actions: bool) -> Json:
        code = int(self._nodes.observe("power", self._idx, now).codes[0])
        body = self._thing(
            SYSTEM,
            "ComputerSystem.v1_20_0.ComputerSystem",
            SystemType="Physical",
            PowerState=(None, "Off", "On")[code],
            Boot=self._boot,
            Links={"Chassis": [_link(CHASSIS)], "ManagedBy": [_link(MANAGER)]},
        )
        if actions:
            reset = {"target": RESET, "ResetType@Redfish.AllowableValues": self._allowed}
            body["Actions"] = {"#ComputerSystem.Reset": reset}
        return body

    def _power(self, now: float) -> Json:
        watts = round(float(self._nodes.watts(self._idx, now)[0]), 1)
        control = {"@odata.id": f"{CHASSIS}/Power#/PowerControl/0", "MemberId": "0", "PowerConsumedWatts": watts}
        return _resource(f"{CHASSIS}/Power", "Power.v1_7_1.Power", Id="Power", Name="Power", PowerControl=[control])

    def _thing(self, path: str, kind: str, **more: object) -> Json:
        status = {"State": "Enabled", "Health": "OK"}
        return _resource(path, kind, Id="1", Name=self.name, Status=status, **more)

    def _session_body(self, name: str) -> Json:
        kind, uri = "Session.v1_6_0.Session", f"{SESSIONS}/{name}"
        return _resource(uri, kind, Id=name, Name="Session", UserName=self._account.user)


def error(status: int, message: str, text: str, headers: tuple[tuple[str, str], ...] = ()) -> Reply:
    """A Redfish error reply."""
    info = {"MessageId": f"Base.1.16.{message}", "Message": text, "Severity": "Critical", "Resolution": "None."}
    body = {"error": {"code": f"Base.1.16.{message}", "message": text, "@Message.ExtendedInfo": [info]}}
    return Reply(status, _json(body), (*headers, *_ODATA))


def _not_allowed(allow: str) -> Reply:
    return error(405, "OperationNotAllowed", f"Allowed here: {allow}.", (("Allow", allow),))


def _resource(path: str, kind: str, **more: object) -> Json:
    return {"@odata.id": path, "@odata.type": f"#{kind}", **more}


def _collection(path: str, kind: str, members: list[str]) -> Json:
    return _resource(
        path,
        f"{kind}Collection.{kind}Collection",
        Name=f"{kind} collection",
        Members=[_link(member) for member in members],
        **{"Members@odata.count": len(members)},
    )


def _version() -> Json:
    return {"v1": f"{ROOT}/"}


def _link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def _etag(body: bytes) -> str:
    return f'W/"{blake2b(body, digest_size=8).hexdigest()}"'


def _body(request: Request) -> Mapping[str, object] | None:
    try:
        found = msgspec.json.decode(request.body)
    except msgspec.DecodeError:
        return None
    return found if isinstance(found, dict) else None


def _fence(text: str | None) -> tuple[int, int] | None:
    """The header's two numbers; None without the header."""
    if text is None:
        return None
    epoch, _, generation = text.partition(".")
    if not (epoch.isdecimal() and generation.isdecimal() and len(text) < 38):
        raise ValueError(text)
    return int(epoch), int(generation)


_json = msgspec.json.Encoder().encode
_ODATA = (("OData-Version", "4.0"),)
_ASK = (("WWW-Authenticate", 'Basic realm="simulated"'),)
_MALFORMED = error(400, "MalformedJSON", "The body is not a JSON object.")
_WRONG = error(401, "ResourceAtUriUnauthorized", "The user or password is wrong.", _ASK)
