"""``strata personality``: what nodes run. A personality is written as YAML; see ``docs/how-to/personalities.md``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from strata.cli import listing as ls
from strata.cli.named import Named
from strata.cli.output import Column
from strata.cli.reading import read_text
from strata.cli.session import Session
from strata.core.errors import BadRequest

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.Field("members", lambda item: ", ".join(f"{m['name']}={m['release']}" for m in item["members"])),
    ls.Field("digest", lambda item: _short(item["digest"])),
    ls.number("wanted"),
    ls.number("running"),
    ls.plain("problem"),
    ls.plain("description", shown=False),
    ls.number("revision", shown=False),
)

DERIVED = ("digest", "problem", "releases", "wanted", "running", "revision")
"""What ``show --json`` adds to what the owners wrote. ``put`` takes no notice of these, and of nothing else."""


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12] or "-"


@click.group("personality")
def personality() -> None:
    """Say what nodes run: which images, how they start, when they are ready."""


def _whole(session: Session, view: Json) -> None:
    out = session.out
    out.fields(
        (
            ("name", view["name"]),
            ("description", view["description"]),
            ("digest", view["digest"]),
            ("problem", view["problem"]),
            ("wanted", f"{view['wanted']} nodes"),
            ("running", f"{view['running']} nodes"),
        )
    )
    rows = [
        (
            member["name"],
            member["release"],
            _short(view["releases"].get(member["name"], "")),
            member.get("mode", "ram"),
            member.get("ready", {}).get("kind", "started"),
            "yes" if member.get("init") else "no",
        )
        for member in view["members"]
    ]
    out.line()
    out.table([Column(title) for title in ("member", "release", "image", "mode", "ready by", "init")], rows)


PERSONALITIES = Named(personality, "personality", "/v1/personalities", FIELDS, report=_whole)
PERSONALITIES.list(
    "List the personalities, how many nodes should have each, and how many do.", "strata personality list"
)
PERSONALITIES.show(
    "Show one personality, and what its tags stand for now. 'personality put' takes what --json prints.",
    "strata personality show compute --json > compute.json",
)
PERSONALITIES.delete("Delete a personality that no node should have.", "strata personality delete compute")


@personality.command()
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path))
@ls.json_option
def put(session: Session, file: Path, as_json: bool) -> None:
    """Create or replace the personality that FILE describes. It is YAML or JSON; - is standard input.

    Nodes whose desire for 'image' is its name change over, without a reboot. What 'show --json' adds to one (digest,
    problem, releases, wanted, running, revision) may be in the file, and is worked out anew.

    \b
    Example: strata personality put compute.yaml
    """
    body = {key: value for key, value in _read(file).items() if key not in DERIVED}
    name = body.pop("name", None)
    if not isinstance(name, str):
        raise BadRequest("a personality has a name", where=str(file), hint="name: compute")
    PERSONALITIES.report(session, session.client.put(PERSONALITIES.path(name), body), as_json)


def _read(file: Path) -> dict[str, Any]:
    import json

    import yaml

    text = read_text(file)
    try:
        try:
            found = json.loads(text)  # what is JSON is not quite YAML: escaped characters, numbers such as 1e3
        except ValueError:
            found = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise BadRequest(f"not YAML: {error.problem or error.context}", where=f"{file}{line}") from None
    except yaml.YAMLError as error:
        raise BadRequest(f"not YAML: {str(error)[:200]}".replace("\n", " "), where=str(file)) from None
    except (ValueError, RecursionError):
        raise BadRequest("is nested too deeply, or has a number that is too long", where=str(file)) from None
    if not isinstance(found, dict):
        raise BadRequest("a personality is a mapping with name and members", where=str(file))
    try:
        json.dumps(found, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise BadRequest(
            "holds something besides texts, numbers, true, false, lists and mappings",
            where=str(file),
            hint="write dates, and what else YAML takes for something, in quotes",
        ) from None
    return found
