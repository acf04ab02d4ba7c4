"""``strata image list|show|diff|verify|tag|promote|sign|delete|undelete|gc``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from strata.cli import exits
from strata.cli import listing as ls
from strata.cli.output import Column, many
from strata.cli.session import LONG, Session
from strata.cli.times import DURATION, when
from strata.cli.words import complete_image, segment

if TYPE_CHECKING:
    from strata.cli.client import Json

FIELDS = (
    ls.plain("name"),
    ls.plain("tag"),
    ls.number("serial"),
    ls.Field("size", lambda item: size(item["size"]), key=lambda item: item["size"], right=True),
    ls.Field("image", lambda item: short(item["image"])),
    ls.plain("architecture", shown=False),
    ls.moment("since"),
    ls.plain("author"),
    ls.Field("here", lambda item: "yes" if item["here"] else "no", shown=False),
    ls.Field("controllers", lambda item: copies(item), key=lambda item: len(item["on"]), shown=False),
)


def copies(item: Json) -> str:
    """On how many of the controllers an image is."""
    having, lacking = len(item["on"]), len(item["not_on"])
    return f"{having} of {having + lacking}" if having + lacking else "-"


def reference(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """Callback for ``NAME:TAG``: as a path of the API."""
    name, colon, tag = value.partition(":")
    if not name or (colon and not tag) or "/" in value:
        raise click.BadParameter(f"{value!r} is not NAME:TAG", ctx, param)
    return f"{name}:{tag or 'latest'}"


def path_of(text: str) -> str:
    """Where the API keeps ``NAME:TAG``."""
    name, _, tag = text.partition(":")
    return f"/v1/images/{segment(name)}/{segment(tag)}"


IMAGE = click.argument("image", metavar="NAME:TAG", callback=reference, shell_complete=complete_image)


@click.command("list")
@ls.listing(FIELDS, sort="name")
def list_(session: Session, view: ls.Listing) -> None:
    """List the tags, and what each stands for.

    \b
    Example: strata image list --sort -size
    """
    found = session.client.get("/v1/images")["items"]
    several = any(len(item["on"]) + len(item["not_on"]) > 1 for item in found)
    fields = [field._replace(shown=field.shown or (several and field.name == "controllers")) for field in FIELDS]
    ls.show(session, fields, found, view)


@click.command()
@IMAGE
@ls.json_option
def show(session: Session, image: str, as_json: bool) -> None:
    """Show one image: how it runs, its layers, and the earlier releases of its tags.

    \b
    Example: strata image show debian:12
    """
    report(session, session.client.get(path_of(image)), as_json)


@click.command()
@click.argument("before", metavar="NAME:TAG", callback=reference, shell_complete=complete_image)
@click.argument("after", shell_complete=complete_image)
@ls.json_option
def diff(session: Session, before: str, after: str, as_json: bool) -> None:
    """Compare two images, file by file and package by package; exit code 1 if they differ.

    AFTER is NAME:TAG, NAME@SERIAL (earlier releases too) or sha256:....

    \b
    Example: strata image diff debian:12 debian:candidate
    """
    if not after:
        raise click.BadParameter("'' is not an image", param_hint="AFTER")
    found = session.client.get(f"{path_of(before)}/diff", {"other": after})
    differs = found["added"] + found["removed"] + found["changed"]
    if as_json:
        session.out.json(found)
    else:
        for package in found["packages"]:
            session.out.line(f"{package['name']}: {package['before'] or 'none'} -> {package['after'] or 'none'}")
        for change in found["files"]:
            what = f" ({', '.join(change['what'])})" if change["what"] else ""
            session.out.line(
                f"{ {'added': '+', 'removed': '-', 'changed': '~'}[change['change']] } /{change['path']}{what}"
            )
        counts = ", ".join(f"{found[kind]} {kind}" for kind in ("added", "removed", "changed"))
        session.out.note(counts if differs else "no difference")
    exits.leave(exits.ERROR if differs else 0)


@click.command()
@IMAGE
@ls.json_option
def verify(session: Session, image: str, as_json: bool) -> None:
    """Check an image's signature and every byte of its files. The exit code is 1 if anything is wrong.

    \b
    Example: strata image verify debian:12
    """
    client = session.connect(session.url, timeout=LONG)
    found = client.get(f"{path_of(image)}/verify")
    if as_json:
        session.out.json(found)
    else:
        for problem in found["problems"]:
            session.out.line(problem)
        if found["ok"]:
            session.out.line(f"{image} is sound")
    exits.leave(0 if found["ok"] else exits.ERROR)


@click.command()
@click.argument("source", shell_complete=complete_image)
@click.argument("image", metavar="NAME:TAG", callback=reference, shell_complete=complete_image)
@ls.json_option
def tag(session: Session, source: str, image: str, as_json: bool) -> None:
    """Give an image one more tag; exit code 5 if the tag exists already.

    \b
    Example: strata image tag debian:12 debian:production
    """
    _move(session, source, image, as_json, create=True)


@click.command()
@click.argument("source", shell_complete=complete_image)
@IMAGE
@ls.json_option
def promote(session: Session, source: str, image: str, as_json: bool) -> None:
    """Point a tag to another image, as a new release; nodes that want the tag follow.

    SOURCE is NAME:TAG, NAME@SERIAL (an earlier release, to go back) or sha256:....

    \b
    Example: strata image promote debian:candidate debian:production
    """
    _move(session, source, image, as_json, create=False)


@click.command()
@IMAGE
@ls.json_option
def sign(session: Session, image: str, as_json: bool) -> None:
    """Sign a release again, after the site's key was changed.

    \b
    Example: strata image sign debian:12
    """
    report(session, session.client.post(f"{path_of(image)}/sign"), as_json)


@click.command()
@IMAGE
@ls.json_option
def delete(session: Session, image: str, as_json: bool) -> None:
    """Delete a tag; for a week it can be restored.

    \b
    Example: strata image delete debian:old
    """
    session.client.delete(path_of(image))
    session.out.answer(as_json, {"deleted": image}, f"deleted {image} (strata image undelete {image} takes it back)")


@click.command()
@click.argument("image", metavar="NAME:TAG", callback=reference, shell_complete=complete_image)
@ls.json_option
def undelete(session: Session, image: str, as_json: bool) -> None:
    """Undo the last deletion of a tag.

    \b
    Example: strata image undelete debian:old
    """
    report(session, session.client.post(f"{path_of(image)}/undelete"), as_json)


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@click.option(
    "--keep", type=DURATION, default="7d", show_default=True, help="Keep images that a tag stood for within this time."
)
@ls.json_option
def gc(session: Session, dry_run: bool, keep: float, as_json: bool) -> None:
    """Remove images that no tag stands for and no node runs. Files that belong to none are removed, too.

    \b
    Example: strata image gc --dry-run
    """
    found = session.client.post("/v1/image-gc", {"dry_run": dry_run, "keep": keep})
    if as_json:
        session.out.json(found)
        return
    for digest in found["images"]:
        session.out.line(short(digest))
    verb = "would be removed" if dry_run else "removed"
    session.out.line(
        f"{many(len(found['images']), 'image')}, {many(found['files'], 'file')}, {size(found['bytes'])} {verb}"
    )
    if found["held"]:
        session.out.line(f"kept, because nodes run them: {', '.join(map(short, found['held']))}")


def _where(found: Json) -> str:
    """The controllers that have an image, if there are several."""
    if len(found["on"]) + len(found["not_on"]) < 2:
        return ""
    lacking = f"; not yet on {', '.join(found['not_on'])}" if found["not_on"] else ""
    return f"{copies(found)}: {', '.join(found['on'])}{lacking}" if found["on"] else f"none{lacking}"


def report(session: Session, found: Json, as_json: bool) -> None:
    """Print one image."""
    if as_json:
        session.out.json(found)
        return
    out = session.out
    out.fields(
        (
            ("name", f"{found['name']}:{found['tag']}"),
            ("serial", found["serial"]),
            ("image", found["image"]),
            ("squashfs", found["squashfs"]),
            ("size", f"{size(found['size'])} ({size(found['unpacked'])} unpacked, {many(found['files'], 'file')})"),
            ("packages", found["packages"] or ""),
            ("architecture", found["architecture"]),
            ("argv", " ".join(found["argv"])),
            ("env", " ".join(found["env"])),
            ("cwd", found["cwd"]),
            ("user", found["user"]),
            ("source", found["source"]),
            ("since", f"{when(found['since'])} by {found['author']}"),
            ("here", "" if found["here"] else "no: this controller lacks the files"),
            ("controllers", _where(found)),
        )
    )
    out.line()
    out.table(
        [Column("layer"), Column("size", right=True), Column("made by")],
        [[short(layer["digest"]), size(layer["size"]), layer["made_by"] or "-"] for layer in found["layers"]],
    )
    if found["former"]:
        out.line()
        out.table(
            [Column("former"), Column("image"), Column("until"), Column("by"), Column("how")],
            [
                [
                    f"{found['name']}@{past['serial']} ({past['tag']})",
                    short(past["image"]),
                    when(past["until"]),
                    past["author"],
                    "deleted" if past["deleted"] else "moved",
                ]
                for past in found["former"]
            ],
        )


def size(number: int) -> str:
    """Bytes as people read them."""
    value = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return ""


def short(digest: str) -> str:
    """A digest as people tell it from others."""
    return digest.removeprefix("sha256:")[:12]


def _move(session: Session, source: str, image: str, as_json: bool, *, create: bool) -> None:
    report(session, session.client.put(path_of(image), {"source": source, "create": create}), as_json)
