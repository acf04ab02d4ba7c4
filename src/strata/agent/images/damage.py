"""Images of which the controllers have other bytes than were signed: noted, so that they are told."""

from __future__ import annotations

from ..files import read_text, write_private
from ..paths import Paths
from .release import Release

_MOST = 16
_LONGEST = 300


def note_damage(paths: Paths, release: Release, why: str) -> None:
    """It arrived corrupt, from every controller that was asked."""
    write_private(paths.damaged / release.hex, why[:_LONGEST].encode())


def forget_damage(paths: Paths, release: Release) -> None:
    """It arrived whole."""
    (paths.damaged / release.hex).unlink(missing_ok=True)


def damage(paths: Paths) -> dict[str, str]:
    """The digest of each damaged image (squashfs), and what was wrong with it."""
    found = sorted(paths.damaged.glob("[0-9a-f]*"))[:_MOST]
    return {f"sha256:{path.name}": read_text(path, 4 * _LONGEST)[:_LONGEST] for path in found}
