"""A task of many events in Chromium: few elements, and any event is found."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from harness.a2a.page_mesh import PageMesh, open_page_mesh
from harness.agents.crowd import fountain
from harness.browser import open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

EVENTS = 6000
RATE = 1500
# Those of the page in memory. In sight are about 700.
MOST_NODES = 1200


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageMesh]:
    folder = tmp_path_factory.mktemp("long")
    async with open_page_mesh(folder, fountain, api_keys_file=None) as opened:
        yield opened


async def count_nodes(page: Page) -> int:
    """Return the number of nodes that the browser keeps, also those outside the document."""
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    await session.send("HeapProfiler.collectGarbage")
    metrics = (await session.send("Performance.getMetrics"))["metrics"]
    return int(next(each["value"] for each in metrics if each["name"] == "Nodes"))


async def test_a_long_task_keeps_few_elements_and_any_event_is_found(
    browser: Browser, mesh: PageMesh
) -> None:
    task = await mesh.ask("fountain", f"{EVENTS} {RATE}", "", now=True)
    async with open_tab(browser, mesh.bridged.url) as tab:
        page = tab.page
        await tab.go(f"tasks/{task['id']}")
        timeline = page.get_by_role("table", name="Events of the task")
        scroller = page.locator(".timeline .table")
        header = page.locator(".page-header")
        while "completed" not in await header.inner_text():
            await scroller.evaluate("(table) => { table.scrollTop = table.scrollHeight; }")
            await page.wait_for_timeout(50)
        assert await count_nodes(page) < MOST_NODES

        rows = timeline.get_by_role("row")
        await rows.get_by_role("link").first.focus()
        await page.keyboard.press("Home")
        first = timeline.get_by_role("link", name="Task created for fountain")
        await expect(first).to_be_focused()
        await page.keyboard.press("End")
        await expect(timeline.get_by_role("link", name="completed")).to_be_focused()
        last_row = rows.last
        assert await last_row.get_attribute("aria-rowindex") == await timeline.get_attribute(
            "aria-rowcount"
        )

        middle = EVENTS // 2
        await page.get_by_label("Sequence of the journal").fill(str(middle))
        chosen = timeline.locator(".table-row.selected")
        await expect(chosen).to_contain_text(str(middle))
        await expect(chosen).to_be_in_viewport()
        await page.get_by_label("Find an event by its text or sequence").fill(str(middle + 7))
        await expect(rows.filter(has_text=str(middle + 7)).first).to_be_visible()
        assert await count_nodes(page) < MOST_NODES
