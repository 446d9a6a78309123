"""Chat in Chromium: answers continue after reloads, and callers see what they may not do."""

import asyncio
import re

import pytest
from playwright.async_api import Browser, Page, Route, expect

from harness.a2a.open_page import OpenPage
from harness.a2a.page_mesh import PageMesh
from harness.browser import Tab, open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

HOSTILE = """# Result

- **bold** and `code`
- <img src=x onerror="document.title='broken'">

[bad](javascript:alert(1)) https://example.com/a."""


# Renders long texts, and returns what some short ones show.
RENDER_LONG_TEXTS = """
async () => {
  const { Markdown } = await import("./assets/components/markdown.js");
  const { html, render } = await import("./assets/vendor/preact.js");
  const show = (text) => {
    const element = document.createElement("div");
    render(html`<${Markdown} text=${text} />`, element);
    return element.innerText.trim().replace(/\\s+/g, " ");
  };
  const blanks = " ".repeat(400_000);
  const ends = { "```": "`", "```a": "`", "# ": "x", "# a": "x", "- ": "x\\r" };
  Object.assign(ends, { "a|b\\n": "x", "a|b\\n---": "x" });
  for (const [begin, end] of Object.entries(ends)) show(begin + blanks + end);
  for (const mark of ["~", "`", "#", "*", "_", "[", "|", "- ", "> ", "\\n"]) {
    show(mark.repeat(20_000));
    show(mark.repeat(20_000) + "`x");
    show("# " + mark.repeat(20_000) + "x");
  }
  const table = "|a|b|\\n|:-|-:|\\n|1|2|";
  return ["# Title x # x ##", "## C##", "```py x\\ncode\\n```", "# ##", table].map(show);
}
"""


async def ask(tab: Tab, agent: str, text: str) -> None:
    await tab.go(f"chat?agent={agent}")
    await tab.page.get_by_placeholder(f"Message to {agent}").fill(text)
    await tab.page.keyboard.press("Enter")


def answer(page: Page) -> object:
    return page.locator(".answer").last


async def test_a_reload_in_the_middle_of_a_stream_loses_and_doubles_nothing(
    browser: Browser, open_page: OpenPage
) -> None:
    stepped = open_page.stepped
    async with open_tab(browser, open_page.bridged.url) as tab:
        page = tab.page
        answers = page.locator(".answer .markdown")
        await ask(tab, "tested", "write")
        stepped.write("one ", "two ")
        await expect(answers).to_have_text("one two")
        await expect(page).to_have_url(re.compile("task="))
        await page.reload()
        await expect(answers).to_have_text("one two")
        stepped.write("three ")
        await expect(answers).to_have_text("one two three")
        # A cut stream continues without a reload, too.
        await page.context.set_offline(True)
        stepped.write("four ")
        await page.context.set_offline(False)
        stepped.write("five", "")
        await expect(answers).to_have_text("one two three four five")
        await expect(page.get_by_placeholder("Message to tested")).to_be_visible()
        await page.reload()
        await expect(answers).to_have_text("one two three four five")


async def test_a_message_whose_sending_a_reload_cut_is_sent_once(
    browser: Browser, open_page: OpenPage
) -> None:
    async with open_tab(browser, open_page.bridged.url) as tab:
        page = tab.page
        blocked = True
        reloaded = asyncio.Event()

        async def hold(route: Route) -> None:
            # The bridge gets the message, and the page no answer.
            if blocked and "SendStreamingMessage" in (route.request.post_data or ""):
                await route.fetch()
                await reloaded.wait()
                await route.abort()
            else:
                await route.continue_()

        await page.route("**/agents/echo/**", hold)
        async with page.expect_request(lambda request: request.method == "POST"):
            await ask(tab, "echo", "echo only once")
        await expect(page.get_by_text("Sending")).to_be_visible()
        blocked = False
        await page.reload()
        reloaded.set()
        await expect(page.locator(".answer .markdown")).to_have_text("only once")
        found = await open_page.bridged.at("/ui/api").client.get(
            f"{open_page.bridged.url}/ui/api/tasks", params={"text": "only once"}
        )
        assert len(found.json()["tasks"]) == 1


async def test_questions_are_answered_and_tasks_canceled(
    browser: Browser, open_page: OpenPage
) -> None:
    async with open_tab(browser, open_page.bridged.url) as tab:
        page = tab.page
        await ask(tab, "echo", "ask What is your name?")
        await expect(page.locator(".answer")).to_contain_text("What is your name?")
        await page.get_by_label("Your answer").fill("Ada")
        await page.get_by_role("button", name="Send", exact=True).click()
        await expect(page.locator(".answer").last).to_contain_text("answer: Ada")
        assert await page.locator(".answer").count() == 2
        await page.get_by_placeholder("Message to echo").fill("wait 300")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Waiting 300 s")).to_be_visible()
        await page.get_by_role("button", name="Cancel task").click()
        await expect(page.locator(".status-line")).to_contain_text("canceled")
        # Both tasks are of one conversation.
        await page.reload()
        await expect(page.locator(".status-line")).to_contain_text("canceled")
        await expect(page.locator(".bubble")).to_have_count(3)
        await page.get_by_role("button", name="Recent").click()
        links = page.get_by_role("dialog").get_by_role("link")
        await expect(links.first).to_have_text("wait 300")
        assert await tab.find_barriers() == []


async def test_an_approval_is_edited_and_what_happened_is_shown(
    browser: Browser, open_page: OpenPage
) -> None:
    async with open_tab(browser, open_page.bridged.url, size=(360, 740), theme="dark") as tab:
        page = tab.page
        await ask(tab, "apples", "order 3 apples")
        form = page.get_by_role("region", name="Approval of apples/order")
        arguments = form.get_by_label("Arguments")
        await expect(arguments).to_have_value(re.compile('"n": 3'))
        await tab.keep_screenshot("chat-approval")
        assert await tab.find_barriers() == []
        assert not await tab.is_wider_than_the_screen()
        await arguments.fill('{"n": 2, "item": "apples"}')
        await form.get_by_role("button", name="Approve with changes").click()
        await expect(page.locator(".answer").last).to_contain_text("Ordered 2 apples.")
        await expect(page.locator(".bubble").last).to_contain_text("Approved with changes")
        activity = page.get_by_role("list", name="What happened")
        await expect(activity).to_contain_text("Tool returned apples/order")
        assert open_page.orders.orders[-1] == {"n": 2, "item": "apples"}


async def test_files_go_both_ways_and_texts_are_never_html(
    browser: Browser, open_page: OpenPage
) -> None:
    async with open_tab(browser, open_page.bridged.url) as tab:
        page = tab.page
        await tab.go("chat?agent=echo")
        await page.get_by_placeholder("Message to echo").fill(f"echo {HOSTILE}")
        content = bytes(range(256))
        await page.get_by_label("Files", exact=True).set_input_files(
            {"name": "all.bin", "mimeType": "application/octet-stream", "buffer": content}
        )
        await page.get_by_role("button", name="Send", exact=True).click()
        reply = page.locator(".answer")
        await expect(reply.get_by_role("heading", name="Result")).to_be_visible()
        await expect(reply.locator("li").last).to_contain_text("<img src=x")
        await expect(reply.get_by_role("link")).to_have_attribute("href", "https://example.com/a")
        await tab.keep_screenshot("chat-markdown")
        assert await tab.find_barriers() == []
        async with page.expect_download() as download:
            await reply.get_by_role("button", name="Save all.bin").click()
        path = await (await download.value).path()
        assert path.read_bytes() == content
        assert await page.title() == "Chat · Trunkline"


async def test_markdown_of_any_text_is_shown_in_linear_time(
    browser: Browser, open_page: OpenPage
) -> None:
    # In quadratic time, each of these would stop the tab for minutes.
    async with open_tab(browser, open_page.bridged.url) as tab:
        await tab.go("chat?agent=echo")
        texts: list[str] = await asyncio.wait_for(tab.page.evaluate(RENDER_LONG_TEXTS), 60)
    assert texts == ["Title x # x", "C", "code", "", "ab12"]


async def test_callers_see_why_they_may_not_send(browser: Browser, mesh: PageMesh) -> None:
    task = await mesh.ask("teacher", "for readers")
    async with open_tab(browser, mesh.bridged.url, key="key-of-reader") as tab:
        # The link of a task is enough: its agent is found.
        await tab.go(f"chat?task={task['id']}")
        await expect(tab.page.locator(".answer")).to_contain_text("you said for readers")
        await expect(tab.page.get_by_text("do not allow sending messages")).to_be_visible()
        await expect(tab.page.get_by_role("button", name="Send", exact=True)).to_have_count(0)
    async with open_tab(browser, mesh.bridged.url, key="key-of-narrow") as tab:
        await ask(tab, "gate", "not for me")
        await expect(tab.page.get_by_role("alert")).to_be_visible()
        await tab.page.get_by_role("button", name="Send again").click()
        await expect(tab.page.locator(".bubble")).to_have_count(1)
