"""Every view by keyboard, to a screen reader, and on a 4k screen."""

from dataclasses import dataclass

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from harness.a2a.page_mesh import PageMesh
from harness.a2a.page_spans import StoredSpan, store_trace
from harness.browser import Tab, open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPERATOR = "key-of-operator"
# More stops than any view of this test has.
MOST_STOPS = 150
# Describes the focused element. It must be seen, have a name, and show that it has the focus.
DESCRIBE_FOCUS = """() => {
    const element = document.activeElement;
    if (!element || element === document.body) return null;
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    // Nodes of a graph have a thicker frame. The field of the chat is framed with its buttons.
    const isFramed = (shape) => getComputedStyle(shape).strokeWidth === "2.5px";
    const label = element.labels?.[0]?.textContent ?? "";
    const text = element.textContent || element.title || label;
    const name = element.getAttribute("aria-label") || text;
    const isNew = !window.__stops.has(element);
    window.__stops.add(element);
    return {
        isNew,
        text: `${element.tagName.toLowerCase()} ${name.trim().replace(/\\s+/g, " ").slice(0, 60)}`,
        isNamed: name.trim() !== "",
        isSeen: box.width > 0 && box.height > 0 && box.bottom > 0 && box.top < innerHeight
            && box.right > 0 && box.left < innerWidth,
        isMarked: style.outlineStyle !== "none" || style.boxShadow !== "none"
            || [...element.querySelectorAll("rect, path")].some(isFramed)
            || getComputedStyle(element.closest("form") ?? element).outlineStyle !== "none",
    };
}"""
# What can be focused and used, and was not reached.
LIST_MISSED = """() => [...document.querySelectorAll(
        'a[href], button, input, select, textarea, summary, [tabindex="0"]')]
    .filter((each) => !each.disabled && each.tabIndex >= 0 && each.checkVisibility()
        && !window.__stops.has(each))
    .map((each) => each.outerHTML.slice(0, 120))"""
# Texts of several lines that are too wide to find the next line. Notices that something loads are
# none of them, and come at any time.
LIST_WIDE_TEXTS = """() => [...document.querySelectorAll("#main *")].filter((each) => {
        const isText = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (!isText || !each.checkVisibility()) return false;
        if (each.closest("pre, textarea, svg, .loading")) return false;
        const size = parseFloat(getComputedStyle(each).fontSize);
        const box = each.getBoundingClientRect();
        return box.height > 2.5 * size && box.width > 90 * size;
    })
    .map((each) => `${each.className} ${each.textContent.slice(0, 60)}`)"""

SNAPSHOTS = {
    "mesh": """
      - heading "Mesh" [level=1]
      - status: Live
      - tablist "Parts of the mesh":
        - tab "Graph" [selected]
        - tab /Agents \\d+/
        - tab /Calls \\d+/
        - tab /Tool servers \\d+/
        - tab /Hosts \\d+/
      - tabpanel "Graph":
        - group /Graph of the mesh/:
          - img:
            - button "teacher, agent"
            - button "flow, workflow"
          - button "Zoom in"
          - button "Zoom out"
          - button "Fit the graph"
    """,
    "chat": """
      - heading "Chat" [level=1]
      - combobox "Agent"
      - region "Conversation":
        - log "Messages":
          - article "Exchange":
            - button "What happened"
            - button "Copy the answer"
      - form "Message":
        - textbox "Your message"
        - button "Attach files"
        - button "Send" [disabled]
      - paragraph:
        - link "Trace"
        - link "Wire"
    """,
    "tasks": """
      - heading "Tasks" [level=1]
      - search "Tasks":
        - searchbox "Search text or id"
        - combobox "State"
        - combobox "Agent"
        - combobox "Created"
        - status: /\\d+ tasks?/
      - table "Tasks":
        - rowgroup:
          - row "State Request Agent Task Took Created"
        - rowgroup:
          - row /completed read me aloud teacher/
    """,
    "task": """
      - link "Tasks"
      - heading "read me aloud" [level=1]
      - navigation "Views of the task"
      - group "Time travel":
        - button "One event back"
        - slider "Sequence of the journal"
      - searchbox "Find an event by its text or sequence"
      - table "Events of the task":
        - rowgroup:
          - row "After Event Sequence"
        - rowgroup:
          - row /Task created for teacher read me aloud 1/
      - tablist "State of the task":
        - tab "Artifacts 1" [selected]
        - tab "JSON"
      - tabpanel "Artifacts 1":
        - article:
          - heading "artifact-1" [level=3]
    """,
    "traces": """
      - heading "Traces" [level=1]
      - search "Traces":
        - searchbox "Search name, trace or task"
        - button "With errors"
      - table "Traces":
        - rowgroup:
          - row "Compare Root Service Agent Duration Spans Errors Tasks Trace Started"
        - rowgroup:
          - row:
            - cell:
              - checkbox "Compare read aloud"
    """,
    "trace": """
      - heading "read aloud" [level=1]
      - button "Copy the spans as JSON"
      - tablist "Views of the trace":
        - tab "Waterfall 2" [selected]
        - tab "Operations"
      - tabpanel "Waterfall 2":
        - searchbox "Find a span"
        - table "Spans":
          - rowgroup:
            - row "Span Service Time Duration"
          - rowgroup:
            - row:
              - cell:
                - button "1 span below read aloud" [expanded]
                - link "read aloud"
            - row:
              - cell:
                - link "inner"
              - cell:
                - img "40.0 ms, starts after 10.0 ms, 40.0 ms on the critical path"
    """,
    "workflow": """
      - link "Workflows"
      - heading "flow" [level=1]
      - button "Start"
      - tablist "Parts of the workflow"
      - tabpanel "Graph":
        - group /Graph of flow, version \\d. The list below says the same./:
          - img:
            - button "first, agent · gate"
            - button "end, end"
        - group: Nodes and edges as a list
    """,
    "run": """
      - link "Runs of flow"
      - heading "aloud" [level=1]
      - group /Path of the run through the graph/:
        - img:
          - button "first, agent · gate, visited"
      - table "Steps of the run":
        - rowgroup:
          - row "Node State Way on Result Took"
        - rowgroup:
          - row /first done ok/
    """,
    "messages": """
      - heading "Messages" [level=1]
      - button "Send a message"
      - tablist "Messages"
      - tabpanel "All":
        - search "Messages":
          - searchbox "Type"
          - combobox "From or to"
    """,
    "rooms": """
      - heading "Messages" [level=1]
      - tablist "Messages":
        - tab "Rooms" [selected]
      - tabpanel "Rooms":
        - heading "Rooms" [level=2]
        - textbox "Name of a room to join"
    """,
    "wire": """
      - heading "Wire" [level=1]
      - textbox "Task"
      - tablist "Wire":
        - tab "Frames" [selected]
        - tab "Requests"
        - tab "Inspector"
      - tabpanel "Frames":
        - group "Columns":
          - button "Typed events" [pressed]
        - table "Frames":
          - row "Typed events A2A 1.0 A2A 0.3 A2A original"
          - row:
            - cell:
              - button "Copy JSON of created 1"
    """,
    "inspector": """
      - tabpanel "Inspector":
        - form "Inspector":
          - textbox "URL of the agent or of its card"
          - combobox "Do"
          - combobox "Binding"
          - combobox "Version"
          - textbox "Headers (optional)"
          - button "Inspect" [disabled]
    """,
    "approvals": """
      - heading "Approvals" [level=1]
      - combobox "Agent"
      - status: /\\d+ calls? to decide/
      - heading "apples/order" [level=2]
      - textbox "Arguments"
      - textbox "Reason (optional)"
      - button "Approve"
      - button "Reject"
    """,
    "webhooks": """
      - heading "Webhooks" [level=1]
      - search "Webhooks":
        - combobox "State"
    """,
    "audit": """
      - heading "Audit" [level=1]
      - search "Audit log":
        - searchbox "Account"
        - combobox "Action"
        - combobox "Outcome"
        - combobox "Time"
      - table "Audit log":
        - rowgroup:
          - row "Time Action Outcome Who Account On"
    """,
}


@dataclass(frozen=True, slots=True)
class Views:
    """The paths of views with content, by their names in `SNAPSHOTS`."""

    mesh: PageMesh
    paths: dict[str, str]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def views(mesh: PageMesh) -> Views:
    task = await mesh.ask("teacher", "read me aloud", "operator")
    run = await mesh.ask("flow", "aloud", "operator")
    await mesh.ask("apples", "order 3 apples", "operator")
    spans = [StoredSpan(1, "read aloud"), StoredSpan(2, "inner", 1, 10, 50)]
    trace_id = store_trace(mesh, 2001, spans)
    paths = {
        "chat": f"chat?agent=teacher&task={task['id']}",
        "task": f"tasks/{task['id']}",
        "trace": f"traces/{trace_id}",
        "workflow": "workflows/flow",
        "run": f"workflows/flow/runs/{run['id']}",
        "rooms": "messages?tab=rooms",
        "wire": f"wire?task={task['id']}",
        "inspector": "wire?tab=inspector",
    }
    return Views(mesh, {name: paths.get(name, name) for name in SNAPSHOTS})


async def test_a_screen_reader_and_the_tab_key_reach_all_in_each_view(
    browser: Browser, views: Views
) -> None:
    async with open_tab(browser, views.mesh.bridged.url, key=OPERATOR) as tab:
        page = tab.page
        for name, path in views.paths.items():
            await tab.go(path)
            await expect(page.get_by_role("heading", level=1)).to_have_count(1)
            main = page.get_by_role("main")
            await expect(main).to_match_aria_snapshot(f"- main:{SNAPSHOTS[name]}")
            assert await tab.find_barriers() == [], path
            stops = await walk(tab)
            assert stops[0] == "a Skip to content", path
            assert await tab.page.evaluate(LIST_MISSED) == [], path


async def walk(tab: Tab) -> list[str]:
    """Press Tab from the begin of the page to its end; return what had the focus."""
    stops: list[str] = []
    await tab.page.evaluate("window.__stops = new Set()")
    # Some views put the focus into their field.
    await tab.page.locator(".skip-link").focus()
    for number in range(MOST_STOPS):
        if number:
            await tab.page.keyboard.press("Tab")
        focus = await tab.page.evaluate(DESCRIBE_FOCUS)
        if focus is None or not focus["isNew"]:
            return stops
        assert focus["isNamed"], focus
        assert focus["isSeen"], focus
        assert focus["isMarked"], focus
        stops.append(focus["text"])
    raise AssertionError(f"the focus does not leave: {stops}")


async def test_every_view_fits_a_4k_screen(browser: Browser, views: Views) -> None:
    long = await views.mesh.ask("teacher", "a long text " * 100, "operator")
    paths = {**views.paths, "task": f"tasks/{long['id']}"}
    async with open_tab(browser, views.mesh.bridged.url, key=OPERATOR, size=(3840, 2160)) as tab:
        for name, path in paths.items():
            await tab.go(path)
            assert not await tab.is_wider_than_the_screen(), path
            assert await tab.page.evaluate(LIST_WIDE_TEXTS) == [], path
            await tab.keep_screenshot(f"{name}-3840")
