"""The command line with a mesh that requires credentials and signs its cards."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness.mcp.bundled_servers import only_servers
from harness.mesh.command_line import LIMIT_S, CompletedCommand, run_command
from harness.mesh.processes import MeshProcess, running_mesh
from harness.remote.token_issuer import SigningKey, key_set, write_api_keys
from trunkline import Client
from trunkline.cli.agent_client import AgentClient
from trunkline.cli.commands import card, keys
from trunkline.errors import InvalidArgumentError, PeerUnavailableError, TaskNotFoundError
from trunkline_bridge.callers.api_keys import ApiKeyFile

SIGNER = SigningKey("mesh-2026")


@dataclass(frozen=True)
class Guarded:
    """A mesh that requires keys, and the folder of these keys."""

    mesh: MeshProcess
    folder: Path

    async def run(self, *words: str, **variables: str) -> CompletedCommand:
        return await run_command(*words, folder=self.folder, **variables)

    async def add_key(self, name: str, *words: str) -> str:
        """Create a key. The command prints only the key."""
        result = await self.run("keys", "add", name, "--file", "keys.toml", *words)
        assert result.exit == 0, result.err
        return result.out.strip()

    async def wait_until_accepted(self, key: str) -> None:
        """Wait until the mesh accepts a new key, which takes about a second."""
        end = time.monotonic() + LIMIT_S
        async with AgentClient(self.mesh.http_url, api_key=key) as client:
            while not await self._accepts(client):
                assert time.monotonic() < end, "the key is not known"
                await asyncio.sleep(0.05)

    async def _accepts(self, client: AgentClient) -> bool:
        try:
            await client.get_task("none")
        except InvalidArgumentError as error:
            if "unknown" not in str(error):
                raise
            return False
        except TaskNotFoundError:
            return True
        raise AssertionError("there is no such task")

    async def ask(self, key: str) -> str:
        """Create a task, and return its id."""
        async with Client(self.mesh.http_url, agent="echo", token=key) as client:
            return (await client.ask("count 2")).task_id


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Guarded]:
    folder = tmp_path_factory.mktemp("guarded")
    write_api_keys(folder / "keys.toml", [])
    (folder / "card.pem").touch(mode=0o600)
    (folder / "card.pem").write_bytes(SIGNER.pem())
    (folder / "card.pub").write_bytes(SIGNER.public_pem())
    (folder / "strange.pub").write_bytes(SigningKey("mesh-2026").public_pem())
    (folder / "strange.json").write_bytes(key_set(SigningKey("other")))
    environment = {
        "TRUNKLINE_API_KEYS_FILE": str(folder / "keys.toml"),
        "TRUNKLINE_CARD_KEY": str(folder / "card.pem"),
        "TRUNKLINE_CARD_KEY_ID": "mesh-2026",
    }
    async with running_mesh(folder, servers=("math",), environment=environment) as mesh:
        yield Guarded(mesh, folder)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_question_needs_a_key_as_a_flag_or_in_the_environment(guarded: Guarded) -> None:
    key = await guarded.add_key("ann", "--account", "acme")
    ask = ("ask", "--url", guarded.mesh.http_url, "count 2", "--agent", "echo")
    refused = await guarded.run(*ask)
    assert (refused.exit, refused.out) == (1, "")
    assert refused.err.startswith("error: --api-key or TRUNKLINE_API_KEY: ")
    assert (await guarded.run(*ask, "--api-key", "wrong")).exit == 1

    await guarded.wait_until_accepted(key)
    assert (await guarded.run(*ask, TRUNKLINE_API_KEY=key)).out == "1 2 \n"
    assert (await guarded.run(*ask, "--api-key", key)).out == "1 2 \n"


@pytest.mark.asyncio(loop_scope="module")
async def test_tasks_are_listed_by_account(guarded: Guarded) -> None:
    key = await guarded.add_key("ben", "--account", "bakers")
    await guarded.wait_until_accepted(key)
    task_id = await guarded.ask(key)

    mesh = ("--mesh", guarded.mesh.mesh_address, "--json")
    assert (await guarded.run("tasks", *mesh)).json == []
    (task_found,) = (await guarded.run("tasks", "--account", "bakers", *mesh)).json
    assert (task_found["task_id"], task_found["agent"]) == (task_id, "echo")
    assert (await guarded.run("task", task_id, *mesh)).exit == 1
    assert (await guarded.run("task", task_id, "--account", "bakers", *mesh)).exit == 0

    # With a key, commands concern the tasks of its account.
    keys_file = str(guarded.folder / "keys.toml")
    with_key = {"TRUNKLINE_API_KEYS_FILE": keys_file, "TRUNKLINE_API_KEY": key}
    assert [each["task_id"] for each in (await guarded.run("tasks", *mesh, **with_key)).json] == [
        task_id
    ]
    assert (await guarded.run("task", task_id, *mesh, **with_key)).exit == 0
    other = await guarded.run("tasks", "--account", "cooks", *mesh, **with_key)
    assert other.json == []
    strange = await guarded.run("tasks", *mesh, **(with_key | {"TRUNKLINE_API_KEY": "strange"}))
    assert (strange.exit, strange.out) == (2, "")
    assert strange.err == (
        f"error: --account: TRUNKLINE_API_KEY is none of the keys in {keys_file}; name the account "
        "of its tasks\n"
    )


def listed(file: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    keys.list_keys(file, json=True)
    entries: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return entries


def test_a_key_may_have_limits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.toml"
    keys.add_key(
        "ann",
        file,
        account="acme",
        expires="2999-01-31",
        agent=["math"],
        method=["CancelTask"],
        read_only=True,
    )
    assert listed(file, capsys) == [
        {
            "name": "ann",
            "account": "acme",
            "expires": "2999-01-31T00:00:00+00:00",
            "agents": ["math"],
            "methods": ["read", "CancelTask"],
        }
    ]
    wrong: dict[str, Any]
    for wrong in ({"expires": "soon"}, {"method": ["Send"]}, {"agent": [""]}):
        with pytest.raises(InvalidArgumentError):
            keys.add_key("bob", file, account="acme", **wrong)
    assert len(listed(file, capsys)) == 1


def test_a_rotated_key_works_until_the_chosen_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.toml"
    keys.add_key("ann", file, account="acme", method=["GetTask"])
    old = capsys.readouterr().out.strip()
    keys.rotate_key("ann", file, until="2999-01-31T12:00:00Z", expires="", json=True)
    new = json.loads(capsys.readouterr().out)
    assert new["old_until"] == "2999-01-31T12:00:00+00:00"
    file_keys = ApiKeyFile(file)
    entries = [file_keys.find(key) for key in (old, new["key"])]
    assert [entry and entry.methods for entry in entries] == [("GetTask",)] * 2
    expiries = [entry and entry.expires and entry.expires.year for entry in entries]
    assert expiries == [2999, None]
    # An expired key of the name is removed.
    keys.rotate_key("ann", file, until="2020-01-31", expires="30d", json=False)
    keys.rotate_key("ann", file, until="1h", expires="", json=False)
    assert len(listed(file, capsys)) == 2
    with pytest.raises(InvalidArgumentError, match="no key 'bob'"):
        keys.rotate_key("bob", file, until="1h", expires="", json=False)
    keys.remove_key("ann", file, json=False)
    assert listed(file, capsys) == []


def test_keys_are_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "keys.toml"
    for name in ("ann", "ben"):
        keys.add_key(name, file, account=name, json=True)
        assert json.loads(capsys.readouterr().out)["account"] == name
    keys.remove_key("ann", file, json=True)
    assert json.loads(capsys.readouterr().out) == {"name": "ann", "removed": True}
    (entry,) = listed(file, capsys)
    assert (entry["name"], entry["account"]) == ("ben", "ben")
    keys.list_keys(file, json=False)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["KEY", "ACCOUNT", "EXPIRES", "AGENTS", "METHODS"],
        ["ben", "ben", "never", "all", "all"],
    ]
    for name, account in (("ben", "ben"), ("x", "anonymous"), ("a\nb", "x")):
        with pytest.raises(InvalidArgumentError):
            keys.add_key(name, file, account=account, json=False)
    with pytest.raises(InvalidArgumentError):
        keys.remove_key("ann", file, json=False)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_card_is_verified_with_trusted_keys(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    url, key = guarded.mesh.http_url, str(guarded.folder / "card.pub")
    result = await guarded.run("card", "verify", url, "--key", key)
    assert (result.exit, result.err) == (0, "")
    for card_url in (url, f"{url}/", f"{url}/agents/math", f"{url}/.well-known/agent-card.json"):
        assert await card.verify_card(card_url, jwks=key, json=False) == 0
        output = capsys.readouterr().out
        assert output.startswith("verified: signed by mesh-2026 (ES256), in the spec")
    assert await card.verify_card(url, jwks=f"{url}/.well-known/jwks.json", json=True) == 0
    assert json.loads(capsys.readouterr().out)["form"] == "specified"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_card_is_not_verified_with_other_keys(
    guarded: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    url, key = guarded.mesh.http_url, str(guarded.folder / "card.pub")
    assert (await guarded.run("card", "verify", url, "--key", "strange.pub")).exit == 1
    assert (await guarded.run("card", "verify", url)).exit == 2
    assert (await guarded.run("card", "verify", url, "--key", "nothing.pub")).exit == 4
    for name in ("strange.pub", "strange.json"):
        wrong_key = str(guarded.folder / name)
        assert await card.verify_card(url, jwks=wrong_key, json=False) == 1
        captured = capsys.readouterr()
        assert (captured.out, captured.err[:14]) == ("", "not verified: ")
        assert await card.verify_card(url, jwks=wrong_key, json=True) == 1
        assert json.loads(capsys.readouterr().out)["verified"] is False
    with pytest.raises(InvalidArgumentError):
        await card.verify_card(url, jwks=str(guarded.folder / "card.pem"), json=False)
    with pytest.raises(InvalidArgumentError):
        await card.verify_card("localhost", jwks=key, json=False)
    with pytest.raises(PeerUnavailableError):
        await card.verify_card(url, jwks=url, json=False)
    with pytest.raises(PeerUnavailableError):
        await card.verify_card("http://127.0.0.1:1", jwks=key, json=False)
    # The URL serves JSON, but no signed card.
    assert await card.verify_card(f"{url}/.well-known/jwks.json", jwks=key, json=False) == 1


@pytest.mark.asyncio(loop_scope="module")
async def test_a_signed_card_has_its_own_address_for_every_host_header(guarded: Guarded) -> None:
    host, _, port = guarded.mesh.http_url.removeprefix("http://").partition(":")

    async def read_card(named: str) -> str:
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET /.well-known/agent-card.json HTTP/1.1\r\nHost: {named}\r\n".encode())
        writer.write(b"Connection: close\r\n\r\n")
        async with asyncio.timeout(LIMIT_S):
            answer = (await reader.read()).decode()
        writer.close()
        return answer

    answer = await read_card(f"localhost:{port}")
    assert answer.startswith("HTTP/1.1 200")
    assert "localhost" not in answer
    assert f'"url":"{guarded.mesh.http_url}/"' in answer
    assert (await read_card("evil.example")).startswith("HTTP/1.1 421")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_question_to_an_ephemeral_mesh_needs_no_key(tmp_path: Path) -> None:
    write_api_keys(tmp_path / "keys.toml", [("ann", "acme", "key-of-ann")])
    (tmp_path / "trunkline.toml").write_text('http = "127.0.0.1:1"\n')
    result = await run_command(
        *("ask", "message hi", "--agent", "echo"),
        folder=tmp_path,
        TRUNKLINE_API_KEYS_FILE=str(tmp_path / "keys.toml"),
        TRUNKLINE_MCP_FILE=only_servers(tmp_path)["TRUNKLINE_MCP_FILE"],
    )
    assert (result.exit, result.out) == (0, "hi\n")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_missing_file_of_keys_is_named_at_the_start(tmp_path: Path) -> None:
    up = ("up", "--http", "127.0.0.1:0", "--a2a-grpc", "127.0.0.1:0", "--mesh", "127.0.0.1:0")
    result = await run_command(*up, folder=tmp_path, TRUNKLINE_API_KEYS_FILE="none.toml")
    assert (result.exit, result.out) == (1, "")
    assert result.err.startswith("error: none.toml: cannot be read")
