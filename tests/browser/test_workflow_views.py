"""The page's views of workflows: graphs, runs as they go, versions, and what callers may do."""

import re

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from harness.a2a.page_mesh import PageMesh
from harness.browser import Tab, open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY = "key-of-ann"
OPERATOR = "key-of-operator"


async def start_run(tab: Tab, text: str) -> str:
    """Start a run by the form; return the id of its task."""
    page = tab.page
    await page.get_by_role("button", name="Start", exact=True).click()
    dialog = page.get_by_role("dialog", name="Start flow")
    await dialog.get_by_role("button", name="Start", exact=True).click()
    await expect(dialog.get_by_role("alert")).to_have_text("This is needed.")
    await dialog.get_by_label("text").fill(text)
    await dialog.get_by_role("button", name="Start", exact=True).click()
    await expect(page).to_have_url(re.compile("workflows/flow/runs/"))
    await expect(page.get_by_role("heading", level=1)).to_contain_text(text)
    return page.url.rpartition("/")[2]


def find_row(page: Page, run: str) -> Locator:
    """Return the row of the list of runs that links to a run."""
    runs = page.get_by_role("table", name="Runs")
    return runs.get_by_role("row").filter(has=page.locator(f'a[href*="{run}"]'))


async def test_a_run_is_started_paused_and_followed_to_its_end(
    browser: Browser, mesh: PageMesh
) -> None:
    async with open_tab(browser, mesh.bridged.url, key=KEY) as tab:
        page = tab.page
        await tab.go("workflows")
        await page.get_by_role("table", name="Workflows").get_by_role("link", name="flow").click()
        await expect(page.get_by_role("button", name="first, agent · gate")).to_be_visible()
        run = await start_run(tab, "wait for the gate")
        await expect(
            page.get_by_role("button", name="first, agent · gate, current")
        ).to_be_visible()
        await expect(page.get_by_role("button", name="start, start, visited")).to_be_visible()
        assert await tab.find_barriers() == []
        header = page.locator(".page-header")
        await page.get_by_role("button", name="Pause").click()
        await expect(header).to_contain_text("paused")
        steps = page.get_by_role("table", name="Steps of the run")
        mesh.gate.is_open.set()
        try:
            await expect(steps.get_by_role("row", name=re.compile("^first"))).to_contain_text(
                "done"
            )
            # No further step begins.
            await expect(page.get_by_role("button", name="end, end", exact=True)).to_be_visible()
            await page.get_by_role("button", name="Resume").click()
            await expect(header).to_contain_text("completed")
            await expect(page.get_by_role("button", name="end, end, visited")).to_be_visible()
        finally:
            mesh.gate.is_open.clear()
        await expect(page.get_by_role("link", name="flow, version 2")).to_be_visible()
        await expect(page.locator(".flow-edge.followed")).to_have_count(2)
        await tab.keep_screenshot("workflow-run-1440")
        await page.get_by_role("link", name="Runs of flow").click()
        row = find_row(page, run)
        await expect(row).to_contain_text("completed")
        await expect(row).to_contain_text('{"text": "wait for the gate"}')


async def test_a_run_is_canceled_and_appears_in_the_list_of_others(
    browser: Browser, mesh: PageMesh
) -> None:
    async with (
        open_tab(browser, mesh.bridged.url, key=KEY) as tab,
        open_tab(browser, mesh.bridged.url, key=KEY) as watching,
    ):
        await watching.go("workflows/flow?tab=runs")
        await expect(watching.page.locator(".page-header")).to_contain_text("Live")
        await tab.go("workflows/flow")
        run = await start_run(tab, "wait to be canceled")
        await tab.page.get_by_role("button", name="Cancel run").click()
        await tab.page.get_by_role("dialog").get_by_role("button", name="Cancel run").click()
        await expect(tab.page.locator(".page-header")).to_contain_text("canceled")
        await expect(find_row(watching.page, run)).to_contain_text("canceled")


async def test_versions_are_compared_and_operators_choose_one(
    browser: Browser, mesh: PageMesh
) -> None:
    async with (
        open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab,
        open_tab(browser, mesh.bridged.url, key=KEY) as watching,
    ):
        page = tab.page
        await watching.go("workflows")
        listed = watching.page.get_by_role("table", name="Workflows").get_by_role("row")
        await tab.go("workflows/flow?tab=versions")
        await expect(page.get_by_role("img", name="end, end, changed")).to_be_visible()
        text = page.get_by_label("Difference as text")
        await expect(text).to_contain_text('description: "Version 1." -> "Version 2."')
        assert await tab.find_barriers() == []
        await tab.keep_screenshot("workflow-versions-1440")
        versions = page.get_by_role("listitem")
        for version in ("1", "2"):
            await page.get_by_role("button", name="Make current").click()
            await page.get_by_role("dialog").get_by_role("button", name="Make current").click()
            await expect(versions.filter(has_text=f"Version {version}")).to_contain_text("current")
            await expect(page.get_by_role("dialog")).to_have_count(0)
            # The workflow's agent shows the version that new tasks take on its card.
            await mesh.ask("flow", "a run of this version")
            await expect(listed.last).to_contain_text(f"Version {version}.")


async def test_callers_see_what_they_may_not_do(browser: Browser, mesh: PageMesh) -> None:
    async with open_tab(
        browser, mesh.bridged.url, key="key-of-reader", size=(360, 740), theme="dark"
    ) as tab:
        page = tab.page
        await tab.go("workflows/flow")
        await expect(page.get_by_text("do not permit starting runs")).to_be_visible()
        await expect(page.get_by_role("button", name="Start", exact=True)).to_have_count(0)
        assert await tab.find_barriers() == []
        assert not await tab.is_wider_than_the_screen()
        await tab.keep_screenshot("workflow-360-dark")
        await tab.go("workflows/flow?tab=versions")
        await expect(page.get_by_text("Operators choose the current version")).to_be_visible()
        await expect(page.get_by_role("button", name="Make current")).to_have_count(0)
