"""What the Redfish client knows: its settings, each BMC and what it did to us before, what addresses name."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from strata.core.errors import DeviceError
from strata.core.input.foreign import one_line

if TYPE_CHECKING:
    from strata.hardware.bmc.redfish.pairing import Home

ROOT = "/redfish/v1"
SESSIONS = f"{ROOT}/SessionService/Sessions"

Json = Mapping[str, object]


class Credentials:
    """A user and a password. Neither ``repr`` nor ``str`` shows the password, and it does not pickle."""

    __slots__ = ("_password", "user")

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._password = password

    def __repr__(self) -> str:
        return f"Credentials(user={self.user!r})"

    def __reduce__(self) -> str:
        raise TypeError("credentials are not written anywhere")

    def basic(self) -> str:
        """The value of a basic Authorization header."""
        return "Basic " + b64encode(f"{self.user}:{self._password}".encode()).decode()

    def login(self) -> bytes:
        """The body of a session login."""
        return msgspec.json.encode({"UserName": self.user, "Password": self._password})

    def secret(self) -> str:
        """The password, for protocols that compute with it."""
        return self._password


class RedfishSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the client behaves. Times in seconds."""

    auth: Literal["session", "basic"] = "session"
    """Sessions spare a BMC the password check per request; some old ones only do basic."""
    timeout: float = 10.0
    """For one request, all in all. BMCs that take longer to answer a reset are common; to read, rare."""
    upload_timeout: float = 600.0
    """For a request that carries a firmware image."""
    quick: float = 1.0
    """The least time that a read gets when the fleet answers fast: see ``Wire.patience``."""
    per_bmc: int = 1
    """Requests at a time to one BMC; most fall over at a handful."""
    per_origin: int = 64
    """Connections to one host and port, where many BMCs are behind it; the others wait."""
    connections: int = 4096
    """To all of them. One that was not used for the longest time makes room."""
    max_body: int = 2 << 20
    """Bytes in a reply."""
    max_members: int = 1000
    """Of a collection: more are not read."""
    dead_for: float = 5.0
    """How long a BMC that did not answer is left alone at first; doubles up to ``dead_most``."""
    dead_most: float = 60.0
    full_for: float = 60.0
    """A BMC whose sessions are all taken (by a process that was killed, say) is sent the password with each
    request for this long; then a session is tried again."""
    wrong_passwords: int = 2
    """Logins refused in a row, after which a BMC is not tried again: it would lock the account."""


class Features(NamedTuple):
    """What a BMC's service root says that it can do."""

    vendor: str = ""
    product: str = ""
    version: str = ""
    """Of Redfish."""
    expand: str = ""
    """The ``$expand`` that takes in what is below a resource: ``.``, ``*``, or empty where there is none."""
    services: Json = MappingProxyType({})
    """The service root itself: which services there are, and where."""


class Endpoint:
    """What is known of one BMC. ``locked`` says why it is not tried any more."""

    __slots__ = (
        "base", "busy", "dead_since", "dead_until", "door", "etags", "features", "flaw", "full_until", "ghosts",
        "locked", "misses", "origin", "path", "quiet_until", "refused", "session", "sessionless", "slow", "stale",
        "tls", "token",
    )  # fmt: skip

    def __init__(self, origin: str, path: str, per_bmc: int) -> None:
        self.origin = origin
        self.path = path
        self.base = origin + path
        self.busy = asyncio.Semaphore(per_bmc)
        self.door = asyncio.Lock()
        self.features: Features | None = None
        self.etags: Literal["as-told", "strong", "none"] = "as-told"
        """How it wants its own ETags back; learnt when it refuses one that is right."""
        self.tls: object = None
        self.token = ""
        self.session = ""
        self.sessionless = False
        """It has no sessions at all, and gets the password with each request."""
        self.stale: list[str] = []
        """Sessions of ours that it said are over, and that may be there all the same."""
        self.ghosts = False
        """Whether the answer to a login got lost: a session may be there whose name we do not know."""
        self.refused = 0
        self.locked = ""
        self.misses = 0
        self.dead_since = 0.0
        self.dead_until = 0.0
        self.quiet_until = 0.0
        self.full_until = 0.0
        self.slow = False
        self.flaw = ""
        """What was wrong with an answer since somebody last looked here, whether or not it could be used."""

    @property
    def dead(self) -> bool:
        """Whether it did not answer when last asked."""
        return self.misses > 0

    @property
    def host(self) -> str:
        """Host and port, as certificates are pinned to."""
        parts = urlsplit(self.origin)
        return f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"


class Switch(NamedTuple):
    """How a resource's power is switched: where to post which parameter, and the values that are allowed (none: it
    does not say)."""

    where: str
    parameter: str
    allowed: tuple[str, ...]


class Target:
    """What an address names: a BMC, and the one resource behind it that is meant (found, where it says none)."""

    __slots__ = ("address", "bmc", "home", "paths", "resource", "switch")

    def __init__(self, address: str, bmc: Endpoint, resource: str) -> None:
        self.address = address
        self.bmc = bmc
        self.resource = resource
        """Its path; empty until the only system behind the BMC is found."""
        self.switch: Switch | None = None
        """None: not looked at, or it has none."""
        self.home: Home | None = None
        """The chassis that are its own; None: not looked for yet."""
        self.paths: dict[str, tuple[str, ...]] = {}
        """Where things that belong to it were found."""


def parse(address: str) -> tuple[str, str, str]:
    """Origin, path of the service and path of the named resource. Raises ``DeviceError`` for what is no address."""
    try:
        parts = urlsplit(address)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None
        wrong = wrong or parts.port == 0
    except ValueError:
        wrong = True
    if wrong:
        raise DeviceError("not an http or https address", node=address[:80], hint="give the node's bmc a URL")
    before, found, named = parts.path.partition(f"{ROOT}/")
    named = named.rstrip("/")
    service = before.rstrip("/") if found else parts.path.rstrip("/").removesuffix(ROOT)
    return f"{parts.scheme}://{parts.netloc}", service, f"{ROOT}/{named}" if named else ""


def path_of(bmc: Endpoint, link: object) -> str:
    """The path of a link (or of its text), below the BMC's own address. One that leads elsewhere is none."""
    path = link.get("@odata.id") if isinstance(link, Mapping) else link
    if not isinstance(path, str):
        return ""
    path = path.removeprefix(bmc.origin).removeprefix(bmc.path).rstrip("/")
    fit = path.startswith(f"{ROOT}/") and "/../" not in path and len(path) < 1024 and path.isprintable()
    return path if fit else ""


def below(body: object, *names: str) -> Json:
    """The object at ``names`` in ``body``; empty where it is none."""
    for name in names:
        body = body.get(name) if isinstance(body, Mapping) else None
    return body if isinstance(body, Mapping) else {}


def items(body: Json, name: str) -> list[Json]:
    """The objects in the list ``name``; none where it is no list."""
    found = body.get(name)
    return [item for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def text(value: object, most: int = 256) -> str:
    """A device's text on one line, of bounded length; empty for what is no text."""
    return one_line(value[:most]).strip() if isinstance(value, str) else ""
