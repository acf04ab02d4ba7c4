"""``strata minos``: build and look after the minimal OS that nodes boot. Works without a running service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.session import Session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strata.cli.client import Json
    from strata.cli.output import Output
    from strata.provisioning.minos.artefacts import Artefact, Artefacts

FIELDS = (
    ls.plain("digest"),
    ls.Field("latest", lambda item: "latest" if item["latest"] else "-"),
    ls.plain("arch"),
    ls.plain("kernel"),
    ls.Field("initrd", lambda item: _megabytes(item["initrd"]), key=lambda item: item["initrd"], right=True),
    ls.Field("vmlinuz", lambda item: _megabytes(item["vmlinuz"]), key=lambda item: item["vmlinuz"], right=True),
    ls.number("modules"),
    ls.plain("agent", shown=False),
)

DIRECTORY = click.Path(path_type=Path, file_okay=False)
OUTPUT = click.option("--output", type=DIRECTORY, help="Where builds are. [default: minos in the state directory]")


@click.group()
def minos() -> None:
    """Build and look after the minimal OS that nodes boot."""


@minos.command()
@click.option("--arch", default="x86_64", show_default=True, help="x86_64 or aarch64.")
@click.option("--kernel", default="", metavar="PACKAGE", help="A linux-image package, such as linux-image-amd64.")
@click.option("--module", "modules", multiple=True, metavar="NAME", help="A kernel module to carry besides the usual.")
@click.option(
    "--hardware",
    type=click.File("r"),
    metavar="FILE",
    help="Modaliases of the machines' devices, one a line: carry the drivers of these only.",
)
@click.option(
    "--crash-hook",
    type=click.File("rb"),
    metavar="FILE",
    help="A program for nodes to run after a kernel crash, before they reboot, instead of printing the kernel's log.",
)
@click.option("--cache", type=DIRECTORY, help="Where packages are kept. [default: the user's cache]")
@OUTPUT
@ls.json_option
def build(
    session: Session,
    arch: str,
    kernel: str,
    modules: tuple[str, ...],
    hardware: TextIO | None,
    crash_hook: BinaryIO | None,
    cache: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Build it from this machine's Debian packages, and sign it. It is then the latest of its architecture.

    The same packages make the same build, wherever it is done.

    \b
    Example: strata minos build --kernel linux-image-amd64 --module mlx5_ib
    """
    made = make(
        session.out,
        _artefacts(session, output),
        session.state_dir,
        arch=arch,
        cache=cache,
        kernel=kernel,
        extra=modules,
        hardware=_modaliases(hardware) if hardware is not None else None,
        crash_hook=_program(crash_hook) if crash_hook is not None else None,
    )
    what = made.manifest
    said = f"{made.path}: {what.arch}, kernel {what.kernel}, initrd {_megabytes(what.initrd.size)}"
    session.out.answer(as_json, _row(made) | {"path": str(made.path)}, said)


@minos.command("list")
@OUTPUT
@ls.listing(FIELDS, sort="digest")
def list_(session: Session, output: Path | None, view: ls.Listing) -> None:
    """List the builds; each architecture has a latest of its own, which its nodes boot.

    \b
    Example: strata minos list
    """
    ls.show(session, FIELDS, [_row(one) for one in _artefacts(session, output).all()], view)


@minos.command()
@click.argument("build", default="latest")
@OUTPUT
@ls.json_option
def show(session: Session, build: str, output: Path | None, as_json: bool) -> None:
    """Show what a build was made of.

    \b
    Example: strata minos show latest-aarch64
    """
    import msgspec

    found = _artefacts(session, output).get(build)
    manifest: Json = msgspec.to_builtins(found.manifest)
    if as_json:
        session.out.json({"digest": found.digest, "latest": found.latest, "path": str(found.path), **manifest})
        return
    parts = {name: f"{manifest[name]['size']} bytes, sha256:{manifest[name]['sha256']}" for name in _PARTS}
    lists = {
        "modules": ", ".join(manifest["modules"]),
        "inputs": ", ".join(f"{one['name']} {one['version']}" for one in manifest["inputs"]),
    }
    shown = {"digest": found.digest, "latest": found.latest, "path": found.path, **manifest, **parts, **lists}
    session.out.fields(shown.items())


@minos.command()
@click.argument("build", default="latest")
@OUTPUT
@ls.json_option
def verify(session: Session, build: str, output: Path | None, as_json: bool) -> None:
    """Check a build's signature and files; exit code 1 if something is wrong.

    \b
    Example: strata minos verify latest
    """
    from strata.provisioning.signing import Signer

    public = Signer.open(session.state_dir / "signing").public_pem
    problems = _artefacts(session, output).problems(build, public)
    if as_json:
        session.out.json({"build": build, "ok": not problems, "problems": problems})
    elif problems:
        for problem in problems:
            session.out.line(problem, colour="red")
    else:
        session.out.line("as it was signed", colour="green")
    if problems:
        exits.leave(exits.ERROR)


@minos.command()
@click.argument("build")
@OUTPUT
@ls.json_option
def choose(session: Session, build: str, output: Path | None, as_json: bool) -> None:
    """Make a build the latest of its architecture. Nodes of that boot it unless their profile names another.

    \b
    Example: strata minos choose 1ffefbb74207
    """
    builds = _artefacts(session, output)
    chosen = builds.get(builds.choose(build))
    arch = chosen.manifest.arch
    session.out.answer(as_json, {"latest": chosen.digest, "arch": arch}, f"{chosen.digest} is the latest for {arch}")


@minos.command()
@click.argument("build")
@OUTPUT
@ls.json_option
def remove(session: Session, build: str, output: Path | None, as_json: bool) -> None:
    """Delete a build that is not the latest. Nodes that run it go on.

    \b
    Example: strata minos remove 1ffefbb74207
    """
    digest = _artefacts(session, output).remove(build)
    session.out.answer(as_json, {"removed": digest}, f"removed {digest}")


def _modaliases(file: TextIO) -> list[str]:
    try:
        found = file.read().split()
    except UnicodeDecodeError:
        raise click.BadParameter("it is not UTF-8 text", param_hint="--hardware") from None
    if not found:
        hint = "cat /sys/bus/*/devices/*/modalias prints those of a machine"
        raise click.BadParameter(f"it names no device ({hint})", param_hint="--hardware")
    return found


def _program(file: BinaryIO) -> bytes:
    found = file.read()
    if not found:
        raise click.BadParameter("it is empty", param_hint="--crash-hook")
    return found


_PARTS = ("vmlinuz", "initrd")


def _artefacts(session: Session, output: Path | None) -> Artefacts:
    from strata.provisioning.minos.artefacts import Artefacts

    return Artefacts(output or session.state_dir / "minos")


def make(
    out: Output,
    into: Artefacts,
    state: Path,
    *,
    arch: str = "x86_64",
    cache: Path | None = None,
    kernel: str = "",
    extra: Sequence[str] = (),
    hardware: Sequence[str] | None = None,
    crash_hook: bytes | None = None,
) -> Artefact:
    """Build with our own agent, signed by the key in the state directory ``state``; every step is shown."""
    import strata
    from strata.cli.progress import Meter
    from strata.provisioning.minos.build import STEPS
    from strata.provisioning.minos.build import build as do_build
    from strata.provisioning.minos.recipe import recipe
    from strata.provisioning.signing import Signer

    chosen = recipe(arch)
    with Meter(out, "minOS", every=0) as meter:
        return do_build(
            chosen,
            Path(strata.__file__).parent / "agent",
            cache or cache_folder(),
            into,
            Signer.open(state / "signing"),
            kernel=kernel,
            extra=extra,
            hardware=hardware,
            crash_hook=crash_hook,
            progress=lambda done, doing: meter.update(done, STEPS, doing),
        )


def cache_folder() -> Path:
    """Where packages, and what was made of them, are kept for the user."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "strata" / "packages"


def _row(found: Artefact) -> Json:
    manifest = found.manifest
    return {
        "digest": found.digest,
        "latest": found.latest,
        "arch": manifest.arch,
        "kernel": manifest.kernel,
        "initrd": manifest.initrd.size,
        "vmlinuz": manifest.vmlinuz.size,
        "modules": len(manifest.modules),
        "agent": manifest.agent,
    }


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
