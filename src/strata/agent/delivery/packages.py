"""Packages of a member: whether its package manager has them installed, and having it install them.

What it has is the member's own business: dpkg's or rpm's, whichever is there. Where packages come from is, too: the
sources that its image names.
"""

from __future__ import annotations

from ..errors import CommandFailed
from .beneath import Beneath
from .live import Run, must

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WITHIN = 600.0
"""Seconds that installing a package may take."""
_DATABASES = {"dpkg": ("/var/lib/dpkg/status",), "rpm": ("/var/lib/rpm", "/usr/lib/sysimage/rpm")}
_QUESTIONS = {
    "dpkg": ["dpkg-query", "-W", "-f", "${Package}\t${Version}\t${db:Status-Status}\n", "--"],
    "rpm": ["rpm", "-q", "--qf", "%{NAME}\t%{VERSION}-%{RELEASE}\tinstalled\n", "--"],
}
_APT = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y"]
# A file of the configuration that was delivered stays where the package has one of its own there.
_OPTIONS = ["--no-install-recommends", "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]


def manager(below: Beneath) -> str:
    """Who keeps the member's packages; empty: nobody that is known here."""
    return next((name for name, paths in _DATABASES.items() if any(below.look(path) for path in paths)), "")


def differ(inside: Run, kept_by: str, entries: list[dict[str, Any]]) -> dict[str, str]:
    """Name of a package → how it is not what it should be. One question for all of them."""
    if not entries:
        return {}
    if not kept_by:
        return {str(entry["name"]): "is not installed: there is neither dpkg nor rpm" for entry in entries}
    _, said = inside([*_QUESTIONS[kept_by], *(str(entry["name"]) for entry in entries)])
    there: dict[str, list[str]] = {}
    for name, version, state in [row for row in (line.split("\t") for line in said.splitlines()) if len(row) == 3]:
        if state == "installed":
            there.setdefault(name, []).append(version)
    found = {}
    for entry in entries:
        name, version = str(entry["name"]), str(entry.get("version") or "")
        if name not in there:
            found[name] = "is not installed"
        elif version and version not in there[name]:
            found[name] = f"is {', '.join(there[name])[:200]}"
    return found


def install(inside: Run, kept_by: str, entry: dict[str, Any]) -> None:
    """Have the member's package manager install it, in the version that is wanted."""
    name, version = str(entry["name"]), str(entry.get("version") or "")
    if not kept_by:
        raise CommandFailed(f"package {name}: there is neither dpkg nor rpm here")
    if kept_by == "rpm":
        wanted = f"{name}-{version}" if version else name
        program = next((one for one in ("dnf", "microdnf", "yum") if not inside([one, "--version"])[0]), "zypper")
        must(inside, [program, "--non-interactive" if program == "zypper" else "-y", "install", wanted])
        return
    command = [*_APT, *_OPTIONS, *(["--allow-downgrades"] if version else []), "install", "--"]
    command.append(f"{name}={version}" if version else name)
    if inside(command)[0]:
        must(inside, [*_APT, "update"])  # images come without lists of what there is, or with old ones
        must(inside, command)
