"""MCP servers that require tokens of an authorization server (MCP, authorization)."""

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from pydantic import ValidationError

from harness.mcp.bundled_servers import only_servers
from harness.mcp.http_server import HttpTools, http_tools
from harness.mcp.scripted_servers import QUICK, READY_TIMEOUT_S, call, wait_until
from harness.mesh.command_line import (
    COMMAND,
    LIMIT_S,
    CompletedCommand,
    run_in_process,
    start_process,
)
from harness.mesh.processes import running_mesh
from harness.remote.oauth_server import OAuthServer, oauth_server
from trunkline.core.settings import Settings
from trunkline.core.small_files import FolderFiles
from trunkline.errors import SignInFailedError, ToolServerUnavailableError, TrunklineError
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.config import McpConfig, ServerConfig
from trunkline.tools.server import ToolServerState
from trunkline.tools.sign_in_files import SignInFiles

NAME = "elsewhere"
REMEDY = f"run `trunkline tools login {NAME}`"
DOCUMENT = "https://me.example/client.json"
REDIRECT = "http://127.0.0.1:1234/callback"
both = pytest.mark.parametrize("is_older", [False, True], ids=["newer", "older"])


@pytest.fixture
def issuer() -> Iterator[OAuthServer]:
    with oauth_server() as server:
        yield server


@asynccontextmanager
async def guarded(issuer: OAuthServer, *, is_older: bool = False) -> AsyncIterator[HttpTools]:
    async with http_tools(is_older=is_older) as tools:
        tools.issuer = issuer
        yield tools


@asynccontextmanager
async def adapter_of(
    tools: HttpTools, place: Path | Settings, **oauth: object
) -> AsyncIterator[ToolAdapter]:
    """An adapter that has begun to reach its one server."""
    config = McpConfig({NAME: tools.config(trunkline={"oauth": oauth})})
    settings = place if isinstance(place, Settings) else Settings(data_dir=place)
    files = SignInFiles(settings, FolderFiles(settings.data_dir))
    async with ToolAdapter(config, settings=QUICK, sign_ins=files) as adapter:
        server = adapter.list_servers()[0]
        starting = ToolServerState.TOOL_SERVER_STATE_STARTING
        await wait_until(adapter, lambda: server.state != starting)
        yield adapter


async def browse(url: str) -> dict[str, str]:
    """Agree in the browser; return what the redirect brings."""
    async with httpx2.AsyncClient() as browser:
        response = await browser.get(url)
    assert response.status_code == 302, response.text
    return dict(parse_qsl(urlsplit(response.headers["location"]).query))


async def sign_in(adapter: ToolAdapter, redirect: str = REDIRECT) -> None:
    url = await adapter.start_sign_in(NAME, redirect)
    await adapter.complete_sign_in(NAME, await browse(url))
    await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)


async def ask(adapter: ToolAdapter, text: str = "hello") -> str:
    result = await call(adapter, "repeat", server=NAME, text=text)
    assert not result.is_error, result
    return result.content[0].text


def state_of(adapter: ToolAdapter) -> tuple[str, str]:
    server = adapter.list_servers()[0]
    name = ToolServerState.Name(server.state).removeprefix("TOOL_SERVER_STATE_")
    return name, server.error


@contextmanager
def secrets_kept(issuer: OAuthServer, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Our own log has no token and no code."""
    with caplog.at_level(logging.DEBUG, "trunkline"):
        yield
    lines = [str(vars(each)) for each in caplog.records if each.name.startswith("trunkline")]
    assert lines
    words = ("access-", "refresh-", "code-secret", *issuer.client[1:])
    assert not [line for line in lines if any(word in line for word in words)]


@both
async def test_a_person_signs_in_once_also_for_the_next_process(
    issuer: OAuthServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_older: bool
) -> None:
    async with guarded(issuer, is_older=is_older) as tools:
        with secrets_kept(issuer, caplog):
            async with adapter_of(tools, tmp_path) as adapter:
                assert state_of(adapter) == ("NEEDS_SIGN_IN", f"it needs a sign-in; {REMEDY}")
                before = len(tools.requests)
                with pytest.raises(ToolServerUnavailableError, match=REMEDY):
                    await ask(adapter)
                assert len(tools.requests) == before
                await sign_in(adapter)
                # Calls run side by side.
                async with asyncio.timeout(READY_TIMEOUT_S):
                    async with asyncio.TaskGroup() as group:
                        hanging = group.create_task(call(adapter, "hang", server=NAME))
                        await tools.began.wait()
                        assert await ask(adapter) == "hello"
                        hanging.cancel()
        async with adapter_of(tools, tmp_path) as adapter:
            assert state_of(adapter) == ("READY", "")
            assert await ask(adapter) == "hello"
    assert len(issuer.registrations) == 1
    assert [form["grant_type"] for form in issuer.forms] == ["authorization_code"]
    assert issuer.forms[0]["resource"] == tools.url
    (file,) = (tmp_path / "private" / "tool-sign-ins").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
async def test_tokens_are_refreshed_without_a_person(
    issuer: OAuthServer, tmp_path: Path, is_restarted: bool
) -> None:
    async with guarded(issuer) as tools:
        async with adapter_of(tools, tmp_path) as adapter:
            # The first token has expired when it is used.
            issuer.lifetimes = [0]
            await sign_in(adapter)
            assert await ask(adapter) == "hello"
            if not is_restarted:
                # The server may also refuse a token that has not expired.
                issuer.granted.clear()
                assert await ask(adapter) == "hello"
        issuer.granted.clear()
        async with adapter_of(tools, tmp_path) as adapter:
            assert await ask(adapter) == "hello"
            assert state_of(adapter) == ("READY", "")
            # A refused refresh needs a person.
            issuer.granted.clear()
            issuer.refreshable = {"none": ""}
            with pytest.raises(ToolServerUnavailableError, match=REMEDY):
                await ask(adapter)
            assert state_of(adapter)[0] == "NEEDS_SIGN_IN"
            await sign_in(adapter)
            assert await ask(adapter) == "hello"
    assert len(issuer.registrations) == 1
    refreshes = [form for form in issuer.forms if form["grant_type"] == "refresh_token"]
    assert {form["resource"] for form in refreshes} == {tools.url}


async def test_of_several_adapters_one_refreshes_tokens(
    issuer: OAuthServer, tmp_path: Path
) -> None:
    issuer.is_single_use = True
    async with guarded(issuer) as tools, adapter_of(tools, tmp_path) as first:
        await sign_in(first)
        async with adapter_of(tools, tmp_path) as second, adapter_of(tools, tmp_path) as third:
            adapters = (first, second, third)
            for number in range(1, 4):
                # The server refuses the token, so that all adapters want another one.
                issuer.granted.clear()
                async with asyncio.TaskGroup() as group:
                    asked = [group.create_task(ask(adapter)) for adapter in adapters]
                assert [task.result() for task in asked] == ["hello"] * 3
                refreshes = [f for f in issuer.forms if f["grant_type"] == "refresh_token"]
                assert len(refreshes) == number


async def test_a_sign_in_at_one_adapter_serves_the_others(
    issuer: OAuthServer, tmp_path: Path
) -> None:
    async with guarded(issuer) as tools, adapter_of(tools, tmp_path) as first:
        await sign_in(first)
        async with adapter_of(tools, tmp_path) as second:
            assert await ask(second) == "hello"
            issuer.granted.clear()
            issuer.refreshable = {"none": ""}
            with pytest.raises(ToolServerUnavailableError, match=REMEDY):
                await ask(first)
            await sign_in(first)
            assert await ask(second) == "hello"


async def test_an_authorization_server_that_is_down_needs_no_person(
    issuer: OAuthServer, tmp_path: Path
) -> None:
    async with guarded(issuer) as tools, adapter_of(tools, tmp_path) as adapter:
        await sign_in(adapter)
        issuer.granted.clear()
        issuer.status = 503
        with pytest.raises(ToolServerUnavailableError, match="HTTP 503"):
            await ask(adapter)
        issuer.status = 0
        await wait_until(adapter, lambda: state_of(adapter)[0] == "READY")
        assert await ask(adapter) == "hello"


async def test_a_call_that_needs_more_rights_fails_alone_until_a_person_gives_them(
    issuer: OAuthServer, tmp_path: Path
) -> None:
    async with guarded(issuer) as tools:
        tools.rights = {"repeat_reading": "read"}
        async with adapter_of(tools, tmp_path, scopes=["own"]) as adapter:
            await sign_in(adapter)
            refused = await call(adapter, "repeat_reading", server=NAME, text="x")
            assert refused.is_error
            assert REMEDY in refused.content[0].text
            assert await ask(adapter) == "hello"
            await sign_in(adapter)
            given = await call(adapter, "repeat_reading", server=NAME, text="x")
            assert given.content[0].text == "x"
            assert await ask(adapter) == "hello"
    scopes = [set(scope.split()) for scope in issuer.granted.values()]
    assert scopes == [{"own", "tools"}, {"own", "tools", "read"}]


KEY = (
    rsa.generate_private_key(65537, 2048)
    .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    .decode()
)


@pytest.mark.parametrize("secret", ["client_secret", "private_key"])
async def test_client_credentials_need_no_person_also_for_more_rights(
    issuer: OAuthServer, tmp_path: Path, secret: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLIENT_SECRET", KEY if secret == "private_key" else issuer.client[1])
    own = {"grant": "client_credentials", "client_id": "me", secret: "${CLIENT_SECRET}"}
    async with guarded(issuer) as tools:
        tools.rights = {"repeat_reading": "read"}
        for names_issuer in (False, True):
            entry = {**own, "issuer": issuer.url} if names_issuer else own
            issuer.granted.clear()
            async with adapter_of(tools, tmp_path, **entry) as adapter:
                await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)
                result = await call(adapter, "repeat_reading", server=NAME, text="x")
                assert result.content[0].text == "x"
                assert await ask(adapter) == "hello"
                with pytest.raises(TrunklineError, match="without a person"):
                    await adapter.start_sign_in(NAME, REDIRECT)
    assert {form["grant_type"] for form in issuer.forms} == {"client_credentials"}


@pytest.mark.parametrize(
    ("entry", "client"),
    [
        ({"client_id": "me", "client_secret": "secret-of-me"}, "me"),
        ({"client_id": "public"}, "public"),
        ({"client_metadata_url": DOCUMENT}, DOCUMENT),
    ],
)
async def test_a_client_that_the_operator_chose_is_not_registered(
    issuer: OAuthServer, tmp_path: Path, entry: dict[str, object], client: str
) -> None:
    async with guarded(issuer) as tools, adapter_of(tools, tmp_path, **entry) as adapter:
        await sign_in(adapter)
        assert await ask(adapter) == "hello"
    assert issuer.registrations == []
    assert {form["client_id"] for form in issuer.forms} == {client}


async def test_a_server_without_metadata_has_an_authorization_server_at_its_origin(
    issuer: OAuthServer, tmp_path: Path
) -> None:
    """As in MCP 2025-03-26."""
    async with guarded(issuer) as tools:
        tools.authorization_server = None
        issuer.issuer = tools.url.removesuffix("/mcp")
        issuer.answer = {"iss": issuer.issuer}
        async with adapter_of(tools, tmp_path) as adapter:
            await sign_in(adapter)
            assert await ask(adapter) == "hello"


REFUSED: dict[str, dict[str, object]] = {
    "issuer mismatch": {"issuer": "http://127.0.0.1:1/other"},
    "does not match": {"resource": "http://localhost:1/mcp"},
    "iss mismatch": {"answer": {"iss": "http://127.0.0.1:1/other"}},
    "begin again": {"answer": {"state": "another"}},
    "access_denied": {"answer": {"code": "", "error": "access_denied"}},
    "gives no token: invalid_grant": {"answer": {"code": "stolen"}},
    "HTTP 500": {"status": 500},
    "10.1.2.3 is not public; name it as `issuer`": {"authorization_server": "http://10.1.2.3:9"},
}


async def test_a_sign_in_that_does_not_fit_is_refused_and_can_be_repeated(
    issuer: OAuthServer, tmp_path: Path
) -> None:
    async with guarded(issuer) as tools, adapter_of(tools, tmp_path) as adapter:
        for problem, change in REFUSED.items():
            target = issuer if hasattr(issuer, next(iter(change))) else tools
            before = {name: getattr(target, name) for name in change}
            for name, value in change.items():
                setattr(target, name, value)
            with pytest.raises(SignInFailedError, match=problem) as failure:
                await sign_in(adapter)
            assert "secret" not in str(failure.value)
            assert state_of(adapter)[0] == "NEEDS_SIGN_IN"
            assert not issuer.granted
            for name, value in before.items():
                setattr(target, name, value)
        await sign_in(adapter)
        assert await ask(adapter) == "hello"


async def test_stored_tokens_are_encrypted_with_a_key(issuer: OAuthServer, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(secrets.token_hex(32))
    (tmp_path / "key").chmod(0o600)
    settings = Settings(data_dir=tmp_path / "data", encryption_key_file=tmp_path / "key")
    async with guarded(issuer) as tools:
        for is_first in (True, False):
            async with adapter_of(tools, settings) as adapter:
                if is_first:
                    await sign_in(adapter)
                assert await ask(adapter) == "hello"
    (file,) = (settings.data_dir / "private" / "tool-sign-ins").iterdir()
    assert file.read_bytes()[0] == 0xE7
    assert b"access-" not in file.read_bytes()


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({"grant": "client_credentials"}, "client_credentials needs"),
        ({"private_key": "x"}, "only for client_credentials"),
        ({"client_metadata_url": "http://me.example/x"}, "must be an https URL"),
        ({"grand": "x"}, "grand"),
    ],
)
def test_an_entry_that_cannot_work_is_refused(entry: dict[str, object], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        ServerConfig.model_validate({"url": "https://a.example", "trunkline": {"oauth": entry}})


def test_oauth_is_only_for_remote_servers() -> None:
    with pytest.raises(ValidationError, match='only for a server with "url"'):
        ServerConfig.model_validate({"command": "x", "trunkline": {"oauth": {}}})


def find_files(folder: Path, *words: bytes) -> list[Path]:
    """Return the files below a folder with one of these words."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file for file in files if any(word in file.read_bytes() for word in words)]


async def test_the_command_line_signs_in(issuer: OAuthServer, tmp_path: Path) -> None:
    async with guarded(issuer) as tools:
        own = {"url": tools.url, "trunkline": {"oauth": {}, "approval": "never"}}
        plain = {"url": tools.url, "headers": {"Authorization": "Bearer none"}}
        environment = only_servers(tmp_path, own={NAME: own, "plain": plain})
        log = tmp_path / "log"
        with log.open("wb") as stderr, socket.create_server(("127.0.0.1", 0)) as listener:
            taken = str(listener.getsockname()[1])
            async with running_mesh(
                tmp_path, servers=None, environment=environment, stderr=stderr
            ) as mesh:
                to_mesh = ("--mesh", mesh.mesh_address)

                async def run(*words: str) -> CompletedCommand:
                    return await asyncio.to_thread(run_in_process, "tools", *words, *to_mesh)

                listed = (await run("list")).out
                assert f"{NAME} needs_sign_in it needs a sign-in; {REMEDY}" in " ".join(
                    listed.split()
                )
                refused = await run("call", f"{NAME}/repeat", "--arg", "text=x")
                assert (refused.exit, REMEDY in refused.err) == (4, True)
                for words, code, problem in (
                    (("nothing",), 1, "has no tool server 'nothing'; `trunkline tools`"),
                    (("plain",), 1, "the entry of plain has no `trunkline.oauth`"),
                    ((NAME, "--port", taken), 2, f"--port: 127.0.0.1:{taken} can't be listened on"),
                ):
                    failed = await run("login", *words, "--no-browser")
                    assert (failed.exit, failed.out) == (code, ""), failed.err
                    assert problem in failed.err
                process = await start_process(
                    *(*COMMAND, "tools", "login", NAME, "--no-browser", *to_mesh),
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                )
                async with asyncio.timeout(LIMIT_S):
                    assert process.stdout is not None
                    url = (await process.stdout.readline()).decode().strip()
                    callback = dict(parse_qsl(urlsplit(url).query))["redirect_uri"]
                    async with httpx2.AsyncClient(follow_redirects=True) as browser:
                        # Any page may send the browser there.
                        stray = await browser.get(callback, params={"state": "x", "code": "y"})
                        assert stray.status_code == 404
                        page = await browser.get(url)
                    assert "Close this page" in page.text
                    _, err = await process.communicate()
                assert (process.returncode, f"signed in to {NAME}" in err.decode()) == (0, True)
                called = await run("call", f"{NAME}/repeat", "--arg", "text=hello")
                assert called.out == "hello\n", called.err
    # Neither the log nor anything else that is stored has a token.
    kept = tmp_path / "data" / "private" / "tool-sign-ins"
    found = find_files(tmp_path, b"access-", b"refresh-", b"code-secret")
    assert found
    assert {file.parent for file in found} == {kept}
