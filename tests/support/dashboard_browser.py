"""Debian's Chromium over a real service: nginx in front, simulated nodes behind, pages as people see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from strata import dashboard
from system.system_support import Controller, eventually

PATIENCE = 120_000
"""Milliseconds: a machine may be slow, and whatever is waited for comes."""

expect.set_options(timeout=PATIENCE)

AXE = Path(dashboard.__file__).parent / "web/node_modules/axe-core/axe.min.js"
_FADED = """() => Promise.allSettled(
    document.getAnimations().filter((one) => one instanceof CSSTransition).map((one) => one.finished)
).then(() => null)"""
_BARRIERS = """async () => (await axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})).violations
    .flatMap(({id, nodes}) => nodes.map(({target}) => `${id}: ${target.join(" ")}`))"""
_LEGEND = """() => Object.fromEntries(
    [...document.querySelectorAll('[data-testid=legend] li')].map(({dataset}) => [dataset.value, Number(dataset.count)])
)"""


class Visitor:
    """Somebody with a browser window. Whatever the page complains of is kept: a test looks at it at its end."""

    def __init__(self, browser: Browser, service: Controller, **context: Any) -> None:
        self.context = browser.new_context(ignore_https_errors=True, viewport={"width": 1280, "height": 800}, **context)
        self.context.set_default_timeout(PATIENCE)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._said)
        self.url = front_door(service)

    def _said(self, message: ConsoleMessage) -> None:
        # Whoever has shown nothing yet is asked who it is, and is nobody, and whether there is a provider, and there is
        # none: the browser tells of that by itself. It also drops its connections when an interface comes or goes, as
        # other tests have it; the page takes them up again.
        harmless = ("status of 401", "ERR_NETWORK_CHANGED", "/v1/auth/oidc")
        text = f"{message.text} {message.location.get('url', '')}"
        if message.type == "error" and not any(one in text for one in harmless):
            self.complaints.append(text)

    def open(self, path: str = "") -> None:
        """Go to a page."""
        self.page.goto(f"{self.url}/{path}")

    def sign_in(self, token: str) -> None:
        """As people do."""
        self.open()
        self.page.get_by_label("Token").fill(token)
        self.page.get_by_role("button", name="Sign in").click()
        self.page.get_by_role("navigation", name="Pages").wait_for()

    def go(self, title: str) -> None:
        """Choose a page."""
        self.page.get_by_role("navigation", name="Pages").get_by_role("link", name=title).click()

    def counts(self) -> dict[str, int]:
        """The legend: how many nodes there are of each value."""
        found: dict[str, int] = self.page.evaluate(_LEGEND)  # all of it at one moment: it changes meanwhile
        return found

    def barriers(self) -> list[str]:
        """What keeps people out who do not see or do not point: rules of WCAG 2.1 (A and AA) that axe finds broken."""
        assert AXE.is_file(), "axe-core is not installed: make dashboard"
        # Colours that are still fading from one into the other are neither.
        self.page.evaluate(_FADED)
        self.page.evaluate(AXE.read_text())
        found: list[str] = self.page.evaluate(_BARRIERS)
        return found

    def picture(self, folder: Path, name: str) -> None:
        """Keep what is seen."""
        folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=folder / f"{name}.png")


def front_door(service: Controller) -> str:
    """Where the service is, once it can be reached."""
    file = service.state / "url"
    return str(eventually("the front door is open", lambda: file.exists() and file.read_text().strip(), 120.0))


def token(service: Controller, role: str) -> str:
    """A new one."""
    return str(service.client.request("POST", "/v1/auth/tokens", body={"role": role}).body["token"])
