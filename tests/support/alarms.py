"""Alarms as tests collect them."""

from __future__ import annotations

from strata.fleet.alarm import Alarm


class Alarms(list[Alarm]):
    """Trouble that was told. What is over is apart, in ``over``: (kind, whom it is about)."""

    def __init__(self) -> None:
        super().__init__()
        self.over: list[tuple[str, str]] = []

    def append(self, alarm: Alarm) -> None:
        """An alarm sink."""
        if alarm.severity == "ok":
            self.over.append((alarm.kind, alarm.node or alarm.about))
        else:
            super().append(alarm)
