"""Debian's Chromium without a window, and the dashboard that it is to show."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator

from playwright.sync_api import Browser, sync_playwright

from strata.dashboard.files import BUILT, PAGE

# As root there is no sandbox; a container has a small /dev/shm.
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


@contextlib.contextmanager
def chromium(*more: str) -> Iterator[Browser]:
    """A browser without a window, for as long as the block lasts."""
    program = shutil.which("chromium")
    assert program is not None, "Chromium is not installed: make setup"
    assert (BUILT / PAGE).is_file(), "the dashboard is not built: make dashboard"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*ARGUMENTS, *more])
        try:
            yield browser
        finally:
            browser.close()
