"""``strata environment``: work environments to use, to derive from, and to promote once they are tested."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Any

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.session import Session, pass_session
from strata.cli.times import when
from strata.core.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.Field("version", lambda item: f"{item['version']}{'' if item['promoted'] else ' (not promoted)'}"),
    ls.Field("image", lambda item: item["whole"].get("image", "-").partition("@")[0]),
    ls.Field("modules", lambda item: " ".join(item["whole"].get("modules", ())) or "-"),
    ls.plain("owner"),
    ls.Field("description", lambda item: item["whole"].get("description") or "-"),
    ls.number("revision", shown=False),
)


def _read(text: str, name: str) -> Mapping[str, Any]:
    from strata.jobs.environments.files import read_environments

    return read_environments(text, name)


def _report(session: Session, found: Json) -> None:
    import yaml

    session.out.fields((field.name, field.text(found)) for field in FIELDS if field.shown)
    for past in found["versions"]:
        tested = past["tested"]
        said = f"tested by {tested['author']} on {tested['host'] or '?'}" if tested else "not tested"
        counts = " (counts)" if past["number"] == found["current"] else ""
        session.out.line(f"  version {past['number']}{counts}: by {past['author']}, {when(past['time'])}; {said}")
    session.out.text(yaml.safe_dump(found["whole"], sort_keys=False))


@click.group("environment")
def environment() -> None:
    """Work environments: an image, modules, binds and defaults, under a name."""


ENVIRONMENTS = Named(environment, "environment", "/v1/environments", FIELDS, report=_report)
ENVIRONMENTS.list("List the environments.", "strata environment list")
ENVIRONMENTS.show("Show an environment and its versions: what jobs get in it.", "strata environment show pytorch")
ENVIRONMENTS.put_files(
    _read,
    lambda found: f"version {found['version']}",
    "Make new versions of the environments that FILES hold: all of them, or none. They are YAML; - is standard input.",
    "strata environment put environments.yaml",
)
ENVIRONMENTS.delete("Remove an environment. Environments derived from it stay.", "strata environment delete old")


@environment.command("derive")
@click.argument("parent")
@click.argument("name")
@click.option("--image", default="", help="Image to use instead.")
@click.option("--module", "modules", multiple=True, help="Module to add.")
@click.option("--bind", "binds", multiple=True, metavar="SRC[:DST][:ro]", help="Bind to add.")
@click.option("--env", "env", multiple=True, metavar="NAME=VALUE", help="Variable to add.")
@click.option("--description", default="", help="What it is for.")
@ls.json_option
def derive(
    session: Session,
    parent: str,
    name: str,
    image: str,
    modules: tuple[str, ...],
    binds: tuple[str, ...],
    env: tuple[str, ...],
    description: str,
    as_json: bool,
) -> None:
    """Make an environment of your own from PARENT, with something more. PARENT is NAME or NAME@VERSION.

    \b
    Example: strata environment derive pytorch mine --module cuda/12 --env OMP_NUM_THREADS=4
    """
    from strata.jobs.containers.commands import bind_of, variable_of

    told = {
        "based_on": parent,
        "image": image,
        "modules": list(modules),
        "binds": [bind_of(word) for word in binds],
        "env": dict(variable_of(word) for word in env),
        "description": description,
    }
    body = {field: value for field, value in told.items() if value}
    ENVIRONMENTS.report(session, session.client.put(ENVIRONMENTS.path(name), body), as_json)


@environment.command("promote")
@click.argument("name")
@click.option("--version", default=0, help="Version to test. Default: the newest.")
@click.option("--runtime", default="native", show_default=True, help="Container runtime of the test.")
@ls.json_option
def promote(session: Session, name: str, version: int, runtime: str, as_json: bool) -> None:
    """Test a version on this machine, as you. If it passes, it is the version that jobs get.

    \b
    Example: strata environment promote pytorch
    """
    path = ENVIRONMENTS.path(name)
    chosen = version or max(past["number"] for past in session.client.get(path)["versions"])
    found = session.client.get(f"{path}?version={chosen}")
    if found["whole"].get("image") and os.geteuid() == 0:
        raise Refused(
            "its test runs in its image, and no container is started as root",
            by="root",
            where=f"environment {name}",
            hint="be an ordinary account, with a token of yours: strata auth token create --role operator",
        )
    digest = _digest(session, found)
    test = found["whole"].get("test", ())
    passed = not test or _run(found, digest, test, runtime) == 0
    body = {
        "version": chosen,
        "passed": passed,
        "digest": digest,
        "runtime": runtime if digest else "",
        "host": socket.gethostname(),
    }
    ENVIRONMENTS.report(session, session.client.post(f"{path}/promote", body), as_json)


@environment.command("run")
@click.argument("name")
@click.argument("words", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--runtime", default="native", show_default=True, help="Container runtime; 'strata container runtimes' lists them."
)
@pass_session
def run(session: Session, name: str, words: tuple[str, ...], runtime: str) -> None:
    """Run a program in an environment (NAME or NAME@VERSION), here, as you.

    \b
    Example: strata environment run pytorch -- python3 train.py
    """
    plain, _, version = name.partition("@")
    found = session.client.get(f"{ENVIRONMENTS.path(plain)}{f'?version={version}' if version else ''}")
    exits.leave(_run(found, _digest(session, found), words, runtime))


def _digest(session: Session, found: Json) -> str:
    """Of its image, which is here afterwards; empty: it has none."""
    from strata.jobs.containers.commands import bring_image, opened_cache

    image = found["whole"].get("image", "")
    return bring_image(session, opened_cache(None), image).digest if image else ""


def _run(found: Json, digest: str, words: Sequence[str], runtime: str) -> int:
    """By a shell that loads the modules, and in the image by this very command; the exit status."""
    import shlex
    import subprocess
    import sys

    import msgspec

    from strata.jobs.containers.words import run_words
    from strata.jobs.environments.records import EnvironmentSpec, container

    whole = msgspec.convert(found["whole"], EnvironmentSpec)
    wanted = container(whole, runtime=runtime)
    command, told = list(words), dict(os.environ)
    if wanted is None:
        told |= whole.env
    else:
        here = msgspec.structs.replace(wanted, image=digest)
        command = [sys.executable, "-m", "strata.cli", *run_words(here), "--", *words]
    if whole.modules:
        command = ["bash", "-lc", f"module load {shlex.join(whole.modules)} && exec {shlex.join(command)}"]
    ended = subprocess.run(command, env=told, check=False).returncode
    return 128 - ended if ended < 0 else ended
