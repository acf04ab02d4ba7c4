"""``strata serve``: options into ``Settings``, then the controller. Everything else is ``strata.daemon``."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import click

if TYPE_CHECKING:
    from strata.control.settings import LayerName, LogFormat, LogLevel, Settings

LAYERS: tuple[LayerName, ...] = ("hardware", "provisioning", "platform")
LEVELS = ("debug", "info", "warning", "error")
FILE = click.Path(path_type=Path, dir_okay=False)


def parse_listen(text: str) -> tuple[str, int]:
    """``HOST:PORT``, ``[::1]:PORT`` or ``:PORT`` (all addresses)."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if port is None or (host is None and not text.startswith(":")) or parts.netloc != text or "@" in text:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host or "0.0.0.0", port


def parse_watts(option: str, text: str) -> float:
    """``2MW``; nothing is 0."""
    from strata.power.units import watts

    try:
        return float(watts(text)) if text else 0.0
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


@click.command()
@click.argument("layers", nargs=-1, type=click.Choice(LAYERS))
@click.option("--state-dir", type=click.Path(path_type=Path, file_okay=False), help="Store, keys and sockets (0700).")
@click.option("--store", default="", metavar="URL", help="sqlite:PATH or etcd://HOST:PORT,...  Default: SQLite there.")
@click.option("--listen", default="127.0.0.1:8443", show_default=True, metavar="HOST:PORT", help="TLS front door.")
@click.option("--tls-name", multiple=True, metavar="NAME", help="More names for the server's certificate.")
@click.option("--no-tls", is_flag=True, help="Only the local socket.")
@click.option("--simulator", default="", metavar="URL", help="Drive simulated nodes there instead of real ones.")
@click.option(
    "--simulated",
    type=click.IntRange(0, 1_000_000),
    default=0,
    metavar="N",
    help="Register N of them in an empty store.",
)
@click.option("--simulated-feeds", is_flag=True, help="And the outlets and chassis that feed them.")
@click.option(
    "--bmc-tls", default="pin", show_default=True, metavar="pin|system|FILE", help="How BMCs' certificates are judged."
)
@click.option("--public-url", default="", metavar="URL", help="Where BMCs reach this service to tell of events.")
@click.option("--syslog", default="", metavar="HOST:PORT", help="Take nodes' syslog (UDP) there.")
@click.option("--netconsole", default="", metavar="HOST:PORT", help="Take kernels' messages (UDP) there.")
@click.option("--topology", type=FILE, help="How nodes are cabled to switches (YAML or CSV).")
@click.option("--networks", type=FILE, help="On which networks nodes boot (YAML). Default: none are booted.")
@click.option("--netns", default="", metavar="NAME", help="Live in this network namespace, where the networks are.")
@click.option("--agent-url", default="", metavar="URL", help="Where agents and other controllers find this service.")
@click.option(
    "--hold-agents", type=click.IntRange(0), default=0, help="Requests of agents held open. Default: what fits here."
)
@click.option("--site-power-limit", default="", metavar="WATTS", help="What all nodes may draw, such as 2MW.")
@click.option("--site-power-ramp", default="", metavar="WATTS", help="By how much that rises in a minute at most.")
@click.option("--site-power-band", default="", metavar="WATTS", help="Below this, caps are not lowered.")
@click.option("--node-rules", type=FILE, help="What CAPMC tells schedulers about switching nodes (INI).")
@click.option("--telemetry", default="", metavar="URL", help="Keep samples in postgresql://HOST/DB. Default: a file.")
@click.option("--secrets-key", type=FILE, help="Key that seals secrets in the store. Default: one of its own.")
@click.option("--no-consoles", is_flag=True, help="Do not capture serial consoles.")
@click.option("--no-poll", is_flag=True, help="Do not look at controllers' logs and sensors by itself.")
@click.option("--model", "models", multiple=True, type=FILE, help="Site model (YAML) to add; may be repeated.")
@click.option("--controller-id", default="", help="Name among the controllers of the store. Default: the host's name.")
@click.option("--shards", type=click.IntRange(1, 4096), default=16, show_default=True, help="Parts of the fleet.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option("--log-format", type=click.Choice(["auto", "json", "text"]), default="auto", show_default=True)
def serve(
    layers: tuple[LayerName, ...],
    state_dir: Path | None,
    store: str,
    listen: str,
    tls_name: tuple[str, ...],
    no_tls: bool,
    simulator: str,
    simulated: int,
    simulated_feeds: bool,
    bmc_tls: str,
    public_url: str,
    syslog: str,
    netconsole: str,
    topology: Path | None,
    networks: Path | None,
    netns: str,
    agent_url: str,
    hold_agents: int,
    site_power_limit: str,
    site_power_ramp: str,
    site_power_band: str,
    node_rules: Path | None,
    telemetry: str,
    secrets_key: Path | None,
    no_consoles: bool,
    no_poll: bool,
    models: tuple[Path, ...],
    controller_id: str,
    shards: int,
    log_level: LogLevel,
    log_format: LogFormat,
) -> None:
    """Run the service in the foreground, until SIGTERM or Ctrl-C. LAYERS: all, or only the lowest ones.

    \b
    Example: strata serve hardware --listen 0.0.0.0:8443
             strata serve --state-dir /var/lib/strata --listen 0.0.0.0:8443
             strata serve --simulator http://127.0.0.1:9000 --simulated 1000 --no-tls
    """
    from strata.control import settings as s

    host, port = parse_listen(listen)
    settings = s.Settings(
        state_dir=(state_dir or s.default_state_dir()).absolute(),
        controller_id=controller_id or socket.gethostname(),
        layers=layers or LAYERS,
        models=tuple(path.absolute() for path in models),
        store=s.StoreSettings(url=store),
        listen=s.ListenSettings(tls=not no_tls, host=host, port=port, names=tls_name),
        leadership=s.LeadershipSettings(shards=shards),
        simulated=s.SimulatedSettings(nodes=simulated, feeds=simulated_feeds, address=simulator),
        hardware=s.HardwareSettings(
            bmc_tls=bmc_tls if bmc_tls in ("pin", "system") else str(Path(bmc_tls).absolute()),
            public_url=public_url,
            syslog=syslog,
            netconsole=netconsole,
            topology=topology.absolute() if topology else None,
            secrets_key=secrets_key.absolute() if secrets_key else None,
            consoles=not no_consoles,
            poll=not no_poll,
        ),
        provisioning=s.ProvisioningSettings(
            networks=networks.absolute() if networks else None,
            namespace=netns,
            url=agent_url,
            hold_most=hold_agents,
        ),
        power=s.PowerSettings(
            limit=parse_watts("--site-power-limit", site_power_limit),
            ramp=parse_watts("--site-power-ramp", site_power_ramp),
            band=parse_watts("--site-power-band", site_power_band),
            telemetry=telemetry,
            rules=node_rules.absolute() if node_rules else None,
        ),
        logs=s.LogSettings(level=log_level, format=log_format),
    )
    settings.check()
    start(settings)


def start(settings: Settings) -> None:
    """Hand over to the controller; returns when it has stopped."""
    from strata import daemon

    daemon.run(settings)
