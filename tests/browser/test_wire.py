"""The wire in Chromium: a task in all versions side by side, curl commands, and the inspector."""

import json
import shlex

import pytest
from playwright.async_api import Browser, expect

from harness.a2a.open_page import OpenPage
from harness.browser import open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_task_is_shown_in_all_versions_as_it_runs(
    browser: Browser, open_page: OpenPage
) -> None:
    bridged = open_page.bridged
    task = await bridged.at("/agents/echo").send("ask Who are you?")
    async with open_tab(browser, bridged.url) as tab:
        page = tab.page
        await tab.go(f"wire?task={task['id']}")
        rows = page.get_by_role("table", name="Frames").get_by_role("row")
        created = rows.nth(1).get_by_role("cell")
        for cell, text in enumerate(("created", "task", "task", "status")):
            await expect(created.nth(cell)).to_contain_text(text)
        await expect(rows).to_have_count(3)
        await bridged.at("/agents/echo").send("Ada", taskId=task["id"])
        await expect(rows.last.get_by_role("cell").nth(3)).to_contain_text("completed")
        await page.get_by_role("button", name="A2A 0.3").click()
        await expect(rows.first.get_by_role("columnheader")).to_have_count(3)
        await tab.keep_screenshot("wire-frames")
        assert await tab.find_barriers() == []
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await page.get_by_role("tab", name="Requests").click()
        await page.get_by_label("Version").select_option("0.3")
        await page.get_by_role("button", name="Copy as curl: The task: JSON-RPC").click()
        command = shlex.split(await page.evaluate("navigator.clipboard.readText()"))
        assert command[0] == "curl"
        assert json.loads(command[-1])["params"] == {"id": task["id"]}


async def test_any_agent_is_inspected_within_the_allow_list(
    browser: Browser, open_page: OpenPage
) -> None:
    url = f"{open_page.bridged.url}/agents/echo"
    async with open_tab(browser, open_page.bridged.url, size=(360, 740)) as tab:
        page = tab.page
        await tab.go("wire?tab=inspector")
        await page.get_by_label("URL of the agent").fill(url)
        await page.get_by_label("Do").select_option("stream")
        await page.get_by_label("Binding").select_option("JSONRPC")
        await page.get_by_label("Message").fill("echo inspected")
        await page.get_by_label("Headers").fill("no header")
        await expect(page.get_by_role("alert")).to_contain_text("no header")
        await page.get_by_label("Headers").fill("X-Test: 1")
        await page.get_by_role("button", name="Inspect").click()
        steps = page.get_by_role("list", name="Steps")
        await expect(steps).to_contain_text("stream")
        await expect(page.get_by_role("list", name="Frames")).to_contain_text("artifactUpdate")
        await tab.keep_screenshot("wire-inspector")
        assert await tab.find_barriers() == []
        assert not await tab.is_wider_than_the_screen()
        await page.get_by_label("URL of the agent").fill("http://localhost:1")
        await page.get_by_role("button", name="Inspect").click()
        await expect(steps).to_contain_text("inspect_allow")
        await expect(page.get_by_text("problems found")).to_be_visible()
