"""Answers and questions of agents, as MCP has them."""

from typing import Any

import mcp_types as types
import pytest

from trunkline.a2a_client.answers import ClientAnswer
from trunkline.calls.tool_questions import PendingQuestion, build_question_message, read_answer
from trunkline.json_values import update_struct
from trunkline.reasoning.tool_results import list_result_files
from trunkline.tools.conversion import to_result
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2, task_pb2
from trunkline_bridge.mcp.agent_tools import to_tool_result
from trunkline_bridge.mcp.client_features import ClientFeatures
from trunkline_bridge.mcp.questions import build_requests, is_declined, read_responses

SIZE: dict[str, Any] = {
    "mode": "form",
    "message": "What size?",
    "requestedSchema": {"type": "object", "properties": {"size": {"enum": ["s", "l"]}}},
}
VISIT: dict[str, Any] = {
    "mode": "url",
    "message": "Sign in",
    "url": "https://a.example/pay",
    "elicitationId": "1",
}


def ask(**requests: dict[str, Any]) -> tuple[PendingQuestion, ClientAnswer]:
    """Return a question of an MCP tool, and the answer of the agent that calls it."""
    pending = PendingQuestion(
        tool="shop/order",
        requests={
            key: {"method": "elicitation/create", "params": params}
            for key, params in requests.items()
        },
        state=None,
        task_handle="",
    )
    message = build_question_message([pending])
    message.message_id = "m1"
    status = task_pb2.TaskStatus(state=task_pb2.TASK_STATE_INPUT_REQUIRED, message=message)
    return pending, ClientAnswer(task_pb2.Task(id="t1", status=status))


def features(*, forms: bool = True, urls: bool = True) -> ClientFeatures:
    return ClientFeatures(is_modern=True, has_tasks=True, has_forms=forms, has_urls=urls)


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_a_question_of_a_tool_keeps_its_form_and_the_answer_reaches_it(action: str) -> None:
    pending, answer = ask(size=SIZE, pay=VISIT)
    requests = build_requests(answer)
    assert set(requests) == {"m1.size", "m1.pay"}
    form, visit = (requests[key].params for key in ("m1.size", "m1.pay"))
    assert isinstance(form, types.ElicitRequestFormParams)
    assert isinstance(visit, types.ElicitRequestURLParams)
    assert (form.message, visit.url) == ("What size?", "https://a.example/pay")

    responses: dict[str, Any] = {
        "m1.size": {"action": action, **({"content": {"size": "l"}} if action == "accept" else {})},
        "m1.pay": {"action": action},
        "m0.size": {"action": "accept", "content": {"size": "s"}},
    }
    (content,) = read_responses(answer, responses)
    assert isinstance(content, dict)
    part = part_pb2.Part()
    update_struct(part.data.struct_value, content)
    read = read_answer(pending, message_pb2.Message(parts=[part]))
    assert read.responses == {"size": responses["m1.size"], "pay": responses["m1.pay"]}
    assert not read.missing
    assert not is_declined(answer, responses)


def test_a_client_can_ask_only_what_it_declares() -> None:
    form, visit = (build_requests(ask(size=params)[1]) for params in (SIZE, VISIT))
    assert features().can_ask(form | visit)
    assert not features(urls=False).can_ask(form | visit)
    assert not features(forms=False).can_ask(form)
    assert features(forms=False).can_ask(visit)


def test_an_invalid_question_is_asked_as_text() -> None:
    _, answer = ask(size={"mode": "form", "message": "What size?"})
    ((key, request),) = build_requests(answer).items()
    assert key == "m1"
    assert "shop/order asks: What size?" in request.params.message


def test_a_resource_of_a_tool_server_keeps_its_uri_and_media_type() -> None:
    resources: list[types.TextResourceContents | types.BlobResourceContents] = [
        types.TextResourceContents(uri="file:///a.csv", text="1,2", mime_type="text/csv"),
        types.BlobResourceContents(uri="db://row/1", blob="aGk=", mime_type="image/png"),
    ]
    blocks: list[types.ContentBlock] = [types.EmbeddedResource(resource=r) for r in resources]
    result = to_result(types.CallToolResult(content=blocks), tool="s/t")
    artifact = artifact_pb2.Artifact(artifact_id="a", parts=list_result_files(result))
    update_struct(artifact.metadata, {"trunkline/role": "answer"})
    status = task_pb2.TaskStatus(state=task_pb2.TASK_STATE_COMPLETED)
    answer = ClientAnswer(task_pb2.Task(id="t1", status=status, artifacts=[artifact]))
    _, csv, image = to_tool_result(answer).content
    assert isinstance(csv, types.EmbeddedResource)
    assert isinstance(image, types.EmbeddedResource)
    assert [csv.resource, image.resource] == resources


def test_files_are_content_that_clients_show() -> None:
    parts = [
        part_pb2.Part(text="here"),
        part_pb2.Part(raw=b"png", media_type="image/png"),
        part_pb2.Part(raw=b"wav", media_type="audio/wav"),
        part_pb2.Part(raw="für".encode(), media_type="text/plain", filename="a b.txt"),
        part_pb2.Part(raw=b"\xff", media_type="text/plain"),
        part_pb2.Part(raw=b"%PDF", media_type="application/pdf", filename="a.pdf"),
        part_pb2.Part(url="https://a.example/b", filename="b"),
    ]
    part_of_data = part_pb2.Part()
    update_struct(part_of_data.data.struct_value, {"n": 1})
    artifact = artifact_pb2.Artifact(artifact_id="a", parts=[*parts, part_of_data])
    update_struct(artifact.metadata, {"trunkline/role": "answer"})
    status = task_pb2.TaskStatus(state=task_pb2.TASK_STATE_COMPLETED)
    task = task_pb2.Task(id="t1", status=status, artifacts=[artifact])
    dumped = [
        block.model_dump(by_alias=True, exclude_none=True)
        for block in to_tool_result(ClientAnswer(task)).content
    ]
    assert [block["type"] for block in dumped] == [
        "text", "image", "audio", "resource", "resource", "resource", "resource_link", "text",
    ]  # fmt: skip
    resources = [block["resource"] for block in dumped if "resource" in block]
    assert resources[0] == {
        "uri": "attachment:a%20b.txt",
        "mimeType": "text/plain",
        "text": "für",
    }
    assert [sorted(resource) for resource in resources[1:]] == [["blob", "mimeType", "uri"]] * 2
