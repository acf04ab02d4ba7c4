"""What a controller process is told at its start: where state lives, who may reach it, how hard it may work.

Made by ``strata serve`` from its options, or by a test by hand; read by ``strata.daemon``. Knows neither of
them. Nothing here changes while the process runs, and nothing here is a secret: keys are files in ``state_dir``.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from strata.core.errors import BadRequest
from strata.engine.settings import EngineSettings

LogLevel = Literal["debug", "info", "warning", "error"]
LayerName = Literal["hardware", "provisioning", "platform"]
LogFormat = Literal["auto", "json", "text"]

SOCKET_PATH_MAX = 107
"""Bytes that Linux takes for the path of a unix socket (``sun_path`` less its NUL)."""

_CONTROLLER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")
_FRONT_URL = re.compile(r"https://(?:[A-Za-z0-9][A-Za-z0-9_.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?::\d{1,5})?\Z")


def is_front_url(url: str) -> bool:
    """Whether a front door can be reached there: a scheme, a host and a port, and nothing else."""
    return _FRONT_URL.match(url) is not None


class StoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where durable state is kept."""

    url: str = ""
    """``sqlite:PATH``, ``etcd://host:port,host:port/prefix`` or ``memory:``. Default: empty, SQLite in the state
    directory, which needs no other service."""
    keep_revisions: int = 100_000
    """Revisions that a watcher can resume from before it is told to list again. Default: some hours of a busy
    100,000-node fleet, at most about a gigabyte of SQLite."""
    compact_every: float = 300.0
    """Seconds between compactions. Default: often enough that one takes well under a second."""


class ListenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who can reach the API. The local socket is always there; TLS is in front of a second one, behind nginx."""

    tls: bool = True
    """Run nginx as the TLS front door. Default: yes; without it only the local socket answers."""
    host: str = "127.0.0.1"
    """Address that nginx binds. Default: loopback; a site opens it on purpose (``0.0.0.0``)."""
    port: int = 8443
    """TCP port of the front door; 0 takes a free one. Default: above 1023, so that it works without root."""
    names: tuple[str, ...] = ()
    """More DNS names and addresses for the server's certificate. Default: none; the host name, ``localhost`` and
    ``host`` are always in it."""
    account: str = "strata-web"
    """Account that nginx's workers run as when Strata runs as root; made if it is missing. Default: one of its own;
    whoever has it can reach the service behind nginx, so other services must not share it."""
    max_body: int = 64 * 2**20
    """Bytes of the largest request. Default: 64 MiB, which holds 100,000 node records."""


class LeadershipSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How several controllers share one fleet."""

    shards: int = 16
    """Parts that the fleet is cut into; each has one leader. The same for all controllers of a store. Default: even
    shares for up to about eight controllers, and one controller still handles 16 leases with ease."""
    lease: float = 10.0
    """Seconds after the last renewal until another may take a shard over. Default: with ``renew_every`` it keeps a
    takeover under 15 s."""
    renew_every: float = 3.0
    """Seconds between renewals. Default: two may fail before the lease ends. Must be under half of ``lease``."""


class SimulatedSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet that isn't there, for trying things out."""

    nodes: int = 0
    """Simulated nodes to register if the store has none. Default: 0."""
    feeds: bool = False
    """Register the outlets and chassis that feed them too. Default: no; the simulator must have been told as well."""
    address: str = ""
    """Where the simulator answers (``http://127.0.0.1:PORT``), a process of its own: simulated nodes outlive the
    controller, as real ones do. Default: empty, real drivers."""


class HardwareSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How the controllers of nodes are reached and listened to."""

    bmc_tls: str = "pin"
    """How their certificates are judged: ``pin`` (the first one seen is the only one accepted until a person accepts
    another), ``system`` (the machine's authorities), or the path of an authority's certificate (PEM). Default: pin;
    most come with a certificate that nobody signed."""
    public_url: str = ""
    """Where controllers reach this service to tell of events (``https://strata.example:8443``). Default: empty, they
    cannot; then their streams are followed, or they are polled."""
    poll: bool = True
    """Look at the logs and sensors of controllers now and then. Default: yes."""
    consoles: bool = True
    """Capture the serial consoles of nodes. Default: yes."""
    syslog: str = ""
    """``HOST:PORT`` (UDP) where nodes may send their syslog. Default: empty, nowhere."""
    netconsole: str = ""
    """``HOST:PORT`` (UDP) where nodes' kernels may send their messages. Default: empty, nowhere."""
    topology: Path | None = None
    """A file that says how nodes are cabled to switches. Default: none; only what switches and nodes tell."""
    secrets_key: Path | None = None
    """The key that seals secrets in the store. Default: ``secrets.key`` in the state directory, made at the first
    start. Controllers that share a store need the same."""


class ProvisioningSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Where nodes are booted, and what they are told there."""

    networks: Path | None = None
    """A file that says on which networks nodes boot (YAML). Default: none; then nothing is answered to machines that
    boot, and nodes' agents are only served on the front door."""
    namespace: str = ""
    """Network namespace in which the service lives, with the boot networks. Default: empty, where it is started. Images
    are built where it is started in any case: building needs Debian's packages."""
    url: str = ""
    """Where agents and other controllers find this one (``https://10.77.0.1:8443``). Default: empty, the front door's
    port at the server's address on the first boot network; without boot networks, at the address that it listens on."""
    hold_most: int = 0
    """Requests of agents that are held open at a time; agents beyond them come again every few seconds, and learn only
    then what they are to do. Default: 0, what memory and open files of the machine allow, 32,000 at most. Each costs
    up to 80 KB of memory and four open files, here and in nginx together."""


class PowerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the site may draw, and where measurements are kept."""

    limit: float = 0.0
    """Watts that all nodes together may draw at most, at any instant. Default: 0, no limit but that of a policy."""
    ramp: float = 0.0
    """Watts by which what may be drawn rises within a minute at most. Default: 0, no such limit."""
    band: float = 0.0
    """Watts below which caps are not lowered, for sites that have to take a minimum. Default: 0, none."""
    telemetry: str = ""
    """``postgresql://HOST/DATABASE``: where samples are kept, for all controllers together. Default: empty, a file in
    the state directory. Never with a password: libpq reads that from ``PGPASSFILE``."""
    rules: Path | None = None
    """A file with the advice on switching nodes that CAPMC's ``node_rules`` gives (INI). Default: none, Cray's own."""


class RetentionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How long the past is kept."""

    history: float = 30 * 86400.0
    """Seconds of node history (``strata node history``). Default: 30 days; the state before is kept as one value."""
    jobs: float = 7 * 86400.0
    """Seconds that a finished job stays listed. Default: a week."""
    audit: float | None = None
    """Seconds of audit records. Default: None, kept for ever."""
    prune_every: float = 3600.0
    """Seconds between two removals of what is too old."""


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What is logged. It goes to standard error, for systemd or ``strata up`` to keep."""

    level: LogLevel = "info"
    """Least severe level that is logged; ``strata log-level`` changes it at run time."""
    format: LogFormat = "auto"
    """``json`` lines or ``text``. Default: text on a terminal, JSON otherwise."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that ``strata serve`` can be told."""

    state_dir: Path
    """Directory (0700) of the store, the certificate authority, the sockets and the history."""
    controller_id: str = msgspec.field(default_factory=socket.gethostname)
    """Name of this controller among those of the store. Default: the host's name; two on one host need two."""
    layers: tuple[LayerName, ...] = ("hardware", "provisioning", "platform")
    """Which layers run, lowest first. Default: all. With ``hardware`` alone Strata discovers, switches and watches
    machines, and knows nothing of operating systems and jobs: somebody else looks after those."""
    models: tuple[Path, ...] = ()
    """Site model files (YAML), added to the built-in layers in this order."""
    store: StoreSettings = StoreSettings()
    listen: ListenSettings = ListenSettings()
    leadership: LeadershipSettings = LeadershipSettings()
    engine: EngineSettings = EngineSettings()
    simulated: SimulatedSettings = SimulatedSettings()
    hardware: HardwareSettings = HardwareSettings()
    provisioning: ProvisioningSettings = ProvisioningSettings()
    power: PowerSettings = PowerSettings()
    retention: RetentionSettings = RetentionSettings()
    logs: LogSettings = LogSettings()

    @property
    def store_url(self) -> str:
        """The store's URL, with the default filled in."""
        return self.store.url or f"sqlite:{self.state_dir / 'strata.db'}"

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
    def nginx_dir(self) -> Path:
        """The front door's configuration and scratch space."""
        return self.state_dir / "nginx"

    @property
    def backup_dir(self) -> Path:
        """Where ``strata store backup`` writes."""
        return self.state_dir / "backups"

    @property
    def console_dir(self) -> Path:
        """What consoles printed."""
        return self.state_dir / "consoles"

    @property
    def signing_dir(self) -> Path:
        """The key that vouches for images and the minimal OS."""
        return self.state_dir / "signing"

    @property
    def minos_dir(self) -> Path:
        """Builds of the minimal OS."""
        return self.state_dir / "minos"

    @property
    def media_dir(self) -> Path:
        """Boot media, each there for the minutes of one boot."""
        return self.state_dir / "media"

    @property
    def images_dir(self) -> Path:
        """The repository of system images."""
        return self.state_dir / "images"

    @property
    def secrets_key(self) -> Path:
        """The key that seals secrets in the store."""
        return self.hardware.secrets_key or self.state_dir / "secrets.key"

    @property
    def history_file(self) -> Path:
        """The index of past transitions. It can be rebuilt from the store."""
        return self.state_dir / "history.db"

    def check(self) -> None:
        """Raise ``BadRequest`` on the first setting that cannot work."""
        for path in (self.admin_socket, self.front_socket):
            if len(os.fsencode(path)) > SOCKET_PATH_MAX:
                raise BadRequest(
                    f"the path of a unix socket has at most {SOCKET_PATH_MAX} bytes, this has {len(os.fsencode(path))}",
                    where=str(path),
                    hint="give a shorter --state-dir",
                )
        if not _CONTROLLER_ID.match(self.controller_id):
            raise BadRequest(
                "a controller's name is 1 to 63 letters, digits, '-', '_' and '.'",
                where=f"--controller-id {self.controller_id[:80]!r}",
            )
        order: tuple[LayerName, ...] = ("hardware", "provisioning", "platform")
        if self.layers != order[: len(self.layers)] or not self.layers:
            raise BadRequest(
                f"a layer stands on those below it: {', '.join(order)}", where=f"layers {' '.join(self.layers)}"
            )
        _within("--listen port", self.listen.port, 0, 65535)
        _within("--shards", self.leadership.shards, 1, 4096)
        _within("--simulated", self.simulated.nodes, 0, 1_000_000)
        if self.simulated.nodes and not self.simulated.address:
            raise BadRequest(
                "simulated nodes need a simulator",
                where="--simulated",
                hint="give --simulator URL; python -m strata.virtual.bmc_server --nodes N prints it",
            )
        if self.simulated.address and not self.simulated.address.startswith(("http://", "https://")):
            raise BadRequest(f"{self.simulated.address[:80]!r} is not http://HOST:PORT", where="--simulator")
        if not self.leadership.renew_every * 2 < self.leadership.lease:
            raise BadRequest("must be under half of leadership.lease", where="leadership.renew_every")
        _check_power(self.power)
        for path in self.models:
            if not path.is_file():
                raise BadRequest("no such file", where=f"--model {path}")
        url = self.provisioning.url
        if url and not is_front_url(url.rstrip("/")):
            raise BadRequest(f"{url[:80]!r} is not https://HOST:PORT", where="--agent-url")
        _within("--hold-agents", self.provisioning.hold_most, 0, 1_000_000)
        networks = self.provisioning.networks
        if networks is not None and not networks.is_file():
            raise BadRequest("no such file", where=f"--networks {networks}")
        if networks is not None and "provisioning" not in self.layers:
            raise BadRequest("nodes are booted by the provisioning layer, which does not run here", where="--networks")


def _check_power(power: PowerSettings) -> None:
    if power.rules is not None:
        from strata.power.capmc.rules_file import read_rules  # loads numpy, for which no other command should wait

        read_rules(power.rules)
    for option, value in (("limit", power.limit), ("ramp", power.ramp), ("band", power.band)):
        if not 0 <= value < 1e12:
            raise BadRequest(f"{value:g} is not a number of watts", where=f"--site-power-{option}")
    if power.band > power.limit > 0:
        raise BadRequest("the band's lower edge is not above the limit", where="--site-power-band")
    if power.telemetry:
        parts = urlsplit(power.telemetry)
        if parts.scheme not in ("postgresql", "postgres"):
            raise BadRequest(f"{parts.scheme[:40]!r} is not postgresql://HOST/DATABASE", where="--telemetry")
        if parts.password or "password=" in parts.query:
            raise BadRequest(
                "a password on the command line is for all to see",
                where="--telemetry",
                hint="leave it out of the address, and put it into the file that PGPASSFILE names",
            )


def default_state_dir() -> Path:
    """``$STRATA_STATE``; else ``/var/lib/strata`` for root and ``~/.local/state/strata`` for others."""
    told = os.environ.get("STRATA_STATE", "")
    if told:
        return Path(told).absolute()
    return Path("/var/lib/strata") if os.geteuid() == 0 else Path.home() / ".local/state/strata"


def admin_socket(state_dir: Path) -> Path:
    """The owner's socket of a controller whose state is in ``state_dir``."""
    return state_dir / "admin.sock"


def _within(name: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise BadRequest(f"must be {low} to {high}, not {value}", where=name)
