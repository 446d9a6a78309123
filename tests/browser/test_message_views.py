"""The page's views of messages: rooms, conversations as sequence diagrams, and dead letters."""

import asyncio
import re
from urllib.parse import urlsplit

import pytest
from playwright.async_api import Browser, Locator, Route, expect

from harness.a2a.bridged_mesh import Json
from harness.a2a.page_mesh import PageMesh
from harness.browser import open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

KEY = "key-of-ann"


async def send(mesh: PageMesh, path: str = "", **body: Json | str) -> Json:
    url = f"{mesh.bridged.url}/messages{path}"
    answer = await mesh.bridged.client.post(url, json=body, headers={"X-API-Key": KEY})
    assert answer.status_code == 200, answer.text
    answered: Json = answer.json()
    return answered


async def test_a_room_is_joined_and_its_conversation_is_drawn_as_it_goes(
    browser: Browser, mesh: PageMesh
) -> None:
    async with open_tab(browser, mesh.bridged.url, key=KEY) as tab:
        page = tab.page
        paths: set[str] = set()
        page.on("request", lambda request: paths.add(urlsplit(request.url).path))
        await tab.go("messages?tab=rooms")
        await page.get_by_label("Name of a room to join").fill("drafts")
        await page.get_by_role("button", name="Join").click()
        await expect(page.get_by_role("heading", name="Room drafts")).to_be_visible()
        await page.get_by_label("Agent to add").fill("teacher")
        await page.get_by_role("button", name="Add").click()
        await expect(page.get_by_role("button", name="Remove teacher")).to_be_visible()
        await send(mesh, "/rooms/drafts:join", member="apples")
        await expect(page.get_by_role("button", name="Remove apples")).to_be_visible()
        await send(mesh, "/rooms/drafts:leave", member="apples")
        await expect(page.get_by_role("button", name="Remove apples")).to_have_count(0)

        await page.get_by_role("button", name="Send to the room").click()
        dialog = page.get_by_role("dialog", name="Send a message")
        await expect(dialog.get_by_label("Recipient")).to_have_value("room:drafts")
        await dialog.get_by_label("Type").fill("evaluation_request")
        await dialog.get_by_role("button", name="Fields").click()
        await dialog.get_by_label("Fields of the type").fill("{")
        await dialog.get_by_role("button", name="Send", exact=True).click()
        await expect(dialog.get_by_role("alert")).to_contain_text("JSON")
        await dialog.get_by_label("Fields of the type").fill('{"proposal": "A bold plan"}')
        assert await tab.find_barriers() == []
        await dialog.get_by_role("button", name="Send", exact=True).click()
        history = page.get_by_role("list", name=re.compile("Messages of drafts"))
        sent = history.get_by_role("listitem").filter(has_text="evaluation_request")
        await expect(sent).to_contain_text("handled")
        await tab.keep_screenshot("messages-room-1440")

        await sent.get_by_role("link").click()
        request = page.get_by_role("button", name="to teacher handled")
        await expect(request).to_contain_text("evaluation_request · room:drafts")
        answer = page.get_by_role("button", name="evaluation_result from teacher to user:ann")
        await expect(answer).to_be_visible()
        await request.focus()
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="evaluation_request")).to_be_visible()
        await expect(page.locator(".message-details")).to_contain_text("1 attempt")
        assert await tab.find_barriers() == []
        await tab.keep_screenshot("messages-conversation-1440")

        identifier = page.url.split("#/messages/")[1].split("?")[0]
        await send(mesh, recipient="teacher", type="quiet", text="later", correlationId=identifier)
        await expect(page.get_by_role("button", name=re.compile("quiet from"))).to_be_visible()
        await page.get_by_role("tab", name="Table").click()
        table = page.get_by_role("table", name="Messages of the conversation")
        await expect(table.get_by_role("link")).to_have_text(
            ["evaluation_request", "evaluation_result", "quiet"]
        )
        # Reads elsewhere make spans.
        assert "/ui/api/messages:watch" in paths
        assert [path for path in paths if not path.startswith("/ui/")] == []


async def test_dead_letters_say_why_and_are_redriven_and_replayed(
    browser: Browser, mesh: PageMesh
) -> None:
    async with open_tab(browser, mesh.bridged.url, key=KEY, size=(360, 740), theme="dark") as tab:
        page = tab.page
        await tab.go("messages?tab=dead")
        await expect(page.get_by_role("status").get_by_text("Live")).to_be_visible()
        table = page.get_by_role("table", name="Dead letters")
        count = await table.get_by_role("link").count()
        broken = {"proposal": "p", "context": "fail"}
        await send(mesh, recipient="teacher", type="evaluation_request", data=broken)
        await expect(table.get_by_role("link")).to_have_count(count + 1)
        await table.get_by_role("link", name="evaluation_request").first.click()
        details = page.locator(".message-details")
        await expect(details).to_contain_text("2 attempts")
        await expect(details).to_contain_text("agent 'teacher' failed")
        assert await tab.find_barriers() == []
        assert not await tab.is_wider_than_the_screen()
        await tab.keep_screenshot("messages-dead-360-dark")
        await details.get_by_role("button", name="Redrive").click()
        toasts = page.locator(".toasts")
        await expect(toasts).to_contain_text("Delivers 1 dead letter again.")
        # It fails again, and comes back.
        await expect(details).to_contain_text("2 attempts")
        await details.get_by_role("button", name="Replay").click()
        dialog = page.get_by_role("dialog", name="Replay")
        await dialog.get_by_label("Recipient").fill("nobody-of-this-name")
        await dialog.get_by_role("button", name="Replay").click()
        await expect(dialog.get_by_role("alert")).to_be_visible()
        await dialog.get_by_label("Recipient").fill("")
        await dialog.get_by_role("button", name="Replay").click()
        await expect(toasts).to_contain_text("Sent 1 message again.")
        await expect(table.get_by_role("link")).to_have_count(count + 2)
        await page.get_by_role("button", name="Redrive all").click()
        question = page.get_by_role("dialog", name="Redrive all dead letters?")
        assert await tab.find_barriers() == []
        await question.get_by_role("button", name="Leave them").click()
        await expect(table.get_by_role("link")).to_have_count(count + 2)
        await page.get_by_role("button", name="Redrive all").click()
        await question.get_by_role("button", name="Redrive all").click()
        await expect(toasts).to_contain_text(f"Delivers {count + 2} dead letters again.")


async def test_what_changes_while_a_list_loads_stays_in_it(
    browser: Browser, mesh: PageMesh
) -> None:
    async with open_tab(browser, mesh.bridged.url, key=KEY) as tab:
        page = tab.page
        released, read = asyncio.Event(), asyncio.Event()

        async def hold(route: Route) -> None:
            response = await route.fetch()
            read.set()
            await released.wait()
            await route.fulfill(response=response)

        await tab.go("messages?tab=dead")
        await expect(page.get_by_role("status").get_by_text("Live")).to_be_visible()
        table = page.get_by_role("table", name="Dead letters")

        async def send_letter() -> Locator:
            broken = {"proposal": "p", "context": "fail"}
            sent = await send(mesh, recipient="teacher", type="evaluation_request", data=broken)
            row = table.locator(f"a[href*='{sent['envelopes'][0]['envelope']['envelopeId']}']")
            await expect(row).to_be_visible()
            return row

        first = await send_letter()
        await page.route("**/ui/api/messages?*", hold)
        await first.click()
        # The list is read again, from before the next letter.
        await page.locator(".message-details").get_by_role("button", name="Redrive").click()
        await read.wait()
        second = await send_letter()
        async with page.expect_response("**/ui/api/messages?*") as answered:
            released.set()
        await (await answered.value).finished()
        await page.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(done)))")
        assert await second.count() == 1
        await expect(first).to_be_visible()


async def test_readers_see_messages_and_are_told_what_they_may_not_do(
    browser: Browser, mesh: PageMesh
) -> None:
    await send(mesh, recipient="teacher", type="quiet", text="for readers")
    async with open_tab(browser, mesh.bridged.url, key="key-of-reader") as tab:
        page = tab.page
        await tab.go("messages")
        await page.get_by_role("row", name="for readers").click()
        await expect(page.locator(".message-details")).to_contain_text("do not permit sending")
        await expect(page.get_by_role("button", name="Replay")).to_have_count(0)
        await tab.go("messages")
        await expect(page.get_by_text("do not permit sending")).to_be_visible()
        await tab.go("messages?tab=rooms")
        await expect(page.get_by_label("Name of a room to join")).to_have_count(0)


async def test_credentials_for_some_agents_read_the_messages_of_each(
    browser: Browser, mesh: PageMesh
) -> None:
    await send(mesh, recipient="teacher", type="quiet", text="for narrow credentials")
    await send(mesh, recipient="apples", type="quiet", text="for apples alone")
    async with open_tab(browser, mesh.bridged.url, key="key-of-narrow") as tab:
        page = tab.page
        await tab.go("messages")
        await expect(page.get_by_label("From or to")).to_have_value("teacher")
        await expect(page.get_by_role("status").get_by_text("Live")).to_be_visible()
        row = page.get_by_role("row", name="for narrow credentials")
        await expect(row).to_be_visible()
        await expect(page.get_by_role("row", name="for apples alone")).to_have_count(0)
        await row.click()
        await expect(page.locator(".message-details")).to_contain_text("for narrow credentials")
        await tab.go("messages?tab=dead")
        await expect(page.get_by_role("status").get_by_text("Live")).to_be_visible()
        await expect(page.get_by_role("alert")).to_have_count(0)
