"""The machine that Strata runs on: processes that are found again, folders that are removed, the time zone.

The one part of the core that touches the world; it is here because every layer starts processes.
"""
