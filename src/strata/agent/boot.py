"""What this boot was told: the fragment's boot.json, taken once and kept in memory for a restarted agent."""

from __future__ import annotations

import contextlib
import json

from .errors import AgentError
from .files import load_json, save_json, write_private
from .paths import Paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


_MOST = 16  # controllers that are remembered


class Boot:
    """One boot of this node: who it is, who its controllers are, what it booted, and the token until it is redeemed."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.discovery = bool(values.get("discovery"))
        self.node = str(values.get("node", ""))
        self.generation = int(values.get("generation", 0))
        self.controllers = [str(url) for url in values.get("controllers", [])]
        self.token = str(values.get("token", ""))
        self.profile = str(values.get("profile", ""))
        minos = values.get("minos")
        self.minos = {str(key): str(value) for key, value in minos.items()} if isinstance(minos, dict) else {}
        if not self.controllers:
            raise AgentError("boot.json names no controllers")
        if not self.discovery and not self.node:
            raise AgentError("boot.json names no node")


def take_boot(paths: Paths) -> Boot:
    """Read what this boot was told; the fragment's file is removed, and the token kept only until it is redeemed."""
    try:
        values = json.loads(paths.given.read_bytes())
    except FileNotFoundError:
        values = load_json(paths.boot)
    except (OSError, ValueError) as error:
        raise AgentError(f"{paths.given} cannot be read: {error}") from None
    else:
        write_private(paths.authority, str(values.pop("ca", "")).encode())
        for number, key in enumerate(values.pop("release_keys", [])):
            write_private(paths.release_keys / f"{number}.pem", str(key).encode())
        save_json(paths.boot, values)
        paths.given.unlink()
    if not isinstance(values, dict):
        raise AgentError(f"no boot.json: neither {paths.given} (from the boot fragment) nor {paths.boot} is there")
    return Boot(values)


def learn_controllers(boot: Boot, told: str, paths: Paths) -> bool:
    """Add controllers that came since this node booted; whether there were any. None is forgotten: one that is away may
    come back before the others do."""
    known = boot.controllers
    new = [url for url in told.split()[:_MOST] if url.startswith("https://") and len(url) <= 256 and url not in known]
    if not new:
        return False
    known[:] = (known + new)[-_MOST:]  # in place: whoever asks controllers in turn has this very list
    values = load_json(paths.boot)
    if isinstance(values, dict):
        with contextlib.suppress(OSError):  # a full disk costs a restarted agent this, and this one nothing
            save_json(paths.boot, {**values, "controllers": known})
    return True


def forget_token(paths: Paths) -> None:
    """Remove the redeemed token from what a restarted agent reads."""
    values = load_json(paths.boot)
    if isinstance(values, dict) and values.pop("token", None) is not None:
        save_json(paths.boot, values)
