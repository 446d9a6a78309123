"""Dialogs and panels by keyboard: what has the focus at first, and that Escape closes them."""

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from harness.a2a.page_mesh import PageMesh
from harness.a2a.page_spans import StoredSpan, store_trace
from harness.browser import open_tab

pytestmark = pytest.mark.asyncio(loop_scope="session")

OPERATOR = "key-of-operator"
SPANS = [StoredSpan(1, "span of a panel")]


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


@pytest.mark.parametrize(
    ("path", "button", "role", "name"),
    [
        ("messages", "Send a message", "combobox", "Recipient"),
        ("workflows/flow", "Start", "textbox", "text"),
        ("tasks/{running}", "Cancel task", "button", "Keep it running"),
        ("workflows/flow/runs/{run}", "Cancel run", "button", "Keep it running"),
        ("messages/{message}?message={message}", "Replay", "textbox", "Recipient (optional)"),
        # It has nothing but its end.
        ("tasks", "Keyboard shortcuts", "button", "Close"),
    ],
)
async def test_a_dialog_has_the_focus_on_what_it_is_for(
    browser: Browser, mesh: PageMesh, path: str, button: str, role: str, name: str
) -> None:
    ids = {"message": await send(mesh)}
    ids["running"] = str((await mesh.ask("gate", "wait", "operator", now=True))["id"])
    ids["run"] = str((await mesh.ask("flow", "wait", "operator", now=True))["id"])
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        await tab.go(path.format(**ids))
        dialog = await open_dialog(tab.page, button)
        stop = dialog.get_by_role(role, name=name, exact=True)  # type: ignore[arg-type]
        await expect(stop).to_be_focused()
        await tab.page.keyboard.press("Escape")
        await expect(dialog).to_have_count(0)
        await expect(tab.page.get_by_role("button", name=button, exact=True)).to_be_focused()


@pytest.mark.parametrize(
    ("path", "role", "name", "panel"),
    [
        ("mesh", "button", "teacher, agent", ".node-details"),
        ("workflows/flow", "button", "first, agent · gate", ".node-details"),
        ("traces/{trace}", "link", "span of a panel", ".span-details"),
        ("messages/{message}?tab=table", "link", "quiet", ".message-details"),
        ("messages/{message}", "button", "quiet from user:operator", ".message-details"),
    ],
)
async def test_escape_closes_a_panel(
    browser: Browser, mesh: PageMesh, path: str, role: str, name: str, panel: str
) -> None:
    ids = {"message": await send(mesh), "trace": store_trace(mesh, 3001, SPANS)}
    async with open_tab(browser, mesh.bridged.url, key=OPERATOR) as tab:
        await tab.go(path.format(**ids))
        page = tab.page
        opener = page.get_by_role(role, name=name).first  # type: ignore[arg-type]
        details = page.locator(panel)
        await opener.focus()
        await page.keyboard.press("Enter")
        await expect(details).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(details).to_have_count(0)
        await opener.focus()
        await page.keyboard.press("Enter")
        await details.get_by_role("button", name="Close").focus()
        await page.keyboard.press("Escape")
        await expect(details).to_have_count(0)
        # The focus is not lost with the panel.
        await expect(opener).to_be_focused()


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
