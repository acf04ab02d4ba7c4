"""The node's secrets: asked for as this node, kept in memory as files, whole or not at all.

`run/secrets/NAME` holds a value, for its owner alone. `run/secrets.json` says which version of each is there, and holds
no value: a restarted agent goes on with it. Nothing here is logged but names.
"""

from __future__ import annotations

import binascii
import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ..errors import AgentError, Refused, Unreachable
from ..files import load_json, save_json
from ..paths import Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_SOME_TIME = 1800.0
_TRY_AGAIN = 30.0
_MOST = 1000


class Secrets:
    """Fetches and keeps them. `run` in a thread; `fetch` is also a command's."""

    def __init__(
        self,
        paths: Paths,
        ask: Callable[[dict[str, Any]], dict[str, Any]],
        say: Callable[[str], None],
        changed: Callable[[], None],
    ) -> None:
        self._paths = paths
        self._ask = ask
        self._say = say
        self._changed = changed
        self._lock = threading.Lock()
        kept = load_json(paths.secret_stamps)
        self._held: dict[str, str] = dict(kept) if isinstance(kept, dict) else {}
        self._folder()  # before there is a secret: members mount it

    def held(self) -> dict[str, str]:
        """Which version of each is here, for the report."""
        return dict(self._held)

    def run(self) -> None:
        """Ask at once, and again when there is reason to, for ever."""
        complained = ""
        while True:
            try:
                pause = self.fetch()
                complained = ""
            except (AgentError, OSError) as error:
                none = isinstance(error, Refused) and error.status == 404  # a service without secrets: nothing is wrong
                pause = _SOME_TIME if none else _TRY_AGAIN
                if str(error) != complained and not none:
                    complained = str(error)
                    self._say(f"secrets were not fetched: {error}")
            time.sleep(pause)

    def fetch(self) -> float:
        """Ask what is this node's, and make it so; the seconds after which to ask again."""
        with self._lock:
            before = dict(self._held)
            have = {name: stamp for name, stamp in before.items() if (self._paths.secrets / name).is_file()}
            reply = self._ask({"have": have})
            given, keep, again = reply.get("secrets"), reply.get("keep"), reply.get("again")
            if not isinstance(given, dict) or not isinstance(keep, list) or len(given) > _MOST:
                raise Unreachable("the controller's answer about secrets cannot be read")
            for name, one in given.items():
                try:
                    self._put(str(name), one)
                except (KeyError, TypeError, ValueError):  # whose words may hold the value
                    raise Unreachable(f"the secret {name[:63]!r} came damaged") from None
            for name in {file.name for file in self._paths.secrets.iterdir()} | set(self._held):
                if name not in given and name not in keep:
                    with contextlib.suppress(FileNotFoundError):
                        (self._paths.secrets / name).unlink()
                    self._held.pop(name, None)
            if self._held != before:
                save_json(self._paths.secret_stamps, self._held)
        if self._held != before:
            self._say(f"secrets: {', '.join(sorted(self._held)) or 'none'}")
            self._changed()
        if isinstance(again, (int, float)) and again > 0:
            return min(max(float(again), 1.0), _SOME_TIME)
        return _SOME_TIME * (0.75 + os.urandom(1)[0] / 512)  # nodes that booted together do not ask together for ever

    def _put(self, name: str, one: dict[str, Any]) -> None:
        """Write one beside its place, for its owner alone, and put it there in one step."""
        if not name or "/" in name or name.startswith(".") or not name.isprintable():
            raise Unreachable("the controller sent a secret with an invalid name")
        uid, gid = int(one["uid"]), int(one["gid"])
        value = binascii.a2b_base64(str(one["value"]), strict_mode=True)
        fresh = self._paths.secrets / f".{name}"
        with contextlib.suppress(FileNotFoundError):
            fresh.unlink()
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400)
        try:
            os.fchown(descriptor, uid, gid)
            os.fchmod(descriptor, 0o440 if gid else 0o400)
            view = memoryview(value)
            while view:
                view = view[os.write(descriptor, view) :]
        finally:
            os.close(descriptor)
        fresh.replace(self._paths.secrets / name)
        self._held[name] = str(one["stamp"])

    def _folder(self) -> None:
        """Others may not list it; who owns a file in it finds that by its name."""
        place: Path = self._paths.secrets
        place.mkdir(parents=True, exist_ok=True, mode=0o711)
        place.chmod(0o711)
