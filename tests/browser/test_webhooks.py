"""Webhooks in Chromium: deliveries are seen live, and a failed one is sent again."""

import pytest
from playwright.async_api import Browser, expect

from harness.a2a.open_page import OpenPage
from harness.browser import open_tab
from harness.remote.webhook_receiver import OK, Answer, ReceivedPost, open_receiver, status

_LIST = "/ui/api/webhooks?"

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_delivery_that_failed_is_sent_again(browser: Browser, open_page: OpenPage) -> None:
    answers: list[bytes] = [status(410)]

    async def decide(_post: ReceivedPost) -> Answer:
        return answers[0]

    caller = open_page.bridged.at("/agents/echo")
    async with (
        open_receiver(decide) as receiver,
        open_tab(browser, open_page.bridged.url) as tab,
    ):
        page = tab.page
        await tab.go("webhooks")
        config = {"id": "hook", "url": receiver.url}
        params = {
            "message": caller.message("hi"),
            "configuration": {"taskPushNotificationConfig": config},
        }
        task = (await caller.call("SendMessage", params))["task"]
        row = page.get_by_role("table", name="Webhooks").get_by_role("row", name=receiver.url)
        await expect(row).to_contain_text("dead")
        await row.click()
        details = page.get_by_role("dialog")
        await expect(details.locator(".notice")).to_contain_text("410")
        await tab.keep_screenshot("webhooks-dead")
        assert await tab.find_barriers() == []
        await page.keyboard.press("Escape")
        # Changes arrive by the stream. The list is read again only if some may be missing.
        reads: list[str] = []
        page.on("request", lambda sent: reads.append(sent.url) if _LIST in sent.url else None)
        await page.get_by_label("State").select_option("dead")
        await expect(row).to_contain_text("dead")
        await row.click()
        answers[0] = OK
        await details.get_by_role("button", name="Send all events again").click()
        await expect(details.get_by_text("done", exact=True)).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(row).to_have_count(0)
        assert len(reads) == 1, reads
        await page.get_by_label("State").select_option("done")
        await expect(row).to_contain_text("done")
        await open_page.bridged.at("/agents/echo").call(
            "DeleteTaskPushNotificationConfig", {"taskId": task["id"], "id": "hook"}
        )
        await expect(row).to_have_count(0)
