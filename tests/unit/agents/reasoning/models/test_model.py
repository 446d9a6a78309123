"""Models with the real clients of each provider, against a server that answers in their formats."""

import asyncio
import json
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.mesh.recorded_spans import spans_in
from harness.remote.measurements import measuring
from harness.remote.model_server import Call, ModelServer, Pause, Reply, model_server, refuse, say
from trunkline.agents.reasoning.models import (
    Model,
    ModelChoice,
    count_tokens,
    open_model,
    truncation_note,
)
from trunkline.agents.reasoning.models import model as model_module
from trunkline.core.settings import ModelSettings, TreeSettings
from trunkline.errors import ModelUnavailableError, TreeLimitError
from trunkline.observe import telemetry
from trunkline.observe.span_content import ContentCapture, use_capture
from trunkline.tasks.task_tree import TaskTree
from trunkline.tasks.usage_meter import UsageMeter
from trunkline.v1 import snapshot_pb2

# Clients reuse their connections, and a connection belongs to one event loop.
pytestmark = pytest.mark.asyncio(loop_scope="module")

ALL = ("openai", "anthropic", "google", "ollama")
ADD = {
    "type": "function",
    "function": {
        "name": "math__add",
        "description": "Adds.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
    "metadata": {"trunkline/match": [{"pattern": "add"}], "title": "Add"},
}
QUESTION = [SystemMessage("Be brief."), HumanMessage("hello")]


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with model_server() as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        patch.setattr(model_module, "FIRST_PAUSE_S", 0.01)
        yield running


@pytest.fixture
def own_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    """A server of one test. A request that its client gave up may arrive after the test's end."""
    with model_server() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        yield running


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        yield memory


def open_test_model(server: ModelServer, *names: str, **options: Any) -> Model:
    tables = {"google": ModelSettings(base_url=server.url), names[0]: ModelSettings(**options)}
    return open_model(ModelChoice(names[0], names[1:], tables))


class Recorder:
    """Sends a request to a model and records the streamed text and its discards."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.first = asyncio.Event()

    async def on_text(self, text: str) -> None:
        self.texts.append(text)
        self.first.set()

    async def on_discard(self) -> None:
        if self.texts:
            self.texts.append("<taken back>")

    async def ask(self, model: Model, *messages: Any, **more: Any) -> AIMessage:
        request = list(messages) or QUESTION
        return await model.ask(request, on_text=self.on_text, on_discard=self.on_discard, **more)


def chat_spans(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    """Return the spans of the project; Anthropic's client adds one below each."""
    return [span for span in exporter.get_finished_spans() if span.name.startswith("chat ")]


async def get_problem(model: Model, recorder: Recorder | None = None) -> str:
    with pytest.raises(ModelUnavailableError) as caught:
        await (recorder or Recorder()).ask(model)
    return str(caught.value)


def get_attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("provider", ALL)
async def test_an_answer_streams_and_a_tool_is_called_through_the_real_client(
    server: ModelServer, provider: str, exporter: InMemorySpanExporter
) -> None:
    model = open_test_model(server, f"{provider}:some-model")
    pause = Pause()
    calls = (Call("math__add", {"a": 1, "b": 2}), Call("math__add", {"a": 3, "b": 4}))
    server.script(say("It is ", pause, "three."), Reply(calls=calls))
    recorder = Recorder()
    async with asyncio.TaskGroup() as group:
        request_task = group.create_task(recorder.ask(model))
        await asyncio.wait_for(recorder.first.wait(), 30)
        # The server has not sent the rest yet.
        assert recorder.texts == ["It is "]
        pause.end()
    assert (request_task.result().text, "".join(recorder.texts)) == ("It is three.", "It is three.")
    assert count_tokens([request_task.result()]) == 18
    reply = await recorder.ask(model, tools=[ADD])
    assert [(call["name"], call["args"]) for call in reply.tool_calls] == [
        ("math__add", {"a": 1, "b": 2}),
        ("math__add", {"a": 3, "b": 4}),
    ]
    # Metadata for the built-in model does not reach a provider.
    assert server.requests[-1].tools == ["math__add"]
    assert "trunkline/match" not in str(server.requests[-1].json)
    # The results of the tools go back to the model.
    server.script(say("3 and 7."))
    results = [ToolMessage(str(call["args"]), tool_call_id=call["id"]) for call in reply.tool_calls]
    assert (await recorder.ask(model, *QUESTION, reply, *results, tools=[ADD])).text == "3 and 7."
    chat = chat_spans(exporter)[0]
    span = get_attributes(chat)
    assert chat.name == "chat some-model"
    assert span[telemetry.GEN_AI_REQUEST_MODEL] == "some-model"
    assert span[telemetry.GEN_AI_RESPONSE_MODEL] == "served-model"
    assert span[telemetry.GEN_AI_USAGE_INPUT_TOKENS] == 11
    assert span[telemetry.GEN_AI_USAGE_OUTPUT_TOKENS] == 7
    assert len(span[telemetry.GEN_AI_RESPONSE_FINISH_REASONS]) == 1
    assert "three" not in str(
        [get_attributes(finished_span) for finished_span in exporter.get_finished_spans()]
    )


@pytest.mark.parametrize("provider", ALL)
async def test_an_error_of_a_provider_says_what_to_do(server: ModelServer, provider: str) -> None:
    model = open_test_model(server, f"{provider}:m")
    for status, expected in (
        (401, "refused the key (401)"),
        (404, "no such model (404); check its name"),
        (400, "refused the request (400): "),
    ):
        server.script(refuse(status))
        problem = await get_problem(model)
        assert expected in problem
        # A retry would not help, and the error does not show the server's address.
        assert len(server.requests) == 1
        assert server.url not in problem


@pytest.mark.parametrize("provider", ALL)
async def test_a_transient_error_is_retried_a_few_times(server: ModelServer, provider: str) -> None:
    model = open_test_model(server, f"{provider}:m")
    recorder = Recorder()
    server.script(refuse(503), say("half ", "an ", is_cut=True), say("a whole answer"))
    assert (await recorder.ask(model)).text == "a whole answer"
    assert "".join(recorder.texts) == "half an <taken back>a whole answer"
    server.script(*[refuse(500)] * 5)
    assert "failed (500)" in await get_problem(model)
    assert len(server.requests) == 3


# A slow machine gets more time to send the request and to receive the first token.
TIME_LIMITS_S = (0.2, 2, 20)


@pytest.mark.parametrize("provider", ["openai", "google"])
async def test_a_silent_model_times_out_and_its_request_is_closed(
    own_server: ModelServer, provider: str
) -> None:
    server = own_server
    for first_token_s in TIME_LIMITS_S:
        model = open_test_model(server, f"{provider}:m", first_token_s=first_token_s)
        server.script()
        server.decide = lambda _: say(Pause(), "late")
        problem = await get_problem(model)
        assert f"sent no token within {first_token_s:g} s; raise first_token_s" in problem
        if server.requests:
            break
    await server.until_ended(server.requests[0])
    assert server.requests[0].is_hung_up
    for first_token_s in TIME_LIMITS_S:
        model = open_test_model(server, f"{provider}:m", first_token_s=first_token_s)
        server.decide = lambda _: say("begun ", Pause(), "late")
        recorder = Recorder()
        assert f"sent no token within {first_token_s:g} s" in await get_problem(model, recorder)
        if recorder.texts:
            break
    assert recorder.texts == ["begun ", "<taken back>"]
    slow = open_test_model(server, f"{provider}:m", timeout_s=0.2)
    assert "takes over 0.2 s; raise timeout_s" in await get_problem(slow)


@pytest.mark.parametrize("provider", ALL)
async def test_cancel_closes_the_request(server: ModelServer, provider: str) -> None:
    model = open_test_model(server, f"{provider}:m")
    server.script(say("begun ", Pause(), "late"))
    recorder = Recorder()
    async with asyncio.TaskGroup() as group:
        request_task = group.create_task(recorder.ask(model))
        await asyncio.wait_for(recorder.first.wait(), 30)
        request_task.cancel()
    await server.until_ended(server.requests[0])
    assert server.requests[0].is_hung_up


async def test_the_next_model_answers_after_a_failure(
    server: ModelServer, exporter: InMemorySpanExporter
) -> None:
    model = open_test_model(server, "openai:first", "anthropic:second")
    server.script(refuse(500), say("from the second"))
    assert (await model.ask(QUESTION)).text == "from the second"
    assert [request.path for request in server.requests] == ["/v1/chat/completions", "/v1/messages"]
    # The fallback also works in the middle of an answer: the streamed text is discarded.
    recorder = Recorder()
    server.script(say("half ", is_cut=True), say("a whole answer"))
    await recorder.ask(model)
    assert "".join(recorder.texts) == "half <taken back>a whole answer"
    server.script(refuse(401), refuse(404))
    problem = await get_problem(model)
    assert "check OPENAI_API_KEY; 'anthropic:second': anthropic has no such model" in problem
    kinds = [get_attributes(span).get(telemetry.ERROR_TYPE) for span in chat_spans(exporter)]
    assert kinds == ["500", None, "connection", None, "401", "404"]


async def test_the_built_in_model_may_be_the_last_resort(server: ModelServer) -> None:
    server.script(refuse(401))
    reply = await open_test_model(server, "openai:m", "rules").ask(
        [HumanMessage("add")], tools=[ADD]
    )
    assert reply.tool_calls[0]["name"] == "math__add"


async def test_a_short_retry_after_of_a_provider_is_respected(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(model_module, "asyncio", SimpleNamespace(sleep=sleep))
    model = open_test_model(server, "openai:m")
    server.script(refuse(429, retry_after_s=7), say("now"))
    assert (await model.ask(QUESTION)).text == "now"
    assert pauses == [7]
    server.script(refuse(429, retry_after_s=100))
    assert "quota at openai is used up (429)" in await get_problem(model)
    assert pauses == [7]


async def test_an_invalid_response_is_no_answer(server: ModelServer) -> None:
    model = open_test_model(server, "openai:m")
    server.script(*[say("a ", is_malformed=True)] * 3)
    assert "sent an invalid response" in await get_problem(model)
    server.script(Reply(finish="content_filter"))
    assert "answered with nothing (content_filter)" in await get_problem(model)
    half = Reply(calls=(Call("math__add", '{"a": 1, '),), finish="length")
    server.script(half)
    assert "4096 tokens are too few; raise max_tokens" in await get_problem(model)
    # A call with incomplete arguments is not made, but the caller sees it.
    server.script(Reply(calls=(Call("math__add", '{"a": 1, "b": 2'), Call("math__add", "[1]"))))
    reply = await model.ask(QUESTION, tools=[ADD])
    assert (reply.tool_calls, len(reply.invalid_tool_calls)) == ([], 2)


@pytest.mark.parametrize(
    "number",
    [
        "1e999",
        "NaN",
        "9" * 400,
        '"\\ud800"',
        '{"a": ' * 40 + "1" + "}" * 40,
        "[" * 20_000 + "]" * 20_000,
    ],
    ids=["endless", "not a number", "huge", "half a character", "deep", "very deep"],
)
async def test_arguments_that_no_message_can_carry_are_invalid(
    server: ModelServer, number: str
) -> None:
    server.script(Reply(calls=(Call("math__add", f'{{"a": {number}}}'),)))
    reply = await open_test_model(server, "openai:m").ask(QUESTION, tools=[ADD])
    assert (reply.tool_calls, len(reply.invalid_tool_calls)) == ([], 1)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_an_invalid_call_and_its_error_are_sent_back_to_the_provider(
    server: ModelServer, provider: str
) -> None:
    model = open_test_model(server, f"{provider}:m")
    server.script(Reply(calls=(Call("math__add", '{"a": 1, "b'),)), say("so be it"))
    reply = await model.ask(QUESTION, tools=[ADD])
    tool_error = ToolMessage(
        "no JSON", tool_call_id=reply.invalid_tool_calls[0]["id"], status="error"
    )
    again = [*QUESTION, reply, tool_error, HumanMessage("again")]
    assert (await model.ask(again, tools=[ADD])).text == "so be it"
    assert "no JSON" in str(server.requests[-1].messages)
    # Many servers with OpenAI's API parse the arguments and reject invalid JSON.
    assert '"b' not in str(server.requests[-1].messages)


async def test_a_reply_cut_at_the_token_limit_has_a_note(server: ModelServer) -> None:
    for provider in ALL:
        server.script(say("only so", finish="length"))
        reply = await open_test_model(server, f"{provider}:m", max_tokens=7).ask(QUESTION)
        assert "at its length limit" in truncation_note(reply)
        assert "7" in str(server.requests[0].json)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
async def test_a_filtered_reply_has_a_note_and_calls_no_tools(
    server: ModelServer, provider: str, exporter: InMemorySpanExporter
) -> None:
    model = open_test_model(server, f"{provider}:m")
    server.script(say("only so", finish="content_filter"))
    reply = await model.ask(QUESTION)
    assert (reply.text, "content filter" in truncation_note(reply)) == ("only so", True)
    (span,) = chat_spans(exporter)
    expected = get_attributes(span)[telemetry.GEN_AI_RESPONSE_FINISH_REASONS]
    assert expected[0] in {"content_filter", "refusal", "SAFETY"}
    server.script(Reply(calls=(Call("math__add", {"a": 1, "b": 2}),), finish="content_filter"))
    with pytest.raises(ModelUnavailableError, match="its reply was filtered"):
        await model.ask(QUESTION, tools=[ADD])


async def test_options_reach_the_provider(server: ModelServer) -> None:
    tables = {
        "openai": ModelSettings(temperature=0.5, extra={"seed": 1, "top_p": 0.5}),
        "openai:m": ModelSettings(temperature=0.25, extra={"seed": 2}),
    }
    server.script(say("x"))
    await open_model(ModelChoice("openai:m", (), tables)).ask(QUESTION)
    request = server.requests[0].json
    assert [request[name] for name in ("temperature", "seed", "top_p")] == [0.25, 2, 0.5]
    assert server.requests[0].headers["authorization"] == "Bearer test-key"


async def test_a_reply_of_one_provider_may_be_sent_to_another(server: ModelServer) -> None:
    server.script(Reply(pieces=("Adding.",), calls=(Call("math__add", {"a": 1, "b": 2}),)))
    reply = await open_test_model(server, "anthropic:m").ask(QUESTION, tools=[ADD])
    assert isinstance(reply.content, list)
    result = ToolMessage("3", tool_call_id=reply.tool_calls[0]["id"])
    for provider in ("openai", "google", "ollama"):
        server.script(say("3"))
        await open_test_model(server, f"{provider}:m").ask([*QUESTION, reply, result], tools=[ADD])
        assert "toolset_name" not in str(server.requests[0].json)
        assert "partial_json" not in str(server.requests[0].json)


async def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "MY_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert "there is no key: set OPENAI_API_KEY" in await get_problem(open_model("openai:m"))
    tables = {"openai": ModelSettings(api_key_env="MY_KEY", base_url="http://127.0.0.1:9")}
    problem = await get_problem(open_model(ModelChoice("openai:m", (), tables)))
    assert "there is no key: set MY_KEY" in problem


async def test_a_custom_server_needs_no_key(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    server.script(say("x"))
    assert (await open_test_model(server, "openai:m").ask(QUESTION)).text == "x"


@pytest.mark.parametrize("fallbacks", [(), ("openai:m",)])
async def test_a_missing_package_is_named_at_once(
    monkeypatch: pytest.MonkeyPatch, fallbacks: tuple[str, ...]
) -> None:
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    choice = ModelChoice("rules" if fallbacks else "openai:m", fallbacks, {})
    with pytest.raises(ModelUnavailableError, match=r"install 'trunkline\[openai\]'`"):
        open_model(choice)


async def test_wrong_options_are_reported_without_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    tables = {"openai": ModelSettings(extra={"n": "a secret"})}
    problem = await get_problem(open_model(ModelChoice("openai:m", (), tables)))
    assert "its options are wrong (ValidationError)" in problem
    assert "secret" not in problem


@pytest.mark.parametrize("name", ["gpt", "unknown:m", "openai:", ""])
async def test_an_invalid_model_name_is_refused_at_once(name: str) -> None:
    with pytest.raises(ModelUnavailableError, match="write rules, or openai:NAME"):
        open_model(name)


async def test_the_tokens_of_a_reply_count_for_the_request_and_end_at_its_limit(
    server: ModelServer, exporter: InMemorySpanExporter
) -> None:
    limits = TreeSettings(tokens=18, cost=1.0)
    task = snapshot_pb2.TaskSnapshot(agent="tested")
    tree = TaskTree(task, task, limits)
    prices = {"openai:priced": ModelSettings(input_price=2.0, output_price=4.0)}
    meter = UsageMeter(tree, "acme", "ann", models=prices)
    model = open_test_model(server, "openai:priced")
    server.script(say("hello"))

    with measuring() as measured:
        await model.ask(QUESTION, meter=meter)
        assert measured.of("trunkline.model.cost") == {("openai:priced",): 50 / 1e6}
        labels = ("chat", "openai", "priced", "text")
        usage = "gen_ai.client.inference.usage"
        assert measured.of(f"{usage}.input_tokens") == {labels: 11}
        assert measured.of(f"{usage}.output_tokens") == {labels: 7}
        of_calls = measured.of("gen_ai.client.inference.operation.output_tokens")
        assert of_calls == {labels[:3]: 1}
    assert get_attributes(chat_spans(exporter)[0])[telemetry.MODEL_COST_MICROS] == 50

    assert (tree.usage.tokens, tree.usage.cost_micros) == (18, 11 * 2 + 7 * 4)
    with pytest.raises(TreeLimitError, match="tested is over the limit of tokens"):
        await model.ask(QUESTION, meter=meter)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "ollama"])
async def test_a_request_carries_the_trace(
    server: ModelServer, provider: str, exporter: InMemorySpanExporter
) -> None:
    server.script(*[say("yes")] * (1 if provider == "anthropic" else 2))
    await Recorder().ask(open_test_model(server, f"{provider}:m"))
    (chat,) = chat_spans(exporter)
    _, trace_id, span_id, _ = server.requests[-1].headers["traceparent"].split("-")
    assert chat.context is not None
    assert trace_id == f"{chat.context.trace_id:032x}"
    below = {span.context.span_id for span in exporter.get_finished_spans() if span.context}
    assert int(span_id, 16) in below
    if provider != "anthropic":
        await Recorder().ask(open_test_model(server, f"{provider}:m", traceparent=False))
        assert "traceparent" not in server.requests[-1].headers


async def test_content_is_in_the_span_only_if_it_is_captured(
    server: ModelServer, exporter: InMemorySpanExporter
) -> None:
    server.script(say("The password is hunter2secret."), say("other"))
    model = open_test_model(server, "openai:m")
    with use_capture(ContentCapture.create(["Ada +[a-z]+"])):
        await Recorder().ask(model, SystemMessage("Be brief."), HumanMessage("I am Ada Lovelace."))
    await Recorder().ask(model, HumanMessage("not captured"))
    captured, plain = map(get_attributes, chat_spans(exporter))
    assert json.loads(captured["gen_ai.input.messages"]) == [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "I am [redacted]."}]},
    ]
    assert captured["input.value"] == "I am [redacted]."
    assert captured["openinference.span.kind"] == "LLM"
    assert "hunter2" not in str(captured)
    assert captured["output.value"].startswith("The [redacted]")
    assert "captured" not in str(plain)
    assert "other" not in str(plain)
