"""The time zone of this machine, summer and winter: what the system's clock says of each time, not of today's."""

from __future__ import annotations

import datetime as dt
import time


class LocalZone(dt.tzinfo):
    """As ``TZ`` or ``/etc/localtime`` has it. ``datetime.astimezone()`` gives only the offset of one instant."""

    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta | None:
        """At that local time."""
        return None if when is None else _offset(when.replace(tzinfo=None).timestamp())

    def dst(self, when: dt.datetime | None) -> dt.timedelta | None:
        """Nobody asks."""
        return None

    def tzname(self, when: dt.datetime | None) -> str | None:
        """Such as ``CET``."""
        return None if when is None else time.localtime(when.replace(tzinfo=None).timestamp()).tm_zone

    def fromutc(self, when: dt.datetime) -> dt.datetime:
        """The local time of an instant; of an hour that comes twice it knows which it is."""
        local = dt.datetime.fromtimestamp(when.replace(tzinfo=dt.UTC).timestamp())
        return local.replace(microsecond=when.microsecond, tzinfo=self)


def _offset(unix: float) -> dt.timedelta:
    return dt.timedelta(seconds=time.localtime(unix).tm_gmtoff)


LOCAL = LocalZone()
