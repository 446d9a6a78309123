"""Dialogs and panels by keyboard: what has the focus at first, and that Escape closes them."""

from typing import Literal, TypeAlias

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from harness.a2a.page_mesh import PageMesh
from harness.a2a.page_spans import StoredSpan, store_trace
from harness.browser import open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPERATOR = "key-of-operator"
SPANS = [StoredSpan(1, "span of a panel")]
Role: TypeAlias = Literal["button", "combobox", "link", "textbox"]


async def send(mesh: PageMesh, **body: str) -> str:
    """Send a message to the teacher; return its id."""
    message = {"recipient": "teacher", "type": "quiet", "text": "for a panel", **body}
    headers = mesh.at("operator").headers
    url = f"{mesh.bridged.url}/messages"
    answer = await mesh.bridged.client.post(url, json=message, headers=headers)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["envelopes"][0]["envelope"]["envelopeId"])


async def open_dialog(page: Page, button: str) -> Locator:
    await page.get_by_role("button", name=button, exact=True).click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_be_visible()
    return dialog


async def test_a_dialog_has_the_focus_on_what_it_is_for(browser: Browser, mesh: PageMesh) -> None:
    message = await send(mesh)
    running = (await mesh.ask("gate", "wait", "operator", now=True))["id"]
    run = (await mesh.ask("flow", "wait", "operator", now=True))["id"]
    dialogs: list[tuple[str, str, Role, str]] = [
        ("messages", "Send a message", "combobox", "Recipient"),
        ("workflows/flow", "Start", "textbox", "text"),
        (f"tasks/{running}", "Cancel task", "button", "Keep it running"),
        (f"workflows/flow/runs/{run}", "Cancel run", "button", "Keep it running"),
        (f"messages/{message}?message={message}", "Replay", "textbox", "Recipient (optional)"),
        # It has nothing but its end.
        ("tasks", "Keyboard shortcuts", "button", "Close"),
    ]
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        for path, button, role, name in dialogs:
            await tab.go(path)
            dialog = await open_dialog(tab.page, button)
            await expect(dialog.get_by_role(role, name=name, exact=True), path).to_be_focused()
            await tab.page.keyboard.press("Escape")
            await expect(dialog, path).to_have_count(0)
            opener = tab.page.get_by_role("button", name=button, exact=True)
            await expect(opener, path).to_be_focused()


async def test_escape_closes_a_panel(browser: Browser, mesh: PageMesh) -> None:
    message, trace = await send(mesh), store_trace(mesh, 3001, SPANS)
    panels: list[tuple[str, Role, str, str]] = [
        ("mesh", "button", "teacher, agent", ".node-details"),
        ("workflows/flow", "button", "first, agent · gate", ".node-details"),
        (f"traces/{trace}", "link", "span of a panel", ".span-details"),
        (f"messages/{message}?tab=table", "link", "quiet", ".message-details"),
        (f"messages/{message}", "button", "quiet from user:operator", ".message-details"),
    ]
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        page = tab.page
        for path, role, name, panel in panels:
            await tab.go(path)
            opener = page.get_by_role(role, name=name).first
            details = page.locator(panel)
            await opener.focus()
            await page.keyboard.press("Enter")
            await expect(details, path).to_be_visible()
            await page.keyboard.press("Escape")
            await expect(details, path).to_have_count(0)
            await opener.focus()
            await page.keyboard.press("Enter")
            await details.get_by_role("button", name="Close").focus()
            await page.keyboard.press("Escape")
            await expect(details, path).to_have_count(0)
            # The focus is not lost with the panel.
            await expect(opener, path).to_be_focused()


async def test_escape_closes_the_dialog_above_a_panel_first(
    browser: Browser, mesh: PageMesh
) -> None:
    message = await send(mesh)
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        page = tab.page
        await tab.go(f"messages/{message}?message={message}")
        details = page.locator(".message-details")
        dialog = await open_dialog(page, "Replay")
        await page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await expect(details).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(details).to_have_count(0)
