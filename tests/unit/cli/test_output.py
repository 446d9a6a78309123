"""Output of commands: tables, tasks, traces, errors and logs, in colour only on terminals."""

import io
import json
import logging
import sys
import unicodedata

import pytest
import typer

from harness.terminal import read_until, terminal
from trunkline.cli.exits import ExitCode, print_error, run
from trunkline.cli.options import build_agent_url, resolve_base_url, resolve_mesh_settings
from trunkline.cli.task_view import ModelCalls, count_model_calls, describe
from trunkline.cli.terminal import (
    RED,
    has_colour,
    paint,
    paint_state,
    print_progress,
    print_table,
    print_wrapped,
)
from trunkline.cli.trace import render_trace
from trunkline.client.trace_tree import TraceTree
from trunkline.errors import ConfigurationError, PeerUnavailableError, TaskNotFoundError
from trunkline.json_values import update_struct
from trunkline.logs import JsonFormatter, PlainFormatter, configure_logging, render_event
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2, task_pb2, trace_service_pb2


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def span(name: str, parent: str = "", *, start_ms: int, duration_ms: int) -> trace_service_pb2.Span:
    built = trace_service_pb2.Span(
        trace_id="ab" * 16, span_id=name, parent_span_id=parent, name=name, service="bridge"
    )
    built.start_time.FromMilliseconds(start_ms)
    built.end_time.FromMilliseconds(start_ms + duration_ms)
    return built


def test_a_trace_is_an_indented_list_with_times_and_errors() -> None:
    failed = span("call", "root", start_ms=1005, duration_ms=20)
    failed.is_error = True
    update_struct(failed.attributes, {"error.type": "TASK_NOT_FOUND"})
    refused = span("refused", "root", start_ms=1007, duration_ms=2)
    update_struct(refused.attributes, {"rpc.status_code": "NOT_FOUND"})
    lost = span("lost", "gone", start_ms=1010, duration_ms=1)
    root = span("root", start_ms=1000, duration_ms=50)
    update_struct(root.attributes, {"rpc.status_code": "OK"})
    lines = list(render_trace(TraceTree.build([root, failed, refused, lost])))
    assert lines == [
        f"trace {'ab' * 16}: 4 spans, 1 service, 50.0 ms, 1 error",
        "    start  duration  (*: critical path)",
        "    +0 ms   50.0 ms* bridge  root",
        " +5.00 ms   20.0 ms*   bridge  call  ! TASK_NOT_FOUND",
        " +7.00 ms   2.00 ms    bridge  refused  NOT_FOUND",
        " +10.0 ms   1.00 ms  bridge  lost  (its parent is missing)",
    ]


def test_a_trace_shows_the_tokens_and_the_price_of_its_models() -> None:
    chat = span("chat gpt-x", "root", start_ms=0, duration_ms=2)
    update_struct(
        chat.attributes,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.input_tokens": 1000,
            "gen_ai.usage.output_tokens": 20,
            "trunkline.cost_micros": 12_300,
        },
    )
    root = span("root", start_ms=0, duration_ms=1500)
    # A span of an agent repeats what its models used.
    update_struct(root.attributes, {"gen_ai.usage.input_tokens": 1000})
    opened = span("open", "root", start_ms=1, duration_ms=0)
    opened.ClearField("end_time")
    summary, _, *lines = render_trace(TraceTree.build([root, chat, opened]))
    assert summary.endswith(
        "3 spans, 1 service, 1.50 s, 0 errors, 1 model call, 1000 + 20 tokens, $0.0123"
    )
    assert lines == [
        "    +0 ms    1.50 s* bridge  root",
        "    +0 ms   2.00 ms    bridge  chat gpt-x  1000 + 20 tokens, $0.0123",
        " +1.00 ms      open*   bridge  open",
    ]


def test_the_line_of_a_span_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    failed = span("long name " * 20, start_ms=0, duration_ms=1)
    failed.is_error = True
    with terminal(monkeypatch, columns=60):
        monkeypatch.setenv("NO_COLOR", "1")
        *_, line = render_trace(TraceTree.build([failed]))
    assert line.endswith("…  ! failed")
    assert 55 < len(line) <= 60


def test_a_field_is_wrapped_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch, columns=30) as reader:
        print_wrapped(f"state     {paint_state('failed', sys.stdout)}: not at all", indent=10)
        print_wrapped(f"question  why is that so hard, and for whom, {'ab' * 16}?", indent=10)
        output = read_until(reader, b"?\n")
    assert output == (
        "state     \x1b[31mfailed\x1b[0m: not at all\n"
        "question  why is that so hard,\n"
        f"          and for whom, {'ab' * 16}?\n"
    )


def test_http_calls_show_their_server_and_status() -> None:
    refused = span("POST webhook", "root", start_ms=1, duration_ms=1)
    refused.is_error = True
    retry = span("POST webhook", "root", start_ms=2, duration_ms=1)
    retry.span_id = "again"
    request_attributes = {"http.request.method": "POST", "server.address": "receiver.example"}
    status_attribute = "http.response.status_code"
    update_struct(
        refused.attributes, {**request_attributes, status_attribute: 503, "error.type": "503"}
    )
    update_struct(
        retry.attributes,
        {**request_attributes, status_attribute: 204, "http.request.resend_count": 1},
    )
    root = span("root", start_ms=0, duration_ms=9)
    update_struct(root.attributes, {"http.request.method": "POST", status_attribute: 200})
    lines = list(render_trace(TraceTree.build([root, refused, retry])))
    assert lines[2:] == [
        "    +0 ms   9.00 ms* bridge  root",
        " +1.00 ms   1.00 ms*   bridge  POST webhook  receiver.example  ! 503",
        " +2.00 ms   1.00 ms*   bridge  POST webhook  receiver.example 204, attempt 2",
    ]


def test_calls_that_callers_got_wrong_show_their_status() -> None:
    spans = [span("root", start_ms=0, duration_ms=9)]
    attributes_of: dict[str, dict[str, float | str]] = {
        "GetTask": {"http.response.status_code": 404},
        "Agents": {"rpc.status_code": "NOT_FOUND"},
        "SendMessage": {"http.response.status_code": 200, "rpc.status_code": "OK"},
    }
    for name, attributes in attributes_of.items():
        call = span(name, "root", start_ms=1, duration_ms=1)
        call.span_id = name
        update_struct(call.attributes, attributes)
        spans.append(call)

    names = [
        line.split("bridge  ")[1]
        for line in render_trace(TraceTree.build(spans))
        if "bridge" in line
    ]

    assert sorted(names) == ["Agents  NOT_FOUND", "GetTask  404", "SendMessage", "root"]


def test_a_task_is_described_with_all_its_steps() -> None:
    snapshot = snapshot_pb2.TaskSnapshot(agent="supervisor", turn=2)
    snapshot.task.id = "t-1"
    snapshot.task.context_id = "c-1"
    snapshot.traceparent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    snapshot.create_time.FromJsonString("2026-11-24T12:00:00Z")
    snapshot.task.status.timestamp.FromJsonString("2026-11-24T12:00:02.5Z")
    snapshot.task.history.add(role=message_pb2.ROLE_USER).parts.add(text="what\nis it")
    snapshot.task.history.add(role=message_pb2.ROLE_AGENT).parts.add(text="this")
    snapshot.task.status.state = task_pb2.TASK_STATE_FAILED
    snapshot.task.status.message.parts.add(text="no\n luck")
    snapshot.parent.task_id, snapshot.parent.agent = "t-0", "boss"
    snapshot.routes.add(agent="math", confidence=0.5, reasons=["tag 'sum'", "tag 'add'"])
    snapshot.routes.add()
    child = snapshot.children.add()
    child.started.task_id, child.started.agent = "t-2", "math"
    child.finished.state = task_pb2.TASK_STATE_COMPLETED
    snapshot.children.add().started.task_id = "t-3"
    call = snapshot.tool_calls.add()
    call.started.tool, call.finished.is_error = "math/calculate", True
    call.finished.summary = "too large"
    snapshot.tool_calls.add().started.tool = "math/solve"
    approval = snapshot.approvals.add()
    approval.requested.approval_id, approval.requested.tool = "t-1.1", "shop/order"
    approval.answered.decision = event_pb2.APPROVAL_DECISION_REJECTED
    approval.answered.reason = "too dear"
    artifact = snapshot.task.artifacts.add(artifact_id="a-1", name="answer")
    artifact.parts.add(text="x" * 500)
    snapshot.artifacts.add(artifact_id="a-1").origin.agent = "math"
    snapshot.artifacts.add(artifact_id="a-2")
    artifact = snapshot.task.artifacts.add(artifact_id="a-2")
    artifact.parts.add(raw=b"123", filename="f.bin")
    artifact.parts.add(url="https://example.com/")
    artifact.parts.add().data.number_value = 3
    calls = ModelCalls("plan", "gpt-x", 2, 1, input_tokens=210, output_tokens=35, seconds=1.25)
    lines = list(describe(snapshot, [calls]))
    assert lines[:8] == [
        "task      t-1",
        "question  what is it",
        "state     failed: no luck",
        "agent     supervisor, turn 2",
        "context   c-1",
        "created   2026-11-24T12:00:00Z",
        "ended     2026-11-24T12:00:02.500Z (after 2.50 s)",
        f"trace     {'ab' * 16}",
    ]
    assert lines[8:17] == [
        "parent    t-0 (boss)",
        "model     plan: 2 calls, 1 failed, 210 + 35 tokens, 1.25 s (gpt-x)",
        "route     math, confidence 50%: tag 'sum'; tag 'add'",
        "route     no agent, confidence 0%: no reason",
        "child     t-2 math completed",
        "child     t-3  working",
        "tool      math/calculate failed: too large",
        "tool      math/solve running",
        "approval  t-1.1 shop/order rejected (too dear)",
    ]
    assert lines[17] == f"artifact  answer of math: {'x' * 159}…"
    assert lines[18] == (
        "artifact  a-2: [file f.bin, 3 bytes] [file unnamed at https://example.com/] 3"
    )


def test_a_task_shows_each_text_once_and_that_its_answer_is_partial() -> None:
    snapshot = snapshot_pb2.TaskSnapshot(agent="top", turn=2)
    snapshot.task.status.state = task_pb2.TASK_STATE_COMPLETED
    update_struct(snapshot.task.metadata, {"trunkline/outcome": "partial"})
    synthesis = event_pb2.ARTIFACT_KIND_SYNTHESIS
    for text, turn, kind, writer in (
        ("of a child", 1, event_pb2.ARTIFACT_KIND_UNSPECIFIED, "t-2"),
        ("of a child's child", 1, synthesis, "t-2"),
        ("of a child", 2, event_pb2.ARTIFACT_KIND_ANSWER, "t-3"),
        ("draft", 2, event_pb2.ARTIFACT_KIND_DRAFT, ""),
        ("whole", 2, synthesis, ""),
    ):
        snapshot.task.artifacts.add(name="answer").parts.add(text=text)
        info = snapshot.artifacts.add(turn=turn, kind=kind)
        if writer:
            info.origin.task_id = writer
    lines = list(describe(snapshot))
    assert "state     completed (partial: a part of the answer is missing)" in lines
    # The combined answer of turn 2 has the text of its agents; turn 1 has no such answer.
    assert [line for line in lines if line.startswith("artifact")] == [
        "artifact  answer: of a child",
        "artifact  answer: whole",
    ]


def test_model_calls_of_a_task_are_counted_by_purpose() -> None:
    turn = span("turn", start_ms=0, duration_ms=100)
    update_struct(turn.attributes, {"trunkline.task.id": "t-1"})
    other = span("other", start_ms=0, duration_ms=5)
    calls = [
        span(f"call-{number}", parent, start_ms=number, duration_ms=10)
        for number, parent in enumerate(("turn", "turn", "turn", "other"))
    ]
    for call, purpose in zip(calls, ("plan", "answer", "answer", "answer"), strict=True):
        update_struct(call.attributes, {"gen_ai.operation.name": "chat"})
        update_struct(call.attributes, {"gen_ai.request.model": "gpt-x"})
        update_struct(call.attributes, {"trunkline.model.purpose": purpose})
        update_struct(call.attributes, {"gen_ai.usage.input_tokens": 100})
    calls[2].is_error = True
    plan, answer = count_model_calls([turn, other, *calls], "t-1")
    assert (plan.purpose, plan.calls, plan.input_tokens) == ("plan", 1, 100)
    assert (answer.purpose, answer.calls, answer.failures) == ("answer", 2, 1)
    assert answer.seconds == pytest.approx(0.02)


def test_a_table_has_columns_and_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "WHAT"), [("a", "first\nline"), ("longer", "")])
    assert capsys.readouterr().out == "NAME    WHAT\na       first line\nlonger\n"
    print_table(("NAME", "WHAT"), [])
    assert capsys.readouterr().out == "NAME  WHAT\n"


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert paint("x", RED, Terminal()) == "\x1b[31mx\x1b[0m"
    assert paint("x", RED, io.StringIO()) == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert not has_colour(Terminal())
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert not has_colour(Terminal())


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    for stream, shown in ((Terminal(), "working\n"), (io.StringIO(), "")):
        monkeypatch.setattr(sys, "stderr", stream)
        print_progress("working")
        assert stream.getvalue() == shown


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (TaskNotFoundError("t"), "no task 't' here; `trunkline tasks` lists your tasks", 1),
        (PeerUnavailableError("p", "two\nlines"), "p can't be reached: two lines", 4),
        (ExceptionGroup("g", [ValueError("x"), ConfigurationError("w", "p")]), "w: p", 1),
        (
            OSError(28, "No space left on device"),
            "unexpected OSError (No space left on device); TRUNKLINE_LOG_LEVEL=debug shows where",
            1,
        ),
        (ValueError("secret"), "unexpected ValueError; TRUNKLINE_LOG_LEVEL=debug shows where", 1),
    ],
)
def test_every_error_is_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], error: Exception, line: str, code: int
) -> None:
    assert print_error(error) == code

    async def work() -> ExitCode:
        raise error

    with pytest.raises(typer.Exit) as caught:
        run(work())
    assert caught.value.exit_code == code
    assert capsys.readouterr().err == f"error: {line}\n" * 2


def test_a_command_exits_with_its_code() -> None:
    async def work() -> ExitCode:
        return ExitCode.INPUT_REQUIRED

    with pytest.raises(typer.Exit) as caught:
        run(work())
    assert caught.value.exit_code == 3


def test_addresses_default_to_those_of_up(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(str(tmp_path))
    assert resolve_base_url(None) == "http://127.0.0.1:8000"
    assert str(resolve_mesh_settings(None).mesh) == "127.0.0.1:50051"
    monkeypatch.setenv("TRUNKLINE_HTTP", "[::1]:9000")
    monkeypatch.setenv("TRUNKLINE_MESH", "localhost:9001")
    assert resolve_base_url(None) == "http://[::1]:9000"
    assert str(resolve_mesh_settings(None).mesh) == "localhost:9001"
    assert str(resolve_mesh_settings("127.0.0.1:1").mesh) == "127.0.0.1:1"
    assert (
        build_agent_url(resolve_base_url("https://example.com/a/"), "math")
        == "https://example.com/a/agents/math"
    )
    assert build_agent_url("http://h", None) == "http://h"


@pytest.mark.parametrize("url", ["example.com", "ftp://example.com", "http://", "http://[x"])
def test_an_invalid_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a URL"):
        resolve_base_url(url)


def test_port_0_is_no_address_to_call() -> None:
    with pytest.raises(ConfigurationError, match="give the one that it printed"):
        resolve_mesh_settings("127.0.0.1:0")


def record(exc_info: object = None) -> logging.LogRecord:
    built = logging.LogRecord("trunkline.x", logging.WARNING, "", 0, "task.lost", None, exc_info)  # type: ignore[arg-type]
    built.task_id = "t-1"
    return built


def test_a_log_line_has_its_fields() -> None:
    line = PlainFormatter().format(record())
    assert line.endswith(" warning trunkline.x task.lost task_id=t-1")
    built = record()
    # uvicorn adds a copy of its message for terminals.
    built.color_message = "\x1b[36mtask.lost"
    entry = json.loads(JsonFormatter().format(built))
    assert list(entry)[:4] == ["time", "level", "logger", "event"]
    assert "color_message" not in entry
    assert entry["event"] == "task.lost"
    assert (entry["level"], entry["logger"], entry["task_id"]) == ("warning", "trunkline.x", "t-1")
    assert entry["time"].endswith("+00:00")


def test_an_event_of_a_process_is_a_sentence_unless_logs_are_json() -> None:
    assert render_event("x.begun", "begun", log_format="plain", file="a.py") == "begun"
    entry = json.loads(render_event("x.begun", "begun", log_format="json", file="a.py"))
    assert (entry["level"], entry["event"], entry["file"]) == ("info", "x.begun", "a.py")


def test_loggers_of_libraries_that_log_content_are_disabled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)
    loggers = [logging.getLogger(name) for name in ("mcp", "httpx2", "httpcore2")]
    before = [logger.level for logger in loggers]
    try:
        configure_logging(level="debug", log_format="plain")
        for name in ("mcp.client.streamable_http", "httpx2", "httpcore2.http11"):
            assert not logging.getLogger(name).isEnabledFor(logging.ERROR)
    finally:
        logging.captureWarnings(capture=False)
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def test_an_exception_in_the_log_has_its_traceback() -> None:
    try:
        raise ValueError("x")
    except ValueError:
        built = record(sys.exc_info())
    assert "test_output.py" in PlainFormatter().format(built)
    assert "ValueError: x" in json.loads(JsonFormatter().format(built))["exception"]


# Line breaks of all kinds, terminal sequences, DEL, and characters that turn text around.
HOSTILE = (
    "a\n12:00:00 info trunkline forged\r\x0b\x0c\x1c\x1e\x85\u2028\u2029 \x1b[2J\x9b2J\x07\x7f\x00"
    "\u202e\u2066\u200f\u061c \ud800"
)


def hostile_record() -> logging.LogRecord:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        built = logging.LogRecord(
            f"lib{HOSTILE}", logging.INFO, "", 0, "GET %s", (HOSTILE,), sys.exc_info()
        )
    built.agent = HOSTILE
    built.level = "fatal"
    built.stack_info = HOSTILE
    return built


def hidden_characters(text: str) -> set[str]:
    """Return the characters that a terminal or a log reader may obey instead of showing them."""
    kinds = {"Cc", "Cs", "Zl", "Zp"}
    turning = set("\u061c\u200e\u200f") | {chr(code) for code in range(0x202A, 0x202F)}
    turning |= {chr(code) for code in range(0x2066, 0x206A)}
    return {char for char in text if unicodedata.category(char) in kinds or char in turning}


def test_a_plain_log_line_cannot_be_forged() -> None:
    text = PlainFormatter().format(hostile_record())
    first, *others = text.split("\n")
    assert hidden_characters(text) == {"\n"}
    assert ' agent="a\\n12:00:00 info trunkline forged' in first
    assert others
    assert all(line.startswith("    ") for line in others)


def test_a_json_log_line_cannot_be_forged() -> None:
    line = JsonFormatter().format(hostile_record())
    assert hidden_characters(line) == set()
    entry = json.loads(line)
    assert entry["agent"] == entry["stack"] == HOSTILE
    assert (entry["level"], entry["event"]) == ("info", f"GET {HOSTILE}")
    assert HOSTILE in entry["exception"]


def test_a_field_with_spaces_is_quoted() -> None:
    built = record()
    built.task_id = 't level=error code="x"'
    line = PlainFormatter().format(built)
    assert line.endswith(' task_id="t level=error code=\\"x\\""')


@pytest.mark.parametrize("text", ["x level=error", 'x "', "x task_id=t-2"])
def test_a_message_cannot_add_a_field(text: str) -> None:
    built = logging.LogRecord("lib", logging.INFO, "", 0, "GET %s", (text,), None)
    built.task_id = "t-1"
    line = PlainFormatter().format(built)
    assert line.endswith(f" info lib {json.dumps(f'GET {text}')} task_id=t-1")


@pytest.mark.parametrize("formatter", [PlainFormatter(), JsonFormatter()])
def test_a_record_with_wrong_arguments_is_logged_escaped(formatter: logging.Formatter) -> None:
    built = logging.LogRecord("lib", logging.INFO, "", 0, "%d\n", ("\x1b",), None)
    line = formatter.format(built)
    assert hidden_characters(line) == set()
    assert "x1b" in line
