"""Views of the page in Chromium: mesh, tasks, traces, sign-in, and a bridge that dies behind it."""

import re
from pathlib import Path

import pytest
from playwright.async_api import Browser, Response, expect

from harness.a2a.open_page import OpenPage
from harness.a2a.page_mesh import PageMesh
from harness.browser import ROOT, Tab, open_tab
from harness.mesh.command_line import run_command
from harness.mesh.processes import free_address, running_mesh

pytestmark = pytest.mark.asyncio(loop_scope="session")

# The labels of edges that overlap another label or a node.
LIST_LABEL_OVERLAPS = """() => {
    const boxes = [...document.querySelectorAll(".edge-label-box, .node > rect")]
        .map((each) => [each, each.getBoundingClientRect()]);
    return boxes.filter(([label, one]) => label.matches(".edge-label-box")
        && boxes.some(([each, other]) => each !== label
            && other.left < one.right && other.right > one.left
            && other.top < one.bottom && other.bottom > one.top))
        .map(([label]) => label.nextElementSibling.textContent);
}"""
# Of all views as they are sent, and of any view at a first visit as the browser reads it.
MOST_SCRIPT_BYTES = 300_000
KEY = "key-of-ann"
OPERATOR = "key-of-operator"


async def list_views(tab: Tab) -> list[str]:
    """Return the paths of the views in the navigation."""
    # On a small screen they are hidden until the menu opens.
    links = tab.page.locator(".nav-link")
    await links.first.wait_for(state="attached")
    return [str(await link.get_attribute("href"))[2:] for link in await links.all()]


async def test_every_view_is_accessible_and_fits_a_phone(browser: Browser, mesh: PageMesh) -> None:
    # Colours do not depend on the size, nor sizes on the theme. tests/browser/test_reach.py looks
    # at the light theme on a wide screen.
    size = (360, 740)
    task = await mesh.ask("teacher", "say hello", "operator")
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR, theme="dark", size=size) as tab:
        await tab.go("")
        for path in (*await list_views(tab), f"tasks/{task['id']}"):
            await tab.go(path)
            await tab.keep_screenshot(f"{path.split('/')[0]}-{path.count('/')}-360-dark")
            assert await tab.find_barriers() == [], path
            assert not await tab.is_wider_than_the_screen(), path


async def test_the_scripts_of_all_views_are_little_to_transfer(mesh: PageMesh) -> None:
    static = ROOT / "bridge/trunkline_bridge/api/page/static"
    sizes = {}
    for path in static.rglob("*.js"):
        name = path.relative_to(static).as_posix()
        # The browser's own: gzip is the only one that the bridge has.
        headers = {"Accept-Encoding": "gzip, deflate, br, zstd"}
        response = await mesh.bridged.client.get(f"{mesh.bridged.url}/ui/{name}", headers=headers)
        assert response.content == path.read_bytes()
        sizes[name] = int(response.headers["content-length"])
    assert 0 < sum(sizes.values()) < MOST_SCRIPT_BYTES, sizes


async def test_a_first_visit_loads_little_script(browser: Browser, mesh: PageMesh) -> None:
    sizes: dict[str, int] = {}
    scripts: list[Response] = []
    # Of scripts by their URLs. One that the browser has is not sent again.
    read: dict[str, int] = {}

    async def measure() -> int:
        for script in scripts:
            if script.ok:
                read[script.url] = len(await script.body())
        return sum(read[script.url] for script in scripts)

    def keep(response: Response) -> None:
        if response.url.partition("?")[0].endswith(".js"):
            scripts.append(response)

    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        tab.page.context.on("response", keep)
        await tab.go("")
        views = await list_views(tab)
        # The layout of a graph is the work of another script. It is not among the page's own.
        await expect(tab.page.get_by_role("button", name="teacher, agent")).to_be_visible()
        assert any("vendor/dagre.js" in script.url for script in scripts)
        await measure()
        for view in views:
            # Another document between: else a view loads only what the ones before did not.
            await tab.page.goto(f"{tab.url}/.well-known/agent-card.json")
            scripts.clear()
            await tab.go(view)
            sizes[view] = await measure()
    assert min(sizes.values()) > 0, sizes
    assert max(sizes.values()) < MOST_SCRIPT_BYTES, sizes


async def test_a_task_appears_live_and_is_shown_as_it_was(browser: Browser, mesh: PageMesh) -> None:
    async with open_tab(browser, mesh.bridged.url, key=KEY) as tab:
        page = tab.page
        await tab.go("tasks")
        await expect(page.get_by_role("status").get_by_text("Live")).to_be_visible()
        task = await mesh.ask("teacher", "say something new")
        row = page.get_by_role("row", name="say something new")
        await expect(row).to_contain_text("completed")
        await row.click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("say something new")
        await expect(page.get_by_role("heading", level=1)).to_be_focused()
        timeline = page.get_by_role("table", name="Events of the task")
        await expect(timeline).to_contain_text("Task created for teacher")
        await expect(timeline).to_contain_text("completed")

        await page.get_by_label("Sequence of the journal").fill("1")
        await expect(page).to_have_url(re.compile(rf"tasks/{task['id']}\?at=1$"))
        header = page.locator(".page-header")
        await expect(header).to_contain_text("submitted")
        # It is created by this event: until then, it ran for no time.
        await expect(page.locator("dl.facts")).to_contain_text("Running for0 ms")
        await page.get_by_role("button", name="Back to now").click()
        await expect(header).to_contain_text("completed")


async def test_a_list_is_filtered_and_its_rows_are_reached_by_keyboard(
    browser: Browser, mesh: PageMesh
) -> None:
    await mesh.ask("teacher", "first of the keyboard")
    await mesh.ask("teacher", "second of the keyboard")
    async with open_tab(browser, mesh.bridged.url, key=KEY) as tab:
        page = tab.page
        await tab.go("mesh")
        await page.keyboard.press("g")
        await page.keyboard.press("t")
        # A new view takes the focus.
        await expect(page.get_by_role("heading", level=1)).to_have_text("Tasks")
        await expect(page.get_by_role("heading", level=1)).to_be_focused()
        await page.keyboard.press("/")
        await page.keyboard.type("of the keyboard")
        await expect(page).to_have_url(re.compile("text=of\\+the\\+keyboard"))
        rows = page.get_by_role("table", name="Tasks").get_by_role("link")
        await expect(rows).to_have_text(["second of the keyboard", "first of the keyboard"])
        await rows.first.focus()
        await page.keyboard.press("j")
        await expect(rows.last).to_be_focused()
        await page.get_by_label("State").select_option("failed")
        await expect(page.get_by_text("No task matches")).to_be_visible()


async def test_a_running_task_is_canceled(browser: Browser, mesh: PageMesh) -> None:
    task = await mesh.ask("gate", "wait for me", now=True)
    async with open_tab(browser, mesh.bridged.url, key=KEY) as tab:
        page = tab.page
        await tab.go(f"tasks/{task['id']}")
        await page.get_by_role("button", name="Cancel task").click()
        await page.get_by_role("dialog").get_by_role("button", name="Cancel task").click()
        await expect(page.locator(".page-header")).to_contain_text("canceled")


async def test_people_sign_in_and_wrong_keys_are_refused(browser: Browser, mesh: PageMesh) -> None:
    async with open_tab(browser, mesh.bridged.url) as tab:
        page = tab.page
        refused: list[str] = []

        def keep(response: Response) -> None:
            # The browser reports it in its console.
            if not response.ok:
                refused.append(response.url)

        page.on("response", keep)
        await page.goto(f"{tab.url}/ui/#/tasks")
        field = page.get_by_label("API key")
        await field.fill("wrong")
        assert refused == []
        await page.get_by_role("button", name="Sign in").click()
        alert = page.get_by_role("alert")
        await expect(alert).to_have_text(re.compile("the API key or token is unknown"))
        assert await tab.find_barriers() == []
        await tab.keep_screenshot("sign-in-refused")
        await field.fill("key-of-reader")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Tasks")
        task = await mesh.ask("gate", "wait: not for readers to cancel", now=True)
        await tab.go(f"tasks/{task['id']}")
        await expect(page.locator(".page-header")).to_contain_text("submitted")
        await expect(page.get_by_role("button", name="Cancel task")).to_have_count(0)
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("API key")).to_be_visible()
        assert await page.evaluate("sessionStorage.length") == 0


async def test_a_change_of_the_view_that_was_just_left_does_not_bring_it_back(
    browser: Browser, open_page: OpenPage
) -> None:
    async with open_tab(browser, open_page.bridged.url) as tab:
        await tab.go("traces")
        button = tab.page.get_by_role("button", name="With errors")
        # The page hears of the new location in an event, after the click.
        await button.evaluate("(it) => { location.hash = '#/mesh'; it.click(); }")
        await expect(tab.page.get_by_role("heading", level=1)).to_have_text("Mesh")
        assert tab.page.url.endswith("#/mesh")
        # A link may also lead to the same view with another query.
        await tab.go("traces")
        await button.evaluate("(it) => { location.hash = '#/traces?text=other'; it.click(); }")
        await expect(tab.page.get_by_label("Search name, trace or task")).to_have_value("other")
        assert tab.page.url.endswith("#/traces?text=other")


async def test_a_real_mesh_is_seen_from_task_to_trace_and_through_a_restart(
    browser: Browser, tmp_path: Path
) -> None:
    address = free_address()
    flags = ("--http", address)
    url = f"http://{address}"
    async with open_tab(browser, url) as tab:
        page = tab.page
        async with running_mesh(tmp_path, *flags) as mesh:
            assert mesh.http_url == url
            assert (
                await run_command("ask", "hello, mesh", "--agent", "echo", "--url", url)
            ).exit == 0
            await tab.go("mesh")
            graph = page.get_by_role("group", name="Graph of the mesh")
            await expect(graph.get_by_role("button", name="echo")).to_be_visible()
            await tab.go("traces")
            row = page.get_by_role("row", name="SendStreamingMessage").first
            await row.click()
            spans = page.get_by_role("table", name="Spans")
            await spans.get_by_role("link", name="invoke_agent").first.click()
            await expect(page.get_by_text("On the critical path")).to_be_visible()
            await tab.keep_screenshot("trace-of-a-real-mesh")
            assert await tab.find_barriers() == []
            await page.locator(".span-details").get_by_role("link").first.click()
            await expect(page.get_by_role("heading", level=1)).to_have_text("hello, mesh")
            await page.get_by_role("link", name="Trace", exact=True).click()
            await expect(spans).to_contain_text("invoke_agent")
            # What people look at leaves no trace, also in the chat, which is an A2A client.
            await page.get_by_role("link", name="Chat", exact=True).last.click()
            await expect(page.get_by_role("log", name="Messages")).to_contain_text("hello, mesh")
            await page.get_by_label("Your message").fill("asked in the chat")
            await page.get_by_role("button", name="Send").click()
            await expect(page.get_by_role("article", name="Exchange")).to_have_count(2)
            await tab.go("traces")
            names = page.get_by_role("table", name="Traces").locator(".row-link")
            await expect(names).to_have_text(["SendStreamingMessage"] * 2)
            await tab.go("tasks")
            await expect(page.get_by_role("status").get_by_text("Live")).to_be_visible()
            mesh.process.kill()
            await expect(page.get_by_role("status").get_by_text("Reconnecting")).to_be_visible()
        async with running_mesh(tmp_path, *flags):
            await expect(page.get_by_role("status").get_by_text("Live")).to_be_visible()
            assert (
                await run_command("ask", "hello again", "--agent", "echo", "--url", url)
            ).exit == 0
            await expect(page.get_by_role("row", name="hello again").first).to_be_visible()
            await expect(page.get_by_role("row", name="hello, mesh").first).to_be_visible()
            assert (await run_command("ask", "echo hello", "--url", url)).exit == 0
            await tab.go("mesh")
            await expect(graph.locator(".edge-label", has_text="·").nth(1)).to_be_visible()
            await tab.keep_screenshot("mesh-labels")
            assert await page.evaluate(LIST_LABEL_OVERLAPS) == []
