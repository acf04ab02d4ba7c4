"""``strata config``: the site repository, what it would change, applying it, and following a branch of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.output import Column, many
from strata.cli.reading import read_text
from strata.cli.repository import has_layers
from strata.cli.session import Session, pass_session
from strata.cli.times import span, when
from strata.cli.waiting import arrival, wait_options
from strata.cli.words import complete_node, segment
from strata.core.errors import BadRequest
from strata.platform.delivery.commands import drift, render

if TYPE_CHECKING:
    from strata.cli.client import Client, Json
    from strata.platform.config.importing import ForeignSite
    from strata.platform.config.records import KeptKind, Way
    from strata.platform.config.repository import Repository

F = TypeVar("F", bound=Callable[..., Any])

ACTION_COLOURS = {"created": "green", "changed": "yellow", "removed": "red"}
ORIGINS = (
    ls.plain("field"),
    ls.plain("value"),
    ls.plain("layer"),
    ls.plain("place"),
    ls.plain("overrides"),
)
_DIR = click.argument("directory", default=".", type=click.Path(path_type=Path, file_okay=False))
_SYSTEM = click.option(
    "--system", default="", metavar="NAME", help="The system of systems/NAME/; needed if there are several."
)


def _revision(function: F) -> F:
    """``--branch`` and ``--commit``: not the files as they are, but as they were committed."""
    branch = click.option(
        "--branch", default="", metavar="NAME", help="Use what is committed on this branch, not the files."
    )
    commit = click.option("--commit", default="", metavar="COMMIT", help="Use this commit, not the files.")
    return branch(commit(function))


def _waves(function: F) -> F:
    """``--rollout`` and ``--at-once``: not as the repository's rollout-policy says."""
    waves = click.option("--rollout", is_flag=True, help="Change nodes in waves, with a canary, checks and rollback.")
    at_once = click.option(
        "--at-once", is_flag=True, help="Change all nodes at once, whatever the rollout-policy says."
    )
    return waves(at_once(function))


def _way(rollout: bool, at_once: bool) -> Way:
    if rollout and at_once:
        raise click.UsageError("--rollout and --at-once exclude each other")
    return "rollout" if rollout else "at-once" if at_once else "policy"


@click.group("config")
def config() -> None:
    """Keep what the machine should be in git: check, plan, apply, follow a branch."""


config.add_command(render)
config.add_command(drift)


@config.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--system", default="main", metavar="NAME", help="Name of this system.", show_default=True)
@ls.json_option
def init(session: Session, directory: Path, system: str, as_json: bool) -> None:
    """Write a starter repository into DIRECTORY. 'git init' and the first commit are yours.

    \b
    Example: strata config init site
    """
    from strata.platform.config.importing import write
    from strata.platform.config.starter import files

    written = write(directory, files(system))
    session.out.answer(as_json, {"written": written}, f"wrote {many(len(written), 'file')} into {directory}")


_FILE = click.Path(path_type=Path, dir_okay=False)


@config.command("import")
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False))
@click.option("--system", default="main", metavar="NAME", help="Name of this system.", show_default=True)
@click.option("--warewulf", type=_FILE, metavar="FILE", help="From a nodes.conf of Warewulf 4. Needs no service.")
@click.option("--slurm", type=_FILE, metavar="FILE", help="From a slurm.conf and /etc/hosts. Needs no service.")
@click.option(
    "--hosts", type=_FILE, default="/etc/hosts", metavar="FILE", help="Hosts file for --slurm.", show_default=True
)
@ls.json_option
def import_(
    session: Session,
    directory: Path,
    system: str,
    warewulf: Path | None,
    slurm: Path | None,
    hosts: Path,
    as_json: bool,
) -> None:
    """Write what exists already into DIRECTORY, as a site repository.

    From the running service: nodes, groups, desire documents, personalities, overlays with their files, secrets
    (encrypted), recipes of images, networks, cloud-init documents, flows, checks, profiles, policies, playbooks and
    budgets; not what was set on single nodes ('strata node set'). Applying it unchanged changes nothing.
    From another tool's files: nodes, groups and networks; IMPORTED.md lists what could not be imported.

    \b
    Example: strata config import site --system prod
             strata config import site --warewulf /etc/warewulf/nodes.conf
             strata config import site --slurm /etc/slurm/slurm.conf
    """
    from strata.platform.config.importing import write
    from strata.platform.config.starter import furnished

    if warewulf and slurm:
        raise click.UsageError("give --warewulf or --slurm, not both: import the second into another directory")
    left_out: list[str] = []
    if warewulf or slurm:
        site, source = _foreign(warewulf, slurm, hosts)
        found, left_out = site.files(system, source), site.left_out
    else:
        found = _held(session, system)
    written = write(directory, furnished(found))
    words = f"wrote {many(len(written), 'file')} into {directory}"
    if left_out:
        words += f"; not carried over: {many(len(left_out), 'thing')}, see {directory / 'IMPORTED.md'}"
    session.out.answer(as_json, {"written": written, "left_out": left_out}, words)


def _foreign(warewulf: Path | None, slurm: Path | None, hosts: Path) -> tuple[ForeignSite, str]:
    """What another tool's files say, and what they are called."""
    from strata.platform.config import slurm_site
    from strata.platform.config import warewulf as warewulf_site

    if warewulf:
        return warewulf_site.read(read_text(warewulf, lenient=True), str(warewulf)), "nodes.conf of Warewulf"
    assert slurm is not None

    def beside(name: str) -> str:
        """What Slurm reads for ``Include``: a path, or a name beside the file."""
        return read_text(slurm.parent / name, lenient=True)

    text, known = read_text(slurm, lenient=True), read_text(hosts, lenient=True)
    return slurm_site.read(text, str(slurm), known, beside), "slurm.conf and hosts"


def _held(session: Session, system: str) -> dict[str, str]:
    """Path → text of what the running service holds."""
    from strata.core.errors import Denied, Unavailable
    from strata.platform.config.importing import files
    from strata.platform.config.kept import KEPT
    from strata.platform.config.records import NODE_FIELDS

    client = session.client
    nodes = client.pages("/v1/nodes", {"fields": ",".join(("name", *NODE_FIELDS))})
    try:
        personalities = client.get("/v1/personalities")["items"]
    except Unavailable:
        personalities = []  # of a service without the provisioning layer
    groups, desires = client.get("/v1/groups")["items"], client.get("/v1/documents")["items"]
    kept = {kind: found for kind in KEPT if (found := _kept(client, kind))}
    try:
        held = client.post("/v1/config/export")
    except Denied:
        held = None
        session.out.note(
            "without overlays, secrets and recipes of images: only who may apply a configuration gets them"
        )
    return files(system, nodes, groups, desires, personalities, kept, held)


def _kept(client: Client, kind: KeptKind) -> list[Mapping[str, Any]]:
    """What a room of the service keeps, as it stands in files; nothing where it has no such room."""
    from strata.core.errors import NotFound, Unavailable
    from strata.platform.config.kept import KEPT

    room = KEPT[kind]
    if not room.listed:
        return []
    try:
        found = client.get(room.listed)
        listed = found.get("items", [found])
        if room.apart:
            listed = [client.get(f"{room.listed}/{segment(item['name'])}") for item in listed]
    except (NotFound, Unavailable):
        return []
    return [said for item in listed if (said := room.written(item)) is not None]


@config.command()
@_DIR
@_SYSTEM
@_revision
@ls.json_option
def check(session: Session, directory: Path, system: str, branch: str, commit: str, as_json: bool) -> None:
    """Read the repository in DIRECTORY and say what is wrong with it. Templates are rendered for all its nodes. Needs
    no service. 'strata config plan' checks whether the nodes can become what it wants.

    \b
    Example: strata config check site --system test
    """
    import asyncio

    from strata.platform.config.explain import render_all
    from strata.platform.config.records import FIELDS

    repository = _repository(directory, system, branch, commit)
    found = repository.configuration()
    asyncio.run(render_all(repository))
    counts = {kind: len(getattr(found, kind)) for kind in ("nodes", "groups", "desires", "personalities", "overlays")}
    counts |= {field: count for field in FIELDS.values() if (count := len(getattr(found, field)))}
    words = ", ".join(
        f"{count} {_one(kind) if count == 1 else kind}".replace("_", " ") for kind, count in counts.items()
    )
    of = f" for system {found.system}" if found.system else ""
    session.out.answer(as_json, {"system": found.system, **counts}, f"sound{of}: {words}")


@config.command()
@pass_session
def schema(session: Session) -> None:
    """Print the JSON Schema of the files, by which editors check and complete.

    \b
    Example: strata config schema > .strata/schema.json
    """
    from strata.platform.config.documents import schema as made

    session.out.json(made())


@config.command()
@click.argument("node", shell_complete=complete_node)
@_DIR
@_SYSTEM
@_revision
@click.option("--explain", is_flag=True, help="Say where each value comes from, and what it overrides.")
@ls.listing(ORIGINS)
def show(
    session: Session,
    node: str,
    directory: Path,
    system: str,
    branch: str,
    commit: str,
    explain: bool,
    view: ls.Listing,
) -> None:
    """Show what the repository in DIRECTORY says of a node. Needs no service.

    \b
    Example: strata config show n1 site --explain
    """
    import msgspec

    from strata.platform.config.explain import explain as explained
    from strata.platform.config.reading import read_repository

    repository = read_repository(directory, commit or branch, system)
    found = [msgspec.to_builtins(origin) for origin in explained(repository, node)]
    if repository.commit:
        for origin in found:
            origin["place"] = f"{repository.commit[:12]}:{origin['place']}"
    columns = view.columns or (() if explain else ("field", "value"))
    ls.show(session, ORIGINS, found, view._replace(columns=columns))


@config.command()
@_DIR
@_SYSTEM
@_revision
@_waves
@ls.json_option
def plan(
    session: Session,
    directory: Path,
    system: str,
    branch: str,
    commit: str,
    rollout: bool,
    at_once: bool,
    as_json: bool,
) -> None:
    """Show what applying the repository would change, and what would then be done to nodes. Changes nothing.

    Without --branch or --commit: the files as they are. Exit code 3 if some nodes could not get there, or if a brake
    would stop it.

    \b
    Example: strata config plan site
             strata config plan site --branch new-rack
    """
    import msgspec

    repository = _repository(directory, system, branch, commit)
    body = msgspec.json.encode(
        {"configuration": repository.configuration(unchecked=True), "way": _way(rollout, at_once)}
    )
    try:
        found = session.client.post("/v1/config/plan", body)
    except BadRequest:
        repository.configuration()  # says the same of a node with its place
        raise
    exits.leave(_show_plan(session, found, as_json))


@config.command()
@_DIR
@_SYSTEM
@_revision
@click.option("--remove-most", is_flag=True, help="Apply it even if it deletes much of what came from the repository.")
@_waves
@wait_options
@ls.json_option
def apply(
    session: Session,
    directory: Path,
    system: str,
    branch: str,
    commit: str,
    remove_most: bool,
    rollout: bool,
    at_once: bool,
    waiting: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Apply what is committed in DIRECTORY: all of it, or nothing. Applying twice changes nothing the second time.

    In a git repository that is HEAD, or what --branch or --commit names. It is refused while files differ from HEAD.
    Objects that an
    earlier commit created and this one no longer has are deleted; nothing else is.

    Where the repository has a rollout-policy, or with --rollout, desires reach nodes in waves, and the commit is
    applied when all are through: 'strata rollout list' and 'strata config status' show it. If too many nodes fail, they
    are rolled back and the commit is not applied.

    With --wait the command waits until the rollouts have ended and the nodes are at their goals or cannot get there;
    the exit code says which.

    \b
    Example: strata config apply site
             strata config apply site --wait
             strata config apply site --rollout
    """
    way = _way(rollout, at_once)
    done = applied(session.client, directory, system, _either(branch, commit), remove_most=remove_most, way=way)
    if as_json:
        if not (waiting and done["rollouts"]):  # those are told of when they have ended
            session.out.json(done)
    else:
        _show_changes(session, done["changes"])
        of = f" of {done['commit'][:12]}" if done["commit"] else ""
        how = f"reach nodes by rollout {', '.join(done['rollouts'])}" if done["rollouts"] else "applied"
        session.out.line(f"{many(len(done['changes']), 'change')}{of} {how}, {done['unchanged']} unchanged")
    if waiting:
        from strata.platform.rollouts.commands import follow

        for name in done["rollouts"]:
            follow(session, session.client.get(f"/v1/rollouts/{segment(name)}"), timeout, as_json)
        exits.leave(arrival(session, "*", timeout, revision=int(done["revision"])))


@config.command()
@ls.json_option
def status(session: Session, as_json: bool) -> None:
    """Show what was applied, which branch is followed, and what waits.

    \b
    Example: strata config status
    """
    _show_status(session, session.client.get("/v1/config"), as_json)


@config.command()
@click.argument("url")
@click.option("--branch", default="main", metavar="NAME", show_default=True, help="The branch to follow.")
@_SYSTEM
@click.option(
    "--policy",
    default="manual",
    show_default=True,
    type=click.Choice(["manual", "window", "auto"]),
    help="When a new commit is applied: when approved (manual), in the window, or at once (auto).",
)
@click.option("--window", default="", metavar="WINDOW", help="Such as 'Tue,Thu 08:00-12:00', in local time.")
@click.option(
    "--every", default=60.0, metavar="SECONDS", show_default=True, help="Seconds between two looks at the branch."
)
@ls.json_option
def watch(
    session: Session,
    url: str,
    branch: str,
    system: str,
    policy: str,
    window: str,
    every: float,
    as_json: bool,
) -> None:
    """Have the service follow a branch of the repository at URL. URL is a path of its machine, https:// or ssh.

    A bad commit changes nothing: the last good configuration stays. A force-pushed branch waits for approval, whatever
    the policy.

    \b
    Example: strata config watch git@git.example.org:site.git --policy window --window 'Tue 08:00-12:00'
    """
    body = {"url": url, "branch": branch, "system": system, "policy": policy, "window": window, "every": every}
    session.client.put("/v1/config/watch", body)
    # What is wrong with the address is said now, and not to who asks some time later.
    _show_status(session, session.client.post("/v1/config/watch/look"), as_json)


@config.command()
@ls.json_option
def unwatch(session: Session, as_json: bool) -> None:
    """Follow no branch any more. What was applied stays.

    \b
    Example: strata config unwatch
    """
    session.client.delete("/v1/config/watch")
    session.out.answer(as_json, {"watch": None}, "no branch is followed")


@config.command()
@click.argument("reason")
@ls.json_option
def pause(session: Session, reason: str, as_json: bool) -> None:
    """Stop applying commits of the branch until 'strata config resume'. Others will read REASON.

    \b
    Example: strata config pause 'acceptance run until Friday'
    """
    if not reason.strip():
        raise click.UsageError("give a reason")
    _pause(session, reason, as_json)


@config.command()
@ls.json_option
def resume(session: Session, as_json: bool) -> None:
    """Go on applying commits of the branch.

    \b
    Example: strata config resume
    """
    _pause(session, "", as_json)


@config.command()
@ls.json_option
def pending(session: Session, as_json: bool) -> None:
    """Show what the commit that waits would change, as 'config plan' does.

    \b
    Example: strata config pending
    """
    exits.leave(_show_plan(session, session.client.get("/v1/config/pending"), as_json))


@config.command()
@click.argument("commit")
@click.option("--remove-most", is_flag=True, help="Apply it even if it deletes much of what came from the repository.")
@ls.json_option
def approve(session: Session, commit: str, remove_most: bool, as_json: bool) -> None:
    """Approve the commit that waits, and apply it now. A later commit needs an approval of its own.

    \b
    Example: strata config approve 1a2b3c4d5e6f
    """
    body = {"commit": commit, "remove_most": remove_most}
    _show_status(session, session.client.post("/v1/config/watch/approve", body), as_json)


@config.command()
@ls.json_option
def look(session: Session, as_json: bool) -> None:
    """Look at the followed branch now. The repository's hook can call this after a push.

    \b
    Example: strata config look
    """
    _show_status(session, session.client.post("/v1/config/watch/look"), as_json)


def applied(
    client: Client,
    directory: Path,
    system: str = "",
    revision: str = "",
    *,
    remove_most: bool = False,
    way: Way = "policy",
) -> Json:
    """Have the service apply what is committed in a directory: what it then says."""
    import msgspec

    from strata.platform.config.reading import committed, read_repository

    found = read_repository(directory, revision or committed(directory), system).configuration()
    order = msgspec.json.encode({"configuration": found, "remove_most": remove_most, "way": way})
    return client.post("/v1/config/apply", order)


def _pause(session: Session, reason: str, as_json: bool) -> None:
    body = {"reason": reason}
    _show_status(session, session.client.post("/v1/config/watch/pause", body), as_json)


def _either(branch: str, commit: str) -> str:
    if branch and commit:
        raise click.UsageError("--branch and --commit exclude each other")
    return commit or branch


def _repository(directory: Path, system: str, branch: str, commit: str) -> Repository:
    from strata.platform.config.reading import read_repository

    revision = _either(branch, commit)
    try:
        return read_repository(directory, revision, system)
    except BadRequest as error:
        if not directory.is_dir() or has_layers(directory):
            raise
        told = "is not a site repository (no folder .strata, systems, site or vendor). Read as one"
        raise BadRequest(f"{told}, {error}", where=str(directory)) from None


def _one(kind: str) -> str:
    """``group`` of ``groups``, ``policy`` of ``policies``."""
    return f"{kind[:-3]}y" if kind.endswith("ies") else kind.removesuffix("s")


def _show_plan(session: Session, found: Json, as_json: bool) -> int:
    stuck = [one for one in found["classes"] if one["status"] == "unreachable"]
    code = exits.UNREACHABLE if stuck or found["refused"] or found["rollout_refused"] else 0
    if as_json:
        session.out.json(found)
        return code
    _show_changes(session, found["changes"])
    if found["classes"]:
        from strata.fleet.plans.commands import show_classes

        show_classes(session, found)
    would = many(len(found["changes"]), "change") if found["changes"] else "nothing would change"
    session.out.line(f"{would}, {found['unchanged']} unchanged")
    if found["disrupted"]:
        session.out.line(f"disrupts {many(found['disrupted'], 'node')}: {found['disrupts']}", colour="yellow")
    if found["seconds"]:
        session.out.line(_duration(found))
    for one in found["rollouts"]:
        values = " ".join(f"{name}={'|'.join(given)}" for name, given in one["set"].items())
        waves = ", ".join(map(str, one["waves"][:10])) + (", ..." if one["waves"][10:] else "")
        session.out.line(f"in waves of {waves} nodes: {values} on {one['nodeset']} (rollout {one['name']})")
    for words in found["warnings"]:
        session.out.line(f"warning: {words}", colour="yellow")
    if found["refused"]:
        session.out.line(f"would be refused: {found['refused']} (--remove-most)", colour="red")
    if found["rollout_refused"]:
        session.out.line(f"would be refused: {found['rollout_refused']} (--at-once)", colour="red")
    return code


def _duration(found: Json) -> str:
    """How long a plan should take."""
    said = f"takes about {span(found['seconds'])} per node"
    if found["rollouts"]:
        return f"{said}, in the waves below, and as long as running jobs take to end"
    few = found["places"] is not None and found["places"] < found["disrupted"]
    at_a_time = f" (at most {many(found['places'], 'node')} at a time)" if few else ""
    return f"{said}, {span(found['all_seconds'])} in all{at_a_time}, and as long as running jobs take to end"


def _show_changes(session: Session, changes: list[Json]) -> None:
    if not changes:
        return
    columns = [
        Column("kind"),
        Column("name"),
        Column("action", lambda action: ACTION_COLOURS.get(action, "")),
        Column("nodes", right=True),
        Column("detail"),
    ]
    rows = [
        (
            one["kind"],
            one["name"],
            one["action"],
            one["count"] if one["kind"] in ("node", "personality") else "-",
            one["detail"] or "-",
        )
        for one in changes
    ]
    session.out.table(columns, rows)


def _show_status(session: Session, found: Json, as_json: bool) -> None:
    if as_json:
        session.out.json(found)
        return
    watched = found["watch"] or {}
    session.out.fields(
        (
            ("applied", found["commit"][:12] or ("files" if found["time"] else "-")),
            ("system", found["system"] or "-"),
            ("by", found["author"] or "-"),
            ("at", when(found["time"]) if found["time"] else "-"),
            ("nodes", found["nodes"]),
            ("watches", f"{watched['url']} {watched['branch']}" if watched else "-"),
            ("policy", " ".join((watched["policy"], watched["window"])).strip() if watched else "-"),
            ("paused", watched.get("paused") or "-"),
            ("newest", found["seen"][:12] or "-"),
            ("pending", found["pending"][:12] or "-"),
            ("waits for", found["waits_for"] or "-"),
            ("error", found["error"] or "-"),
            ("rolling", _rolling(found["rolling"])),
        )
    )


def _rolling(found: Json | None) -> str:
    if found is None:
        return "-"
    how = found["failed"] or f"waits for {found['waits_for']}"
    return f"{found['commit'][:12] or 'files'} ({', '.join(found['rollouts'])}): {how}"
