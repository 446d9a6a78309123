import asyncio
import gc
import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext

from harness.mcp.scripted_servers import (
    AWKWARD,
    PLAIN,
    READY_TIMEOUT_S,
    awkward,
    call,
    is_alive,
    running,
    script,
    wait_for_exit,
    wait_for_file,
    wait_until,
)
from harness.mesh.identity import mesh_credentials
from trunkline.core.json_values import message_to_dict
from trunkline.core.settings import Settings
from trunkline.errors import (
    PeerProtocolError,
    PeerTimeoutError,
    ToolServerUnavailableError,
)
from trunkline.mesh.client import BreakerSettings, ChannelPool
from trunkline.observe import telemetry
from trunkline.processes.tools import add_tool_adapter, load_mcp_config
from trunkline.tools import session
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.config import AdapterSettings, McpConfig, ServerConfig, ServerOverlay
from trunkline.tools.connection import ServerConnection
from trunkline.tools.server import ToolServerState
from trunkline.tools.span_intake_servicer import SpanIntake


async def test_tools_are_listed_as_declared_with_what_the_configuration_adds() -> None:
    added = {"pattern": "^say (.+)$", "arguments": {"text": "{1}"}}
    overlay = {"tools": {"repeat": {"match": [added], "tags": ["say"]}}}
    async with running(awkward=awkward(trunkline=overlay)) as adapter:
        await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)
        tool = adapter.list_servers()[0].tools["repeat"]
    assert (tool.server, tool.title) == ("awkward", "Repeat")
    assert (tool.read_only, tool.destructive, tool.idempotent) == (True, False, True)
    assert message_to_dict(tool.input_schema)["required"] == ["text"]
    metadata = message_to_dict(tool.metadata)
    patterns = [item["pattern"] for item in metadata["trunkline/match"]]
    assert patterns == ["^say (.+)$", "^repeat (.+)$"]
    assert metadata["trunkline/tags"] == ["say"]


async def test_many_calls_run_at_once_on_one_server_and_do_not_mix() -> None:
    async with running(awkward=awkward()) as adapter, asyncio.TaskGroup() as group:
        calls = [group.create_task(call(adapter, "repeat", text=f"text {n}")) for n in range(50)]
    assert [task.result().content[0].text for task in calls] == [f"text {n}" for n in range(50)]


async def test_a_killed_server_is_restarted_and_calls_wait_for_it() -> None:
    async with running(awkward=awkward()) as adapter:
        await adapter.wait_ready(timeout_s=READY_TIMEOUT_S)
        server = adapter.list_servers()[0]
        first = server.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await wait_until(adapter, lambda: server.error == "it was killed by SIGKILL")
        assert server.state == ToolServerState.TOOL_SERVER_STATE_STARTING
        assert server.tools == {}
        assert (await call(adapter, "repeat", text="again")).content[0].text == "again"
        assert server.pid != first


async def test_a_server_that_keeps_dying_is_down_until_it_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The second restart delay is twice this long; the early call below falls into it.
    settings = AdapterSettings(restart_delay_s=0.3, restart_delay_max_s=60.0)
    async with running(settings, awkward=awkward()) as adapter:
        server = adapter.list_servers()[0]
        for state in (
            ToolServerState.TOOL_SERVER_STATE_STARTING,
            ToolServerState.TOOL_SERVER_STATE_FAILED,
        ):
            with pytest.raises(ToolServerUnavailableError, match="exited with code 3 during"):
                await call(adapter, "die", code=3)
            assert server.state == state
        with pytest.raises(ToolServerUnavailableError, match="is down: "):
            await call(adapter, "repeat", text="too early")
        await wait_until(adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_READY)
        assert (await call(adapter, "repeat", text="back")).content[0].text == "back"
    # It was ready in between, so the same problem is logged again.
    assert failures(caplog) == ["it exited with code 3"] * 2


async def test_a_server_that_stops_answering_is_restarted() -> None:
    settings = AdapterSettings(connect_timeout_s=3.0, restart_delay_s=0.05, grace_s=0.1)
    # It loads almost nothing, so its start stays within the same timeout, even on a busy machine.
    plain = PLAIN.model_copy(update={"trunkline": ServerOverlay(call_timeout_s=1)})
    async with running(settings, plain=plain) as adapter:
        server = adapter.list_servers()[0]
        await wait_until(adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_READY)
        frozen = server.pid
        assert frozen is not None
        os.kill(frozen, signal.SIGSTOP)
        with pytest.raises(PeerTimeoutError):
            await call(adapter, "fine", server="plain")
        await wait_until(adapter, lambda: server.error == "it answers nothing any more")
        await wait_for_exit(frozen)
        await wait_until(adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_READY)


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (ServerConfig(command="no-such-command"), "its command 'no-such-command' is not on PATH"),
        (ServerConfig(command="/"), "its command '/' can't be started"),
        (ServerConfig(command="true", cwd=Path("/no/such/folder")), "is missing"),
        (ServerConfig(command="true"), "it exited with code 0 before it was ready"),
        (script("raise SystemExit(7)"), "it exited with code 7 before it was ready"),
        (script("while True: print('garbage')"), "it prints what is no MCP message on stdout"),
        (script("import os, time; os.close(1); time.sleep(600)"), "it closed its pipes"),
    ],
    ids=["missing", "no program", "no folder", "quits", "fails", "garbage", "mute"],
)
async def test_a_broken_server_is_reported_in_one_line_and_others_work(
    broken: ServerConfig, problem: str
) -> None:
    settings = AdapterSettings(restart_delay_s=30.0, restart_delay_max_s=30.0, grace_s=0.2)
    async with running(settings, broken=broken) as adapter:
        server = adapter.list_servers(["broken"])[0]
        await wait_until(adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_FAILED)
        assert problem in server.error
        assert "\n" not in server.error
        with pytest.raises(ToolServerUnavailableError, match="tool server 'broken' is down"):
            await call(adapter, "any", server="broken")
        with pytest.raises(ToolServerUnavailableError):
            await adapter.wait_ready(timeout_s=1)


async def test_a_server_that_does_not_answer_is_killed_with_its_child_processes(
    tmp_path: Path,
) -> None:
    """A launcher starts the server, and the server starts another process."""
    nested = (
        "import os, sys, time\n"
        "for left in (2, 1, 0):\n"
        "    with open(f'{sys.argv[1]}/{left}.part', 'w') as part: part.write(str(os.getpid()))\n"
        "    os.rename(part.name, f'{sys.argv[1]}/{left}.pid')\n"
        "    if not left or os.fork(): break\n"
        "time.sleep(600)\n"
    )
    # With -I -S all three processes run long before the timeout, even on a busy machine.
    launcher = ServerConfig(command=sys.executable, args=["-I", "-S", "-c", nested, str(tmp_path)])
    settings = AdapterSettings(connect_timeout_s=3, restart_delay_s=30, grace_s=0.1)
    async with running(settings, launcher=launcher) as adapter:
        for left in range(3):
            await wait_for_file(tmp_path / f"{left}.pid")
        pids = [int((tmp_path / f"{left}.pid").read_text()) for left in range(3)]
        for pid in pids:
            await wait_for_exit(pid)
        (server,) = adapter.list_servers()
        assert server.error == "it did not answer within 3 s"


async def test_an_entry_sets_the_start_timeout_of_its_server() -> None:
    entry = {"command": sys.executable, "args": ["-c", "import time; time.sleep(600)"]}
    patient = ServerConfig.model_validate({**entry, "trunkline": {"connect_timeout_s": 0.3}})
    async with running(AdapterSettings(grace_s=0.2), patient=patient) as adapter:
        server = adapter.list_servers()[0]
        await wait_until(adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_FAILED)
        assert server.error == "it did not answer within 0.3 s"


def failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        vars(record)["problem"]
        for record in caplog.records
        if record.message == "tool_server.failed"
    ]


async def wait_for_failures(adapter: ToolAdapter, *, times: int) -> None:
    """Wait until the only server has failed so many times."""
    server = adapter.list_servers()[0]
    for _ in range(times):
        await wait_until(
            adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_STARTING
        )
        await wait_until(adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_FAILED)


async def test_a_server_that_stays_broken_is_logged_once_for_each_problem(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    code = tmp_path / "code"
    code.write_text("7")
    settings = AdapterSettings(
        restart_delay_s=0.05,
        restart_delay_max_s=0.05,
        grace_s=0.2,
        breaker=BreakerSettings(failures=1000),
    )
    broken = script(f"raise SystemExit(int(open({str(code)!r}).read()))")
    async with running(settings, broken=broken) as adapter:
        await wait_for_failures(adapter, times=4)
        # An atomic replace, because the server may read the file at any moment.
        (tmp_path / "next").write_text("8")
        (tmp_path / "next").replace(code)
        await wait_until(adapter, lambda: "code 8" in adapter.list_servers()[0].error)
        await wait_for_failures(adapter, times=3)
    assert failures(caplog) == [
        "it exited with code 7 before it was ready",
        "it exited with code 8 before it was ready",
    ]


async def test_the_log_of_a_server_that_dies_at_its_start_has_the_reason_without_secrets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, logger="trunkline.tools")
    code = (
        "import os, sys\n"
        "print('at', os.getpid(), file=sys.stderr)\n"
        "raise ValueError('\\x1b[31mno such key: ' + os.environ['KEY'] + ' in /etc/shop/keys.ini')"
    )
    dying = script(code).model_copy(update={"env": {"KEY": "s3cret-key"}})
    settings = AdapterSettings(restart_delay_s=0.05, restart_delay_max_s=0.05, grace_s=0.2)
    async with running(settings, dying=dying) as adapter:
        await wait_for_failures(adapter, times=2)
        (server,) = adapter.list_servers()
        assert server.error.startswith("it exited with code 1 before it was ready; its stderr ends")
        assert server.error.endswith("| ValueError: no such key: [hidden] in keys.ini")
        with pytest.raises(ToolServerUnavailableError, match=r"no such key: \[hidden\]"):
            await call(adapter, "any", server="dying")
    # Once, though its message is different each time.
    assert len(failures(caplog)) == 1
    assert "s3cret" not in str([vars(record) for record in caplog.records])


async def test_log_lines_of_a_server_belong_to_no_trace(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="trunkline.tools")
    traces: dict[str, str] = {}

    def note(record: logging.LogRecord) -> bool:
        traces[record.getMessage()] = telemetry.current_trace_id()
        return True

    caplog.handler.addFilter(note)
    start_up = SpanContext(trace_id=1, span_id=2, is_remote=False)
    logging_server = script(
        "import sys\nprint('stray')\nprint('on stderr', file=sys.stderr)\nsys.stdin.readline()\n"
    )
    settings = AdapterSettings(restart_delay_s=30.0, restart_delay_max_s=30.0, grace_s=0.2)
    with trace.use_span(NonRecordingSpan(start_up)):
        async with running(settings, noisy=logging_server) as adapter:
            server = adapter.list_servers()[0]
            await wait_until(
                adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_FAILED
            )
    assert traces == {
        "tool_server.stderr": "",
        "tool_server.stray_line": "",
        "tool_server.failed": "",
    }


async def test_callers_of_a_hanging_server_get_the_error_before_it_is_killed() -> None:
    stubborn = script(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
    )
    settings = AdapterSettings(connect_timeout_s=0.5, restart_delay_s=30.0, grace_s=2.0)
    async with running(settings, stubborn=stubborn) as adapter:
        server = adapter.list_servers()[0]
        await wait_until(adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_FAILED)
        assert server.pid is not None
        with pytest.raises(ToolServerUnavailableError, match=r"did not answer within 0\.5 s"):
            await call(adapter, "any", server="stubborn")


async def test_an_endless_line_on_stdout_ends_the_server_and_not_the_mesh() -> None:
    endless = script("import sys\nwhile True: sys.stdout.write('x' * 65536)")
    settings = AdapterSettings(restart_delay_s=30.0, restart_delay_max_s=30.0, grace_s=0.2)
    async with running(settings, endless=endless) as adapter:
        server = adapter.list_servers()[0]
        await wait_until(adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_FAILED)
        assert "it printed a line of more than" in server.error


async def test_a_failed_tool_call_is_a_result_with_the_reason() -> None:
    async with running(awkward=awkward()) as adapter:
        refused = await call(adapter, "refuse")
        mendable = await call(adapter, "mend")
        invalid = await call(adapter, "count", n="many")
    assert (refused.is_error, refused.is_mendable) == (True, False)
    assert "not today" in refused.content[0].text
    assert (mendable.is_error, mendable.is_mendable) == (True, True)
    assert mendable.content[0].text == "ask for something else"
    assert invalid.is_error


async def test_the_error_of_a_server_that_ends_after_it_is_not_lost() -> None:
    async with running(plain=PLAIN) as adapter:
        result = await call(adapter, "last_words", server="plain")
    assert (result.is_error, result.content[0].text) == (True, "out of paper")


async def test_servers_get_only_the_environment_variables_that_they_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up")
    monkeypatch.setenv("TRUNKLINE_DATA", "somewhere")
    monkeypatch.setenv("LC_TIME", "C")
    config = McpConfig({"awkward": awkward(env={"OWN": "value"})})
    async with (
        ChannelPool(mesh_credentials()) as channels,
        SpanIntake(mesh_credentials(), lambda: channels.get("127.0.0.1:1")) as intake,
        ToolAdapter(config, intake=intake) as adapter,
    ):
        variables = json.loads((await call(adapter, "surroundings")).content[0].text)
    inherited = {"HOME", "LANG", "PATH", "TMPDIR", "TZ"}
    own_variables = {name for name in variables if not name.startswith(("LC_", "OTEL_"))}
    assert own_variables <= inherited | {"OWN"}
    assert variables["OWN"] == "value"
    assert variables["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert variables["OTEL_EXPORTER_OTLP_ENDPOINT"].startswith("https://localhost:")
    assert variables["OTEL_EXPORTER_OTLP_CERTIFICATE"] == str(mesh_credentials().roots_file)
    assert variables["OTEL_SERVICE_NAME"] == "mcp-awkward"


async def test_a_server_starts_in_the_folder_of_its_file_and_not_in_the_current_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "clone"
    clone.mkdir()
    monkeypatch.chdir(clone)
    (clone / "server.py").write_text("open('hostile', 'w').close()")
    (tmp_path / "server.py").write_text("open('started', 'w').close()")
    file = tmp_path / "mcp.json"
    entry = {"command": sys.executable, "args": ["server.py"]}
    file.write_text(json.dumps({"mcpServers": {"s": entry}}))
    settings = Settings(mcp_file=file, data_dir=clone)
    async with make_adapter(load_mcp_config(settings, {}), settings):
        await wait_for_file(tmp_path / "started")
    assert not (clone / "hostile").exists()


async def test_without_a_file_servers_start_in_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, own, clone = tmp_path / "data", tmp_path / "own", tmp_path / "clone"
    for folder in (data, own, clone):
        folder.mkdir()
    monkeypatch.chdir(clone)
    server = script("open('started', 'w').close()")
    servers = {"data": server, "own": server.model_copy(update={"cwd": own})}
    async with make_adapter(McpConfig(servers), Settings(data_dir=data)):
        await wait_for_file(data / "started")
        await wait_for_file(own / "started")
    assert list(clone.iterdir()) == []


def make_adapter(config: McpConfig, settings: Settings) -> ToolAdapter:
    """Return the adapter of a mesh without the rest of the mesh."""
    server: Any = SimpleNamespace(add_service=lambda *_: None, statements=None, audit=None)
    directory: Any = None
    return add_tool_adapter(server, config, settings, directory)


async def test_closing_ends_a_server_whose_failure_replaces_the_cancellation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The SDK raises the server's end in place of the cancellation if both come at once."""
    is_opening = asyncio.Event()
    started: list[int | None] = []

    @asynccontextmanager
    async def open_session(
        connection: ServerConnection, **_: object
    ) -> AsyncIterator[ServerConnection]:
        try:
            started.append(connection.pid)
            is_opening.set()
            await asyncio.Event().wait()
            yield connection
        except asyncio.CancelledError:
            connection.has_ended.set()
            raise ConnectionError from None

    monkeypatch.setattr(session, "open_session", open_session)
    async with asyncio.timeout(READY_TIMEOUT_S):
        async with running(awkward=awkward()):
            await is_opening.wait()
    # It was stopped, and not started again.
    (pid,) = started
    assert pid is not None
    assert not is_alive(pid)


async def test_closing_ends_the_servers_and_their_child_processes() -> None:
    async with running(awkward=awkward()) as adapter:
        started = json.loads((await call(adapter, "grandchild")).content[0].text)["pid"]
        server = adapter.list_servers()[0].pid
        assert server is not None
        assert is_alive(started)
    await wait_for_exit(server)
    await wait_for_exit(started)


async def test_servers_end_when_the_mesh_is_killed(tmp_path: Path) -> None:
    mesh = tmp_path / "mesh.py"
    mesh.write_text(
        "import asyncio, sys\n"
        "from trunkline.tools.adapter import ToolAdapter\n"
        "from trunkline.tools.config import McpConfig, ServerConfig\n"
        "async def main():\n"
        "    server = ServerConfig(command=sys.executable, args=[sys.argv[1]])\n"
        "    async with ToolAdapter(McpConfig({'awkward': server})) as adapter:\n"
        "        await adapter.wait_ready(timeout_s=40)\n"
        "        print(adapter.list_servers()[0].pid, flush=True)\n"
        "        await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(mesh), AWKWARD, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(READY_TIMEOUT_S):
        pid = int(await process.stdout.readline())
    assert is_alive(pid)
    process.kill()
    await process.wait()
    await wait_for_exit(pid)


async def test_a_server_that_ignores_every_signal_is_killed() -> None:
    stubborn = script(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
    )
    settings = AdapterSettings(grace_s=0.2)
    async with asyncio.timeout(READY_TIMEOUT_S), running(settings, stubborn=stubborn) as adapter:
        server = adapter.list_servers()[0]
        await wait_until(adapter, lambda: server.pid is not None)
        pid = server.pid
    assert pid is not None
    await wait_for_exit(pid)


def test_closing_while_a_server_stops_leaves_nothing_open() -> None:
    stubborn = script(
        "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(600)"
    )
    settings = AdapterSettings(connect_timeout_s=0.2, restart_delay_s=30.0, grace_s=30.0)

    async def leave() -> None:
        async with running(settings, stubborn=stubborn) as adapter:
            server = adapter.list_servers()[0]
            await wait_until(
                adapter, lambda: server.state == ToolServerState.TOOL_SERVER_STATE_FAILED
            )

    with warnings.catch_warnings(record=True) as caught:
        # Warnings of earlier tests must not count.
        warnings.simplefilter("ignore")
        gc.collect()
        warnings.simplefilter("always")
        asyncio.run(leave())
        gc.collect()
    assert [str(warning.message) for warning in caught if warning.category is ResourceWarning] == []


async def test_a_tool_that_appears_later_is_listed() -> None:
    async with running(awkward=awkward()) as adapter:
        await call(adapter, "learn")
        server = adapter.list_servers()[0]
        await wait_until(adapter, lambda: "learned" in server.tools)
        assert (await call(adapter, "learned", text="new")).content[0].text == "new"


async def test_a_result_that_is_refused_says_which_member_is_wrong_and_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    problems = {
        "unfit": "does not fit its outputSchema: n: is not of type number",
        "unstructured": "does not fit its outputSchema: its structuredContent is missing",
        "nonsense": "is not one of MCP: content: Input should be a valid list",
        "unlocated": "is not one of MCP: Invalid IPv6 URL",
    }
    async with running(plain=PLAIN) as adapter:
        for tool, problem in problems.items():
            with pytest.raises(PeerProtocolError, match=f"the result of {tool} {problem}$"):
                await call(adapter, tool, server="plain")
            # The breaker counts refused results in a row.
            assert (await call(adapter, "fine", server="plain")).content[0].text == "fine"
    logged = [vars(record) for record in caplog.records if "result_refused" in record.message]
    assert {record["tool"]: record["problem"] for record in logged} == problems
