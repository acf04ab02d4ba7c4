"""``strata accelerator``: the accelerators of nodes; and those of the machine that it runs on, without a service."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.session import Session

if TYPE_CHECKING:
    from strata.cli.client import Json
    from strata.jobs.accelerators.records import Found

FIELDS = (
    ls.plain("make"),
    ls.plain("name"),
    ls.Field("memory", lambda item: _gib(item), key=lambda item: item["memory_bytes"], right=True),
    ls.number("each"),
    ls.Field("driver", lambda item: "runs" if item["running"] else "does not run"),
    ls.number("count"),
    ls.plain("nodes"),
)
HERE = (
    ls.plain("device"),
    ls.plain("name"),
    ls.Field("memory", lambda item: _gib(item), key=lambda item: item.get("memory_bytes", 0), right=True),
    ls.plain("address"),
    ls.Field("files", lambda item: " ".join(item.get("devices") or ()) or "driver does not run"),
    ls.plain("id", shown=False),
)
HEALTH = (ls.plain("device"), ls.Field("problem", lambda item: item["problem"] or "ok"))

_root = click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default="/",
    show_default=True,
    help="The tree to look at: this machine's, or that of another.",
)


def _gib(item: Json) -> str:
    size = item.get("memory_bytes") or 0
    return f"{size / 2**30:.0f} GiB" if size else "-"


@click.group("accelerator")
def accelerator() -> None:
    """GPUs, other accelerators and fast networks: of this machine, and of nodes."""


@accelerator.command("list")
@_root
@ls.listing(HERE)
def list_(session: Session, root: Path, view: ls.Listing) -> None:
    """List the accelerators of this machine, by the names that containers use. Needs no service.

    \b
    Example: strata accelerator list
    """
    import msgspec

    rows: list[Json] = [{"device": one.cdi, **msgspec.to_builtins(one)} for one in _detect(root).devices]
    ls.show(session, HERE, rows, view)


@accelerator.command("health")
@_root
@ls.listing(HEALTH)
def health(session: Session, root: Path, view: ls.Listing) -> None:
    """Check the accelerators of this machine: memory errors, throttling, lost lanes. Needs no service.

    Exit status 1 if something is wrong.

    \b
    Example: strata accelerator health
    """
    found = _detect(root)
    rows: list[Json] = [{"device": one.cdi, "problem": "; ".join(found.wrong_with(one))} for one in found.devices]
    ls.show(session, HEALTH, rows, view)
    if found.problems:
        exits.leave(exits.ERROR)


@accelerator.command("cdi")
@_root
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a file for each kind of device into this folder (/var/run/cdi), instead of printing them.",
)
@ls.json_option
def cdi(session: Session, root: Path, into: Path | None, as_json: bool) -> None:
    """Print specifications for the Container Device Interface (CDI). Podman and others give devices to containers by
    them.

    They name the files of the driver that runs now: write them again when a driver was changed.

    \b
    Example: strata accelerator cdi --into /var/run/cdi
    """
    import json

    from strata.jobs.accelerators.cdi import file_name, specifications

    made = specifications(_detect(root))
    if into is None:
        session.out.json(made)
        return
    into.mkdir(parents=True, exist_ok=True)
    for one in made:
        fresh = into / f".{file_name(one)}.part"
        fresh.write_text(json.dumps(one, indent=1) + "\n", encoding="utf-8")
        fresh.replace(into / file_name(one))
    paths = [str(into / file_name(one)) for one in made]
    session.out.answer(as_json, {"written": paths}, "\n".join(f"wrote {path}" for path in paths) or "nothing found")


@accelerator.command("confine")
@click.argument("pid", type=click.IntRange(1))
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME",
    help="Accelerator to allow. Default: those in the process's variables.",
)
@ls.json_option
def confine(session: Session, pid: int, devices: tuple[str, ...], as_json: bool) -> None:
    """Restrict a process and its children to the accelerators given to it (as root).

    For the prolog of a scheduler that does not do it itself; Slurm does.

    \b
    Example: strata accelerator confine 4711 --device nvidia.com/gpu=0
    """
    from strata.core.errors import NotFound
    from strata.jobs.accelerators.assignment import choose, given
    from strata.jobs.accelerators.confinement import confine as keep_to

    found = _detect(Path("/"))
    if devices:
        assigned = choose(found, devices)
    else:
        try:
            told = Path(f"/proc/{pid}/environ").read_bytes().decode("utf-8", "replace").split("\0")
        except FileNotFoundError:
            raise NotFound("there is no such process", where=f"process {pid}") from None
        assigned = given(found, dict(word.partition("=")[::2] for word in told))
    group = keep_to(pid, found, assigned)
    kept = [one.cdi for one in assigned.accelerators]
    said = f"process {pid} may use {', '.join(kept) or 'no accelerator'}"
    session.out.answer(as_json, {"pid": pid, "devices": kept, "group": str(group)}, said)


@accelerator.command("nodes")
@ls.listing(FIELDS)
def nodes(session: Session, view: ls.Listing) -> None:
    """List the accelerators of nodes, by model, as their agents report them.

    \b
    Example: strata accelerator nodes
    """
    ls.show(session, FIELDS, session.client.get("/v1/accelerators")["items"], view)


def _detect(root: Path) -> Found:
    from strata.jobs.accelerators.detection import detect

    return detect(root)
