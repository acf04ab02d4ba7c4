"""What the fleet itself is told at its start: where state lives, who may reach it, how hard it may work.

The sections of the layers are theirs (``hardware/settings.py`` and so on); ``strata.daemon.settings`` puts all together
and reads them from the configuration file. Nothing here is a secret: keys are files in ``state_dir``.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Meta

from strata.core.errors import BadRequest
from strata.core.settings_section import Section
from strata.core.units import Seconds
from strata.engine.settings import EngineSettings
from strata.fleet.access.oidc.settings import OidcSettings

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "text"]

SOCKET_PATH_MAX = 107
"""Bytes that Linux takes for the path of a unix socket (``sun_path`` less its NUL)."""

_CONTROLLER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_FRONT_URL = re.compile(r"https://(?:[A-Za-z0-9][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?\Z")

S = TypeVar("S", bound=Section)


def is_front_url(url: str) -> bool:
    """Whether a front door can be reached there: a scheme, a host and a port, and nothing else."""
    return _FRONT_URL.match(url) is not None


class StoreSettings(Section, frozen=True, kw_only=True):
    """Where durable state is kept."""

    live: ClassVar[frozenset[str]] = frozenset({"keep_revisions", "compact_every"})

    url: str = ""
    """``sqlite:PATH``, ``etcd://host:port,host:port/prefix`` or ``memory:``. Default: empty, SQLite in the state
    directory, which needs no other service."""
    keep_revisions: Annotated[int, Meta(ge=1)] = 100_000
    """Revisions that a watcher can resume from before it is told to list again. Default: some hours of a busy
    100,000-node fleet, at most about a gigabyte of SQLite."""
    compact_every: Seconds = Seconds(300)
    """Time between compactions. Default: often enough that one takes well under a second."""
    secrets_key: Path | None = None
    """The key that seals secrets in the store. Default: ``secrets.key`` in the state directory, made at the first
    start. Controllers that share a store need the same."""


class ListenSettings(Section, frozen=True, kw_only=True):
    """Who can reach the API. The local socket is always there; TLS is in front of a second one, behind nginx."""

    tls: bool = True
    """Run nginx as the TLS front door. Default: yes; without it only the local socket answers."""
    host: str = "127.0.0.1"
    """Address that nginx binds. Default: loopback; a site opens it on purpose (``0.0.0.0``)."""
    port: Annotated[int, Meta(ge=0, le=65535)] = 8443
    """TCP port of the front door; 0 takes a free one. Default: above 1023, so that it works without root."""
    names: tuple[str, ...] = ()
    """More DNS names and addresses for the server's certificate. Default: none; the host name, ``localhost`` and
    ``host`` are always in it."""
    account: str = "strata-web"
    """Account that nginx's workers run as when Strata runs as root; made if it is missing. Default: one of its own;
    whoever has it can reach the service behind nginx, so other services must not share it."""
    url: str = ""
    """Where agents and other controllers find this one (``https://10.77.0.1:8443``). Default: empty, the front door's
    port at the server's address on the first boot network; without boot networks, at the address that it listens on."""
    max_body: Annotated[int, Meta(ge=1024)] = 64 * 2**20
    """Bytes of the largest request. Default: 64 MiB, which holds 100,000 node records."""

    def check(self) -> None:
        """That the address is one."""
        if self.url and not is_front_url(self.url.rstrip("/")):
            raise BadRequest(f"{self.url[:80]!r} is not https://HOST:PORT", where="url")


class LeadershipSettings(Section, frozen=True, kw_only=True):
    """How several controllers share one fleet."""

    shards: Annotated[int, Meta(ge=1, le=4096)] = 16
    """Parts that the fleet is cut into; each has one leader. The same for all controllers of a store. Default: even
    shares for up to about eight controllers, and one controller still handles 16 leases with ease."""
    lease: Seconds = Seconds(10)
    """Time after the last renewal until another may take a shard over. Default: with ``renew_every`` it keeps a
    takeover under 15 s."""
    renew_every: Seconds = Seconds(3)
    """Time between renewals. Default: two may fail before the lease ends. Must be under half of ``lease``."""

    def check(self) -> None:
        """That a lease can be renewed before it ends."""
        if not 0 < self.renew_every * 2 < self.lease:
            raise BadRequest(f"must be above 0 and under half of the lease ({self.lease:g}s)", where="renew_every")


class RetentionSettings(Section, frozen=True, kw_only=True):
    """How long the past is kept."""

    live: ClassVar[frozenset[str]] = frozenset({"history", "operations", "audit", "prune_every"})

    history: Seconds = Seconds(30 * 86400)
    """Age of node history (``strata node history``). Default: 30 days; the state before is kept as one value."""
    operations: Seconds = Seconds(7 * 86400)
    """Time that a finished operation stays listed. Default: a week."""
    audit: Seconds | None = None
    """Age of audit records. Default: none, kept for ever."""
    prune_every: Seconds = Seconds(3600)
    """Time between two removals of what is too old. Default: an hour, so that each has little to do."""


class LogSettings(Section, frozen=True, kw_only=True):
    """What is logged. It goes to standard error, for systemd or ``strata up`` to keep."""

    live: ClassVar[frozenset[str]] = frozenset({"level"})

    level: LogLevel = "info"
    """Least severe level that is logged; ``strata log-level`` changes it at run time. Default: info."""
    format: LogFormat = "auto"
    """``json`` lines or ``text``. Default: text on a terminal, JSON otherwise."""


def default_state_dir() -> Path:
    """``$STRATA_STATE``; else ``/var/lib/strata`` for root and ``~/.local/state/strata`` for others."""
    told = os.environ.get("STRATA_STATE", "")
    if told:
        return Path(told).absolute()
    return Path("/var/lib/strata") if os.geteuid() == 0 else Path.home() / ".local/state/strata"


class FleetSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the fleet needs whatever layers are open on it."""

    state_dir: Path = msgspec.field(default_factory=default_state_dir)
    """Directory (0700) of the store, the certificate authority, the sockets and the history. Default:
    ``$STRATA_STATE``, else ``/var/lib/strata`` for root and ``~/.local/state/strata`` for others. Other commands look
    there for the service: where it is elsewhere, give them ``$STRATA_STATE``."""
    controller_id: str = msgspec.field(default_factory=socket.gethostname)
    """Name of this controller among those of the store. Default: the host's name; two on one host need two."""
    store: StoreSettings = StoreSettings()
    listen: ListenSettings = ListenSettings()
    leadership: LeadershipSettings = LeadershipSettings()
    engine: EngineSettings = EngineSettings()
    retention: RetentionSettings = RetentionSettings()
    logs: LogSettings = LogSettings()
    oidc: OidcSettings = OidcSettings()

    def sections(self) -> Iterator[tuple[str, Section]]:
        """All sections with their names."""
        for name in self.__struct_fields__:
            if isinstance(found := getattr(self, name), Section):
                yield name, found

    def section(self, kind: type[S]) -> S:
        """A section by its type, for the layer whose it is; its defaults where nobody has put it in."""
        return next((found for _, found in self.sections() if isinstance(found, kind)), None) or kind()

    @property
    def store_url(self) -> str:
        """The store's URL, with the default filled in."""
        return self.store.url or f"sqlite:{self.state_dir / 'strata.db'}"

    @property
    def secrets_key(self) -> Path:
        """The key that seals secrets in the store, with the default filled in."""
        return self.store.secrets_key or self.state_dir / "secrets.key"

    @property
    def admin_socket(self) -> Path:
        """Where the owner of the process reaches the API, as admin (0600)."""
        return admin_socket(self.state_dir)

    @property
    def front_socket(self) -> Path:
        """Where nginx, and only nginx, reaches the API (0600), in a directory that nobody else enters."""
        return self.state_dir / "web" / "front.sock"

    @property
    def ca_dir(self) -> Path:
        """Strata's certificate authority."""
        return self.state_dir / "ca"

    @property
    def backup_dir(self) -> Path:
        """Where ``strata store backup`` writes."""
        return self.state_dir / "backups"

    @property
    def history_file(self) -> Path:
        """The index of past transitions. It can be rebuilt from the store."""
        return self.state_dir / "history.db"

    def check(self) -> None:
        """Raise ``BadRequest`` on the first setting that cannot work; its ``where`` is the setting: ``store.url``."""
        for path in (self.admin_socket, self.front_socket):
            if len(os.fsencode(path)) > SOCKET_PATH_MAX:
                raise BadRequest(
                    f"the path of a unix socket has at most {SOCKET_PATH_MAX} bytes, {path} has "
                    f"{len(os.fsencode(path))}",
                    where="state_dir",
                    hint="give a shorter --state-dir",
                )
        if not _CONTROLLER_ID.match(self.controller_id):
            raise BadRequest(
                f"a controller's name is 1 to 63 letters, digits, '-', '_' and '.', not {self.controller_id[:80]!r}",
                where="controller_id",
            )
        for name, section in self.sections():
            try:
                section.check()
            except BadRequest as error:
                if error.where not in section.__struct_fields__:
                    raise
                raise BadRequest(error.detail, where=f"{name}.{error.where}", hint=error.hint) from None


def admin_socket(state_dir: Path) -> Path:
    """The owner's socket of a controller whose state is in ``state_dir``."""
    return state_dir / "admin.sock"
