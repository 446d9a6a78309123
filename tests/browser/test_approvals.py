"""Approvals in Chromium: they appear and disappear live."""

import json
import re

import pytest
from playwright.async_api import Browser, expect

from harness.a2a.open_page import OpenPage
from harness.a2a.page_mesh import PageMesh
from harness.browser import open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_call_appears_at_once_and_is_rejected(
    browser: Browser, open_page: OpenPage
) -> None:
    orders = len(open_page.orders.orders)
    async with open_tab(browser, open_page.bridged.url) as tab:
        page = tab.page
        await tab.go("approvals")
        await expect(page.get_by_text("Nothing waits for a decision")).to_be_visible()
        await open_page.bridged.at("/agents/apples").send("order 5 apples")
        arguments = page.get_by_label("Arguments")
        await expect(arguments).to_have_value(re.compile("apples"))
        assert json.loads(await arguments.input_value()) == {"n": 5, "item": "apples"}
        await tab.keep_screenshot("approvals-waiting")
        assert await tab.find_barriers() == []
        await arguments.fill("{")
        await expect(page.get_by_role("alert")).to_be_visible()
        await page.get_by_role("button", name="Undo changes").click()
        await page.get_by_label("Reason").fill("too many")
        await page.get_by_role("button", name="Reject").click()
        await expect(page.get_by_text("Nothing waits for a decision")).to_be_visible()
        assert len(open_page.orders.orders) == orders


async def test_the_navigation_counts_what_waits_in_every_view(
    browser: Browser, open_page: OpenPage
) -> None:
    async with open_tab(browser, open_page.bridged.url) as tab:
        page = tab.page
        await tab.go("tasks")
        link = page.get_by_role("navigation", name="Views").get_by_role("link", name="Approvals")
        await expect(link).to_have_accessible_name("Approvals")
        for count in ("1 call", "2 calls"):
            await open_page.bridged.at("/agents/apples").send("order 6 apples")
            await expect(link).to_have_accessible_name(f"Approvals {count} to decide")
        assert await tab.find_barriers() == []
        await tab.keep_screenshot("approvals-counted")
        await link.click()
        for name in ("Approvals 1 call to decide", "Approvals"):
            await page.get_by_label("Reason").first.fill("too many")
            await page.get_by_role("button", name="Reject").first.click()
            await expect(link).to_have_accessible_name(name)


async def test_readers_see_calls_without_the_form(browser: Browser, mesh: PageMesh) -> None:
    await mesh.ask("apples", "order 4 apples")
    async with open_tab(browser, mesh.bridged.url, key="key-of-reader") as tab:
        await tab.go("approvals")
        await expect(tab.page.get_by_text("do not allow an answer").first).to_be_visible()
        await expect(tab.page.get_by_role("button", name="Approve")).to_have_count(0)
