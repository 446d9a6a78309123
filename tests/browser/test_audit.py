"""The audit log in Chromium: filters, pages, and operators only."""

import pytest
from playwright.async_api import Browser, expect

from harness.a2a.open_page import OpenPage
from harness.a2a.page_mesh import PageMesh
from harness.browser import open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

MORE_THAN_A_PAGE = 105


async def test_records_are_filtered_and_loaded_as_they_are_reached(
    browser: Browser, open_page: OpenPage
) -> None:
    caller = open_page.bridged.at("/agents/echo")
    task = await caller.send("recorded")
    for _ in range(MORE_THAN_A_PAGE):
        await caller.call("GetTask", {"id": task["id"]})
    async with open_tab(browser, open_page.bridged.url) as tab:
        page = tab.page
        await tab.go(f"audit?task={task['id']}")
        records = page.get_by_role("table", name="Audit log")
        await records.get_by_role("link").first.focus()
        await page.keyboard.press("End")
        await expect(records.get_by_role("row", name="message.send")).to_be_visible()
        await tab.keep_screenshot("audit-filtered")
        assert await tab.find_barriers() == []
        await page.get_by_label("Action").select_option("message.*")
        link = records.get_by_role("link", name="message.send")
        await expect(link).to_have_count(1)
        await link.click()
        await expect(page.get_by_role("dialog")).to_contain_text("outcomeok")


async def test_new_records_appear_as_they_are_written(
    browser: Browser, open_page: OpenPage
) -> None:
    caller = open_page.bridged.at("/agents/echo")
    async with open_tab(browser, open_page.bridged.url) as tab:
        page = tab.page
        await tab.go("audit?action=message.*")
        await expect(page.get_by_role("status").get_by_text("Live")).to_be_visible()
        reads: list[str] = []
        page.on("request", lambda sent: reads.append(sent.url) if "/audit?" in sent.url else None)
        for is_first in (True, False):
            task = await caller.send("written")
            row = page.get_by_role("row").filter(has_text=task["id"][-10:])
            await expect(row).to_contain_text("message.send")
            if is_first:
                # The list was read again once the stream had begun.
                reads.clear()
        await expect(page.get_by_role("row", name="task.get")).to_have_count(0)
        assert reads == []


async def test_others_are_told_that_it_is_for_operators(browser: Browser, mesh: PageMesh) -> None:
    async with open_tab(browser, mesh.bridged.url, key="key-of-ann") as tab:
        await tab.go("audit")
        await expect(tab.page.get_by_text("Only operators see the audit log")).to_be_visible()
        await expect(tab.page.get_by_role("link", name="Audit")).to_have_count(0)
