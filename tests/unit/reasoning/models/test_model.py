"""Models of real providers' clients against a server that answers in their formats."""

import asyncio
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.mesh.recorded_spans import spans_in
from harness.remote.model_server import Call, ModelServer, Pause, Reply, model_server, refuse, say
from trunkline import telemetry
from trunkline.errors import ModelUnavailableError
from trunkline.reasoning.models import Model, ModelChoice, count_tokens, open_model, truncation_note
from trunkline.reasoning.models import model as model_module
from trunkline.settings import ModelSettings

# Clients keep their connections, and those belong to a loop.
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
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        yield memory


def opened(server: ModelServer, *names: str, **options: Any) -> Model:
    tables = {"google": ModelSettings(base_url=server.url), names[0]: ModelSettings(**options)}
    return open_model(ModelChoice(names[0], names[1:], tables))


class Heard:
    """What came of a question while it was answered."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.first = asyncio.Event()

    async def say(self, text: str) -> None:
        self.said.append(text)
        self.first.set()

    async def unsay(self) -> None:
        if self.said:
            self.said.append("<taken back>")

    async def ask(self, model: Model, *messages: Any, **more: Any) -> AIMessage:
        asked = list(messages) or QUESTION
        return await model.ask(asked, on_text=self.say, on_discard=self.unsay, **more)


def chats(exporter: InMemorySpanExporter) -> list[ReadableSpan]:
    """Our spans; Anthropic's client adds one below each."""
    return [one for one in exporter.get_finished_spans() if one.name.startswith("chat ")]


async def problem_of(model: Model, heard: Heard | None = None) -> str:
    with pytest.raises(ModelUnavailableError) as caught:
        await (heard or Heard()).ask(model)
    return str(caught.value)


def attributes_of(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("provider", ALL)
async def test_an_answer_streams_and_a_tool_is_called_through_the_real_client(
    server: ModelServer, provider: str, exporter: InMemorySpanExporter
) -> None:
    model = opened(server, f"{provider}:some-model")
    pause = Pause()
    calls = (Call("math__add", {"a": 1, "b": 2}), Call("math__add", {"a": 3, "b": 4}))
    server.script(say("It is ", pause, "three."), Reply(calls=calls))
    heard = Heard()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(heard.ask(model))
        await asyncio.wait_for(heard.first.wait(), 30)
        # The server has not even said the rest yet.
        assert heard.said == ["It is "]
        pause.go_on()
    assert (asking.result().text, "".join(heard.said)) == ("It is three.", "It is three.")
    assert count_tokens([asking.result()]) == 18
    reply = await heard.ask(model, tools=[ADD])
    assert [(one["name"], one["args"]) for one in reply.tool_calls] == [
        ("math__add", {"a": 1, "b": 2}),
        ("math__add", {"a": 3, "b": 4}),
    ]
    # What only our own model understands does not leave the house.
    assert server.asked[-1].tools == ["math__add"]
    assert "trunkline/match" not in str(server.asked[-1].json)
    # And what the tools answer goes back to it.
    server.script(say("3 and 7."))
    results = [ToolMessage(str(one["args"]), tool_call_id=one["id"]) for one in reply.tool_calls]
    assert (await heard.ask(model, *QUESTION, reply, *results, tools=[ADD])).text == "3 and 7."
    chat = chats(exporter)[0]
    span = attributes_of(chat)
    assert chat.name == f"chat {provider}:some-model"
    assert span[telemetry.GEN_AI_REQUEST_MODEL] == "some-model"
    assert span[telemetry.GEN_AI_RESPONSE_MODEL] == "served-model"
    assert span[telemetry.GEN_AI_USAGE_INPUT_TOKENS] == 11
    assert span[telemetry.GEN_AI_USAGE_OUTPUT_TOKENS] == 7
    assert len(span[telemetry.GEN_AI_RESPONSE_FINISH_REASONS]) == 1
    assert "three" not in str([attributes_of(one) for one in exporter.get_finished_spans()])


@pytest.mark.parametrize("provider", ALL)
async def test_what_a_provider_refuses_says_what_to_do(server: ModelServer, provider: str) -> None:
    model = opened(server, f"{provider}:m")
    for status, said in (
        (401, "refused the key (401)"),
        (404, "no such model (404); check its name"),
        (400, "refused the request (400): "),
    ):
        server.script(refuse(status))
        problem = await problem_of(model)
        assert said in problem
        # Asking again would not help; and where it is, is nobody's business.
        assert len(server.asked) == 1
        assert server.url not in problem


@pytest.mark.parametrize("provider", ALL)
async def test_what_passes_is_asked_again_a_few_times(server: ModelServer, provider: str) -> None:
    model = opened(server, f"{provider}:m")
    heard = Heard()
    server.script(refuse(503), say("half ", "an ", is_cut=True), say("a whole answer"))
    assert (await heard.ask(model)).text == "a whole answer"
    assert "".join(heard.said) == "half an <taken back>a whole answer"
    server.script(*[refuse(500)] * 5)
    assert "failed (500)" in await problem_of(model)
    assert len(server.asked) == 3


# A slow machine gets more time to ask, and to hear the beginning.
PATIENCES_S = (0.2, 2, 20)


@pytest.mark.parametrize("provider", ALL)
async def test_a_model_that_falls_silent_is_given_up_and_its_request_closed(
    server: ModelServer, provider: str
) -> None:
    for first_token_s in PATIENCES_S:
        model = opened(server, f"{provider}:m", first_token_s=first_token_s)
        server.script(say(Pause(), "late"))
        problem = await problem_of(model)
        assert f"sent no token within {first_token_s:g} s; raise first_token_s" in problem
        if server.asked:
            break
    await server.until_ended(server.asked[0])
    assert server.asked[0].is_hung_up
    for first_token_s in PATIENCES_S:
        model = opened(server, f"{provider}:m", first_token_s=first_token_s)
        server.script(say("begun ", Pause(), "late"))
        heard = Heard()
        assert f"sent no token within {first_token_s:g} s" in await problem_of(model, heard)
        if heard.said:
            break
    assert heard.said == ["begun ", "<taken back>"]
    slow = opened(server, f"{provider}:m", timeout_s=0.2)
    server.script(say("begun ", Pause(), "late"))
    assert "takes over 0.2 s; raise timeout_s" in await problem_of(slow)


@pytest.mark.parametrize("provider", ALL)
async def test_cancel_closes_the_request(server: ModelServer, provider: str) -> None:
    model = opened(server, f"{provider}:m")
    server.script(say("begun ", Pause(), "late"))
    heard = Heard()
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(heard.ask(model))
        await asyncio.wait_for(heard.first.wait(), 30)
        asking.cancel()
    await server.until_ended(server.asked[0])
    assert server.asked[0].is_hung_up


async def test_when_a_model_fails_the_next_one_answers(
    server: ModelServer, exporter: InMemorySpanExporter
) -> None:
    model = opened(server, "openai:first", "anthropic:second")
    server.script(refuse(500), say("from the second"))
    assert (await model.ask(QUESTION)).text == "from the second"
    assert [one.path for one in server.asked] == ["/v1/chat/completions", "/v1/messages"]
    # Also in the middle of an answer: what was said of it is taken back.
    heard = Heard()
    server.script(say("half ", is_cut=True), say("a whole answer"))
    await heard.ask(model)
    assert "".join(heard.said) == "half <taken back>a whole answer"
    server.script(refuse(401), refuse(404))
    problem = await problem_of(model)
    assert "check OPENAI_API_KEY; 'anthropic:second': anthropic has no such model" in problem
    kinds = [attributes_of(one).get(telemetry.ERROR_TYPE) for one in chats(exporter)]
    assert kinds == ["500", None, "connection", None, "401", "404"]


async def test_the_built_in_model_may_be_the_last_resort(server: ModelServer) -> None:
    server.script(refuse(401))
    reply = await opened(server, "openai:m", "rules").ask([HumanMessage("add")], tools=[ADD])
    assert reply.tool_calls[0]["name"] == "math__add"


async def test_a_pause_that_a_provider_asks_for_is_kept_if_it_is_short(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(model_module, "asyncio", SimpleNamespace(sleep=sleep))
    model = opened(server, "openai:m")
    server.script(refuse(429, retry_after_s=7), say("now"))
    assert (await model.ask(QUESTION)).text == "now"
    assert pauses == [7]
    server.script(refuse(429, retry_after_s=100))
    assert "quota at openai is used up (429)" in await problem_of(model)
    assert pauses == [7]


async def test_what_can_not_be_read_is_no_answer(server: ModelServer) -> None:
    model = opened(server, "openai:m")
    server.script(*[say("a ", is_malformed=True)] * 3)
    assert "sent an invalid response" in await problem_of(model)
    server.script(Reply(finish="content_filter"))
    assert "answered with nothing (content_filter)" in await problem_of(model)
    half = Reply(calls=(Call("math__add", '{"a": 1, '),), finish="length")
    server.script(half)
    assert "4096 tokens are too few; raise max_tokens" in await problem_of(model)
    # Half of what a tool was to be called with is not called, but shown to whoever asked.
    server.script(Reply(calls=(Call("math__add", '{"a": 1, "b": 2'), Call("math__add", "[1]"))))
    reply = await model.ask(QUESTION, tools=[ADD])
    assert (reply.tool_calls, len(reply.invalid_tool_calls)) == ([], 2)


@pytest.mark.parametrize(
    "given",
    [
        "1e999",
        "NaN",
        "9" * 400,
        '"\\ud800"',
        '{"a": ' * 40 + "1" + "}" * 40,
        "[" * 20_000 + "]" * 20_000,
    ],
    ids=["endless", "no number", "huge", "half a character", "deep", "very deep"],
)
async def test_arguments_that_no_message_can_carry_are_none(
    server: ModelServer, given: str
) -> None:
    server.script(Reply(calls=(Call("math__add", f'{{"a": {given}}}'),)))
    reply = await opened(server, "openai:m").ask(QUESTION, tools=[ADD])
    assert (reply.tool_calls, len(reply.invalid_tool_calls)) == ([], 1)


@pytest.mark.parametrize("provider", ["openai", "anthropic"])
async def test_a_call_that_can_not_be_read_is_shown_to_its_provider_again(
    server: ModelServer, provider: str
) -> None:
    model = opened(server, f"{provider}:m")
    server.script(Reply(calls=(Call("math__add", '{"a": 1, "b'),)), say("so be it"))
    reply = await model.ask(QUESTION, tools=[ADD])
    told = ToolMessage("no JSON", tool_call_id=reply.invalid_tool_calls[0]["id"], status="error")
    again = [*QUESTION, reply, told, HumanMessage("again")]
    assert (await model.ask(again, tools=[ADD])).text == "so be it"
    assert "no JSON" in str(server.asked[-1].messages)
    # Many servers that speak like OpenAI read the arguments, and refuse what is no JSON.
    assert '"b' not in str(server.asked[-1].messages)


async def test_a_reply_that_may_not_be_longer_says_so(server: ModelServer) -> None:
    for provider in ALL:
        server.script(say("only so", finish="length"))
        reply = await opened(server, f"{provider}:m", max_tokens=7).ask(QUESTION)
        assert "at its length limit" in truncation_note(reply)
        assert "7" in str(server.asked[0].json)


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google"])
async def test_a_reply_that_its_provider_holds_back_says_so_and_calls_nothing(
    server: ModelServer, provider: str, exporter: InMemorySpanExporter
) -> None:
    model = opened(server, f"{provider}:m")
    server.script(say("only so", finish="content_filter"))
    reply = await model.ask(QUESTION)
    assert (reply.text, "content filter" in truncation_note(reply)) == ("only so", True)
    (span,) = chats(exporter)
    said = attributes_of(span)[telemetry.GEN_AI_RESPONSE_FINISH_REASONS]
    assert said[0] in {"content_filter", "refusal", "SAFETY"}
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
    asked = server.asked[0].json
    assert [asked[name] for name in ("temperature", "seed", "top_p")] == [0.25, 2, 0.5]
    assert server.asked[0].headers["authorization"] == "Bearer test-key"


async def test_a_reply_of_one_provider_may_be_shown_to_another(server: ModelServer) -> None:
    server.script(Reply(pieces=("Adding.",), calls=(Call("math__add", {"a": 1, "b": 2}),)))
    reply = await opened(server, "anthropic:m").ask(QUESTION, tools=[ADD])
    assert isinstance(reply.content, list)
    result = ToolMessage("3", tool_call_id=reply.tool_calls[0]["id"])
    for provider in ("openai", "google", "ollama"):
        server.script(say("3"))
        await opened(server, f"{provider}:m").ask([*QUESTION, reply, result], tools=[ADD])
        assert "toolset_name" not in str(server.asked[0].json)
        assert "partial_json" not in str(server.asked[0].json)


async def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "MY_KEY"):
        monkeypatch.delenv(name, raising=False)
    assert "there is no key: set OPENAI_API_KEY" in await problem_of(open_model("openai:m"))
    tables = {"openai": ModelSettings(api_key_env="MY_KEY", base_url="http://127.0.0.1:9")}
    problem = await problem_of(open_model(ModelChoice("openai:m", (), tables)))
    assert "there is no key: set MY_KEY" in problem


async def test_a_server_of_ones_own_needs_no_key(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    server.script(say("x"))
    assert (await opened(server, "openai:m").ask(QUESTION)).text == "x"


async def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langchain_openai", None)
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    problem = await problem_of(open_model("openai:m"))
    assert "it needs langchain-openai: install trunkline[openai]" in problem


async def test_wrong_options_are_said_so_without_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    tables = {"openai": ModelSettings(extra={"n": "a secret"})}
    problem = await problem_of(open_model(ModelChoice("openai:m", (), tables)))
    assert "its options are wrong (ValidationError)" in problem
    assert "secret" not in problem


@pytest.mark.parametrize("name", ["gpt", "nobody:m", "openai:", ""])
async def test_a_name_that_is_none_is_refused_at_once(name: str) -> None:
    with pytest.raises(ModelUnavailableError, match="write rules, or openai:NAME"):
        open_model(name)


async def test_a_history_with_calls_is_understood_by_all(server: ModelServer) -> None:
    """Such as the built-in model leaves, when it was the fallback."""
    call = tool_call(name="math__add", args={"a": 1, "b": 2}, id="rules-1")
    history = [
        *QUESTION,
        AIMessage("", tool_calls=[call]),
        ToolMessage("3", tool_call_id="rules-1"),
        AIMessage("3"),
        HumanMessage("again"),
    ]
    for provider in ALL:
        server.script(say("3"))
        assert (await opened(server, f"{provider}:m").ask(history, tools=[ADD])).text == "3"


async def test_nothing_of_a_provider_is_loaded_before_it_is_asked() -> None:
    code = (
        "import sys, trunkline.cli, trunkline.mesh.all_in_one, trunkline.reasoning.graph\n"
        "from trunkline.reasoning import open_model\n"
        "open_model('openai:m'), open_model('google:m')\n"
        "names = 'langchain_openai langchain_anthropic langchain_google_genai langchain_ollama'\n"
        "names += ' openai anthropic google.genai ollama'\n"
        "print([name for name in names.split() if name in sys.modules])\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert out.decode().strip() == "[]"
