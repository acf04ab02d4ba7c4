"""``strata serve``: the configuration file and options into ``Settings``, then the controller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strata.cli.options import parse_listen
from strata.core.collecting import without_collecting
from strata.daemon import CONFIG_FILE
from strata.daemon.layers import LAYER_NAMES

if TYPE_CHECKING:
    from strata.daemon.settings import Option, Settings

FILE = click.Path(path_type=Path, dir_okay=False)


# An option that sets a setting is named after it, with two underscores for the dot.
@click.command()
@click.argument("layers", nargs=-1, type=click.Choice(LAYER_NAMES))
@click.option("--config", type=FILE, help=f"The configuration file. Default: {CONFIG_FILE}, if there is one.")
@click.option("--set", "more", multiple=True, metavar="SETTING=VALUE", help="Any setting, such as power.limit=2MW.")
@click.option("--check", is_flag=True, help="Only say whether all settings are good.")
@click.option("--state-dir", type=click.Path(file_okay=False), help="Store, keys and sockets (0700).")
@click.option("--store", "store__url", metavar="URL", help="sqlite:PATH or etcd://HOST:PORT,...  Default: SQLite.")
@click.option("--listen", metavar="HOST:PORT", help="TLS front door. Default: 127.0.0.1:8443.")
@click.option("--tls-name", "listen__names", multiple=True, metavar="NAME", help="More names for its certificate.")
@click.option("--no-tls", "listen__tls", flag_value="false", default=None, help="Only the local socket.")
@click.option("--networks", "provisioning__networks", type=FILE, help="Networks that nodes boot on (YAML).")
@click.option("--netns", "provisioning__namespace", metavar="NAME", help="Run in this network namespace.")
@click.option("--model", "models", multiple=True, type=FILE, help="Site model (YAML) to add; may be repeated.")
@click.option("--controller-id", metavar="NAME", help="Name among the store's controllers. Default: the host's name.")
@click.option(
    "--simulator",
    "simulated__address",
    metavar="URL",
    help="Manage the simulated nodes of the simulator at this URL, and no real ones.",
)
@click.option(
    "--simulated",
    "simulated__nodes",
    type=click.IntRange(0, 1_000_000),
    help="Register this many simulated nodes, if the store is empty.",
)
@click.option(
    "--simulated-feeds",
    "simulated__feeds",
    flag_value="true",
    default=None,
    help="Also register the outlets that feed them.",
)
@click.option(
    "--log-level",
    "logs__level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    help="Least severe messages to log.",
)
@click.option("--log-format", "logs__format", type=click.Choice(["auto", "json", "text"]), help="Format of the log.")
def serve(config: Path | None, more: Sequence[str], check: bool, listen: str | None, **given: Any) -> None:
    """Run the service in the foreground, until SIGTERM or Ctrl-C. LAYERS are run with the layers below them that they
    need. Default: all.

    Every setting can be in the configuration file (see docs/reference/settings.md); command-line options override the
    file. On SIGHUP the file is read again.

    \b
    Example: strata serve --listen 0.0.0.0:8443
             strata serve --config strata.yaml --check
             strata serve power --set power.limit=2MW
             strata serve --simulator http://127.0.0.1:9000 --simulated 1000 --no-tls
    """
    from strata.daemon.settings import read_settings

    options = given_options(given, listen, more)
    file = config or (CONFIG_FILE if CONFIG_FILE.exists() else None)

    def read() -> Settings:
        return read_settings(file, options)

    settings = read()
    if not check:
        start(settings, read)
        return
    from strata.daemon.running import model_of

    model_of(settings)
    click.echo(f"{file if file is not None else 'no configuration file, and settings'}: good")


def given_options(given: dict[str, Any], listen: str | None, more: Sequence[str]) -> dict[str, Option]:
    """What was given on the command line, by setting."""
    from strata.daemon.settings import Option

    called = {parameter.name: parameter.opts[0] for parameter in serve.params}
    found: dict[str, Option] = {}
    if listen is not None:
        host, port = parse_listen(listen)
        found |= {"listen.host": Option("--listen", host), "listen.port": Option("--listen", str(port))}
    for name, value in given.items():
        if value is not None and value != ():
            text = tuple(map(str, value)) if isinstance(value, tuple) else str(value)
            found[name.replace("__", ".")] = Option(called[name], text)
    for text in more:
        setting, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"--set takes SETTING=VALUE, not {text[:80]!r}")
        found[setting] = Option(f"--set {setting[:80]}", value)
    return found


def start(settings: Settings, read: Callable[[], Settings]) -> None:
    """Hand over to the controller; returns when it has stopped. ``read``: reads the settings again."""
    with without_collecting():
        from strata.daemon import running

    running.run(settings, read)
