"""Sign-in to a tool server on the page, in Chromium."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from harness.browser import open_tab
from harness.mcp.bundled_servers import only_servers
from harness.mcp.http_server import http_tools
from harness.mesh.processes import running_mesh
from harness.remote.oauth_server import oauth_server

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_person_signs_in_to_a_tool_server(browser: Browser, tmp_path: Path) -> None:
    async with http_tools() as tools:
        with oauth_server() as issuer:
            tools.issuer = issuer
            own = {"url": tools.url, "trunkline": {"oauth": {}, "approval": "never"}}
            environment = only_servers(tmp_path, own={"elsewhere": own})
            async with (
                running_mesh(tmp_path, servers=None, environment=environment) as mesh,
                open_tab(browser, mesh.http_url) as tab,
            ):
                await tab.go("mesh?tab=tools")
                server = tab.page.locator(".panel").filter(has_text="elsewhere")
                sign_in = server.get_by_role("button", name="Sign in to elsewhere")
                await expect(sign_in).to_be_visible()
                assert await tab.find_barriers() == []

                # An attacker's link brings a code that this page did not ask for.
                await tab.page.goto(f"{mesh.http_url}/ui/?code=theirs&state=theirs#/mesh?tab=tools")
                await expect(sign_in).to_be_visible()
                assert issuer.forms == []

                issuer.answer = {"code": "", "error": "access_denied"}
                await sign_in.click()
                notices = tab.page.locator(".toasts")
                await expect(notices).to_contain_text("server says: access_denied")

                issuer.answer = {}
                await sign_in.click()
                await expect(notices).to_contain_text("Signed in to elsewhere.")
                await expect(server).to_contain_text("repeat_reading")
                await expect(sign_in).to_have_count(0)
                assert tab.page.url == f"{mesh.http_url}/ui/#/mesh?tab=tools"
                await tab.keep_screenshot("tool-servers-signed-in")
            assert [form["grant_type"] for form in issuer.forms] == ["authorization_code"]
