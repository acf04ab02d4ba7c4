"""``strata doctor``: is this host fit to run the service, and what to do where it is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.output import many
from strata.cli.session import Session
from strata.daemon import CONFIG_FILE

if TYPE_CHECKING:
    from strata.daemon.doctor import Finding

_COLOURS = {"good": "green", "warning": "yellow", "bad": "red"}

FIELDS = (
    ls.plain("check"),
    ls.plain("verdict", colour=lambda text: _COLOURS.get(text, "")),
    ls.plain("said"),
    ls.plain("mend"),
)


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"The configuration file. Default: {CONFIG_FILE}, if there is one.",
)
@ls.listing(FIELDS)
def doctor(session: Session, config: Path | None, view: ls.Listing) -> None:
    """Check this host, and say how to mend each finding. It looks at programs, ports, clock, certificates, names, disk,
    and the service itself. Exit code 1 if something is bad. Changes nothing.

    \b
    Example: strata doctor
             strata doctor --match verdict=bad --columns check,mend
    """
    from strata.daemon import doctor as host
    from strata.daemon.settings import read_settings
    from strata.fleet.settings import admin_socket

    file = config or (CONFIG_FILE if CONFIG_FILE.exists() else None)
    called = str(file) if file is not None else "no configuration file: defaults"
    settings, first = host.configuration(lambda: read_settings(file, {}), called)
    found = [first]
    if settings is not None:
        state = settings.state_dir if config is not None else session.state_dir
        service = _service(session, admin_socket(state))
        found += [*host.examine(settings, state, host.Host(), running=service.verdict == "good"), service]
    ls.show(session, FIELDS, [finding._asdict() for finding in found], view)
    bad = sum(finding.verdict == "bad" for finding in found)
    if not view.json:
        warned = sum(finding.verdict == "warning" for finding in found)
        session.out.note(f"{many(len(found), 'check')}: {bad} bad, {many(warned, 'warning')}")
    exits.leave(exits.ERROR if bad else 0)


def _service(session: Session, socket: Path) -> Finding:
    """Whether the service of this host runs, and what troubles it."""
    from strata.core.errors import StrataError
    from strata.daemon.doctor import Finding

    if not socket.exists():
        return Finding("service", "warning", "it does not run here", "strata serve, or systemctl start strata")
    try:
        status = session.connect(f"unix:{socket}", timeout=10.0).get("/v1/status")
    except StrataError as error:
        return Finding("service", "bad", str(error), "look into its log: journalctl -u strata")
    if status["troubles"]:
        return Finding("service", "bad", "; ".join(status["troubles"]), "strata status shows more")
    return Finding("service", "good", f"{status['controller']} looks after {many(status['nodes'], 'node')}")
