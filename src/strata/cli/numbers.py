"""Numbers that people type as options."""

from __future__ import annotations

import math
from typing import Any

import click


class Between(click.FloatRange):
    """A range of numbers. ``nan`` is in none, though it is neither below nor above one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number that can be used", param, ctx)
        return found
