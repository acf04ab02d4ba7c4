"""What a section of the configuration file is: a layer declares its own, and ``strata.daemon`` puts them together."""

from __future__ import annotations

from typing import ClassVar

import msgspec


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings that belong together. Each field has a docstring with its unit, its default and the reason for it."""

    live: ClassVar[frozenset[str]] = frozenset()
    """Settings that a running service takes over when the file is read again; the others need a restart."""

    def check(self) -> None:
        """Raise ``BadRequest`` on the first setting that cannot work; its ``where`` is the setting's name."""
