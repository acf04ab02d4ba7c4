"""``strata node``: look at nodes. The commands that change them are in ``strata.fleet.nodes.commands.change``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.lazy import LazyGroup
from strata.cli.output import STATE_ORDER, Column, many, state_colour
from strata.cli.session import Session
from strata.cli.times import WHEN, span, when
from strata.cli.words import complete_node, complete_select, no_blank, segment, select_help, wanted
from strata.rooms import commands

if TYPE_CHECKING:
    from strata.cli.client import Json

SERVER_SORTS = ("name", "uid", "nid", "location", "role", "architecture", "state")


@click.group(cls=LazyGroup, members=lambda: commands("node"))
def node() -> None:
    """Show nodes, say what they should be, find out why they aren't."""


def _facts(item: Json) -> str:
    facts: Mapping[str, Json] = item.get("facts", {})
    return ",".join(f"{name}={fact['value']}{_how(fact)}" for name, fact in facts.items()) or "-"


def _how(fact: Json) -> str:
    return f" ({fact['source']})" if fact.get("implied") else ""


def _wants(item: Json) -> str:
    return ",".join(f"{name}={'|'.join(want['values'])}" for name, want in item.get("desires", {}).items()) or "-"


def _doing(item: Json) -> str:
    doing = item.get("doing")
    return f"{doing['mutation']} ({span(time.time() - doing['since'])})" if doing else "-"


FIELDS = (
    ls.plain("name"),
    ls.plain("state", colour=state_colour),
    ls.plain("location"),
    ls.number("nid", shown=False),
    ls.plain("role"),
    ls.plain("architecture", shown=False),
    ls.plain("groups"),
    ls.plain("labels", shown=False),
    ls.Field("facts", _facts, shown=False),
    ls.Field("desires", _wants, shown=False),
    ls.Field("doing", _doing),
    ls.plain("fault"),
    ls.Field("hold", lambda item: (item.get("hold") or {}).get("reason") or "-"),
    ls.plain("frozen", shown=False),
    ls.plain("bmc", shown=False),
    ls.number("uid", shown=False),
    ls.number("revision", shown=False),
)


@select_help
@click.command("list")
@click.argument("select", nargs=-1, callback=no_blank, shell_complete=complete_select)
@click.option("--state", type=click.Choice(STATE_ORDER), help="Only nodes in this state.")
@click.option("--limit", type=click.IntRange(min=1), help="Show at most this many nodes.")
@click.option("--folded", is_flag=True, help="One nodeset instead of a table.")
@click.option("--group-by", type=click.Choice(["state"]), help="One nodeset for each state.")
@ls.listing(FIELDS)
def list_(
    session: Session,
    select: tuple[str, ...],
    state: str | None,
    limit: int | None,
    folded: bool,
    group_by: str | None,
    view: ls.Listing,
) -> None:
    """List the nodes that SELECT names, or all nodes.

    \b
    Example: strata node list @compute state:faulted --columns name,fault
             strata node list --group-by state
    """
    chosen = " ".join(select) or "*"
    if folded or group_by:
        answer = session.client.get("/v1/nodes", {"select": chosen, "state": state, "folded": True})
        _show_folded(session, answer, by_state=group_by is not None, as_json=view.json)
        return
    params: dict[str, str | int | bool | None] = {"select": chosen, "state": state}
    if view.sort.removeprefix("-") in SERVER_SORTS:
        params["sort"] = view.sort
        view = view._replace(sort="")
    if not view.json:
        # Only what is shown: a page of 10,000 whole nodes is 20 times as long.
        used = {*view.columns, *(name for name, _ in view.match), view.sort.removeprefix("-")} - {""}
        shown = {field.name for field in FIELDS if field.shown} if not view.columns else set[str]()
        params["fields"] = ",".join(sorted({"name", *used, *shown}))
    # A filter of ours comes after the limit of the service, so the limit must then be ours too.
    everything = session.client.pages("/v1/nodes", params, limit=None if view.match or view.sort else limit)
    ls.show(session, FIELDS, everything, view, limit=limit)


def _show_folded(session: Session, answer: Json, *, by_state: bool, as_json: bool) -> None:
    if as_json:
        session.out.json(answer)
    elif by_state:
        sets: Mapping[str, str] = answer["by_state"]
        rows = [(state, sets[state]) for state in STATE_ORDER if sets.get(state)]
        session.out.table([Column("state", state_colour), Column("nodes")], rows)
    else:
        session.out.line(answer["nodeset"])


@click.command()
@click.argument("name", shell_complete=complete_node)
@ls.json_option
def show(session: Session, name: str, as_json: bool) -> None:
    """Show one node: what it is, what is known of it, what is wanted of it.

    \b
    Example: strata node show n0042
    """
    item = session.client.get(f"/v1/nodes/{segment(name)}")
    if as_json:
        session.out.json(item)
        return
    out = session.out
    hold = item.get("hold")
    out.fields(
        (
            ("name", item["name"]),
            ("state", item["state"]),
            ("fault", item.get("fault")),
            ("hold", f"{hold['reason']} ({hold['author']}, since {when(hold['since'])})" if hold else ""),
            ("frozen", item.get("frozen")),
            ("doing", _doing(item) if item.get("doing") else ""),
            ("agent says", _agent_says(session, item)),
            ("location", item.get("location")),
            ("nid", item.get("nid")),
            ("role", item.get("role")),
            ("architecture", item.get("architecture")),
            ("groups", ", ".join(item.get("groups", ()))),
            ("labels", ", ".join(f"{key}={value}" for key, value in item.get("labels", {}).items())),
            ("bmc", item.get("bmc")),
            *(("interface", _interface(one)) for one in item.get("interfaces", ())),
        )
    )
    facts: Mapping[str, Json] = item.get("facts", {})
    wants: Mapping[str, Json] = item.get("desires", {})
    rows = [_variable(name, facts.get(name), wants.get(name)) for name in dict.fromkeys((*facts, *wants))]
    if rows:
        out.line()
        out.table([Column(title) for title in ("variable", "is", "wanted", "seen", "by", "wanted by")], rows)
    for line in _silences(facts):
        out.line(line)


def _silences(facts: Mapping[str, Json]) -> list[str]:
    """Who sees nothing of the node, since when and why."""
    silent: dict[str, tuple[list[str], Json]] = {}
    for name, fact in facts.items():
        if silence := fact.get("silence"):
            silent.setdefault(silence["driver"], ([], silence))[0].append(name)
    power = facts.get("power", {}).get("value")
    otherwise = "it is off" if power == "off" else "it does not say why"
    return [
        f"{driver} has not seen {' and '.join(names)} since {when(silence['since'])}: {silence['why'] or otherwise}"
        for driver, (names, silence) in silent.items()
    ]


def _agent_says(session: Session, item: Json) -> str:
    """Why what runs on the node is in trouble; empty where it is not, or nobody knows."""
    from strata.core.errors import Unavailable

    if item.get("facts", {}).get("personality", {}).get("value") not in ("error", "fatal"):
        return ""
    try:
        view = session.client.get(f"/v1/nodes/{segment(item['name'])}/agent")
    except Unavailable:
        return ""  # a simulated node has no agent
    return "; ".join(filter(None, (view["reason"], view["failure"])))


def _interface(one: Json) -> str:
    cabled = f"at {one['port']}" if one.get("port") else ""
    return " ".join(filter(None, (one.get("name"), one.get("mac"), one.get("address"), cabled)))


def _variable(name: str, fact: Json | None, want: Json | None) -> tuple[str, ...]:
    seen = f"{span(fact['age'])} ago" if fact and fact.get("age") is not None else "-"
    value = fact["value"] if fact else "unknown"
    if fact and fact.get("detail"):
        value = f"{value} ({fact['detail']})"
    author = "-"
    if want:
        author = want["author"] + ("" if want["origin"] == "node" else f" ({want['origin']})")
    return (
        name,
        value,
        "|".join(want["values"]) if want else "-",
        seen,
        (fact.get("source") if fact else "") or "-",
        author,
    )


@select_help
@click.command()
@click.argument("select", nargs=-1, required=True, metavar="SELECT", callback=no_blank, shell_complete=complete_select)
@ls.json_option
def why(session: Session, select: tuple[str, ...], as_json: bool) -> None:
    """Say in plain words why nodes aren't at their goals, and what comes next. Nodes with the same reason come
    together.

    \b
    Example: strata node why n42
             strata node why @compute
    """
    answer = session.client.get("/v1/why", {"select": " ".join(select)})
    if as_json:
        session.out.json(answer)
        return
    out = session.out
    for group in answer["items"]:
        whom = f"each of {group['nodes']} ({group['count']})" if group["count"] > 1 else group["nodes"]
        out.line(f"{whom} is {group['state']}: {group['summary']}", colour=state_colour(group["state"]))
        for line in group["lines"]:
            out.line(f"  {line}")
        for blocker in group["blocked_by"]:
            out.line(f"  held up by {' '.join(filter(None, (blocker['kind'], blocker['name'])))}: {blocker['detail']}")
        if group["next"]:
            out.line(f"  next: {_next(group['next'])}")
    if not answer["total"]:
        out.note(f"no node is all of this: {' '.join(select)}; a comma between names means any of them: n1,n2")
    if answer["unasked"]:
        out.note(f"{many(answer['unasked'], 'node')} more are not at their goal: select fewer to see why")


def _next(following: Json) -> str:
    what = following.get("mutation") or "look at " + ", ".join(following.get("observe") or ("it",))
    at = following.get("when")
    if at is None:
        return f"{what}, as soon as nothing holds it up"
    left = at - time.time()
    return f"{what}, {'now' if left <= 0.5 else 'in ' + span(left)}"


@click.command()
@click.argument("name", shell_complete=complete_node)
@click.argument("wants", nargs=-1, metavar="[VARIABLE=VALUE]...")
@ls.json_option
def plan(session: Session, name: str, wants: tuple[str, ...], as_json: bool) -> None:
    """Show the way from what a node is to what is wanted of it. With VARIABLE=VALUE: to what would be wanted. Changes
    nothing.

    Exit code 3 if there is no way.

    \b
    Example: strata node plan n0042
             strata node plan n0042 power=off
    """
    given = ",".join(f"{variable}={'|'.join(values)}" for variable, values in wanted(wants).items())
    answer = session.client.get(f"/v1/nodes/{segment(name)}/plan", {"set": given})
    if as_json:
        session.out.json(answer)
    else:
        _show_plan(session, answer)
    if answer["status"] == "unreachable":
        exits.leave(exits.UNREACHABLE)


def _show_plan(session: Session, answer: Json) -> None:
    out = session.out
    status, reason = answer["status"], answer.get("reason") or ""
    words = {
        "done": "is at its goal",
        "plan": f"needs {many(len(answer['steps']), 'step')}, cost {answer.get('cost', 0):g}",
        "observe": "must first be looked at: " + ", ".join(answer.get("observe") or ()),
        "unreachable": "cannot get there",
    }[status]
    out.line(f"{answer['node']} {words}" + (f" ({reason})" if reason else ""), colour=state_colour(status))
    rows = [
        (
            place,
            step["mutation"],
            f"{step['variable']}={step['to']}",
            f"{step['cost']:g}",
            ", ".join([*(["destructive"] if step.get("destructive") else []), *step.get("guards", ())]) or "-",
        )
        for place, step in enumerate(answer["steps"], 1)
    ]
    if rows:
        titles = ("#", "mutation", "to", "cost", "guards")
        out.table([Column(title, right=title in ("#", "cost")) for title in titles], rows)


HISTORY = (
    ls.moment("time"),
    ls.plain("nodes"),
    ls.plain("variable"),
    ls.plain("old"),
    ls.plain("new"),
    ls.plain("source"),
    ls.plain("cause"),
)


@select_help
@click.command()
@click.argument("select", nargs=-1, required=True, metavar="SELECT", callback=no_blank, shell_complete=complete_select)
@click.option("--since", type=WHEN, help="From when: 1h (an hour ago), or a date.")
@click.option("--until", type=WHEN, help="Up to this time.")
@click.option("--at", "at", type=WHEN, help="Only the state of one node at that time.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=1000,
    show_default=True,
    help="Show at most this many changes, the newest.",
)
@ls.listing(HISTORY, sort="time")
def history(
    session: Session,
    select: tuple[str, ...],
    since: float | None,
    until: float | None,
    at: float | None,
    limit: int,
    view: ls.Listing,
) -> None:
    """Show how nodes' facts changed, and what people did about it. Of one node also what its facts were at some time.

    \b
    Example: strata node history n42 --since 1h
             strata node history 'n[1-4]' --match variable=power
             strata node history n0042 --at '2026-01-31 12:00'
    """
    if at is not None:
        if since is not None or until is not None:
            raise click.UsageError("--at is one moment: leave out --since and --until")
        if len(select) != 1:
            raise click.UsageError("--at shows one node: name one")
        if at > time.time():
            raise click.UsageError("--at is in the future; 'strata node plan' shows what would be done")
        then: Any = session.client.get(f"/v1/nodes/{segment(select[0])}/at", {"time": f"{at:.3f}"})
        if view.json:
            session.out.json(then)
        else:
            session.out.line(f"{then['node']} at {when(then['time'])}")
            session.out.table([Column("variable"), Column("was")], list(then["facts"].items()))
        return
    params = {"select": " ".join(select), "since": _seconds(since), "until": _seconds(until), "limit": limit}
    # The service gives the newest first; times may be equal, so that sorting alone would not restore the order.
    ls.show(session, HISTORY, session.client.get("/v1/history", params)["items"][::-1], view)


def _seconds(moment: float | None) -> str | None:
    return None if moment is None else f"{moment:.3f}"
