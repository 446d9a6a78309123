"""Chromium on the page: tabs that record problems, check accessibility and keep screenshots."""

import json
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

ROOT: Final = Path(__file__).resolve().parents[2]
PARTNERS: Final = ROOT / ".venv-partners/page/node_modules"
SCREENSHOTS: Final = ROOT / "build/screenshots"
# A screenshot of a large screen takes as long as a test.
_KEEPS_SCREENSHOTS: Final = bool(os.environ.get("KEEP_SCREENSHOTS"))
# None: the one that Playwright downloaded.
CHROMIUM: Final = shutil.which("chromium")
# Tests run as root in containers, without a display, and use no network.
FLAGS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
TIMEOUT_MS: Final = 60_000
expect.set_options(timeout=TIMEOUT_MS)
# The browser itself reports requests that a test makes fail.
_NETWORK_NOTICE: Final = "Failed to load resource"
_TWO_FRAMES: Final = """new Promise((done) =>
  requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))"""

Theme = Literal["light", "dark"]


@cache
def _accessibility_rules() -> str:
    return (PARTNERS / "axe-core/axe.min.js").read_text(encoding="utf-8")


# Without slots: Playwright marks the objects whose methods it calls.
@dataclass
class Tab:
    """A tab on the page of a bridge."""

    page: Page
    url: str
    problems: list[str] = field(default_factory=list)
    """Errors and warnings of the console, and uncaught errors."""

    async def go(self, path: str) -> None:
        """Open a view, such as `tasks`, and wait until it has its data."""
        await self.page.goto(f"{self.url}/ui/#/{path}")
        await self.settle()

    async def settle(self) -> None:
        """Wait until the view is there and nothing loads."""
        await self.page.locator("#main h1").first.wait_for()
        await expect(self.page.locator("#main .loading")).to_have_count(0)
        # A view takes the focus in an effect, which runs after the next frame.
        await self.page.evaluate(_TWO_FRAMES)

    async def find_barriers(self) -> list[str]:
        """Return the serious problems that the rules of axe find."""
        if not await self.page.evaluate("'axe' in window"):
            await self.page.evaluate(_accessibility_rules())
        report: dict[str, Any] = await self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']})"
        )
        return [
            f"{each['id']}: {json.dumps(node['target'])} {node['failureSummary']}"
            for each in report["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]

    async def is_wider_than_the_screen(self) -> bool:
        """Return True if the document scrolls sideways."""
        wide: bool = await self.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        return wide

    async def keep_screenshot(self, name: str) -> None:
        """Write a screenshot into the folder of the tests' output, if KEEP_SCREENSHOTS is set."""
        if not _KEEPS_SCREENSHOTS:
            return
        path = SCREENSHOTS / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower()).strip('-')}.png"
        await self.page.screenshot(path=path)

    def record(self, message: ConsoleMessage) -> None:
        """Keep a message of the console that is a problem."""
        if message.type in ("error", "warning") and _NETWORK_NOTICE not in message.text:
            self.problems.append(f"{message.type}: {message.text}")


@asynccontextmanager
async def open_browser() -> AsyncIterator[Browser]:
    """Run Chromium."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        await browser.close()


@asynccontextmanager
async def open_tab(
    browser: Browser,
    url: str,
    *,
    key: str = "",
    theme: Theme = "light",
    size: tuple[int, int] = (1440, 900),
) -> AsyncIterator[Tab]:
    """Open a tab with storage of its own, signed in with a key if there is one.

    Assert at the end that the page reported no problem.
    """
    width, height = size
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=theme
    )
    context.set_default_timeout(TIMEOUT_MS)
    if key:
        script = f"sessionStorage.setItem('trunkline.credential', {json.dumps(key)})"
        await context.add_init_script(script)
    page = await context.new_page()
    tab = Tab(page, url)
    page.on("console", tab.record)
    page.on("pageerror", lambda error: tab.problems.append(str(error)))
    yield tab
    assert tab.problems == []
    # A handler of a request would stay pending after its page is closed.
    await page.unroute_all(behavior="wait")
    await context.close()
