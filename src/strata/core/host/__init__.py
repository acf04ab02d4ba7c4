"""The machine that Strata runs on: processes that are found again, private files, folders that go, the time zone.

The one part of the core that touches the world; it is here because every layer starts processes.
"""
