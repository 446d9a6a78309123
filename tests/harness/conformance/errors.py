"""Checks of errors, of the bindings' formats and of version negotiation.

The draft's raw messages have no ids, which A2A 1.0 requires; here they have.
"""

from typing import Any

from a2a.types import a2a_pb2

from harness.a2a.protocol_variants import ProtocolVariant
from harness.conformance.registry import (
    MISSING,
    Json,
    System,
    check,
    check_refused_without,
    completed_task,
    refusal,
    refused,
    send,
)
from trunkline.core.json_values import parse_dict


def _request(method: str, params: Json, request_id: object = 1) -> Json:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def _send_request(text: str, request_id: object = 1, **message: object) -> Json:
    fields = {"messageId": f"raw-{text}", "role": "ROLE_USER", "parts": [{"text": text}]}
    return _request("SendMessage", {"message": {**fields, **message}}, request_id)


@check("CORE-ERR-001", "CORE-ERR-007", "GRPC-STATUS-001")
async def _a_missing_task_is_not_found(_system: System, wire: ProtocolVariant) -> None:
    # The reason stands in the structured details, for gRPC beside the status NOT_FOUND. The draft
    # has them once as an object and twice as a list, which is what A2A 1.0 says (9.5).
    assert await refusal(wire, "get", task=MISSING) == "TASK_NOT_FOUND"


@check("CORE-ERR-002")
async def _a_missing_task_is_not_canceled(_system: System, wire: ProtocolVariant) -> None:
    assert await refusal(wire, "cancel", task=MISSING) == "TASK_NOT_FOUND"


@check("CORE-ERR-005")
async def _an_error_says_what_is_wrong(_system: System, wire: ProtocolVariant) -> None:
    text = str(await refused(wire, "get", task=MISSING))
    assert len(text) >= 12
    assert "task" in text


@check("CORE-ERR-009", "SEC-AUTH-003")
async def _the_task_of_another_account_is_missing(system: System, wire: ProtocolVariant) -> None:
    missing = str(await refused(wire, "get", task=MISSING))
    assert missing.startswith("TASK_NOT_FOUND")
    if system.has_all:
        other_id = (await completed_task(wire))["id"]
        bob = system.headers_of("bob")
        other = str(await refused(wire, "get", headers=bob, task=other_id))
        assert other.replace(other_id, "ID") == missing.replace(MISSING, "ID")


@check("CORE-CAP-001", "PUSH-CFG-004")
async def _without_the_capability_webhooks_are_refused(
    _system: System, wire: ProtocolVariant
) -> None:
    # The draft says UnsupportedOperationError; A2A 1.0 has a separate error (3.3.4).
    await check_refused_without("pushNotifications", wire)
    task = await completed_task(wire)
    reason = "PUSH_NOTIFICATION_NOT_SUPPORTED"
    for operation in ("get_push", "delete_push"):
        assert await refusal(wire, operation, task=task["id"], config="c") == reason
    assert await refusal(wire, "list_push", task=task["id"]) == reason
    assert await refusal(wire, "send", text="x", hook="https://example.com/hook") == reason


@check("CORE-CAP-002")
async def _without_the_capability_streams_are_refused(
    _system: System, wire: ProtocolVariant
) -> None:
    await check_refused_without("streaming", wire)
    task = await completed_task(wire)
    assert await refusal(wire, "subscribe", task=task["id"]) == "UNSUPPORTED_OPERATION"


@check("JSONRPC-ERR-001", scope="system")
async def _an_unknown_method_is_an_error(system: System, _wire: ProtocolVariant) -> None:
    response = await system.post(_request("DoSomethingUnsupported", {}))
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (200, -32601)
    assert isinstance(error["message"], str)


@check("JSONRPC-ERR-002", scope="system")
async def _bad_json_is_an_error(system: System, _wire: ProtocolVariant) -> None:
    response = await system.post(b"{this is not valid json")
    assert (response.status_code, response.json()["error"]["code"]) == (200, -32700)


@check("CORE-ERR-006", scope="system")
async def _a_request_without_a_method_is_an_error(system: System, _wire: ProtocolVariant) -> None:
    response = await system.post({"jsonrpc": "2.0", "id": 1, "params": {}})
    assert (response.status_code, response.json()["error"]["code"]) == (200, -32600)


@check("CORE-ERR-008", "JSONRPC-ERR-003", scope="system")
async def _error_details_have_types(system: System, _wire: ProtocolVariant) -> None:
    for request in (_send_request("x", taskId=MISSING), _request("GetTask", {"id": MISSING})):
        response = await system.post(request)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (200, -32001)
        assert all(detail["@type"] for detail in error["data"])
        (info,) = [detail for detail in error["data"] if detail["@type"].endswith("ErrorInfo")]
        assert (info["reason"], info["domain"]) == ("TASK_NOT_FOUND", "a2a-protocol.org")


@check("JSONRPC-ENV-001", "JSONRPC-CT-001", scope="system")
async def _a_response_is_json_rpc(system: System, _wire: ProtocolVariant) -> None:
    response = await system.post(_send_request("tck-complete-task", "the-id"))
    assert response.headers["content-type"].partition(";")[0] == "application/json"
    body = response.json()
    assert (response.status_code, body["jsonrpc"], body["id"]) == (200, "2.0", "the-id")
    assert body["result"]["task"]["id"]


@check("JSONRPC-SSE-001", scope="system", needs="streaming")
async def _an_event_is_json_rpc(system: System, _wire: ProtocolVariant) -> None:
    request = _send_request("tck-stream-basic", "the-id") | {"method": "SendStreamingMessage"}
    response = await system.post(request, Accept="text/event-stream")
    assert response.headers["content-type"].partition(";")[0] == "text/event-stream"
    lines = [line for line in response.text.splitlines() if line.startswith("data:")]
    assert len(lines) >= 2
    for line in lines:
        assert '"jsonrpc":"2.0"' in line
        assert '"id":"the-id"' in line


@check("REST-STATUS-001", "REST-PD-001", scope="system")
async def _an_error_has_an_http_status(system: System, _wire: ProtocolVariant) -> None:
    response = await system.get("/tasks/nonexistent-id")
    # The draft asks for problem details (RFC 9457); A2A 1.0.1 has google.rpc.Status (11.6).
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["status"]) == (404, 404, "NOT_FOUND")
    assert isinstance(error["message"], str)
    assert error["details"][0]["reason"] == "TASK_NOT_FOUND"


@check("REST-CT-001", scope="system")
async def _a_response_has_the_media_type_of_a2a(system: System, wire: ProtocolVariant) -> None:
    task = await completed_task(wire)
    response = await system.get(f"/tasks/{task['id']}")
    assert response.headers["content-type"].partition(";")[0] == "application/a2a+json"


@check("VER-NEG-001", scope="system")
async def _an_unknown_version_is_an_error(system: System, _wire: ProtocolVariant) -> None:
    response = await system.post(_send_request("x"), A2A_Version="99.0")
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (200, -32009)
    assert "A2A-Version" in error["message"]


@check("VER-NEG-002", scope="system")
async def _a_missing_version_is_the_default(system: System, _wire: ProtocolVariant) -> None:
    response = await system.post(_send_request("tck-complete-task default"), A2A_Version="")
    assert (response.status_code, bool(response.json()["result"]["task"]["id"])) == (200, True)


@check("DM-EXTRA-001", scope="system")
async def _unknown_fields_are_accepted(system: System, _wire: ProtocolVariant) -> None:
    request = _send_request("tck-complete-task extra", x_custom_field="test")
    request["params"]["x_custom_field"] = "test"
    response = await system.post(request)
    assert response.json()["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@check("DM-SERIAL-002")
async def _a_response_is_valid(_system: System, wire: ProtocolVariant) -> None:
    for text in ("tck-complete-task", "tck-artifact-file", "tck-task-failure"):
        task = await send(wire, text)
        # The reference SDK's schema refuses unknown fields and wrong types.
        assert parse_dict(task, a2a_pb2.Task()).id == task["id"]
        assert missing_fields(a2a_pb2.Task.DESCRIPTOR, task) == []


def missing_fields(descriptor: Any, value: Json) -> list[str]:
    """Return the paths of required fields that a JSON object lacks."""
    missing: list[str] = []
    for field in descriptor.fields:
        is_required = "REQUIRED" in str(field.GetOptions())
        content = value.get(field.json_name)
        if content is None:
            missing += [field.json_name] if is_required else []
        elif field.message_type is not None and not _is_special(field):
            for item in content if isinstance(content, list) else [content]:
                below = missing_fields(field.message_type, item)
                missing += [f"{field.json_name}.{path}" for path in below]
    return missing


def _is_special(field: Any) -> bool:
    """Return whether a field's JSON is not the object of its message: maps and Google's types."""
    message = field.message_type
    return bool(message.GetOptions().map_entry) or message.file.package == "google.protobuf"
