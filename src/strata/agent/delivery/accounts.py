"""Accounts and groups of a member: lines of its own `/etc/passwd`, `/etc/group` and `/etc/shadow`.

The rest of these files is the image's, and stays as it is.
"""

from __future__ import annotations

from ..errors import CommandFailed
from .beneath import Beneath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PASSWD, GROUP, SHADOW = "/etc/passwd", "/etc/group", "/etc/shadow"


class Accounts:
    """What accounts of a member should be, laid over what they are."""

    def __init__(self, root: Beneath, users: list[dict[str, Any]], groups: list[dict[str, Any]]) -> None:
        self._texts = {path: _text(root, path) for path in (PASSWD, GROUP, SHADOW)}
        self.wanted: dict[str, dict[str, str]] = {PASSWD: {}, GROUP: {}, SHADOW: {}}
        shadowed = self._texts[SHADOW] is not None
        for group in groups:
            name = str(group["name"])
            self.wanted[GROUP][name] = f"{name}:x:{int(group['gid'])}:{','.join(group.get('accounts') or [])}"
        known = {line.split(":")[2] for line in self._lines(GROUP).values() if line.count(":") >= 2}
        known |= {line.split(":")[2] for line in self.wanted[GROUP].values()}
        for user in users:
            name, uid = str(user["name"]), int(user["uid"])
            gid = uid if user.get("gid") is None else int(user["gid"])
            fields = (name, "x" if shadowed else "*", str(uid), str(gid), user["comment"], user["home"], user["shell"])
            self.wanted[PASSWD][name] = ":".join(map(str, fields))
            if shadowed:
                self.wanted[SHADOW][name] = f"{name}:*:::::::"
            own = self._lines(GROUP).get(name, "").split(":")
            if str(gid) not in known or (len(own) > 2 and own[2] == str(gid)):
                self.wanted[GROUP].setdefault(name, f"{name}:x:{gid}:")

    def differ(self) -> list[tuple[str, str, str]]:
        """What is not as it should be: `user` or `group`, its name, and how."""
        found = []
        for path, what in ((PASSWD, "user"), (GROUP, "group")):
            lines = self._lines(path)
            for name, line in self.wanted[path].items():
                if name not in lines:
                    found.append((what, name, f"is not in {path}"))
                elif lines[name] != line:
                    found.append((what, name, f"is another in {path}: {lines[name][:200]}"))
        return found

    def texts(self, former: dict[str, list[str]]) -> dict[str, bytes]:
        """Path → what it should be, for those that are not. `former`: names that were delivered before."""
        found = {}
        for path, text in self._texts.items():
            lines, wanted = self._lines(path), self.wanted[path]
            for name in former.get(path, []):
                if name not in wanted:
                    lines.pop(name, None)
            if path != SHADOW:
                lines.update(wanted)
            else:  # a password that somebody set is theirs
                lines = {**wanted, **lines}
            new = "".join(f"{line}\n" for line in lines.values())
            if new != (text or ""):
                found[path] = new.encode()
        return found

    def numbers(self, owner: str, group: str) -> tuple[int, int]:
        """A file's owner and group as numbers."""
        passwd = {**self._lines(PASSWD), **self.wanted[PASSWD]}
        uid, gid = _number(owner, passwd, PASSWD, (2, 3))
        if group:
            gid = _number(group, {**self._lines(GROUP), **self.wanted[GROUP]}, GROUP, (2, 2))[0]
        return uid, gid

    def _lines(self, path: str) -> dict[str, str]:
        return {line.split(":", 1)[0]: line for line in (self._texts[path] or "").splitlines() if line}


def _text(root: Beneath, path: str) -> str | None:
    data = root.read(path)
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _number(name: str, lines: dict[str, str], path: str, fields: tuple[int, int]) -> tuple[int, int]:
    if name.isdigit():
        return int(name), int(name)
    columns = lines.get(name, "").split(":")
    if len(columns) > max(fields) and all(columns[field].isdigit() for field in fields):
        return int(columns[fields[0]]), int(columns[fields[1]])
    if name == "root":
        return 0, 0  # also where an image has no accounts at all
    raise CommandFailed(f"{name} is not in the member's {path}")
