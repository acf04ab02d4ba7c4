"""The site's file about images, which Slurm's plugin and Grid Engine's starter read; written as an image is promoted.

`native/policy.h` says what is in it. Roots are in the cache's folder of unpacked images, by digest: a new default
stands beside those before it, and jobs that wait or run keep theirs.
"""

from __future__ import annotations

import grp
from collections.abc import Mapping
from pathlib import Path

import msgspec

from strata.core.errors import BadRequest
from strata.jobs.containers.records import Home

FILE = "containers.conf"
PLACE = f"/etc/strata/{FILE}"
"""Where nodes have it."""
PREVIOUS = "previous"
"""The name of what was the default before."""
OVERLAY = f"""# Written by strata container default: who runs jobs in which image, on all nodes.
kind: overlay
name: containers
files:
  - {{path: {PLACE}, source: {FILE}, drift: correct}}
"""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """What jobs run in that ask for nothing, what else they may ask for, what is shown inside."""

    images: str
    """The folder that every image is below."""
    default: str = ""
    """A path below that folder. Empty: jobs run in no image."""
    named: Mapping[str, str] = {}
    """Name → a path below that folder."""
    opt_out: bool | tuple[int, ...] = False
    """Whether jobs may run in no image; or the numbers of the groups whose members' may."""
    home: Home = "none"
    binds: tuple[str, ...] = ()
    """``SOURCE[:TARGET][:ro]``."""

    @property
    def roots(self) -> frozenset[str]:
        """All that it names."""
        return frozenset((*self.named.values(), *((self.default,) if self.default else ())))

    def promoted(self, root: str, name: str) -> Policy:
        """With another default, which also has a name; the one before it stays, as ``previous``."""
        before = {PREVIOUS: self.default} if self.default and self.default != root else {}
        return msgspec.structs.replace(self, default=root, named={**self.named, **before, name: root})

    def text(self) -> str:
        """The file."""
        who = " ".join(map(str, self.opt_out)) if isinstance(self.opt_out, tuple) else "yes" if self.opt_out else "no"
        lines = [f"images = {self.images}", f"default = {self.default or 'none'}", f"opt-out = {who}"]
        lines += [f"image {name} = {root}" for name, root in sorted(self.named.items())]
        return "\n".join((*lines, f"home = {self.home}", *(f"bind = {bind}" for bind in self.binds))) + "\n"


def parse(text: str, where: str) -> Policy:
    """A policy that stands in a file. ``BadRequest``: it is none; says which line."""
    told: dict[str, object] = {}
    named: dict[str, str] = {}
    binds: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = (part.strip() for part in line.partition("#")[0].partition("="))
        if not name and not equals:
            continue
        if name == "images" or name == "default":
            told[name] = "" if (name, value) == ("default", "none") else value
        elif name == "home" and value in ("none", "user", "tmp"):
            told[name] = value
        elif name == "bind":
            binds.append(value)
        elif name.startswith("image "):
            named[name.removeprefix("image ").strip()] = value
        elif name == "opt-out" and (value in ("yes", "no") or all(word.isdecimal() for word in value.split())):
            told["opt_out"] = value == "yes" if value in ("yes", "no") else tuple(map(int, value.split()))
        else:
            raise BadRequest(f"line {number} is not a setting of an image policy: {line[:80]!r}", where=where)
    if "images" not in told:
        raise BadRequest("images = FOLDER is missing", where=where)
    return msgspec.convert({**told, "named": named, "binds": tuple(binds)}, Policy)


def group_numbers(text: str) -> bool | tuple[int, ...]:
    """``yes``, ``no``, or names and numbers of groups with commas between them: whose members may opt out."""
    if text in ("yes", "no"):
        return text == "yes"
    found = []
    for word in text.split(","):
        try:
            found.append(int(word) if word.isdecimal() else grp.getgrnam(word).gr_gid)
        except KeyError:
            raise BadRequest(f"there is no group {word[:60]!r} here", where="--opt-out") from None
    return tuple(found)


def written(path: Path, text: str) -> bool:
    """Put a file in its place, whole, for everybody to read; whether that changed anything."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(text, encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(path)
    return True
