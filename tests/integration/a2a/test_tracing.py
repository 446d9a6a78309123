"""One server span for each A2A request, named by its method and in the caller's trace."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from harness.a2a.bridged_mesh import BridgedMesh, Caller, open_bridged_mesh
from harness.a2a.grpc_client import open_bridge_grpc, refusal, send_request
from harness.a2a.rest_client import RestCaller, user_message
from harness.mesh.messages import join_messages
from harness.polling import wait_for
from harness.remote.webhook_receiver import (
    Answer,
    ReceivedPost,
    WebhookReceiver,
    accept,
    open_receiver,
    status,
)
from trunkline.core.settings import Settings
from trunkline.observe import telemetry
from trunkline_agents.echo.agent import echo

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER_SPAN = "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{CALLER_SPAN}-01"
SETTINGS = Settings(default_agent="echo", allow_webhook=("127.0.0.1",))


@pytest.fixture
async def bridged(spans: InMemorySpanExporter, tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    async with open_bridged_mesh(tmp_path, SETTINGS) as mesh:
        await mesh.mesh.join(echo)
        spans.clear()
        yield mesh


@pytest.fixture
def caller(bridged: BridgedMesh) -> Caller:
    return bridged.at("/agents/echo")


async def of_bridge(spans: InMemorySpanExporter, count: int) -> list[ReadableSpan]:
    """Return the bridge's ended server spans, once there are so many."""
    return await wait_for_spans(
        spans,
        count,
        lambda span: (
            span.kind is SpanKind.SERVER
            and (span.attributes or {}).get(telemetry.SERVICE) == "bridge"
        ),
    )


async def of_posts(spans: InMemorySpanExporter, count: int) -> list[ReadableSpan]:
    """Return the spans of webhook posts, once there are so many."""
    return await wait_for_spans(spans, count, lambda span: span.name == "POST webhook")


async def wait_for_spans(
    spans: InMemorySpanExporter, count: int, is_wanted: Callable[[ReadableSpan], bool]
) -> list[ReadableSpan]:
    """Return ended spans of a kind in the order of their starts, once there are so many.

    A span ends just after its response, so the client may be first.
    """

    def ended_spans() -> list[ReadableSpan]:
        return [span for span in spans.get_finished_spans() if is_wanted(span)]

    await wait_for(lambda: len(ended_spans()) >= count)
    return sorted(ended_spans(), key=lambda span: span.start_time or 0)


def orphans(spans: InMemorySpanExporter) -> list[str]:
    """Return the spans whose parent is neither the caller's nor an ended span."""
    ended_spans = spans.get_finished_spans()
    known = {span.context.span_id for span in ended_spans if span.context} | {int(CALLER_SPAN, 16)}
    return [span.name for span in ended_spans if span.parent and span.parent.span_id not in known]


def traceparent_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return telemetry.format_traceparent(span.context)


async def send_with_webhook(caller: Caller, receiver: WebhookReceiver) -> None:
    """Send a message with a webhook that has secrets, in the trace of all tests."""
    url = receiver.url + "/of/opaque-path?key=opaque-query"
    configuration = {"taskPushNotificationConfig": {"url": url, "token": "opaque-token"}}
    params = {"message": caller.message("count 3"), "configuration": configuration}
    await caller.call("SendMessage", params, {"traceparent": PARENT})


async def test_a_request_joins_the_caller_s_trace_and_returns_it(
    caller: Caller, spans: InMemorySpanExporter
) -> None:
    params = {"message": caller.message("echo hi")}
    answer = await caller.post("SendMessage", params, {"traceparent": PARENT})
    (span,) = await of_bridge(spans, 1)
    assert span.name == "SendMessage"
    assert span.parent is not None
    context = span.get_span_context()
    assert context is not None
    assert trace.format_trace_id(context.trace_id) == TRACE
    span_id = trace.format_span_id(context.span_id)
    assert answer.headers["traceresponse"] == f"00-{TRACE}-{span_id}-01"
    task = answer.json()["result"]["task"]
    attributes = dict(span.attributes or {})
    assert attributes[telemetry.A2A_METHOD_NAME] == "SendMessage"
    assert attributes[telemetry.A2A_TASK_ID] == task["id"]
    assert attributes[telemetry.GEN_AI_CONVERSATION_ID] == task["contextId"]
    assert attributes[telemetry.GEN_AI_AGENT_NAME] == "echo"
    assert span.status.status_code is StatusCode.UNSET


async def test_message_and_answer_are_in_the_span_of_a_request_if_captured(
    spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, capture_content=True)
    async with open_bridged_mesh(tmp_path, settings) as mesh:
        await mesh.mesh.join(echo)
        spans.clear()
        caller = mesh.at("/agents/echo")
        await caller.send("echo the secret: swordfish")
        async with caller.streamed("echo hi") as stream:
            # Clients hang up after the last event.
            async for event in stream:
                if event.state == "TASK_STATE_COMPLETED":
                    break
        await caller.call("SendMessage", {"message": caller.message("message reply")})
        ended_spans = await of_bridge(spans, 3)
    shown = [
        ((span.attributes or {}).get("input.value"), (span.attributes or {}).get("output.value"))
        for span in ended_spans
    ]
    expected = [("echo the [redacted]", "the [redacted]"), ("echo hi", "hi")]
    assert shown == [*expected, ("message reply", "reply")]
    assert "GetTask" not in str([span.name for span in spans.get_finished_spans()])


async def test_the_first_request_of_the_original_protocol_leaves_no_error(
    caller: Caller, spans: InMemorySpanExporter
) -> None:
    parts = [{"type": "text", "text": "echo hi"}]
    task = {"id": "chosen", "message": {"role": "user", "parts": parts}}
    await caller.post("tasks/send", task, {"traceparent": PARENT, "A2A-Version": "0.1"})
    assert await of_bridge(spans, 1)
    ended_spans = spans.get_finished_spans()
    assert any(span.name.endswith("/ResolveTaskAlias") for span in ended_spans)
    assert {span.status.status_code for span in ended_spans} == {StatusCode.UNSET}


async def test_the_span_of_a_stream_ends_with_the_stream(
    caller: Caller, spans: InMemorySpanExporter
) -> None:
    async with caller.streamed("wait 3600") as stream:
        task_id = (await anext(stream)).result["task"]["id"]
        assert "traceresponse" in stream.headers
        assert await of_bridge(spans, 0) == []
        await caller.call("CancelTask", {"id": task_id})
        await stream.rest()
    # The stream may deliver the end before the cancel is answered.
    names = sorted(span.name for span in await of_bridge(spans, 2))
    assert names == ["CancelTask", "SendStreamingMessage"]


async def test_a_subscription_is_linked_to_the_span_that_submitted_the_task(
    caller: Caller, spans: InMemorySpanExporter
) -> None:
    params = {"message": caller.message("count 3")}
    answer = await caller.post("SendMessage", params, {"traceparent": PARENT})
    task_id = answer.json()["result"]["task"]["id"]
    spans.clear()
    headers = {"Last-Event-ID": "1.0"}
    async with caller.stream("SubscribeToTask", {"id": task_id}, headers) as stream:
        await stream.rest()
    (span,) = await of_bridge(spans, 1)
    assert [trace.format_trace_id(link.context.trace_id) for link in span.links] == [TRACE]


async def test_a_failed_request_is_marked_with_its_reason(
    bridged: BridgedMesh, caller: Caller, spans: InMemorySpanExporter
) -> None:
    await caller.error("GetTask", {"id": "nope"})
    await caller.error("Nonsense " + "x" * 100, {})
    answer = await bridged.client.post(caller.url, content=b"{")
    assert "traceresponse" in answer.headers
    ended_spans = await of_bridge(spans, 3)
    marked = [(span.name, (span.attributes or {})[telemetry.ERROR_TYPE]) for span in ended_spans]
    assert marked == [
        ("GetTask", "TASK_NOT_FOUND"),
        ("POST agent", "METHOD_NOT_FOUND"),
        ("POST agent", "INVALID_REQUEST"),
    ]


async def test_a_request_records_how_its_turn_has_ended(
    caller: Caller, spans: InMemorySpanExporter
) -> None:
    await caller.send("fail on purpose")
    async with caller.streamed("fail again") as stream:
        await stream.rest()
    await caller.send("echo fine")
    await caller.send("count 3", now=True)

    ended_spans = await of_bridge(spans, 4)

    states = [(span.attributes or {}).get(telemetry.TASK_STATE) for span in ended_spans]
    assert states == ["failed", "failed", "completed", None]
    assert {span.status.status_code for span in ended_spans} == {StatusCode.UNSET}


async def test_a_callers_error_over_http_is_a_status_and_no_error_of_the_span(
    bridged: BridgedMesh, spans: InMemorySpanExporter
) -> None:
    url = f"{bridged.url}/agents/echo"
    missing = await bridged.client.get(f"{url}/tasks/nope")
    malformed = await bridged.client.post(f"{url}/message:send", content=b"{")
    assert (missing.status_code, malformed.status_code) == (404, 400)

    for span, status_code in zip(await of_bridge(spans, 2), (404, 400), strict=True):
        attributes = span.attributes or {}
        assert attributes[telemetry.HTTP_RESPONSE_STATUS_CODE] == status_code
        assert telemetry.ERROR_TYPE not in attributes
        assert span.status.status_code is StatusCode.UNSET


async def test_no_content_is_recorded(caller: Caller, spans: InMemorySpanExporter) -> None:
    await caller.send("echo hunter2")
    async with caller.streamed("fail hunter2") as stream:
        await stream.rest()
    assert "hunter2" not in "".join(span.to_json() for span in spans.get_finished_spans())


async def test_a_call_over_grpc_joins_the_caller_s_trace_and_returns_it(
    bridged: BridgedMesh, spans: InMemorySpanExporter
) -> None:
    async with open_bridge_grpc(bridged) as mesh:
        call = mesh.v1.SendMessage(send_request("hi"), metadata=(("traceparent", PARENT),))
        task = (await call).task
        (span,) = await of_bridge(spans, 1)
        assert span.name == "SendMessage"
        assert span.context is not None
        assert trace.format_trace_id(span.context.trace_id) == TRACE
        marked = dict(await call.trailing_metadata())["traceresponse"]
        # Streams have it while they are open.
        assert dict(await call.initial_metadata())["traceresponse"] == marked
        assert marked == f"00-{TRACE}-{trace.format_span_id(span.context.span_id)}-01"
        attributes = dict(span.attributes or {})
        assert attributes[telemetry.RPC_STATUS_CODE] == "OK"
        assert attributes[telemetry.RPC_METHOD] == "lf.a2a.v1.A2AService/SendMessage"
        assert attributes[telemetry.A2A_TASK_ID] == task.id
        traces = {
            finished.context.trace_id for finished in spans.get_finished_spans() if finished.context
        }
        assert traces == {span.context.trace_id}


async def test_a_call_over_grpc_that_its_caller_got_wrong_or_abandoned_is_not_marked(
    bridged: BridgedMesh, spans: InMemorySpanExporter
) -> None:
    async with open_bridge_grpc(bridged) as mesh:
        refused = mesh.v0_3.GetTask(a2a_v0_3_pb2.GetTaskRequest(name="tasks/nope"))
        await refusal(refused)
        assert "traceresponse" in dict(await refused.trailing_metadata())
        stream = mesh.v1.SendStreamingMessage(send_request("wait 3600"))
        await stream.read()
        stream.cancel()
        refused_span, abandoned = await of_bridge(spans, 2)
        assert (refused_span.attributes or {})[telemetry.RPC_STATUS_CODE] == "NOT_FOUND"
        for span in (refused_span, abandoned):
            assert span.status.status_code is StatusCode.UNSET
            assert telemetry.ERROR_TYPE not in (span.attributes or {})


async def test_posts_to_webhooks_are_in_the_trace_of_their_task_and_propagate_it(
    caller: Caller, spans: InMemorySpanExporter
) -> None:
    async with open_receiver() as receiver:
        await send_with_webhook(caller, receiver)
        await receiver.until(
            lambda seen: any(b"completed" in delivery.body.lower() for delivery in seen.accepted)
        )
        host, _, port = receiver.url.split("/")[2].rpartition(":")
        posts = await of_posts(spans, len(receiver.accepted))
    assert len(posts) >= 3
    traceparents = [post.headers["traceparent"] for post in receiver.accepted]
    assert traceparents == [*map(traceparent_of, posts)]
    task_id = receiver.accepted[0].id.partition(".")[0]
    for post in posts:
        assert post.kind is SpanKind.CLIENT
        assert post.status.status_code is StatusCode.UNSET
        assert dict(post.attributes or {}) == {
            telemetry.SERVICE: "bridge",
            telemetry.HTTP_REQUEST_METHOD: "POST",
            telemetry.HTTP_RESPONSE_STATUS_CODE: 204,
            telemetry.SERVER_ADDRESS: host,
            telemetry.SERVER_PORT: int(port),
            telemetry.A2A_TASK_ID: task_id,
            telemetry.A2A_PROTOCOL_VERSION: "1.0",
            telemetry.GEN_AI_AGENT_NAME: "echo",
        }
    await of_bridge(spans, 1)
    await wait_for(lambda: not orphans(spans))
    ended_spans = spans.get_finished_spans()
    # The reads and records of the delivery are maintenance.
    traces = {trace.format_trace_id(span.context.trace_id) for span in ended_spans if span.context}
    assert traces == {TRACE}
    assert not [span.name for span in ended_spans if "Watch" in span.name or "Webhook" in span.name]
    assert "opaque" not in "".join(span.to_json() for span in ended_spans)


async def test_each_attempt_to_post_is_a_span_with_its_error(
    caller: Caller, spans: InMemorySpanExporter
) -> None:
    async def decide(_received: ReceivedPost) -> Answer:
        receiver.decide = accept
        return status(503, "retry-after: 1")

    async with open_receiver(decide) as receiver:
        await send_with_webhook(caller, receiver)
        await receiver.until(lambda seen: len(seen.accepted) >= 2)
        posts = await of_posts(spans, 3)
    failed, again, next_one = (dict(post.attributes or {}) for post in posts[:3])
    assert posts[0].status.status_code is StatusCode.ERROR
    assert failed[telemetry.HTTP_RESPONSE_STATUS_CODE] == 503
    assert failed[telemetry.ERROR_TYPE] == "503"
    assert telemetry.HTTP_REQUEST_RESEND_COUNT not in failed
    assert posts[1].status.status_code is StatusCode.UNSET
    assert again[telemetry.HTTP_REQUEST_RESEND_COUNT] == 1
    # The next posts are first attempts.
    assert telemetry.HTTP_REQUEST_RESEND_COUNT not in next_one


async def test_cards_are_traced_and_health_is_not(
    bridged: BridgedMesh, spans: InMemorySpanExporter
) -> None:
    await bridged.client.get(bridged.url + "/.well-known/agent-card.json")
    await bridged.client.get(bridged.url + "/healthz")
    await bridged.client.get(bridged.url + "/readyz")
    await bridged.client.get(bridged.url + "/anything/else")
    assert [span.name for span in await of_bridge(spans, 2)] == ["GET agent-card", "GET unknown"]


async def test_reads_of_the_page_are_traced_if_their_caller_has_a_trace(
    bridged: BridgedMesh, spans: InMemorySpanExporter, tmp_path: Path
) -> None:
    await join_messages(bridged.mesh)
    spans.clear()
    api = ("/session", "/tasks", "/messages", "/messages/rooms", "/messages/rooms/none")
    paths = ("/ui", "/ui/", "/ui/assets/app.js", *(f"/ui/api{path}" for path in api))
    for path in paths:
        assert (await bridged.client.get(bridged.url + path)).status_code < 400, path
    await bridged.client.get(f"{bridged.url}/ui/api/tasks", headers={"traceparent": "nonsense"})
    answer = await bridged.client.get(
        f"{bridged.url}/ui/api/tasks", headers={"traceparent": PARENT}
    )
    await bridged.client.post(f"{bridged.url}/ui/api/tasks/none:cancel", json={})
    read, change = await of_bridge(spans, 2)
    assert (read.name, change.name) == ("page.list", "page.cancel")
    assert TRACE in answer.headers["traceresponse"]
    # What the mesh does for an untraced read is not traced either.
    traces = {span.context.trace_id for span in (read, change) if span.context}
    assert {span.context.trace_id for span in spans.get_finished_spans() if span.context} == traces


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("POST", "/message:stream", "SendStreamingMessage"),
        ("GET", "/v1/tasks/nope", "GetTask"),
    ],
)
async def test_requests_of_http_json_are_named_by_their_operation_too(
    bridged: BridgedMesh, spans: InMemorySpanExporter, method: str, path: str, name: str
) -> None:
    rest = RestCaller(bridged.client, bridged.url + "/agents/echo")
    body = {"message": user_message("echo hi")}
    await rest.request(method, path, body, headers={"traceparent": PARENT})
    (span,) = await of_bridge(spans, 1)
    assert span.name == name
    context = span.get_span_context()
    assert context is not None
    assert trace.format_trace_id(context.trace_id) == TRACE
    attributes = dict(span.attributes or {})
    assert attributes[telemetry.GEN_AI_AGENT_NAME] == "echo"
