"""``strata job target``: what runs jobs and has no nodes of ours."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.reading import read_text
from strata.cli.session import Session
from strata.cli.times import DURATION
from strata.cli.words import pairs, segment

if TYPE_CHECKING:
    from strata.cli.client import Json

KINDS = ("slurm", "gridengine", "pbs", "lsf", "htcondor", "kubernetes")
FIELDS = (
    ls.plain("name"),
    ls.plain("kind"),
    ls.Field("on", lambda item: item["kubernetes"]["server"] if item["kubernetes"] else item["on"] or "here"),
    ls.Field("namespace", lambda item: item["kubernetes"]["namespace"] if item["kubernetes"] else "-"),
    ls.plain("author"),
)
_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


@click.group()
def target() -> None:
    """Connect targets that run jobs elsewhere: a Kubernetes, another site's cluster."""


@target.command()
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--name", default="", help="What to call it. Default: its kind.")
@click.option(
    "--on", metavar="[USER@]HOST", help="Run its commands on this host, by ssh. Default: on the controller's host."
)
@click.option("--env", multiple=True, metavar="NAME=VALUE", help="Environment of its commands: PBS_CONF_FILE...")
@click.option("--kubeconfig", type=_FILE, help="Of a Kubernetes: server, authority and token from this file.")
@click.option("--context", help="Which context of that file. Default: the current one.")
@click.option("--namespace", metavar="RULE", help="Namespace of jobs: jobs, {account}, prj-{project}. Default: jobs.")
@click.option("--image", help="Image for jobs that name none: HOST/NAME:TAG.")
@click.option("--claim", multiple=True, metavar="FOLDER=CLAIM", help="A folder that jobs see: a PersistentVolumeClaim.")
@click.option(
    "--accelerator", multiple=True, metavar="TYPE=RESOURCE", help="What a type is called there: h200=nvidia.com/gpu."
)
@click.option("--keep", type=DURATION, help="How long ended jobs and logs stay there. Default: 1d.")
@click.option("--impersonate", is_flag=True, help="Send jobs in the name of their account.")
@ls.json_option
def connect(
    session: Session,
    /,
    kind: str,
    name: str,
    on: str | None,
    env: tuple[str, ...],
    kubeconfig: Path | None,
    context: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Connect something that runs jobs, or change how it is reached. It has to answer.

    To connect the workload manager of Strata's own nodes, use strata workload connect.

    \b
    Example: strata job target connect pbs --on strata@login1
             strata job target connect kubernetes --kubeconfig strata.kubeconfig --namespace 'jobs-{account}'
    """
    body: Json = {"kind": kind, "on": on, "env": pairs(env, option="--env")}
    if kind == "kubernetes":
        if kubeconfig is None:
            raise click.UsageError("a kubernetes is described by --kubeconfig FILE")
        found, body["token"] = _kubeconfig(kubeconfig, context)
        body["kubernetes"] = {**found, **_site(options)}
    made = session.client.put(f"/v1/job-targets/{segment(name or kind)}", body)
    session.out.answer(as_json, made, f"connected {made['kind']} {made['name']}")


_NAMED = Named(target, "target", "/v1/job-targets", FIELDS)
_NAMED.list(
    "List targets that only run jobs. To list everything that runs jobs, with its queues, use strata job targets.",
    "strata job target list",
)
_NAMED.delete(
    "Disconnect a target. Its jobs go on, but Strata no longer follows them.",
    "strata job target disconnect kubernetes",
    command="disconnect",
)


def _site(options: Json) -> Json:
    found: Json = {}
    for option in ("namespace", "image"):
        if options[option]:
            found[option] = options[option]
    if options["keep"]:
        found["keep"] = int(options["keep"])
    if options["impersonate"]:
        found["impersonate"] = True
    if options["claim"]:
        found["claims"] = pairs(options["claim"], option="--claim")
    if options["accelerator"]:
        named = pairs(options["accelerator"], option="--accelerator")
        found["accelerators"] = {kind: {"resource": resource} for kind, resource in named.items()}
        # A job that names no type takes the first.
        found["accelerators"].setdefault("", {"resource": next(iter(named.values()))})
    return found


def _kubeconfig(path: Path, context: str | None) -> tuple[Json, str]:
    """Server and authority, and the token, of a context."""
    import yaml

    try:
        told = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise click.UsageError(f"{path}: {error}") from None

    def named(many: str, name: object) -> Json:
        listed = told.get(many) if isinstance(told, dict) else None
        for one in listed if isinstance(listed, list) else ():
            inner = one.get(many.removesuffix("s")) if isinstance(one, dict) and one.get("name") == name else None
            if isinstance(inner, dict):
                return inner
        raise click.UsageError(f"{path}: there is no {many.removesuffix('s')} {name}")

    chosen = named("contexts", context or (told.get("current-context") if isinstance(told, dict) else None))
    cluster, user = named("clusters", chosen.get("cluster")), named("users", chosen.get("user"))
    if cluster.get("insecure-skip-tls-verify"):
        raise click.UsageError(f"{path}: insecure-skip-tls-verify is not followed; give certificate-authority-data")
    authority, token = cluster.get("certificate-authority-data"), user.get("token")
    if "certificate-authority" in cluster:
        ca = read_text(path.parent / str(cluster["certificate-authority"]))
    else:
        try:
            ca = base64.b64decode(str(authority or ""), validate=True).decode()
        except (binascii.Error, ValueError):
            raise click.UsageError(f"{path}: certificate-authority-data is no base64 of a PEM") from None
    if "tokenFile" in user:
        token = read_text(path.parent / str(user["tokenFile"])).strip()
    if not token:
        raise click.UsageError(
            f"{path}: the user has no token; make a service account for Strata, and: kubectl create token NAME"
        )
    return {"server": str(cluster.get("server", "")), "ca": ca}, str(token)
