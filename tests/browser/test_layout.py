"""Titles, tabs and graphs are whole on the screens that show least of them."""

import pytest
from playwright.async_api import Browser, expect

from harness.a2a.page_mesh import PageMesh
from harness.a2a.page_spans import StoredSpan, store_trace
from harness.browser import Tab, open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPERATOR = "key-of-operator"
PHONE = (360, 740)
# The elements that a part of is outside of the frame.
LIST_CUT = """([frame, parts]) => {
    const whole = document.querySelector(frame).getBoundingClientRect();
    return [...document.querySelectorAll(parts)].filter((each) => {
        const box = each.getBoundingClientRect();
        return box.left < whole.left - 1 || box.right > whole.right + 1
            || box.top < whole.top - 1 || box.bottom > whole.bottom + 1;
    }).map((each) => each.textContent);
}"""
# The elements that overlap another one.
LIST_OVERLAPS = """(selector) => {
    const all = [...document.querySelectorAll(selector)];
    const boxes = all.map((each) => each.getBoundingClientRect());
    return all.filter((_, one) => boxes.some((box, other) => one !== other
        && box.left < boxes[one].right - 1 && box.right > boxes[one].left + 1
        && box.top < boxes[one].bottom - 1 && box.bottom > boxes[one].top + 1))
        .map((each) => each.textContent.slice(0, 40));
}"""
# The texts that are wider than their element, which neither wraps them nor ends them by dots.
LIST_CUT_TEXTS = """(frame) => [...document.querySelectorAll(`${frame} *`)].filter((each) => {
        const isText = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        const style = getComputedStyle(each);
        const whole = each.closest(".panel")?.getBoundingClientRect();
        if (!isText || !whole || !each.clientWidth) return false;
        const isWider = each.scrollWidth > each.clientWidth && style.textOverflow !== "ellipsis";
        return isWider || each.getBoundingClientRect().right > whole.right;
    })
    .map((each) => `${each.className} ${each.textContent.slice(0, 40)}`)"""
LIST_HEIGHTS = """(selector) => [...document.querySelectorAll(selector)]
    .map((each) => each.getBoundingClientRect().height)"""
# How many letters of 6.5 pixels each name of a span has room for.
COUNT_LETTERS = """() => [...document.querySelectorAll(".span-name .row-link")]
    .map((each) => Math.floor(each.clientWidth / 6.5))"""
COUNT_LINES = """() => {
    const title = document.querySelector("#main h1");
    return Math.round(title.offsetHeight / parseFloat(getComputedStyle(title).lineHeight));
}"""


async def list_cut(tab: Tab, frame: str, parts: str) -> list[str]:
    cut: list[str] = await tab.page.evaluate(LIST_CUT, [frame, parts])
    return cut


async def test_titles_graphs_and_controls_fit_a_phone(browser: Browser, mesh: PageMesh) -> None:
    name = "SendStreamingMessage"
    trace_id = store_trace(mesh, 1101, [StoredSpan(1, name)])
    task = await mesh.ask("teacher", "internationalisation of localisations", "operator")
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR, size=PHONE) as tab:
        page = tab.page
        await tab.go("mesh")
        await expect(page.get_by_role("button", name="teacher, agent")).to_be_visible()
        await tab.keep_screenshot("layout-mesh-360")
        # Names can be read at first, and the button shows all.
        heights = await page.evaluate(LIST_HEIGHTS, ".graph-canvas .node-label")
        assert min(heights) >= 9
        await page.get_by_role("button", name="Fit the graph").click()
        assert await list_cut(tab, ".graph-canvas", ".graph-canvas .node rect") == []

        await tab.go(f"traces/{trace_id}")
        await tab.keep_screenshot("layout-trace-360")
        assert await page.evaluate(COUNT_LINES) == 1

        await tab.go(f"tasks/{task['id']}")
        await tab.keep_screenshot("layout-task-360")
        assert await page.evaluate(COUNT_LINES) <= 2

        await tab.go("workflows/flow?tab=versions")
        await expect(page.get_by_role("heading", name="Difference")).to_be_visible()
        await page.get_by_role("heading", name="Difference").scroll_into_view_if_needed()
        await tab.keep_screenshot("layout-versions-360")
        head = ".panel-head:has(select)"
        assert await page.evaluate(LIST_OVERLAPS, f"{head} h2, {head} label, {head} select") == []
        assert await list_cut(tab, head, f"{head} > *") == []
        assert not await tab.is_wider_than_the_screen()


async def test_names_of_deep_spans_are_read_on_a_phone(browser: Browser, mesh: PageMesh) -> None:
    names = "a span with a long name"
    spans = [StoredSpan(each, names, parent=each - 1) for each in range(1, 15)]
    trace_id = store_trace(mesh, 1102, spans)
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR, size=PHONE) as tab:
        await tab.go(f"traces/{trace_id}")
        await expect(tab.page.get_by_role("link", name=names).first).to_be_visible()
        await tab.keep_screenshot("layout-deep-trace-360")
        letters = await tab.page.evaluate(COUNT_LETTERS)
        assert len(letters) > 10
        assert min(letters) >= 12
        assert not await tab.is_wider_than_the_screen()


async def test_messages_of_a_room_that_are_cut_on_a_phone_say_so(
    browser: Browser, mesh: PageMesh
) -> None:
    long_type = "a_type_of_messages_with_a_long_name_" * 3
    messages: list[tuple[str, str, dict[str, object]]] = [
        ("words", "quiet", {"text": "a message of many words " * 20}),
        ("words", "quiet", {"text": "word" * 100}),
        ("words", "quiet", {"data": {"proposal": "x" * 200, "context": "y" * 200}}),
        ("words", "quiet", {"text": "see https://editors.example/" + "chapter/" * 40}),
        ("words", long_type, {"text": "short"}),
        ("a-room-with-a-name-as-long-as-names-of-rooms-may-be", "quiet", {"text": "short"}),
    ]
    client, headers = mesh.bridged.client, mesh.at("operator").headers
    for room, type_, content in messages:
        for path, body in (
            (f"/rooms/{room}:join", {"member": "teacher"}),
            ("", {"recipient": f"room:{room}", "type": type_, **content}),
        ):
            url = f"{mesh.bridged.url}/messages{path}"
            answer = await client.post(url, json=body, headers=headers)
            assert answer.status_code == 200, answer.text
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR, size=PHONE) as tab:
        for room, type_, _ in messages[-2:]:
            await tab.go(f"messages?tab=rooms&room={room}")
            await expect(tab.page.locator(".room-messages")).to_contain_text(type_)
            await tab.keep_screenshot(f"layout-room-{room}-360")
            assert await tab.page.evaluate(LIST_CUT_TEXTS, ".room-split") == [], room
            assert not await tab.is_wider_than_the_screen(), room


async def test_all_tabs_of_a_task_are_seen(browser: Browser, mesh: PageMesh) -> None:
    task = await mesh.ask("apples", "order 5 apples", "operator")
    # Where they don't fit in a line, so that some would be cut if they didn't wrap.
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR, size=PHONE) as tab:
        page = tab.page
        await tab.go(f"tasks/{task['id']}?tab=plan")
        tabs = page.get_by_role("tablist", name="State of the task")
        await expect(tabs.get_by_role("tab", name="Approvals")).to_be_visible()
        await tab.keep_screenshot("layout-task-tabs-360")
        assert await list_cut(tab, ".tab-list", ".tab-list button") == []
        boxes = [await each.bounding_box() for each in await tabs.get_by_role("tab").all()]
        assert len({box["y"] for box in boxes if box}) > 1
