"""The graph of the mesh: hosts around their agents, and what is chosen in it."""

import re

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from harness.a2a.page_mesh import PageMesh
from harness.a2a.shown_mesh import make_edge, make_host, show_mesh
from harness.browser import Tab, Theme, open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPERATOR = "key-of-operator"

# The focused element is whole in the frame of its graph and in the window.
IS_WHOLE = """() => {
    const box = document.activeElement.getBoundingClientRect();
    const frame = document.querySelector(".graph-canvas").getBoundingClientRect();
    return box.left >= Math.max(0, frame.left) && box.right <= Math.min(innerWidth, frame.right)
        && box.top >= Math.max(0, frame.top) && box.bottom <= Math.min(innerHeight, frame.bottom);
}"""


def node_of(page: Page, name: str) -> Locator:
    graph = page.get_by_role("group", name="Graph of the mesh")
    return graph.get_by_role("button", name=name, exact=True)


async def box_of(element: Locator) -> tuple[float, float, float, float]:
    box = await element.bounding_box()
    assert box is not None
    return box["x"], box["y"], box["x"] + box["width"], box["y"] + box["height"]


async def list_framed(tab: Tab, frame: Locator, agents: list[str]) -> list[str]:
    """Return the agents that a frame holds a part of."""
    left, top, right, bottom = await box_of(frame)
    found = []
    for agent in agents:
        box = await box_of(node_of(tab.page, f"{agent}, agent"))
        if box[0] < right and box[2] > left and box[1] < bottom and box[3] > top:
            # Not only a part of it.
            assert left <= box[0] <= box[2] <= right, agent
            assert top <= box[1] <= box[3] <= bottom, agent
            found.append(agent)
    return found


WIDE, PHONE = (1440, 900), (360, 740)


# Colours do not depend on the size, nor sizes on the theme. The browser draws each mesh once.
@pytest.mark.parametrize(
    ("hosts", "calls", "size", "theme"),
    [
        # Their agents are called by none, by some and by all of the others.
        ({"single": 5}, [], PHONE, "light"),
        ({"single": 5}, [(0, 1), (0, 2), (0, 4)], WIDE, "dark"),
        ({"first": 4, "second": 4, "third": 4}, [(0, each) for each in range(1, 12)], WIDE, "dark"),
        ({"first": 2, "second": 9, "third": 1}, [(0, 2), (2, 1), (1, 11), (5, 6)], PHONE, "light"),
    ],
)
async def test_a_host_is_a_frame_around_its_agents(
    browser: Browser,
    mesh: PageMesh,
    hosts: dict[str, int],
    calls: list[tuple[int, int]],
    size: tuple[int, int],
    theme: Theme,
) -> None:
    agents = [f"agent-{number}" for number in range(sum(hosts.values()))]
    rest, by_host = iter(agents), {}
    for host, count in hosts.items():
        by_host[host] = [next(rest) for _ in range(count)]
    edges = [make_edge(agents[source], agents[target]) for source, target in calls]
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR, size=size, theme=theme) as tab:
        await show_mesh(tab, [make_host(name, some) for name, some in by_host.items()], edges)
        frames = tab.page.locator(".host-area")
        await expect(frames).to_have_count(len(hosts))
        await tab.keep_screenshot(f"mesh-hosts-{len(hosts)}-{len(calls)}-{size[0]}-{theme}")
        for number, (host, some) in enumerate(by_host.items()):
            assert await list_framed(tab, frames.nth(number), agents) == some
            await expect(node_of(tab.page, f"{host}, host")).to_have_count(1)
        assert await tab.find_barriers() == []


async def test_a_host_shows_its_health_and_which_agents_it_serves(
    browser: Browser, mesh: PageMesh
) -> None:
    hosts = [
        make_host("first", ["one", "two"]),
        # A host, and an agent of another one, may have the same name.
        make_host("two", ["three"], state="unreachable"),
        make_host("idle", []),
    ]
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        page = tab.page
        await show_mesh(tab, hosts, [make_edge("one", "three")])
        lost = node_of(page, "two, host, unreachable")
        await expect(lost).to_contain_text("unreachable")
        await expect(page.locator(".page-header")).to_contain_text("1 host unreachable")
        await expect(page.locator(".page-header")).not_to_contain_text("tool server")
        await node_of(page, "first, host").focus()
        await page.keyboard.press("Enter")
        details = page.locator(".node-details")
        await expect(details).to_contain_text("Serves one, two")
        await expect(details).to_contain_text("first.test:50051")
        await expect(page.locator(".node.related")).to_have_text(["one agent", "two agent"])
        await node_of(page, "idle, host").click()
        await expect(details).to_contain_text("Serves no agents")
        assert await tab.find_barriers() == []


async def test_long_names_are_cut_and_read_out_in_full(browser: Browser, mesh: PageMesh) -> None:
    agent = "the-translator-of-all-languages"
    with_agent = "services.of.agents@192.0.2.1:50051"
    without = "services.without.agents@192.0.2.2:50051"
    hosts = [make_host(with_agent, [agent]), make_host(without, [])]
    rooms = {"drafts-of-the-editors-of-books": [agent]}
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        await show_mesh(tab, hosts, [make_edge(agent, "a-model-with-a-long-name", "model")], rooms)
        graph = tab.page.get_by_role("group", name="Graph of the mesh")
        for name in (agent, with_agent, without, *rooms, "a-model-with-a-long-name"):
            await expect(graph.get_by_role("button", name=name)).to_contain_text(f"{name[:21]}…")
        assert await tab.find_barriers() == []


async def test_rooms_have_lines_to_members_and_edges_of_their_messages(
    browser: Browser, mesh: PageMesh
) -> None:
    agents = ["writer", "critic", "reader", "drafts"]
    # An agent and a room may have the same name. Of others, only messages are known.
    rooms = {"drafts": ["writer", "critic", "user:ann"], "quiet": ["reader", "gone"], "empty": []}
    edges = [
        make_edge("client", "room:drafts", "message", ratePerS=2, p95Ms=3),
        make_edge("room:drafts", "writer", "message", ratePerS=1.5, p95Ms=40, errorRatio=0.5),
        make_edge("reader", "room:unlisted", "message", p95Ms=70),
    ]
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        page = tab.page
        await show_mesh(tab, [make_host("first", agents)], edges, rooms)
        # The messages to `writer` show its membership.
        await expect(page.locator(".member-line")).to_have_count(2)
        labels = page.locator("text.edge-label")
        for text in ("2.00/s · 3.00 ms", "1.50/s · 40.0 ms · 50%", "0.50/s · 70.0 ms"):
            await expect(labels.filter(has_text=text)).to_have_count(1)
        for name in ("drafts, room", "quiet, room", "empty, room", "unlisted, room"):
            await expect(node_of(page, name)).to_have_count(1)
        await tab.keep_screenshot("mesh-rooms")
        await node_of(page, "drafts, room").click()
        await expect(page.locator(".node.related")).to_have_text(["writer agent", "critic agent"])
        details = page.locator(".node-details")
        await expect(details).to_contain_text("Members: writer, critic, user:ann")
        await details.get_by_role("link", name="Its messages").click()
        await expect(page).to_have_url(re.compile("tab=rooms&room=drafts"))


async def test_members_of_large_rooms_are_marked_without_lines(
    browser: Browser, mesh: PageMesh
) -> None:
    agents = [f"agent-{number}" for number in range(40)]
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        await show_mesh(tab, [make_host("first", agents)], rooms={"all-of-us": agents})
        await node_of(tab.page, "all-of-us, room").click()
        await expect(tab.page.locator(".node.related")).to_have_count(40)
        await expect(tab.page.locator(".member-line")).to_have_count(0)


async def test_a_node_that_has_the_focus_is_in_the_frame(browser: Browser, mesh: PageMesh) -> None:
    agents = [f"agent-{number}" for number in range(12)]
    hosts = [make_host(f"host-{part}", agents[part * 4 : part * 4 + 4]) for part in range(3)]
    edges = [make_edge(agents[number - 1], agents[number]) for number in range(1, 12)]
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR, size=PHONE) as tab:
        page = tab.page
        await show_mesh(tab, hosts, edges, {"drafts": agents[:2]})
        graph = page.get_by_role("group", name="Graph of the mesh")
        for _ in range(3):
            await page.get_by_role("button", name="Zoom in").click()
        await graph.focus()
        seen: set[str] = set()
        for key in ("Tab", "Shift+Tab"):
            for _ in range(await graph.locator(".node").count()):
                await page.keyboard.press(key)
                focused = graph.locator(".node:focus")
                if not await focused.count():
                    break
                await page.wait_for_function(IS_WHOLE)
                seen.add(str(await focused.get_attribute("aria-label")))
        await tab.keep_screenshot("mesh-focus-360")
    assert len(seen) == len(agents) + len(hosts) + 1


async def test_a_graph_of_many_agents_has_no_frames(browser: Browser, mesh: PageMesh) -> None:
    agents = [f"agent-{number}" for number in range(60)]
    hosts = [make_host(f"host-{part}", agents[part * 10 : part * 10 + 10]) for part in range(6)]
    edges = [make_edge(agents[0], agents[number]) for number in range(7, 60, 7)]
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        await show_mesh(tab, hosts, edges)
        await node_of(tab.page, "host-3, host").click()
        await expect(tab.page.locator(".node.related")).to_have_count(10)
        await expect(tab.page.locator(".host-area")).to_have_count(0)
        await tab.keep_screenshot("mesh-hosts-many")
        await expect(tab.page.locator(".node-details")).to_contain_text("agent-30, agent-31")
