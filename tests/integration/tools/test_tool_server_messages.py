"""MCP servers whose lists and messages are partly wrong, cut, or too many."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harness.mcp.raw_http_server import RawAnswer, raw_http_server
from harness.mcp.scripted_servers import RAW, READY_TIMEOUT_S, call, running, wait_until
from harness.polling import wait_for
from harness.remote.socket_server import listening
from trunkline.core.json_values import read_text
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.config import AdapterSettings, ServerConfig
from trunkline.tools.server import ToolServerState

OBJECT: dict[str, Any] = {"type": "object"}
GOOD: dict[str, Any] = {"name": "good", "inputSchema": OBJECT}
# Long enough that no test waits for it.
PATIENT = AdapterSettings(
    call_timeout_s=READY_TIMEOUT_S, restart_delay_s=30.0, restart_delay_max_s=30.0, grace_s=0.2
)


def tool(name: str, **more: object) -> dict[str, Any]:
    return {**GOOD, "name": name, **more}


def raw(*pages: list[Any], **script: object) -> ServerConfig:
    arguments = json.dumps({"pages": pages or [[GOOD]], **script})
    return ServerConfig(command=sys.executable, args=[RAW, arguments])


@asynccontextmanager
async def ready(*pages: list[Any], **script: object) -> AsyncIterator[ToolAdapter]:
    async with running(PATIENT, raw=raw(*pages, **script)) as adapter:
        await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)
        yield adapter


def problems(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    return [vars(each)["problem"] for each in caplog.records if each.message == event]


# Tools of one list, and the problem of each, or "" for a tool that is used whole.
TOOLS: list[tuple[Any, str]] = [
    (tool("empty schema", inputSchema={}), ""),
    (tool("no type", inputSchema={"properties": {"a": {"type": "string"}}}), ""),
    (tool("many types", inputSchema={"type": ["object", "null"]}), ""),
    (tool("empty result", outputSchema={}), ""),
    (tool("any property", inputSchema={"type": "object", "properties": {"a": True}}), ""),
    (tool("nothing", description=None, annotations=None, _meta=None), ""),
    (
        tool("text", inputSchema={"type": "string"}),
        "the tool is left out: inputSchema.type: input should be",
    ),
    (tool("null", inputSchema=None), "the tool is left out: inputSchema: input should be"),
    (tool("list", inputSchema=[]), "the tool is left out: inputSchema: input should be"),
    ({"name": "none"}, "the tool is left out: inputSchema: field required"),
    (
        tool("required", inputSchema={**OBJECT, "required": "a"}),
        "the tool is left out: inputSchema.required: ",
    ),
    ({"inputSchema": OBJECT}, "the tool is left out: name: field required"),
    (
        {"name": 5, "inputSchema": OBJECT},
        "the tool is left out: name: input should be a valid string",
    ),
    ("no object", "the tool is left out: it is not an object"),
    (None, "the tool is left out: it is not an object"),
    (tool("number", description=5), "a member is left out: description: input should be a valid"),
    (tool("titled", title=[]), "a member is left out: title: input should be"),
    (
        tool("hint", annotations={"readOnlyHint": "true"}),
        "a member is left out: annotations.readOnlyHint: ",
    ),
    (tool("hints", annotations="read only"), "a member is left out: annotations: "),
    (tool("icon", icons=[{"src": 5}]), "a member is left out: icons.0.src: input should be"),
    (tool("result", outputSchema={"type": "string"}), "a member is left out: outputSchema.type: "),
    (tool("meta", _meta=5), "a member is left out: _meta: input should be"),
    (tool("empty schema"), "the tool is left out: its name is declared twice"),
]


async def test_one_bad_member_of_a_list_of_tools_costs_only_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ready([each for each, _ in TOOLS]) as adapter:
        (server,) = adapter.list_servers()
        found = server.listing_problems
        expected = [text for _, text in TOOLS if text]
        assert [text for text, line in zip(expected, found, strict=True) if text not in line] == []
        names = [each["name"] for each, text in TOOLS if not text.startswith("the tool")]
        assert list(server.tools) == names
        assert read_text(server.tools["no type"].input_schema, "type") == "object"
        # The text "true" makes no tool harmless.
        assert server.tools["hint"].needs_approval
        assert (await call(adapter, "number", server="raw")).content[0].text == "fine"
    assert problems(caplog, "tool_server.listing_incomplete") == list(found)


BAD_PARTS = [
    {"type": "video", "data": "AAAA"},
    {"type": "text"},
    {"type": "text", "text": 5},
    {"type": "image", "data": "AAAA"},
    {"text": "no type"},
    "text",
    None,
]


async def test_one_bad_part_of_a_result_costs_only_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = {"type": "text", "text": "good"}
    async with ready([tool("parts")]) as adapter:
        result = await call(adapter, "parts", server="raw", parts=[good, *BAD_PARTS, good])
    assert not result.is_error
    first, *others, last = [part.text for part in result.content]
    assert (first, last) == ("good", "good")
    assert others[0] == "[part 2 of the type 'video' is left out: it is no valid content]"
    assert len([text for text in others if "left out" in text]) == len(BAD_PARTS)
    assert problems(caplog, "tool_server.part_left_out") == [
        "a result has parts that can't be used"
    ]


@pytest.mark.parametrize(
    ("pages", "script", "names", "problem"),
    [
        ([[tool(str(n))] for n in range(150)], {}, range(150), ""),
        ([[tool("0")]], {"cursor": "7"}, [0], "the list is cut: the server repeats a cursor"),
        (
            [[tool(str(n)) for n in [*range(30), 0]], *[[]] * 1200],
            {},
            range(30),
            "the list is cut at 1000 pages",
        ),
        (
            [[tool(str(n))] for n in range(12)],
            {"description": 200_000},
            range(10),
            "the list is cut at 2000000 characters",
        ),
        ([[tool("0")]], {"cursor": 7}, [0], "the list is cut: its nextCursor is not a string"),
    ],
    ids=["pages", "same cursor", "endless", "large", "no cursor"],
)
async def test_a_list_that_is_cut_says_so(
    pages: list[list[Any]],
    script: dict[str, Any],
    names: Iterable[int],
    problem: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ready(*pages, **script) as adapter:
        (server,) = adapter.list_servers()
        assert list(server.tools) == [str(name) for name in names]
        cuts = [each for each in server.listing_problems if "cut" in each]
        assert cuts == [problem] * bool(problem)
    assert set(cuts) <= set(problems(caplog, "tool_server.listing_incomplete"))


# Lines that answer the request $ID, and that are no valid message of JSON-RPC.
RESULT = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"answer"}]}}'
ANSWERS = {
    "error without code": '{"jsonrpc":"2.0","id":$ID,"error":{"message":"oh"}}',
    "lone surrogate": RESULT.replace("answer", "\\ud83d"),
    "GBK": RESULT.replace("answer", "\xc4\xe3\xba\xc3"),
    "byte order mark": f"\xef\xbb\xbf{RESULT}",
    "batch": f"[{RESULT}]",
    "two messages": RESULT + '{"jsonrpc":"2.0","method":"notifications/message"}',
    "log line in front": f"INFO {{started}} {RESULT}",
    "log line behind": f"{RESULT} # done",
    "no version": RESULT.replace('"jsonrpc":"2.0",', ""),
    "result and no object": '{"jsonrpc":"2.0","id":$ID,"result":"fine"}',
    "cut": RESULT[:60],
    "UTF-16": "$ID".join("\0".join(part) for part in RESULT.split("$ID")),
}
# With these, only the number of open calls says which call they answer.
ANSWERS_WITHOUT_ID = {
    "no id": '{"jsonrpc":"2.0","result":{"content":[]}}',
    "cut before the id": '{"jsonrpc":"2.0","res',
    "id is null": '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"answer"}}',
}
# These answer nothing.
STRAYS = [
    "a library says hello",
    '{"level":30,"msg":"listening"}',
    "[INFO] started",
    '{"jsonrpc":"2.0","method":5}',
    '{"id":$ID,"method":"ping","jsonrpc":2}',
    '{"jsonrpc":"2.0","id":9999,"error":{"message":"of no call"}}',
    "\xff\xfe",
]


async def test_an_answer_that_cannot_be_decoded_fails_its_call_at_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = [tool("raw"), tool("hold"), tool("good")]
    async with ready(tools) as adapter, asyncio.TaskGroup() as group:
        failed = {name: await failure(adapter, line) for name, line in ANSWERS_WITHOUT_ID.items()}
        held = group.create_task(call(adapter, "hold", server="raw"))
        failed |= {name: await failure(adapter, line) for name, line in ANSWERS.items()}
        assert not held.done()
        held.cancel()
        # The error of the server itself is no line.
        assert failed.pop("id is null") == "answer"
        quoted = "the answer is no valid message of JSON-RPC: "
        assert [name for name, text in failed.items() if not text.startswith(quoted)] == []
        assert '"text":"answer"' in failed["batch"]
        # A log line costs no call, and neither does a message that is no answer.
        for line in STRAYS:
            result = await call(adapter, "raw", server="raw", line=line, is_all=False)
            assert result.content[0].text == "fine"
        (server,) = adapter.list_servers()
        assert server.state == ToolServerState.TOOL_SERVER_STATE_READY
    assert problems(caplog, "tool_server.stray_line") == ["it prints what is no MCP message"]
    assert '"text"' not in str([vars(each) for each in caplog.records])


async def failure(adapter: ToolAdapter, line: str) -> str:
    """Return the text of the failure of a call that is answered by a line."""
    result = await call(adapter, "raw", server="raw", line=line)
    assert result.is_error
    return result.content[0].text


@pytest.mark.parametrize("first", ["starting ", "starting\n", "starting\n{}\n[]\n"])
async def test_a_log_line_before_the_first_message_costs_no_server(
    first: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with ready(first=first) as adapter:
        assert (await call(adapter, "good", server="raw")).content[0].text == "fine"
    assert problems(caplog, "tool_server.stray_line") == ["it prints what is no MCP message"]


async def test_a_list_that_cannot_be_decoded_is_quoted() -> None:
    async with running(PATIENT, raw=raw(is_list_cut=True)) as adapter:
        (server,) = adapter.list_servers()
        await wait_until(adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_FAILED)
        assert server.error.startswith(
            "it does not list its tools: the answer is no valid message of JSON-RPC: {"
        )


# Messages that nobody asked for. Each is sent more often than a server may in a minute.
FLOODS = {
    "change": '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
    "message": '{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}',
    "request": '{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{}}',
    "answer": '{"jsonrpc":"2.0","id":70000,"result":{}}',
    "stderr": "DEBUG still here",
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_server_that_floods_the_mesh_is_read_slowly(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    is_stderr = kind == "stderr"
    arguments = {"line": FLOODS[kind], "count": 100_000, "is_stderr": is_stderr}
    async with ready([tool("flood")]) as adapter, asyncio.TaskGroup() as group:
        flood = group.create_task(call(adapter, "flood", server="raw", **arguments))
        await wait_for(lambda: bool(problems(caplog, "tool_server.paced")))
        assert not flood.done()
        flood.cancel()
    problem = "prints more on stderr than is" if is_stderr else "sends more than is"
    assert problems(caplog, "tool_server.paced") == [f"it {problem} read"]


async def test_a_server_that_reports_a_change_at_each_listing_is_listed_once_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begin = time.monotonic()
    async with ready([tool("listings")], is_restless=True) as adapter:
        await wait_for(lambda: bool(problems(caplog, "tool_server.paced")))
        result = await call(adapter, "listings", server="raw")
    # The first listing is at the start, and the second at once.
    assert int(result.content[0].text) <= 2 + time.monotonic() - begin
    assert problems(caplog, "tool_server.paced") == [
        "it reports changes of its tools at each listing of them"
    ]


def event(message: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\r\n\r\n"


def text_result(key: int, text: str = "fine") -> dict[str, Any]:
    return {"id": key, "result": {"content": [{"type": "text", "text": text}]}}


def body(line: str) -> Callable[[Any], bytes]:
    return lambda key: line.replace("$ID", str(key)).encode("latin-1")


EVENTS = "text/event-stream"
JSON = "application/json"
WRONG_ANSWERS = ANSWERS | ANSWERS_WITHOUT_ID
WRONG_ANSWERS |= {
    "another id": RESULT.replace("$ID", "9999"),
    "no answer": '{"jsonrpc":"2.0","method":"notifications/message"}',
}
HTTP_ANSWERS: dict[str, RawAnswer] = {
    "fine": (EVENTS, lambda key: event(text_result(key)), 1),
    "large": (EVENTS, lambda key: event(text_result(key, "x" * 1_000_000)), 1),
    "endless event": (EVENTS, lambda key: b"data: " + b"x" * 1_000_000, 100),
    "endless line": (EVENTS, lambda key: b"x" * 1_000_000, 100),
    "endless message": (JSON, lambda key: b"x" * 1_000_000, 100),
    "messages": (EVENTS, lambda key: event({"method": "notifications/x"}) * 1000, 1000),
    "comments": (EVENTS, lambda key: b":\n\n" * 1000, 1000),
    "bytes": (EVENTS, lambda key: b": " + b"x" * 1_000_000 + b"\n\n", 1000),
    "silence": (EVENTS, lambda key: b"", 0),
    **{name: (JSON, body(line), 1) for name, line in WRONG_ANSWERS.items()},
}


@asynccontextmanager
async def ready_over_http() -> AsyncIterator[ToolAdapter]:
    async with listening(raw_http_server(HTTP_ANSWERS)) as port:
        entry = ServerConfig(url=f"http://127.0.0.1:{port}/mcp")
        async with running(PATIENT, raw=entry) as adapter:
            await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)
            yield adapter


async def test_a_body_that_is_no_answer_fails_its_call_at_once() -> None:
    async with ready_over_http() as adapter, asyncio.TaskGroup() as group:
        held = group.create_task(call(adapter, "silence", server="raw"))
        failed = {name: await call(adapter, name, server="raw") for name in WRONG_ANSWERS}
        held.cancel()
    assert [name for name, result in failed.items() if not result.is_error] == []
    texts = {name: result.content[0].text for name, result in failed.items()}
    # The error of the server itself is a message.
    assert texts.pop("id is null") == "answer"
    quoted = "the answer is no valid message of JSON-RPC: "
    assert [name for name, text in texts.items() if not text.startswith(quoted)] == []


async def test_a_message_over_the_limit_is_named_over_http() -> None:
    async with ready_over_http() as adapter:
        for name in ("endless event", "endless line", "endless message"):
            result = await call(adapter, name, server="raw")
            assert result.is_error
            assert result.content[0].text == "it answers with more than 16777216 bytes", name
        for name in ("fine", "large"):
            assert not (await call(adapter, name, server="raw")).is_error


@pytest.mark.parametrize("kind", ["messages", "comments", "bytes"])
async def test_a_server_that_floods_the_mesh_over_http_is_read_slowly(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with ready_over_http() as adapter, asyncio.TaskGroup() as group:
        flood = group.create_task(call(adapter, kind, server="raw"))
        await wait_for(lambda: bool(problems(caplog, "tool_server.paced")))
        assert not flood.done()
        flood.cancel()
    assert problems(caplog, "tool_server.paced") == ["it sends more than is read"]
