"""Workflows in Chromium: forms of every kind of field, and nodes that wait or fail."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, expect

from harness.a2a.page_mesh import PageMesh, open_page_mesh
from harness.browser import open_tab
from harness.workflows.building import agent_node, build
from trunkline import TaskContext, agent, from_workflow

pytestmark = pytest.mark.asyncio(loop_scope="session")

PROPERTIES: dict[str, Any] = {
    "size": {"enum": ["small", "large", 3], "title": "Size"},
    "gift": {"type": "boolean", "description": "Wrapped"},
    "fast": {"type": "boolean", "default": True},
    "count": {"type": "integer"},
    "weight": {"type": "number"},
    "note": {"type": "string", "default": "none yet", "description": "For the shop"},
    "address": {"type": "object"},
    "tags": {"type": "array"},
    "anything": {},
}
FORM = build(
    "form",
    {"id": "end", "output": {"given": "${input}"}},
    edges="start > end",
    inputs={"type": "object", "required": ["size", "count", "address"], "properties": PROPERTIES},
)
DECISION = build(
    "decision",
    {"id": "sure", "type": "approval", "question": "Order it?", "arguments": {"n": 1}},
    agent_node("broken", "broken", "go"),
    edges="""
    start > sure
    sure > broken: approved
    sure > end: rejected
    broken > end
    """,
    inputs={"type": "object", "properties": {}},
)


@agent(name="broken", description="Fails.")
async def broken(_: TaskContext) -> str:
    raise RuntimeError("out of order")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def workflows(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageMesh]:
    folder = tmp_path_factory.mktemp("workflows")
    agents = (from_workflow(FORM), from_workflow(DECISION), broken)
    async with open_page_mesh(folder, *agents, api_keys_file=None) as opened:
        yield opened


def problem_of(dialog: Locator, label: str) -> Locator:
    """Return the text below a field that says what is wrong."""
    field = dialog.locator(".field", has=dialog.page.get_by_label(label)).locator("..")
    return field.get_by_role("alert")


async def test_a_form_has_a_field_of_each_kind_and_says_what_is_wrong(
    browser: Browser, workflows: PageMesh
) -> None:
    async with open_tab(browser, workflows.bridged.url) as tab:
        page = tab.page
        await tab.go("workflows/form")
        await page.get_by_role("button", name="Start", exact=True).click()
        dialog = page.get_by_role("dialog", name="Start form")
        start = dialog.get_by_role("button", name="Start", exact=True)
        await expect(dialog.get_by_label("note (optional)")).to_have_value("none yet")
        await expect(dialog.get_by_role("checkbox", name="fast")).to_be_checked()
        await expect(dialog.get_by_role("checkbox", name="gift Wrapped")).not_to_be_checked()

        wrong = {
            "count": "1.5",
            "weight (optional)": "heavy",
            "address": "{",
            "tags (optional)": "x",
        }
        for label, text in wrong.items():
            await dialog.get_by_label(label).fill(text)
        await start.click()
        expected = {
            "Size": "This is needed.",
            "count": "This must be a whole number.",
            "weight (optional)": "This must be a number.",
            "address": "This must be JSON",
            "tags (optional)": "This must be JSON",
        }
        for label, problem in expected.items():
            await expect(problem_of(dialog, label)).to_contain_text(problem)
            await expect(dialog.get_by_label(label)).to_have_attribute("aria-invalid", "true")
        await tab.keep_screenshot("workflow-form-problems")
        assert await tab.find_barriers() == []

        await dialog.get_by_label("Size").select_option("3")
        right = {"count": "2", "weight (optional)": "0.5", "tags (optional)": '["a", 1]'}
        for label, text in right.items():
            await dialog.get_by_label(label).fill(text)
        await dialog.get_by_label("address").fill('"no object"')
        await start.click()
        await expect(dialog.get_by_role("alert")).to_have_text("This must be an object.")

        await dialog.get_by_label("address").fill('{"city": "Basel"}')
        await dialog.get_by_label("anything (optional)").fill("as typed")
        await dialog.get_by_label("note (optional)").fill("")
        await dialog.get_by_role("checkbox", name="fast").uncheck()
        await dialog.get_by_role("checkbox", name="gift Wrapped").check()
        await start.click()
        await expect(page.locator(".page-header")).to_contain_text("completed")
        run = page.url.rpartition("/")[2]
    task = (await workflows.at("").read(f"/tasks/{run}"))["task"]["task"]
    assert task["history"][0]["parts"][0]["data"] == {
        "size": 3,
        "gift": True,
        "fast": False,
        "count": 2,
        "weight": 0.5,
        "address": {"city": "Basel"},
        "tags": ["a", 1],
        "anything": "as typed",
    }


async def test_nodes_that_wait_and_fail_are_marked_in_the_graph_of_a_run(
    browser: Browser, workflows: PageMesh
) -> None:
    async with open_tab(browser, workflows.bridged.url) as tab:
        page = tab.page
        await tab.go("workflows/decision")
        await page.get_by_role("button", name="Start", exact=True).click()
        dialog = page.get_by_role("dialog", name="Start decision")
        await expect(dialog).to_contain_text("It takes no input.")
        await dialog.get_by_role("button", name="Start", exact=True).click()
        await expect(page.get_by_role("button", name="sure, approval, waiting")).to_be_visible()
        steps = page.get_by_role("table", name="Steps of the run")
        await expect(steps.get_by_role("row", name="sure")).to_contain_text("waiting")
        await tab.keep_screenshot("workflow-run-waiting")
        assert await tab.find_barriers() == []

        await page.get_by_role("link", name="Review").click()
        await page.get_by_role("button", name="Approve").click()
        await page.go_back()
        await expect(page.get_by_role("button", name="sure, approval, visited")).to_be_visible()
        failed = page.get_by_role("button", name="broken, agent · broken, failed")
        await expect(failed).to_be_visible()
        await expect(page.get_by_role("button", name="end, end", exact=True)).to_be_visible()
        await expect(steps.get_by_role("row", name="broken")).to_contain_text("failed")
        await expect(page.locator(".page-header")).to_contain_text("failed")
        await failed.click()
        await expect(page.get_by_role("heading", name="Steps of broken")).to_be_visible()
        await expect(steps.get_by_role("row", name="sure")).to_have_count(0)
        await tab.keep_screenshot("workflow-run-failed")
        assert await tab.find_barriers() == []
