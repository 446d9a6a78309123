"""Traces in Chromium: what is missing, what they cost, links to their tasks, and two compared."""

import re

import pytest
from playwright.async_api import Browser, expect

from harness.a2a.page_mesh import PageMesh
from harness.a2a.page_spans import StoredSpan, store_trace
from harness.browser import open_tab
from trunkline.observe import telemetry

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPERATOR = "key-of-operator"
KEY = "key-of-ann"


def chat(number: int, *, cost_micros: int, start_ms: int, end_ms: int) -> StoredSpan:
    attributes: dict[str, str | int | bool] = {
        telemetry.GEN_AI_OPERATION_NAME: telemetry.CHAT,
        telemetry.GEN_AI_USAGE_INPUT_TOKENS: 100,
        telemetry.GEN_AI_USAGE_OUTPUT_TOKENS: 20,
        telemetry.MODEL_COST_MICROS: cost_micros,
    }
    return StoredSpan(number, "chat model", 1, start_ms, end_ms, attributes=attributes)


async def test_the_cost_of_a_trace_is_that_of_its_spans(browser: Browser, mesh: PageMesh) -> None:
    spans = [
        StoredSpan(1, "invoke_agent teacher"),
        chat(2, cost_micros=2_500_000, start_ms=0, end_ms=40),
        chat(3, cost_micros=1_250_000, start_ms=40, end_ms=90),
    ]
    trace_id = store_trace(mesh, 1001, spans)
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR, size=(1600, 900)) as tab:
        page = tab.page
        await tab.go(f"traces/{trace_id}")
        facts = page.locator("dl.facts").first
        await expect(facts).to_contain_text("Cost$3.75")
        await expect(facts).to_contain_text("Tokens in, out200, 40")
        await page.get_by_role("link", name="chat model").first.click()
        await expect(page.locator(".span-details")).to_contain_text("Cost$2.50")
        await page.get_by_role("tab", name="Operations").click()
        await expect(page.get_by_role("row", name="chat model")).to_contain_text("$3.75")
        assert await tab.find_barriers() == []
        await tab.keep_screenshot("trace-cost-1600")


async def test_the_waterfall_has_the_rows_and_the_critical_path_of_the_command(
    browser: Browser, mesh: PageMesh
) -> None:
    spans = [
        StoredSpan(1, "invoke_agent teacher"),
        StoredSpan(2, "execute_tool slow", 1, start_ms=10, end_ms=90),
        StoredSpan(3, "execute_tool beside", 1, start_ms=10, end_ms=30),
        StoredSpan(
            4,
            "tools/call slow",
            2,
            start_ms=12,
            end_ms=80,
            attributes={"rpc.status_code": "NOT_FOUND"},
        ),
        StoredSpan(5, "execute_tool open", 1, start_ms=95, end_ms=None),
    ]
    trace_id = store_trace(mesh, 1006, spans)
    # tests/integration/cli/test_traces.py holds the API to the command.
    rows = (await mesh.at("operator").read(f"/traces/{trace_id}"))["spans"]
    assert {row["name"] for row in rows if not row["isCritical"]} == {"execute_tool beside"}
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        await tab.go(f"traces/{trace_id}")
        shown = tab.page.get_by_role("table", name="Spans").locator(".row-link")
        await expect(shown).to_have_text([row["name"] for row in rows])
        refused = tab.page.locator(".span-name").filter(has_text="tools/call slow")
        await expect(refused).to_contain_text("NOT_FOUND")
        bars = tab.page.locator(".bar")
        for index, row in enumerate(rows):
            on_path = re.compile("on the critical path")
            described = expect(bars.nth(index))
            if row["isCritical"]:
                await described.to_have_attribute("aria-label", on_path)
            else:
                await described.not_to_have_attribute("aria-label", on_path)


async def test_a_trace_says_which_spans_are_missing_and_grows_live(
    browser: Browser, mesh: PageMesh
) -> None:
    root = StoredSpan(1, "invoke_agent supervisor")
    trace_id = store_trace(mesh, 1002, [root])
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        page = tab.page
        await tab.go(f"traces/{trace_id}")
        spans = page.get_by_role("table", name="Spans")
        await expect(page.locator(".page-header")).to_contain_text("Ended")
        await expect(page.get_by_text("incomplete")).to_have_count(0)
        # Its parent 9 was never exported, and another one never ended.
        below = StoredSpan(10, "execute_tool search", 9, start_ms=10, end_ms=60)
        cut = StoredSpan(11, "invoke_agent killed", 1, start_ms=20, end_ms=None)
        store_trace(mesh, 1002, [below, cut])
        await expect(page.locator(".page-header")).to_contain_text("incomplete")
        await expect(page.locator(".page-header")).to_contain_text("Live")
        await expect(page.locator(".notice")).to_contain_text("1 span of this trace was lost")
        lost = spans.get_by_role("row", name="lost span")
        await expect(lost).to_contain_text("lost")
        await expect(spans.get_by_role("row", name="invoke_agent killed")).to_contain_text("open")
        await lost.get_by_role("link").click()
        await expect(page.locator(".span-details")).to_contain_text("lost with its process")
        assert await tab.find_barriers() == []
        await tab.keep_screenshot("trace-incomplete-1440")


@pytest.mark.parametrize(
    ("agent", "number", "end_ms", "word"),
    [
        ("teacher", 1011, 100, "Ended"),
        # A span is open, or is still to come: the task runs.
        ("teacher", 1012, None, "Live"),
        ("gate", 1013, 100, "Live"),
    ],
)
async def test_a_trace_ends_with_its_spans_and_its_task(
    browser: Browser, mesh: PageMesh, agent: str, number: int, end_ms: int | None, word: str
) -> None:
    task = await mesh.ask(agent, "wait: for its trace", "operator", now=agent == "gate")
    of_task = {"trunkline.task.id": str(task["id"])}
    inner = StoredSpan(2, "inner", 1, end_ms=end_ms)
    trace_id = store_trace(mesh, number, [StoredSpan(1, "root", attributes=of_task), inner])
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        await tab.go(f"traces/{trace_id}")
        await expect(tab.page.locator(".page-header").get_by_role("status")).to_have_text(word)


async def test_a_task_and_its_chat_wire_trace_and_spans_lead_to_each_other(
    browser: Browser, mesh: PageMesh
) -> None:
    task = await mesh.ask("teacher", "linked everywhere")
    work = {telemetry.TASK_ID: task["id"]}
    store_trace(mesh, 1003, [StoredSpan(1, "invoke_agent teacher", attributes=work)])
    async with open_tab(browser, mesh.bridged.url, key=KEY) as tab:
        page = tab.page
        await tab.go(f"tasks/{task['id']}")
        links = page.get_by_role("navigation", name="Views of the task")
        heading = page.get_by_role("heading", level=1)

        await links.get_by_role("link", name="Chat").click()
        await expect(page.get_by_role("log", name="Messages")).to_contain_text("linked everywhere")
        await page.get_by_role("link", name=task["id"][-8:]).click()
        await expect(heading).to_have_text("linked everywhere")

        await links.get_by_role("link", name="Wire").click()
        await expect(page.get_by_role("table", name="Frames")).to_be_visible()
        await links.get_by_role("link", name="Chat").click()
        await expect(page).to_have_url(re.compile(f"chat\\?.*task={task['id']}"))
        await page.locator(".chat-foot").get_by_role("link", name="Wire").click()
        await links.get_by_role("link", name="Task").click()
        await expect(heading).to_have_text("linked everywhere")

        await links.get_by_role("link", name="Trace").click()
        await page.get_by_role("link", name="invoke_agent teacher").click()
        await page.locator(".span-details").get_by_role("link", name=task["id"][-8:]).click()
        await expect(heading).to_have_text("linked everywhere")
        await links.get_by_role("link", name="Trace").click()
        await links.get_by_role("link", name="Wire").click()
        await expect(page).to_have_url(re.compile(f"wire\\?task={task['id']}"))


async def test_two_traces_are_compared_by_operation(browser: Browser, mesh: PageMesh) -> None:
    before = [
        StoredSpan(1, "invoke_agent teacher", end_ms=100),
        StoredSpan(2, "execute_tool search", 1, start_ms=10, end_ms=90),
    ]
    after = [
        StoredSpan(1, "invoke_agent teacher", end_ms=300),
        StoredSpan(2, "execute_tool search", 1, start_ms=10, end_ms=40, is_error=True),
        StoredSpan(3, "execute_tool fetch", 1, start_ms=40, end_ms=290),
    ]
    first, second = store_trace(mesh, 1004, before), store_trace(mesh, 1005, after)
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        page = tab.page
        await tab.go("traces")
        for trace_id in (first, second):
            row = page.get_by_role("row").filter(has=page.locator(f"a[href*='{trace_id}']"))
            await row.get_by_role("checkbox").check()
        await page.get_by_role("button", name="Compare").click()
        table = page.get_by_role("table", name="Operations of both")
        rows = table.get_by_role("row")
        await expect(rows.nth(1)).to_contain_text(re.compile("fetch.*0, 1.*250.*\\+250"))
        await expect(rows.filter(has_text="search")).to_contain_text(
            re.compile("80.*30.*\N{MINUS SIGN}50")
        )
        await expect(rows.filter(has_text="search")).to_contain_text("0, 1")
        assert await tab.find_barriers() == []
        await tab.keep_screenshot("traces-compared-1440")
        await page.get_by_role("button", name="Swap").click()
        await expect(rows.nth(1)).to_contain_text(re.compile("fetch.*1, 0.*\N{MINUS SIGN}250"))
        await page.get_by_role("heading", name=re.compile("^A: ")).get_by_role("link").click()
        await expect(page.get_by_role("table", name="Spans")).to_contain_text("execute_tool fetch")
