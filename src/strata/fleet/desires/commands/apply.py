"""``strata apply``: make the service hold what files say. Nodes first, then groups, then desires.

Desires change all or nothing, in one request. Nodes and groups that are already as the file says are left alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli.listing import json_option
from strata.cli.output import Column, fold, many
from strata.cli.session import Session, pass_session
from strata.cli.words import items, segment

if TYPE_CHECKING:
    from strata.cli.client import Client, Json
    from strata.cli.files import Bundle

ACTION_COLOURS = {"created": "green", "changed": "yellow", "deleted": "red", "failed": "red"}
_NODE_DEFAULTS: dict[str, object] = {
    "location": "",
    "nid": None,
    "role": "compute",
    "architecture": "x86_64",
    "labels": {},
    "bmc": "",
    "interfaces": [],
}


@click.command()
@click.option(
    "-f",
    "--file",
    "paths",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path, allow_dash=True),
    help="YAML file, directory of them, or - for stdin. May be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@click.option("--prune", is_flag=True, help="Delete desire documents that are in none of the files.")
@json_option
@pass_session
def apply(session: Session, paths: tuple[Path, ...], dry_run: bool, prune: bool, as_json: bool) -> None:
    """Apply nodes, groups and desires from YAML files. Applying twice changes nothing the second time.

    Of a node that exists, only what a file says is changed; 'strata node edit' empties a field.

    \b
    Example: strata apply -f site/ --dry-run
    A file holds documents parted by '---':
      kind: desire             kind: group              kind: nodes
      name: compute-ready      name: gpu                nodes: n[0001-0064]
      select: "@compute"       members: n[0001-0008]    role: compute
      set: {power: on}         description: with GPUs   labels: {rack: "7"}
      priority: 10
    """
    from strata.cli.files import read_bundle

    bundle = read_bundle(paths)
    if not any(bundle) and not prune:
        raise click.UsageError("the files hold no documents")
    changes = [
        *_nodes(session, bundle, dry_run=dry_run),
        *_groups(session.client, bundle, dry_run=dry_run),
        *_desires(session.client, bundle, prune=prune, dry_run=dry_run),
    ]
    if as_json:
        session.out.json({"dry_run": dry_run, "changes": changes})
    else:
        _show(session, changes, dry_run=dry_run)
    if any(change["action"] == "failed" for change in changes):
        exits.leave(exits.ERROR)


def _show(session: Session, changes: list[Json], *, dry_run: bool) -> None:
    moved = [change for change in changes if change["action"] != "unchanged"]
    if moved:
        columns = [Column("kind"), Column("name"), Column("action", _action_colour), Column("detail")]
        rows = [(change["kind"], change["name"], change["action"], change["detail"] or "-") for change in moved]
        session.out.table(columns, rows)
    same = len(changes) - len(moved)
    session.out.line(f"{len(moved)} {'would change' if dry_run else 'changed'}, {same} unchanged")


def _action_colour(action: str) -> str:
    return ACTION_COLOURS.get(action, "")


def _change(kind: str, name: str, action: str, detail: str = "") -> Json:
    return {"kind": kind, "name": name, "action": action, "detail": detail}


def _nodes(session: Session, bundle: Bundle, *, dry_run: bool) -> list[Json]:
    """Create the nodes that are missing and change those that differ; nodes are reported folded."""
    from strata.core.errors import StrataError
    from strata.fleet.nodes.commands.change import create

    if not bundle.nodes:
        return []
    client = session.client
    fields = "name,revision," + ",".join(_NODE_DEFAULTS)
    there = {str(item["name"]): item for item in client.pages("/v1/nodes", {"fields": fields})}
    fresh = [spec for spec in bundle.nodes if spec["name"] not in there]
    stale = [spec for spec in bundle.nodes if spec["name"] in there and _differs(spec, there[spec["name"]])]
    same = len(bundle.nodes) - len(fresh) - len(stale)
    failed: dict[str, list[str]] = {}
    if not dry_run:
        for result in create(client, fresh, session):
            if not result["ok"]:
                failed.setdefault(str(result["error"]), []).append(str(result["node"]))
        for spec in stale:
            # The revision that we compared with: somebody else's change in between is a conflict, not a loss.
            old = there[spec["name"]]
            body = {key: old[key] for key in _NODE_DEFAULTS if key in old} | spec
            match = {"If-Match": f'"{old["revision"]}"'}
            try:
                client.request("PUT", f"/v1/nodes/{segment(spec['name'])}", body=body, headers=match)
            except StrataError as error:
                failed.setdefault(error.detail, []).append(str(spec["name"]))
    bad = {name for names in failed.values() for name in names}
    changes = [_change("node", fold(names), "failed", error) for error, names in failed.items()]
    for action, specs in (("created", fresh), ("changed", stale)):
        names = [str(spec["name"]) for spec in specs if spec["name"] not in bad]
        if names:
            changes.append(_change("node", fold(names), action, many(len(names), "node")))
    return changes + ([_change("node", many(same, "node"), "unchanged")] if same else [])


def _differs(spec: Json, item: Json) -> bool:
    """Whether a field that the file names is another there. What it does not name (often found out about the machine
    by discovery) is not the file's."""
    known = {**item, "interfaces": _as_told(spec.get("interfaces", []), item.get("interfaces", []))}
    return any(spec[key] != known.get(key, default) for key, default in _NODE_DEFAULTS.items() if key in spec)


def _as_told(told: list[Json], there: list[Json]) -> list[Json]:
    """The interfaces as the service has them, but without addresses that the file leaves to it, and with MACs as the
    file writes them."""
    if len(told) != len(there):
        return there
    shown = []
    for ours, theirs in zip(told, there, strict=True):
        one = {key: value for key, value in theirs.items() if key in ours or key != "address"}
        if str(ours.get("mac", "")).lower().replace("-", ":") == theirs.get("mac"):
            one["mac"] = ours["mac"]
        shown.append(one)
    return shown


def _groups(client: Client, bundle: Bundle, *, dry_run: bool) -> list[Json]:

    if not bundle.groups:
        return []
    there = {str(group["name"]): group for group in items(client.get("/v1/groups"))}
    changes = []
    for group in bundle.groups:
        name, old = str(group["name"]), there.get(str(group["name"]))
        if old is not None and _same_group(group, old):
            changes.append(_change("group", name, "unchanged"))
            continue
        if not dry_run:
            body = {key: value for key, value in group.items() if key != "name"}
            client.request("PUT", f"/v1/groups/{segment(name)}", body=body)
        detail = str(group.get("members", ""))
        changes.append(_change("group", name, "created" if old is None else "changed", detail))
    return changes


def _same_group(group: Json, old: Json) -> bool:
    """Whether nothing would change. Members that name other groups are for the service to resolve: not the same."""
    from strata.core.nodeset import expand

    if group.get("description", "") != old.get("description", ""):
        return False
    members = group.get("members")
    if members is None:
        return True
    if "@" in members or "*" in members or "?" in members:
        return False
    return set(expand(members)) == set(expand(str(old["members"])))


def _desires(client: Client, bundle: Bundle, *, prune: bool, dry_run: bool) -> list[Json]:
    if not bundle.desires and not prune:
        return []
    body = {"documents": bundle.desires, "prune": prune, "dry_run": dry_run}
    report = client.request("POST", "/v1/apply", body=body).body
    return [
        _change("desire", found["name"], found["action"], found.get("detail") or many(int(found["nodes"]), "node"))
        for found in report["changes"]
    ]
