"""Agents behind HTTP and WebSockets, which join a mesh by their settings alone."""

import asyncio
import base64
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from websockets.asyncio.server import ServerConnection, serve

from harness.mesh.messages import join_messages
from harness.mesh.recorded_spans import spans_in
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from trunkline.core.json_values import read_member, update_struct
from trunkline.core.settings import ParticipantSettings, Settings
from trunkline.errors import ConfigurationError
from trunkline.messages.client import MessagingClient
from trunkline.processes.participants import build_participants
from trunkline.v1 import envelope_pb2, messaging_service_pb2
from trunkline_bridge.api.participants.credentials import build_headers
from trunkline_bridge.http.server import serve_http

Json = dict[str, Any]
SECRET = "s3cret-of-the-participant"
FAST: Json = {"backoff_s": 0.01, "max_backoff_s": 0.02, "timeout_s": 5.0}
PATIENCE_S = 30.0


@dataclass
class Studio:
    """A participant behind HTTP, whose next answers a test decides."""

    answers: list[Callable[[Request, Json], Awaitable[Response]]] = field(default_factory=list)
    requests: list[tuple[dict[str, str], Json]] = field(default_factory=list)

    async def take(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append((dict(request.headers), body))
        if self.answers:
            return await self.answers.pop(0)(request, body)
        return JSONResponse({"type": "evaluation_result", "data": evaluation(body)})

    def will(self, *answers: Callable[[Request, Json], Awaitable[Response]]) -> None:
        self.answers = list(answers)
        self.requests.clear()


def evaluation(body: Json) -> Json:
    return {"approved": True, "proposal": body.get("data", {}).get("proposal", body.get("text"))}


def answers_with(content: Any, status: int = 200) -> Callable[[Request, Json], Awaitable[Response]]:
    async def answer(_: Request, __: Json) -> Response:
        if isinstance(content, Response):
            return content
        return JSONResponse(content, status_code=status)

    return answer


async def drip(_: Request, __: Json) -> Response:
    """Answer a byte at a time, without an end."""

    async def pieces() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    return StreamingResponse(pieces(), media_type="application/json")


@asynccontextmanager
async def open_studio() -> AsyncIterator[tuple[Studio, str]]:
    studio = Studio()
    app = Starlette(routes=[Route("/inbox", studio.take, methods=["POST"])])
    async with serve_http(app, host="127.0.0.1", port=0, grace_s=0) as url:
        yield studio, f"{url}/inbox"


async def join(mesh: SmallMesh, **tables: ParticipantSettings) -> MessagingClient:
    """Add participants and the messaging service to a mesh."""
    await mesh.join(*build_participants(Settings(participants=tables)))
    await join_messages(mesh, attempts=1)
    await mesh.directory.wait_until(
        lambda known: tables.keys() <= known.list_agents().keys(), timeout_s=PATIENCE_S
    )
    return MessagingClient(mesh.directory, account="acme", caller="ann")


def evaluation_request(recipient: str, proposal: str = "a draft") -> envelope_pb2.Envelope:
    envelope = envelope_pb2.Envelope(recipient=recipient, type="evaluation_request")
    update_struct(envelope.data, {"proposal": proposal})
    return envelope


async def ended(client: MessagingClient, envelope: envelope_pb2.Envelope) -> envelope_pb2.Delivery:
    """Send a message; return its delivery when it has ended."""
    (sent,) = await client.send([envelope])
    query = only(sent.envelope.envelope_id)
    async with asyncio.timeout(PATIENCE_S):
        async for update in client.watch(query, after_position=0, with_deliveries=True):
            for stored in update.envelopes:
                (delivery,) = stored.deliveries
                if delivery.state not in (
                    envelope_pb2.DELIVERY_STATE_PENDING,
                    envelope_pb2.DELIVERY_STATE_RUNNING,
                ):
                    return delivery
    raise AssertionError("the watch ended")


def only(envelope_id: str) -> Any:
    return messaging_service_pb2.EnvelopeFilter(envelope_id=envelope_id)


async def test_a_participant_behind_http_answers_messages_and_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("STUDIO_TOKEN", SECRET)
    (tmp_path / "tenant").write_text(f"{SECRET}-tenant\n")
    async with open_studio() as (studio, url), open_small_mesh(tmp_path) as mesh:
        table = ParticipantSettings(
            url=url,
            token_env="STUDIO_TOKEN",
            headers_file={"X-Tenant": str(tmp_path / "tenant")},
            **FAST,
        )
        with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
            client = await join(mesh, studio=table)
            reply = await client.request(evaluation_request("studio"), timeout_s=PATIENCE_S)
            assert (reply.type, reply.sender) == ("evaluation_result", "studio")
            assert read_member(reply.data, "proposal") == "a draft"
            seen, body = studio.requests[0]
            assert seen["authorization"] == f"Bearer {SECRET}"
            assert seen["x-tenant"] == f"{SECRET}-tenant"
            assert seen["idempotency-key"] == body["envelopeId"] == reply.causation_id
            assert (body["sender"], body["type"]) == ("user:ann", "evaluation_request")
            assert "traceparent" in seen
            for answer, texts in (
                (JSONResponse(["one", {"type": "answer", "text": "two"}]), ["one", "two"]),
                (Response("plain", media_type="text/plain"), ["plain"]),
                (Response(status_code=204), []),
                (JSONResponse(None), []),
            ):
                studio.will(answers_with(answer))
                task = await mesh.ask("hello", agent="studio")
                assert "".join(p.text for a in task.task.artifacts for p in a.parts) == "\n".join(
                    texts
                )
                assert studio.requests[0][1]["text"] == "hello"
        assert SECRET not in caplog.text
        attributes = [str(dict(span.attributes or {})) for span in memory.get_finished_spans()]
        assert attributes
        assert not [text for text in attributes if SECRET in text]


async def test_what_fails_is_tried_again_and_what_lies_is_a_dead_letter(tmp_path: Path) -> None:
    async with open_studio() as (studio, url), open_small_mesh(tmp_path) as mesh:
        table = ParticipantSettings(
            url=url, retries=2, content_bytes=4096, breaker_failures=1000, **FAST
        )
        slow = ParticipantSettings(url=url, **{**FAST, "timeout_s": 0.2, "retries": 0})
        client = await join(mesh, studio=table, slow=slow)
        handled, dead = envelope_pb2.DELIVERY_STATE_HANDLED, envelope_pb2.DELIVERY_STATE_DEAD
        fails = answers_with({}, 500)
        studio.will(fails, answers_with({}, 503))
        assert (await ended(client, evaluation_request("studio"))).state == handled
        assert len({headers["idempotency-key"] for headers, _ in studio.requests}) == 1
        assert len(studio.requests) == 3
        for answer, count, problem in (
            (fails, 3, "HTTP 500"),
            (answers_with({}, 422), 1, "does not take the message (HTTP 422)"),
            (answers_with({}, 401), 1, "rejects the credentials (HTTP 401)"),
            (answers_with(Response("{", media_type="application/json")), 1, "is not JSON"),
            (answers_with(Response("<p>", media_type="text/html")), 1, "text/html"),
            (answers_with({"type": "answer", "text": "x" * 9000}), 1, "over 4 KiB"),
            (answers_with(5), 1, "neither a message"),
            (answers_with({"type": "answer", "data": 5}), 1, "no message of the mesh"),
            (answers_with(Response(status_code=302, headers={"location": url})), 1, "redirects"),
        ):
            studio.will(*[answer] * count)
            delivery = await ended(client, evaluation_request("studio"))
            assert (delivery.state, len(studio.requests)) == (dead, count), problem
            assert problem in delivery.attempts[-1].problem
        studio.will(drip)
        delivery = await ended(client, evaluation_request("slow"))
        assert delivery.state == dead
        assert "no answer in 0.2 s" in delivery.attempts[-1].problem


async def test_an_open_breaker_holds_messages_back_and_refuses_requests(tmp_path: Path) -> None:
    async with open_studio() as (studio, url), open_small_mesh(tmp_path) as mesh:
        table = ParticipantSettings(
            url=url, breaker_failures=2, breaker_open_s=0.5, breaker_successes=1, **FAST
        )
        client = await join(mesh, studio=table)
        assert mesh.directory.get_agent("studio").breaker == "closed"
        studio.will(answers_with({}, 500), answers_with({}, 500))
        async with asyncio.TaskGroup() as group:
            message = group.create_task(ended(client, evaluation_request("studio")))
            await mesh.directory.wait_until(
                lambda known: known.get_agent("studio").breaker == "open", timeout_s=PATIENCE_S
            )
            refused = await mesh.ask("hello", agent="studio")
            assert "kept failing" in refused.task.status.message.parts[0].text
            assert len(studio.requests) == 2
        assert message.result().state == envelope_pb2.DELIVERY_STATE_HANDLED
        await mesh.directory.wait_until(
            lambda known: known.get_agent("studio").breaker == "closed", timeout_s=PATIENCE_S
        )


async def test_a_participant_behind_a_websocket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("websockets.server").setLevel(logging.INFO)
    monkeypatch.setenv("STUDIO_PASSWORD", SECRET)
    pair = base64.b64encode(f"studio:{SECRET}".encode()).decode()
    connections: list[ServerConnection] = []

    async def talk(connection: ServerConnection) -> None:
        assert connection.request is not None
        assert connection.request.headers["authorization"] == f"Basic {pair}"
        connections.append(connection)
        async for text in connection:
            message = json.loads(text)["message"]
            match message.get("data", {}).get("proposal"):
                case "refuse":
                    answer: Json = {"error": "not today"}
                case "lie":
                    await connection.send("no json")
                    continue
                case "drop" if len(connections) < 3:
                    await connection.close()
                    return
                case _:
                    reply = {"type": "evaluation_result", "data": evaluation(message)}
                    answer = {"replies": [reply]}
            await connection.send(json.dumps({"replyTo": message["envelopeId"], **answer}))

    async with (
        serve(talk, "127.0.0.1", 0) as server,
        open_small_mesh(tmp_path) as mesh,
    ):
        port = server.sockets[0].getsockname()[1]
        table = ParticipantSettings(
            url=f"ws://127.0.0.1:{port}/",
            username="studio",
            password_env="STUDIO_PASSWORD",
            **FAST,
        )
        client = await join(mesh, studio=table)
        async with asyncio.TaskGroup() as group:
            requests = [
                group.create_task(
                    client.request(evaluation_request("studio", f"draft {n}"), timeout_s=PATIENCE_S)
                )
                for n in range(5)
            ]
        replies = [request.result() for request in requests]
        proposals = [read_member(reply.data, "proposal") for reply in replies]
        assert proposals == [f"draft {n}" for n in range(5)]
        assert len(connections) == 1
        refused = await ended(client, evaluation_request("studio", "refuse"))
        assert "not today" in refused.attempts[-1].problem
        lied = await ended(client, evaluation_request("studio", "lie"))
        assert "it sent no JSON" in lied.attempts[-1].problem
        dropped = await ended(client, evaluation_request("studio", "drop"))
        assert dropped.state == envelope_pb2.DELIVERY_STATE_HANDLED
        assert len(connections) == 3
    assert SECRET not in caplog.text
    assert pair not in caplog.text


def test_credentials_that_are_missing_or_contradict_each_other_are_errors(tmp_path: Path) -> None:
    for table, problem in (
        ({"token_env": "NOT_SET_ANYWHERE"}, "is not set"),
        ({"api_key_file": tmp_path / "none"}, "can't be read"),
        ({"username": "a", "token_env": "PATH"}, "not both"),
        ({"headers": {"x": "a\nb"}}, "can't be sent"),
    ):
        settings = ParticipantSettings(url="http://127.0.0.1:1/", **table)
        with pytest.raises(ConfigurationError, match=problem):
            build_headers("studio", settings)
