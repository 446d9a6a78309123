"""The page in trouble: hosts and bridges that die, no network, tokens that expire, refusals."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from playwright.async_api import Browser, Page, Request, Route, expect

from harness.a2a.bridged_mesh import Caller
from harness.a2a.open_page import OpenPage
from harness.a2a.page_mesh import PageMesh
from harness.browser import open_tab
from harness.mesh.command_line import COMMAND
from harness.mesh.processes import (
    WITH_HARNESS,
    read_line,
    running_mesh,
    running_process,
    running_services,
)
from harness.remote.oidc_issuer import CLIENT, OidcIssuer, serve_oidc_issuer
from harness.remote.token_issuer import AUDIENCE
from trunkline import TaskContext, agent

pytestmark = pytest.mark.asyncio(loop_scope="session")

SLOW = "harness.agents.once_agent:once"
COUNT = 100
PATIENCE_S = 60.0


async def test_a_task_is_followed_through_reloads_offline_times_and_killed_processes(
    browser: Browser, tmp_path: Path
) -> None:
    # The page waits for the end of a dead host's lease.
    environment = {"TRUNKLINE_LEASE_S": "5", **WITH_HARNESS}
    async with running_services(
        tmp_path, agents=("echo",), others={"once": SLOW}, environment=environment
    ) as services:
        url = services.http_url
        async with open_tab(browser, url) as tab:
            page = tab.page
            await tab.go("tasks")
            live = page.get_by_role("status").get_by_text("Live", exact=True)
            lost = page.get_by_role("status").get_by_text("Reconnecting", exact=True)
            await expect(live).to_be_visible()
            async with httpx2.AsyncClient() as client:
                caller = Caller(client, f"{url}/agents/once")
                await caller.send(f"{COUNT} 100", now=True)
            await page.get_by_role("row", name=f"{COUNT} 100").click()
            artifact = page.locator(".task-state article.artifact")
            await expect(artifact).to_contain_text("3 ")
            await page.reload()
            await expect(artifact).to_contain_text("4 ")
            await page.context.set_offline(True)
            await expect(lost).to_be_visible()
            await page.context.set_offline(False)
            await expect(live).to_be_visible()
            await services.kill("bridge")
            await expect(lost).to_be_visible()
            await services.restart("bridge")
            header = page.locator(".page-header")
            await expect(header).to_contain_text("completed")
            numbers = re.findall(r"\b\d+\b", await artifact.locator(".artifact-text").inner_text())
            assert numbers == [str(number) for number in range(1, COUNT + 1)]
            timeline = page.get_by_role("table", name="Events of the task")
            await expect(timeline).to_contain_text("completed")

            # The host of tasks dies behind the page.
            await tab.go("tasks")
            await expect(live).to_be_visible()
            await services.kill("once")
            await tab.go("mesh?tab=hosts")
            hosts = page.get_by_role("table", name="Hosts")
            await expect(hosts.get_by_text("once")).to_have_count(0)
            await services.restart("once")
            await expect(hosts.get_by_text("once").first).to_be_visible()
            await tab.go("tasks")
            await expect(page.get_by_role("row", name=f"{COUNT} 100")).to_contain_text("completed")


async def test_a_host_that_died_is_lost_and_the_lists_say_that_they_are_incomplete(
    browser: Browser, tmp_path: Path
) -> None:
    environment = {"TRUNKLINE_LEASE_S": "1", **WITH_HARNESS}
    async with running_mesh(tmp_path, environment=environment) as mesh:
        # In a data folder that no other process has, so that nobody takes its journal over.
        options = ("--agent", SLOW, "--mesh", mesh.mesh_address, "--data", str(tmp_path / "own"))
        words = ("serve", "agents", "once", *options)
        async with (
            running_process(*COMMAND, *words, cwd=tmp_path, environment=environment) as process,
            open_tab(browser, mesh.http_url) as tab,
        ):
            await read_line(process, "ready ")
            await tab.go("mesh?tab=hosts")
            lost = tab.page.get_by_role("table", name="Hosts").get_by_role("row", name="once")
            await expect(lost).to_contain_text("ready")
            process.kill()
            await expect(lost).to_contain_text("lost")
            await expect(lost.get_by_role("time")).to_be_visible()
            await expect(tab.page.get_by_text("1 host lost")).to_be_visible()
            await tab.go("tasks")
            await expect(tab.page.get_by_text("Their tasks are missing here")).to_be_visible()


@agent(name="breaks", description="Breaks.")
async def breaks(_: TaskContext) -> None:
    raise ValueError("the cupboard is bare")


async def test_a_task_that_failed_names_the_exception_and_its_host(
    browser: Browser, open_page: OpenPage
) -> None:
    bridged = open_page.bridged
    await bridged.mesh.join(breaks)
    task = await bridged.at("/agents/breaks").send("go")
    async with open_tab(browser, bridged.url) as tab:
        await tab.go(f"tasks/{task['id']}")
        view = tab.page.locator("#main")
        await expect(view).to_contain_text(re.compile(r"ValueError \(at [\w.]*test_trouble:\d+\)"))
        await expect(view).not_to_contain_text("cupboard")
        host = bridged.mesh.directory.get_task_host(task["id"])
        await expect(view).to_contain_text(f"Host{host.address}")


async def sign_in(page: Page, url: str, path: str) -> None:
    """Sign in by the identity provider, from a view."""
    await page.goto(f"{url}/ui/#/{path}")
    await page.get_by_role("button", name="Continue with 127.0.0.1").click()


@asynccontextmanager
async def mesh_of(issuer: OidcIssuer, folder: Path) -> AsyncIterator[str]:
    """Run a mesh that takes the tokens of an issuer; yield the URL of its bridge."""
    variables = {
        "TRUNKLINE_JWT_KEYS": f"{issuer.url}/keys",
        "TRUNKLINE_JWT_ISSUER": issuer.url,
        "TRUNKLINE_JWT_AUDIENCE": AUDIENCE,
        "TRUNKLINE_JWT_LEEWAY_S": "0",
        "TRUNKLINE_PAGE_OIDC_ISSUER": issuer.url,
        "TRUNKLINE_PAGE_OIDC_CLIENT_ID": CLIENT,
        "TRUNKLINE_PAGE_OPERATORS": "jwt:ann",
    }
    async with running_mesh(folder, environment=variables) as mesh:
        yield mesh.http_url


async def test_people_sign_in_by_openid_connect_and_again_when_their_token_expires(
    browser: Browser, tmp_path: Path
) -> None:
    with serve_oidc_issuer() as issuer:
        async with mesh_of(issuer, tmp_path) as url, open_tab(browser, url) as tab:
            page = tab.page
            issuer.refusal = "access_denied"
            await sign_in(page, url, "tasks")
            await expect(page.get_by_role("alert")).to_contain_text("access_denied")
            issuer.refusal = ""
            issuer.token_lives_s = 20
            await page.get_by_role("button", name="Continue with 127.0.0.1").click()
            # They are where they were, and neither code nor state stays in the address.
            await expect(page.get_by_role("heading", level=1)).to_have_text("Tasks")
            await expect(page).to_have_url(f"{url}/ui/#/tasks")
            await expect(page.locator(".account")).to_contain_text("operator")
            live = page.get_by_role("status").get_by_text("Live", exact=True)
            await expect(live).to_be_visible()
            # The token expires while the stream is open.
            await expect(page.get_by_role("alert")).to_contain_text("Sign in again")
            await tab.keep_screenshot("session-ended")
            issuer.token_lives_s = 3600
            await page.get_by_role("button", name="Continue with 127.0.0.1").click()
            await expect(live).to_be_visible()
            # An answer to a sign-in that nobody began here.
            await page.get_by_role("button", name="Sign out").click()
            await page.goto(f"{issuer.redirects[-1]}#/tasks")
            await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to Trunkline")
            await page.get_by_role("button", name="Continue with 127.0.0.1").click()
            await expect(live).to_be_visible()


async def test_a_hidden_tab_gives_its_connections_back_and_catches_up(
    browser: Browser, mesh: PageMesh
) -> None:
    async with open_tab(browser, mesh.bridged.url, key="key-of-ann") as tab:
        page = tab.page
        left = {"tasks:watch", "mesh:watch", "approvals:watch"}
        all_ended = asyncio.Event()

        def on_ended(sent: Request) -> None:
            left.discard(sent.url.partition("/api/")[2])
            if not left:
                all_ended.set()

        page.on("requestfailed", on_ended)
        await page.clock.install()
        await tab.go("tasks")
        live = page.get_by_role("status").get_by_text("Live", exact=True)
        await expect(live).to_be_visible()
        await show(page, is_shown=False)
        await page.clock.fast_forward(6_000)
        async with asyncio.timeout(PATIENCE_S):
            await all_ended.wait()
        await mesh.ask("teacher", "asked of a hidden tab")
        await show(page, is_shown=True)
        await expect(live).to_be_visible()
        await expect(page.get_by_role("row", name="asked of a hidden tab")).to_be_visible()


async def show(page: Page, *, is_shown: bool) -> None:
    """Show a tab, or hide it behind another one."""
    await page.evaluate(
        """(isShown) => {
            Object.defineProperty(document, "hidden", { value: !isShown, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_shown,
    )


async def test_refused_actions_say_why(browser: Browser, mesh: PageMesh) -> None:
    task = await mesh.ask("gate", "wait: it ends elsewhere", now=True)
    async with open_tab(browser, mesh.bridged.url, key="key-of-ann") as tab:
        page = tab.page
        await tab.go(f"tasks/{task['id']}")
        await page.get_by_role("button", name="Cancel task").click()

        async def be_faster(route: Route) -> None:
            await mesh.at().change(f"/tasks/{task['id']}:cancel")
            await route.continue_()

        # The task is canceled elsewhere after the click: the page closes the dialog of a task that
        # it knows to have ended.
        await page.route(lambda url: url.endswith(":cancel"), be_faster, times=1)
        await page.get_by_role("dialog").get_by_role("button", name="Cancel task").click()
        await expect(page.locator(".toast").first).to_be_visible()
        # Another account's task.
        other = await mesh.ask("teacher", "not yours", "bob")
        await tab.go(f"tasks/{other['id']}")
        await expect(page.get_by_role("alert")).to_contain_text("no task")


async def test_views_say_which_permission_is_missing(browser: Browser, mesh: PageMesh) -> None:
    async with open_tab(browser, mesh.bridged.url, key="key-of-asker") as tab:
        main = tab.page.locator("#main")
        for path, method in (
            ("tasks", "ListTasks"),
            ("wire", "ListTasks"),
            ("approvals", "GetTask"),
        ):
            await tab.go(path)
            await expect(main.locator(".notice")).to_contain_text(f"It needs {method}.")
            await expect(main.get_by_text("No tasks")).to_have_count(0)
            await expect(main.get_by_text("Connecting")).to_have_count(0)
    async with open_tab(browser, mesh.bridged.url, key="key-of-gatekeeper") as tab:
        await tab.go("chat")
        agents = tab.page.get_by_label("Agent", exact=True)
        await expect(agents).to_have_value("gate")
        await expect(agents.get_by_role("option")).to_have_text(["gate"])
