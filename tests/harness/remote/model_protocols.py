"""The chat protocols of four model providers, with tools, streamed and unary."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol


class Cut(Exception):  # noqa: N818 it is no error of the server
    """The connection ends in the middle of a reply."""


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. Arguments given as text are sent unchanged, even if they are not JSON."""

    name: str
    arguments: Mapping[str, object] | str = field(default_factory=dict)
    id: str = ""
    pieces: "Sequence[str | _Pause]" = ()
    """The pieces of the arguments in OpenAI's stream, instead of two halves."""

    @property
    def text(self) -> str:
        """The arguments as they are sent."""
        value = self.arguments
        return value if isinstance(value, str) else json.dumps(value)


class _Pause(Protocol):
    async def wait(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply."""

    pieces: Sequence[str | _Pause] = ()
    calls: Sequence[Call] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    usage: tuple[int, int] | None = (11, 7)
    """Tokens read and written."""
    finish: str = ""
    """In OpenAI's words; empty: `stop` or `tool_calls`."""
    is_cut: bool = False
    """True if the connection breaks after the pieces, before the end of the reply."""
    is_malformed: bool = False
    """True if invalid JSON follows the pieces."""

    @property
    def finish_reason(self) -> str:
        """The finish reason, in OpenAI's words."""
        return self.finish or ("tool_calls" if self.calls else "stop")

    def ids(self) -> list[tuple[str, Call]]:
        """The calls with their ids."""
        return [(call.id or f"call_{at}", call) for at, call in enumerate(self.calls)]


class ModelProtocol:
    """The chat protocol of one provider."""

    path: str
    media_type = "text/event-stream"

    def problem(self, _body: dict[str, Any]) -> str:
        """Return the reason for which the provider refuses a request; "" if it accepts it."""
        return ""

    def error(self, status: int, text: str) -> dict[str, Any]:
        """Return an error."""
        return {"error": {"message": text, "type": "error", "code": status}}

    def is_streaming(self, _path: str, body: dict[str, Any]) -> bool:
        """Return True if a request wants a streamed answer."""
        return bool(body.get("stream"))

    def whole(self, reply: Reply, text: str) -> dict[str, Any]:
        """Return a reply in one piece."""
        raise NotImplementedError

    def stream(self, reply: Reply, texts: AsyncIterator[str]) -> AsyncIterator[str]:
        """Yield a reply in pieces."""
        raise NotImplementedError


def _sse(data: dict[str, Any], event: str = "") -> str:
    named = f"event: {event}\n" if event else ""
    return f"{named}data: {json.dumps(data)}\n\n"


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


class OpenAI(ModelProtocol):
    """Chat completions."""

    path = "/v1/chat/completions"

    def problem(self, body: dict[str, Any]) -> str:
        waiting: set[str] = set()
        for message in body["messages"]:
            if message["role"] == "tool":
                waiting.discard(message["tool_call_id"])
            elif waiting:
                break
            waiting |= {call["id"] for call in message.get("tool_calls") or ()}
        if not waiting:
            return ""
        return f"tool_call_ids did not have response messages: {', '.join(sorted(waiting))}"

    def whole(self, reply: Reply, text: str) -> dict[str, Any]:
        calls = [
            {"id": id_, "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for id_, call in reply.ids()
        ]
        message = {"role": "assistant", "content": text, "tool_calls": calls or None}
        choice = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "served-model",
            "choices": [choice],
            "usage": self._usage(reply),
        }

    async def stream(self, reply: Reply, texts: AsyncIterator[str]) -> AsyncIterator[str]:
        yield self._chunk({"role": "assistant", "content": ""})
        async for text in texts:
            yield self._chunk({"content": text})
        if reply.is_malformed:
            yield 'data: {"id": "chatcmpl-1", "choices": [{"del\n\n'
        for index, (id_, call) in enumerate(reply.ids()):
            function = {"name": call.name, "arguments": ""}
            start = {"index": index, "id": id_, "type": "function", "function": function}
            yield self._chunk({"tool_calls": [start]})
            for piece in call.pieces or _halves(call.text):
                if not isinstance(piece, str):
                    await piece.wait()
                    continue
                yield self._chunk(
                    {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
                )
        yield self._chunk({}, reply.finish_reason)
        if reply.usage:
            yield _sse(self._head() | {"choices": [], "usage": self._usage(reply)})
        yield "data: [DONE]\n\n"

    def _head(self) -> dict[str, Any]:
        object_ = "chat.completion.chunk"
        return {"id": "chatcmpl-1", "object": object_, "created": 1, "model": "served-model"}

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return _sse(self._head() | {"choices": [choice]})

    def _usage(self, reply: Reply) -> dict[str, int] | None:
        if reply.usage is None:
            return None
        read, written = reply.usage
        return {
            "prompt_tokens": read,
            "completion_tokens": written,
            "total_tokens": read + written,
        }


class Anthropic(ModelProtocol):
    """Messages."""

    path = "/v1/messages"
    _finish: Final = {
        "stop": "end_turn",
        "tool_calls": "tool_use",
        "length": "max_tokens",
        "content_filter": "refusal",
    }

    def error(self, status: int, text: str) -> dict[str, Any]:
        return {"type": "error", "error": {"type": f"http_{status}", "message": text}}

    def whole(self, reply: Reply, text: str) -> dict[str, Any]:
        content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        for id_, call in reply.ids():
            arguments = json.loads(call.text)
            content.append({"type": "tool_use", "id": id_, "name": call.name, "input": arguments})
        return self._message(reply) | {
            "content": content,
            "stop_reason": self._finish[reply.finish_reason],
        }

    async def stream(self, reply: Reply, texts: AsyncIterator[str]) -> AsyncIterator[str]:
        yield _sse({"type": "message_start", "message": self._message(reply)}, "message_start")
        index = 0
        is_open = False
        async for text in texts:
            if not is_open:
                yield self._start(index, {"type": "text", "text": ""})
                is_open = True
            yield self._delta(index, {"type": "text_delta", "text": text})
        if is_open:
            yield self._stop(index)
            index += 1
        for id_, call in reply.ids():
            block = {"type": "tool_use", "id": id_, "name": call.name, "input": {}}
            yield self._start(index, block)
            for half in _halves(call.text):
                yield self._delta(index, {"type": "input_json_delta", "partial_json": half})
            yield self._stop(index)
            index += 1
        delta = {"stop_reason": self._finish[reply.finish_reason], "stop_sequence": None}
        read, written = reply.usage or (0, 0)
        usage = {"input_tokens": read, "output_tokens": written}
        end = {"type": "message_delta", "delta": delta, "usage": usage}
        yield _sse(end, "message_delta")
        yield _sse({"type": "message_stop"}, "message_stop")

    def _message(self, reply: Reply) -> dict[str, Any]:
        read, written = reply.usage or (0, 0)
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "served-model",
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": read, "output_tokens": written},
        }

    def _start(self, index: int, block: dict[str, Any]) -> str:
        data = {"type": "content_block_start", "index": index, "content_block": block}
        return _sse(data, "content_block_start")

    def _delta(self, index: int, delta: dict[str, Any]) -> str:
        data = {"type": "content_block_delta", "index": index, "delta": delta}
        return _sse(data, "content_block_delta")

    def _stop(self, index: int) -> str:
        return _sse({"type": "content_block_stop", "index": index}, "content_block_stop")


class Google(ModelProtocol):
    """Gemini's generateContent and streamGenerateContent."""

    path = "/v1beta/models/{call}"
    _finish: Final = {
        "stop": "STOP",
        "tool_calls": "STOP",
        "length": "MAX_TOKENS",
        "content_filter": "SAFETY",
    }

    def error(self, status: int, text: str) -> dict[str, Any]:
        return {"error": {"code": status, "message": text, "status": "ERROR"}}

    def is_streaming(self, path: str, _body: dict[str, Any]) -> bool:
        return path.endswith(":streamGenerateContent")

    def whole(self, reply: Reply, text: str) -> dict[str, Any]:
        return self._answer([{"text": text}, *self._calls(reply)], reply)

    async def stream(self, reply: Reply, texts: AsyncIterator[str]) -> AsyncIterator[str]:
        async for text in texts:
            yield _sse(self._answer([{"text": text}]))
        yield _sse(self._answer(self._calls(reply) or [{"text": ""}], reply))

    def _calls(self, reply: Reply) -> list[dict[str, Any]]:
        return [
            {"functionCall": {"name": call.name, "args": json.loads(call.text)}}
            for call in reply.calls
        ]

    def _answer(self, parts: list[dict[str, Any]], end: Reply | None = None) -> dict[str, Any]:
        candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
        answer: dict[str, Any] = {"candidates": [candidate], "modelVersion": "served-model"}
        if end is not None:
            candidate["finishReason"] = self._finish[end.finish_reason]
            read, written = end.usage or (0, 0)
            answer["usageMetadata"] = {
                "promptTokenCount": read,
                "candidatesTokenCount": written,
                "totalTokenCount": read + written,
            }
        return answer


class Ollama(ModelProtocol):
    """Chat, in lines of JSON."""

    path = "/api/chat"
    media_type = "application/x-ndjson"

    def error(self, _status: int, text: str) -> dict[str, Any]:
        return {"error": text}

    def whole(self, reply: Reply, text: str) -> dict[str, Any]:
        return self._line({"content": text, "tool_calls": self._calls(reply)}, reply)

    async def stream(self, reply: Reply, texts: AsyncIterator[str]) -> AsyncIterator[str]:
        async for text in texts:
            yield json.dumps(self._line({"content": text})) + "\n"
        if reply.calls:
            message = {"content": "", "tool_calls": self._calls(reply)}
            yield json.dumps(self._line(message)) + "\n"
        yield json.dumps(self._line({"content": ""}, reply)) + "\n"

    def _calls(self, reply: Reply) -> list[dict[str, Any]]:
        return [
            {"function": {"name": call.name, "arguments": json.loads(call.text)}}
            for call in reply.calls
        ]

    def _line(self, message: dict[str, Any], end: Reply | None = None) -> dict[str, Any]:
        line: dict[str, Any] = {
            "model": "served-model",
            "created_at": "2026-01-01T00:00:00Z",
            "message": {"role": "assistant", **message},
            "done": end is not None,
        }
        if end is not None:
            read, written = end.usage or (0, 0)
            reason = "length" if end.finish_reason == "length" else "stop"
            line |= {"done_reason": reason, "prompt_eval_count": read, "eval_count": written}
        return line


WIRES: Final[Sequence[ModelProtocol]] = (OpenAI(), Anthropic(), Google(), Ollama())
