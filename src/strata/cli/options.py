"""Numbers and addresses that people type as options."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import urlsplit

import click


class Between(click.FloatRange):
    """A range of numbers. ``nan`` is in none, though it is neither below nor above one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number that can be used", param, ctx)
        return found


def parse_listen(text: str) -> tuple[str, int]:
    """``HOST:PORT``, ``[::1]:PORT`` or ``:PORT`` (all addresses)."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if port is None or (host is None and not text.startswith(":")) or parts.netloc != text or "@" in text:
        raise click.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--listen")
    return host or "0.0.0.0", port
