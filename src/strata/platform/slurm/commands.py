"""``strata slurm``: clusters of which Strata makes the configuration, and the folder that it is written to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.output import many
from strata.cli.session import Session

if TYPE_CHECKING:
    from strata.cli.client import Json
    from strata.schedulers.slurm.changes import Difference

FIELDS = (
    ls.plain("name"),
    ls.Field("controllers", lambda item: ", ".join(item["spec"]["controllers"])),
    ls.Field("partitions", lambda item: ", ".join(one["name"] for one in item["spec"]["partitions"])),
    ls.Field("topology", lambda item: item["spec"]["topology"]),
    ls.Field("saves power", lambda item: "yes" if item["spec"]["saving"] else "no"),
    ls.plain("author"),
    ls.moment("changed", of="time"),
)
_FILE = click.Path(dir_okay=False, allow_dash=True, path_type=Path)
_DIRECTORY = click.argument("directory", type=click.Path(file_okay=False, path_type=Path))


@click.group()
def slurm() -> None:
    """Make Slurm's configuration from the inventory, and write it."""


def _described(session: Session, found: Json) -> None:
    import yaml

    session.out.text(yaml.safe_dump(found["spec"], sort_keys=False))


_NAMED = Named(slurm, "the description of Slurm", "/v1/slurm", FIELDS, report=_described)
_NAMED.list("List the clusters that are described.", "strata slurm list")
_NAMED.show("Show how a cluster is described, as 'put' takes it.", "strata slurm show main")
_NAMED.delete("Delete the description of a cluster. Files that were written stay.", "strata slurm delete main")


@slurm.command()
@click.argument("name")
@click.argument("file", type=_FILE)
@ls.json_option
def put(session: Session, name: str, file: Path, as_json: bool) -> None:
    """Describe a cluster by FILE: controllers, partitions, what the inventory does not know. FILE is YAML; - is
    standard input. This writes nothing to Slurm.

    \b
    Example: strata slurm put main slurm.yaml
    """
    import msgspec

    from strata.cli.reading import read_text
    from strata.core.input.yamltree import Document
    from strata.platform.slurm.records import SlurmSpec

    spec = Document(read_text(file), str(file)).read(SlurmSpec, _no_more)
    session.client.put(_NAMED.path(name), msgspec.to_builtins(spec))
    made = session.client.get(f"{_NAMED.path(name)}/files")
    if as_json:
        session.out.json({key: made[key] for key in ("name", "nodes", "warnings")})
        return
    session.out.line(f"described Slurm {name}: {many(made['nodes'], 'node')}")
    _warn(session, made)


@slurm.command()
@click.argument("name")
@click.option("--file", "only", help="Only this file: slurm.conf, topology.conf, gres.conf or cgroup.conf.")
@ls.json_option
def config(session: Session, name: str, only: str | None, as_json: bool) -> None:
    """Show the configuration of a cluster as it would be written now.

    \b
    Example: strata slurm config main --file slurm.conf
    """
    made = session.client.get(f"{_NAMED.path(name)}/files")
    if only is not None and only not in made["files"]:
        raise click.UsageError(f"there is no {only}; there are {', '.join(made['files'])}")
    if as_json:
        session.out.json(made)
        return
    for file, text in made["files"].items():
        if only is None:
            session.out.line(f"==> {file} <==")
        if only in (None, file):
            session.out.text(text)
    _warn(session, made)


@slurm.command()
@click.argument("name")
@_DIRECTORY
@ls.json_option
def check(session: Session, name: str, directory: Path, as_json: bool) -> None:
    """Say what writing the configuration to DIRECTORY would change. It also says whether Slurm can read the result, and
    whether its daemons need a restart. Changes nothing. Exit status 1: Slurm cannot read it.

    \b
    Example: strata slurm check main /etc/slurm
    """
    from strata.platform.slurm import folder

    made = session.client.get(f"{_NAMED.path(name)}/files")
    told = folder.compare(directory, made["files"])
    wrong = folder.unreadable(made["files"])
    if as_json:
        session.out.json({**_told(told), "wrong": wrong, "warnings": made["warnings"]})
    else:
        _show(session, told)
        _warn(session, made)
        session.out.line(f"Slurm cannot read it: {wrong}" if wrong else _consequence(told, "would have to be"))
    if wrong:
        raise click.exceptions.Exit(exits.ERROR)


@slurm.command()
@click.argument("name")
@_DIRECTORY
@click.option("--reconfigure", is_flag=True, help="Then have slurmctld read it, if the change needs no restart.")
@ls.json_option
def write(session: Session, name: str, directory: Path, reconfigure: bool, as_json: bool) -> None:
    """Write the configuration to DIRECTORY, where slurmctld reads it. Nothing is written if nothing has changed.

    A configuration that Slurm cannot read is not written. Nodes fetch it from slurmctld by themselves (configless). If
    a change needs a restart, above all added or removed nodes, it says so: restart slurmctld first, then the slurmds.

    \b
    Example: strata slurm write main /etc/slurm --reconfigure
    """
    from strata.platform.slurm import folder

    made = session.client.get(f"{_NAMED.path(name)}/files")
    told = folder.compare(directory, made["files"])
    folder.write(directory, made["files"], told.changed)
    done = reconfigure and bool(told.changed) and not told.restart
    if done:
        folder.reconfigure(directory)
    if as_json:
        session.out.json({**_told(told), "reconfigured": done, "warnings": made["warnings"]})
        return
    _show(session, told)
    _warn(session, made)
    session.out.line("slurmctld and its nodes have taken it over" if done else _consequence(told, "have to be"))


def _consequence(told: Difference, verb: str) -> str:
    if not told.changed:
        return "nothing has changed"
    if told.restart:
        return f"slurmctld, then all slurmds, {verb} restarted: {'; '.join(told.restart)}"
    return "'scontrol reconfigure' takes it over"


def _told(told: Difference) -> Json:
    import msgspec

    found: Json = msgspec.to_builtins(told)
    return found


def _show(session: Session, told: Difference) -> None:
    if told.text:
        session.out.text(told.text)


def _warn(session: Session, made: Json) -> None:
    for warning in made["warnings"]:
        session.out.note(f"Warning: {warning}")


def _no_more(kind: type[Any], value: Any) -> Any:
    raise ValueError(f"cannot be {value!r}")
