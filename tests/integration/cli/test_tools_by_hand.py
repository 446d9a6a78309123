"""`trunkline tools`: tools of a mesh are listed, shown, and called by hand."""

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from harness.mcp import plain_tools_server
from harness.mcp.bundled_servers import only_servers
from harness.mcp.scripted_servers import RAW
from harness.mesh.command_line import (
    COMMAND,
    LIMIT_S,
    CompletedCommand,
    run_command,
    run_in_process,
)
from harness.mesh.processes import MeshProcess, running_mesh

pytestmark = pytest.mark.asyncio(loop_scope="module")


LENGTH = ("--arg", "value=3", "--arg", "from_unit=feet")


@dataclass(frozen=True)
class Shop:
    """A mesh with the tools of one server, and the folder of its orders."""

    mesh: MeshProcess
    folder: Path

    async def tools(self, *words: str) -> CompletedCommand:
        command, *others = words
        options = ("--mesh", self.mesh.mesh_address)
        return await asyncio.to_thread(run_in_process, "tools", command, *options, *others)

    async def ask(self, text: str) -> CompletedCommand:
        url = ("--url", self.mesh.http_url)
        return await asyncio.to_thread(run_in_process, "ask", *url, text)

    @property
    def orders(self) -> str:
        file = self.folder / "orders"
        return file.read_text() if file.exists() else ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    server = {
        "command": sys.executable,
        "args": [str(plain_tools_server.__file__)],
        "env": {"SHOP_FOLDER": str(folder)},
    }
    # Of its two tools, one can't be used.
    pages = [[{"name": "good", "inputSchema": {}}, {"name": "bad", "inputSchema": None}]]
    careless = {"command": sys.executable, "args": [RAW, json.dumps({"pages": pages})]}
    environment = only_servers(folder, own={"shop": server, "careless": careless})
    async with running_mesh(folder, servers=None, environment=environment) as mesh:
        shop = Shop(mesh, folder)
        # Names of tools are suggested from the servers that have started.
        await shop.tools("list")
        yield shop


async def test_tools_are_listed_with_and_without_the_subcommand(shop: Shop) -> None:
    shown = await shop.tools("show", "shop/count_words")
    assert shown.exit == 0, shown.err
    listed = (await shop.tools("list", "--json")).json
    short = await asyncio.to_thread(
        run_in_process, "tools", "--mesh", shop.mesh.mesh_address, "--json"
    )
    assert short.json == listed
    assert {tool["name"] for tool in listed["tools"]} >= {"convert_length", "order", "good"}


async def test_tools_that_cannot_be_used_are_listed_with_the_reason(shop: Shop) -> None:
    problem = "bad: the tool is left out: inputSchema: input should be a valid dictionary"
    lines = [" ".join(line.split()) for line in (await shop.tools("list")).out.splitlines()]
    assert any(line.startswith(f"careless incomplete {problem}") for line in lines), lines
    servers = {each["name"]: each for each in (await shop.tools("list", "--json")).json["servers"]}
    assert servers["careless"]["listing_problems"][0].startswith(problem)
    assert "listing_problems" not in servers["shop"]
    shown = await shop.tools("show", "careless/bad")
    assert shown.exit == 1
    assert problem.removeprefix("bad: ") in shown.err


async def test_a_supervisor_finds_the_agent_of_a_plain_server_by_its_tools(shop: Shop) -> None:
    """The file has neither tags nor examples, and its server may still be starting."""
    answered = await shop.ask("big number number: 42")
    assert answered.out == "42\n"


async def test_a_tool_is_shown_with_its_arguments_and_their_schema(shop: Shop) -> None:
    text = (await shop.tools("show", "shop/convert_length")).out
    assert "argument  value: number, required. The length." in text
    assert "argument  from_unit: metres | feet | miles, required" in text
    assert "traits    reads only" in text
    assert json.loads(text.partition("\nschema\n")[2])["required"] == [
        "value",
        "from_unit",
        "to_unit",
    ]
    shown = (await shop.tools("show", "shop/order", "--json")).json
    assert shown["needs_approval"] is True
    assert shown["input_schema"]["properties"]["count"]["type"] == "integer"


@pytest.mark.parametrize(
    "words",
    [
        ('{"value": 3, "from_unit": "feet", "to_unit": "metres"}',),
        ("--arg", "value=3", "--arg", "from_unit=feet", "--arg", "to_unit=metres"),
        ('{"value": 5, "from_unit": "feet", "to_unit": "metres"}', "--arg", "value=3"),
    ],
    ids=["as JSON", "one by one", "replaced"],
)
async def test_a_tool_is_called(shop: Shop, words: tuple[str, ...]) -> None:
    called = await shop.tools("call", "shop/convert_length", *words)
    assert (called.exit, called.out, called.err) == (0, "3 feet in metres\n", "")


async def test_numbers_and_texts_arrive_as_they_were_written(shop: Shop) -> None:
    number = 2**60 + 1
    called = await shop.tools("call", "shop/big_number", f'{{"number": {number}}}')
    assert called.out == f"{number}\n"
    called = await shop.tools("call", "shop/big_number", "--arg", f"number={number}")
    assert called.out == f"{number}\n"
    called = await shop.tools("call", "shop/count_words", "--arg", "text=12 =3", "--json")
    assert called.json["content"][0]["text"] == "2 words"


async def test_the_files_of_a_result_are_saved(shop: Shop, tmp_path: Path) -> None:
    for name in ("file", "file-2"):
        called = await shop.tools("call", "shop/draw", "--save", str(tmp_path / "saved"))
        assert (called.exit, called.err) == (0, f"saved {tmp_path / 'saved' / name}\n")
        assert (tmp_path / "saved" / name).read_bytes() == b"a picture"


async def test_arguments_come_from_stdin(shop: Shop) -> None:
    words = ("shop/count_words", "-", "--mesh", shop.mesh.mesh_address)
    done = await run_command("tools", "call", *words, stdin='{"text": "one two three"}')
    assert (done.exit, done.out) == (0, "3 words\n")


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("shop/convert_lengths",), 1, "did you mean shop/convert_length?"),
        (("stop/order",), 1, "did you mean shop/order?"),
        (("order",), 1, "did you mean shop/order?"),
        (("nothing/like_it",), 1, "no tool nothing/like_it; `trunkline tools` lists the tools"),
        (("shop/order", '{"count": 1'), 2, "JSON: is not a JSON object"),
        (("shop/order", "count=1"), 2, "or give --arg NAME=VALUE"),
        (("shop/order", "--arg", "count"), 2, "'count' is not NAME=VALUE"),
        (("shop/order", "--arg", "count=[1"), 2, "the value of count is not JSON"),
        (("shop/order", "--arg", "count=1"), 2, "shop/order also needs item; see"),
        (
            ("shop/order", '{"count": 1, "object": "pen"}'),
            2,
            "also needs item, and has no 'object'; see",
        ),
        (
            ("shop/order", '{"count": "one", "item": "pen"}'),
            2,
            "JSON: count: 'one' is not of type 'integer'; see `trunkline tools show shop/order`",
        ),
        (("shop/convert_length", *LENGTH, "--arg", "to_unit=foot"), 2, "to_unit: 'foot' is not"),
        (("shop/refuse",), 1, "not today"),
        (("shop/wait", "--timeout", "0.5"), 1, "error: shop/wait took longer than 0.5 s"),
    ],
)
async def test_a_call_that_fails_says_why(
    shop: Shop, words: tuple[str, ...], code: int, says: str
) -> None:
    called = await shop.tools("call", *words)
    assert (called.exit, called.out) == (code, "")
    assert says in called.err


async def test_a_call_that_needs_approval_is_made_only_with_it(shop: Shop) -> None:
    call = ("call", "shop/order", '{"count": 2, "item": "pear"}')
    refused = await shop.tools(*call)
    assert refused.exit == 3
    assert 'shop/order with {"count": 2, "item": "pear"} needs your approval' in refused.err
    assert "2 pear" not in shop.orders
    done = await shop.tools(*call, "--yes", "--json")
    assert done.exit == 0, done.err
    assert done.json["structured_content"] == {"count": 2, "item": "pear"}
    assert "2 pear" in shop.orders


@pytest.mark.parametrize(("answer", "code"), [(b"y\n", 0), (b"\n", 1)], ids=["yes", "no"])
async def test_an_approval_is_asked_on_the_terminal(shop: Shop, answer: bytes, code: int) -> None:
    terminal, side = pty.openpty()
    try:
        os.write(terminal, answer)
        process = await asyncio.create_subprocess_exec(
            *COMMAND, "tools", "call", "shop/order", f'{{"count": 7, "item": "fig-{code}"}}',
            "--mesh", shop.mesh.mesh_address,
            stdin=side, stdout=asyncio.subprocess.PIPE, stderr=side,
        )  # fmt: skip
        async with asyncio.timeout(LIMIT_S):
            await process.communicate()
        asked = os.read(terminal, 10_000).decode()
    finally:
        os.close(terminal)
        os.close(side)
    assert process.returncode == code
    assert "needs your approval. Call it? [y/N]" in asked
    assert (f"7 fig-{code}" in shop.orders) == (code == 0)


async def test_without_a_mesh_it_says_what_to_start() -> None:
    called = await asyncio.to_thread(
        run_in_process, "tools", "call", "shop/order", "--mesh", "127.0.0.1:1"
    )
    assert called.exit == 4
    assert "start one with `trunkline up`" in called.err


WORKFLOW = """
name: counter
nodes:
  - {id: start, type: start}
  - {id: count, type: tool, tool: shop/count_words, arguments: {text: hello}}
  - {id: end, type: end}
edges:
  - {from: start, to: count}
  - {from: count, to: end}
"""


async def test_nothing_waits_for_another_server_that_is_starting(tmp_path: Path) -> None:
    silent = {"command": sys.executable, "args": ["-c", "import sys; sys.stdin.read()"]}
    patient = silent | {"trunkline": {"connect_timeout_s": 600}}
    server = {"command": sys.executable, "args": [str(plain_tools_server.__file__)]}
    environment = only_servers(tmp_path, own={"shop": server, "silent": patient})
    file = tmp_path / "counter.yaml"
    commands = [
        (("tools", "call", "shop/count_words", "--arg", "text=a b"), 0, "2 words"),
        (("tools", "show", "shop/count_words"), 0, "shop/count_words"),
        (("tools", "call", "shop/count_word"), 1, "did you mean shop/count_words?"),
        (("tools", "call", "stop/count_words"), 1, "did you mean shop/count_words?"),
        (("workflow", "validate", str(file)), 0, "ok"),
    ]
    file.write_text(WORKFLOW)
    async with running_mesh(tmp_path, servers=None, environment=environment) as mesh:
        for words, code, says in commands:
            # Each of them would wait for a minute.
            async with asyncio.timeout(50):
                options = ("--mesh", mesh.mesh_address)
                done = await asyncio.to_thread(run_in_process, *words, *options)
            assert done.exit == code, done
            assert says in done.out + done.err
