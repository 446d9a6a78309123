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


async def test_readers_see_calls_without_the_form(browser: Browser, mesh: PageMesh) -> None:
    await mesh.ask("apples", "order 4 apples")
    async with open_tab(browser, mesh.bridged.url, key="key-of-reader") as tab:
        await tab.go("approvals")
        await expect(tab.page.get_by_text("do not allow an answer").first).to_be_visible()
        await expect(tab.page.get_by_role("button", name="Approve")).to_have_count(0)
