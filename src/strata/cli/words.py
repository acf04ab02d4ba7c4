"""What people type after a command: selectors and assignments, told apart; and completion for them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from strata.cli.output import STATE_ORDER
from strata.core.errors import BadRequest, StrataError

if TYPE_CHECKING:
    from strata.cli.client import Json
    from strata.cli.session import Session

# A selector's term may hold '=' too (label:rack=7), but only after a ':', which no variable's name has.
_ASSIGNMENT = re.compile(r"[a-z][a-z0-9_.-]*=")
_TERMS = ("@", "role:", "arch:", "state:", "label:", "fact:", "want:", "location:", "*")

_NAMED = {"image": "/v1/personalities"}
"""Variables whose values are names of things: where these are listed."""

INTERFACE_FIELDS = ("mac", "address", "name", "port")
"""What is said of a node's network port."""

SELECT_HELP = """\b
SELECT is a nodeset (n[1-4,7], @compute, @compute!@gpu), or terms of which all must hold:
@group, label:key=value, role:compute, arch:x86_64, state:faulted, fact:power=off,
want:image=v2, location:x1000c0, * (all)."""


_NO_NAMES = ("", ".", "..")  # another path would come of them


def segment(name: str) -> str:
    """A name as one part of a path."""
    if name in _NO_NAMES or "/" in name:
        raise BadRequest("is not a name", where=repr(name)[:80], hint="'list' shows the names")
    return quote(name, safe="@:")


def select_help(command: click.Command) -> click.Command:
    """Add to the help of ``command`` what a SELECT may be."""
    command.epilog = SELECT_HELP
    return command


def no_blank(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Callback for ``SELECT``: an empty word comes from a variable that is not set, and must not mean every node."""
    if not all(word.strip() for word in value):
        raise click.BadParameter("an empty word selects nothing; '*' is every node", ctx, param)
    return value


def split(words: Sequence[str]) -> tuple[str, list[str]]:
    """The selector and the assignments in ``words``, in any order."""
    assignments = [word for word in words if _ASSIGNMENT.match(word)]
    return " ".join(word for word in words if not _ASSIGNMENT.match(word)), assignments


def wanted(assignments: Sequence[str]) -> dict[str, list[str]]:
    """``image=v1|v2`` as the API takes it: variable → values of which any will do."""
    found: dict[str, list[str]] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        values = value.split("|")
        if not equals or not name or not all(values):
            raise click.UsageError(f"{text!r} is not VARIABLE=VALUE (or VARIABLE=VALUE|VALUE for any of them)")
        if name in found:
            raise click.UsageError(f"{name} is given twice")
        found[name] = values
    return found


def interfaces(texts: Sequence[str]) -> list[Json]:
    """``mac=52:54:00:12:34:56,address=10.77.0.11,name=boot`` as the API takes it."""
    found: list[Json] = []
    for text in texts:
        fields = pairs(text.split(","), option="--interface")
        unknown = next((key for key in fields if key not in INTERFACE_FIELDS), None)
        if unknown is not None:
            raise click.UsageError(f"--interface has no {unknown!r}; it has {', '.join(INTERFACE_FIELDS)}")
        found.append({**fields})
    return found


def pairs(texts: Sequence[str], *, option: str) -> dict[str, str]:
    """``key=value`` options as a mapping."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise click.UsageError(f"{option} takes KEY=VALUE, not {text!r}")
        found[key] = value
    return found


def complete_select(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Groups, states and node names that begin with what was typed."""
    if incomplete.startswith("@"):
        return [f"@{name}" for name in _names(ctx, "/v1/groups", incomplete[1:])]
    if incomplete.startswith("state:"):
        return [f"state:{state}" for state in STATE_ORDER if f"state:{state}".startswith(incomplete)]
    terms = [term for term in _TERMS if term.startswith(incomplete)]
    return terms + _names(ctx, "/v1/nodes?fields=name&limit=1000", incomplete)


def complete_set(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Of ``SELECT VARIABLE=VALUE``: whom, a variable, or one of its values."""
    before: tuple[str, ...] = ctx.params.get(param.name or "") or ()
    if incomplete == "=" and before:  # bash takes '=' for a word of its own
        return _values(ctx, before[-1], "")
    if len(before) > 1 and before[-1] == "=":
        return _values(ctx, before[-2], incomplete)
    variable, equals, value = incomplete.partition("=")
    if equals:
        return [f"{variable}={found}" for found in _values(ctx, variable, value)]
    variables = _answer(ctx, "/v1/model").get("variables", {})
    return complete_select(ctx, param, incomplete) + [f"{name}=" for name in variables if name.startswith(incomplete)]


def _values(ctx: click.Context, variable: str, prefix: str) -> list[str]:
    """Values that ``variable`` can be desired to have: of the model, or the names of what there is."""
    if variable in _NAMED:
        return _names(ctx, _NAMED[variable], prefix)
    known = _answer(ctx, "/v1/model").get("variables", {}).get(variable, {})
    return [value for value in known.get("values", ()) if value.startswith(prefix)]


def completer(path: str, form: str = "{name}") -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes what ``path`` lists, each written as ``form`` says."""
    return lambda ctx, param, incomplete: _names(ctx, path, incomplete, form)


complete_node = completer("/v1/nodes?fields=name&limit=1000")
complete_group = completer("/v1/groups")
complete_operation = completer("/v1/operations", "{id}")
complete_document = completer("/v1/documents")
complete_rollout = completer("/v1/rollouts")
complete_alert = completer("/v1/alerts?all=true", "{id}")
complete_image = completer("/v1/images", "{name}:{tag}")


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Everybody's jobs; for somebody who may not see these, their own."""
    return _names(ctx, "/v1/jobs?all=true", incomplete, "{id}") or _names(ctx, "/v1/jobs", incomplete, "{id}")


def _names(ctx: click.Context, path: str, prefix: str, form: str = "{name}") -> list[str]:
    """What ``path`` lists."""
    names = [form.format_map(defaultdict(str, item)) for item in _answer(ctx, path).get("items", ())]
    return [name for name in names if name.startswith(prefix)]


def _answer(ctx: click.Context, path: str) -> Json:
    """What the service says, if it answers quickly; completion never complains."""
    session: Session | None = ctx.find_root().obj
    if session is None:
        from strata.cli.session import Session

        # Completion parses the command line but does not run the group's own function.
        session = Session(url=str(ctx.find_root().params.get("url") or ""))
    try:
        client = session.connect(session.url, timeout=1.0)
        found = client.get(path)
        client.close()
    except StrataError:
        return {}
    return found
