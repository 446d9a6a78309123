"""Checks of messages, tasks, histories, conversations and artifacts.

The format's draft has the ids of a follow-up message beside the message, where A2A 1.0 has no such
fields; here they are in the message. Its parts `file` and `fileUrl` are `raw` and `url` in A2A 1.0.
"""

import json
from datetime import datetime

from harness.a2a.protocol_variants import ProtocolVariant
from harness.agents.conformance_agent import FILE_URL
from harness.conformance.registry import (
    System,
    check,
    completed_task,
    parts,
    poll,
    refusal,
    send,
    started_task,
    state,
    texts,
)

_ENDED = "UNSUPPORTED_OPERATION"


@check("CORE-SEND-001")
async def _a_message_completes_a_task(_system: System, wire: ProtocolVariant) -> None:
    task = (await wire.ask("send", text="tck-complete-task hello"))["task"]
    assert isinstance(task["id"], str)
    assert state(task) == "completed"


@check("CORE-SEND-002", "CORE-ERR-004")
async def _a_message_to_an_ended_task_is_an_error(_system: System, wire: ProtocolVariant) -> None:
    task = await completed_task(wire)
    assert await refusal(wire, "send", text="more", task=task["id"]) == _ENDED


@check("CORE-SEND-003")
async def _a_message_answers_without_a_task(_system: System, wire: ProtocolVariant) -> None:
    answer = await wire.ask("send", text="tck-message-response hello")
    assert list(answer) == ["message"]
    assert answer["message"]["role"] == "ROLE_AGENT"


@check("CORE-SEND-004")
async def _an_unsupported_media_type_is_an_error(_system: System, wire: ProtocolVariant) -> None:
    # The draft has the type in the metadata; A2A 1.0 has a field for it.
    part = {"data": {"value": "x"}, "mediaType": "application/x-unsupported-type-12345"}
    assert await refusal(wire, "send", text="", part=part) == "CONTENT_TYPE_NOT_SUPPORTED"


@check("CORE-GET-001")
async def _a_task_is_read(_system: System, wire: ProtocolVariant) -> None:
    task = await completed_task(wire)
    read = await wire.ask("get", task=task["id"])
    assert (read["id"], state(read)) == (task["id"], "completed")


@check("CORE-GET-002", "CORE-HIST-001")
async def _a_task_is_read_without_history(_system: System, wire: ProtocolVariant) -> None:
    task = await completed_task(wire)
    read = await wire.ask("get", task=task["id"], history=0)
    assert read["id"] == task["id"]
    assert not read.get("history")


@check("CORE-CANCEL-001", "GRPC-STREAM-002")
async def _a_task_is_canceled(_system: System, wire: ProtocolVariant) -> None:
    task = await started_task(wire, "tck-cancel start")
    canceled = await wire.ask("cancel", task=task["id"])
    assert (canceled["id"], state(canceled)) == (task["id"], "canceled")


@check("CORE-CANCEL-002", "CORE-ERR-003")
async def _an_ended_task_is_not_canceled(_system: System, wire: ProtocolVariant) -> None:
    task = await completed_task(wire)
    assert await refusal(wire, "cancel", task=task["id"]) == "TASK_NOT_CANCELABLE"


@check("CORE-FAIL-001")
async def _a_failure_has_a_message(_system: System, wire: ProtocolVariant) -> None:
    task = await send(wire, "tck-task-failure trigger error")
    assert state(task) == "failed"
    assert texts([task["status"]["message"]]) == ["it failed"]


@check("CORE-LIST-001")
async def _tasks_are_listed_by_context(_system: System, wire: ProtocolVariant) -> None:
    task = await completed_task(wire)
    page = await wire.ask("list", contextId=task["contextId"])
    listed = [(entry["id"], entry["contextId"]) for entry in page["tasks"]]
    assert listed == [(task["id"], task["contextId"])]


@check("CORE-LIST-002")
async def _tasks_are_listed_without_artifacts(_system: System, wire: ProtocolVariant) -> None:
    task = await completed_task(wire)
    page = await wire.ask("list", contextId=task["contextId"], includeArtifacts=False)
    (entry,) = page["tasks"]
    assert entry["id"] == task["id"]
    assert entry.get("artifacts") is None


@check("CORE-LIST-003")
async def _a_last_page_has_an_empty_token(_system: System, wire: ProtocolVariant) -> None:
    task = await completed_task(wire)
    page = await wire.ask("list", contextId=task["contextId"])
    assert len(page["tasks"]) == 1
    # Protobuf's JSON omits an empty text; the JSON bindings must not.
    assert page.get("nextPageToken", "" if wire.binding == "gRPC" else None) == ""


@check("CORE-HIST-002")
async def _a_history_is_limited(_system: System, wire: ProtocolVariant) -> None:
    task_id = await _three_turns(wire)
    whole = await wire.ask("get", task=task_id)
    read = await wire.ask("get", task=task_id, history=2)
    assert len(whole["history"]) > 2
    assert read["history"] == whole["history"][-2:]


@check("CORE-HIST-003")
async def _a_message_answers_without_history(_system: System, wire: ProtocolVariant) -> None:
    assert "history" not in await completed_task(wire, history=0)


@check("CORE-HIST-004")
async def _a_history_is_a_list(_system: System, wire: ProtocolVariant) -> None:
    task = await completed_task(wire)
    read = await wire.ask("get", task=task["id"])
    assert isinstance(read["history"], list)


@check("CORE-HIST-005", "CORE-HIST-006")
async def _a_history_has_the_messages_in_order(_system: System, wire: ProtocolVariant) -> None:
    read = await wire.ask("get", task=await _three_turns(wire))
    # The draft counts only the user's messages. Here the agent's questions are between them.
    said = [entry for entry in read["history"] if entry["role"] == "ROLE_USER"]
    assert texts(said) == ["tck-multi-turn first", "second", "done"]


@check("CORE-MULTI-001")
async def _a_task_takes_several_turns(_system: System, wire: ProtocolVariant) -> None:
    read = await wire.ask("get", task=await _three_turns(wire))
    assert state(read) == "completed"


async def _three_turns(wire: ProtocolVariant) -> str:
    """Complete a task in three turns; return its id."""
    first = await send(wire, "tck-multi-turn first")
    ids = {"task": first["id"], "context": first["contextId"]}
    assert state(first) == "input-required"
    assert state(await send(wire, "second", **ids)) == "input-required"
    completed = await send(wire, "done", **ids)
    assert (completed["id"], state(completed)) == (first["id"], "completed")
    return str(first["id"])


@check("CORE-MULTI-005")
async def _a_task_infers_its_context(_system: System, wire: ProtocolVariant) -> None:
    first = await send(wire, "tck-multi-turn start")
    completed = await send(wire, "done", task=first["id"])
    assert (completed["id"], completed["contextId"]) == (first["id"], first["contextId"])
    assert state(completed) == "completed"


@check("CORE-MULTI-006")
async def _a_wrong_context_is_an_error(_system: System, wire: ProtocolVariant) -> None:
    first = await send(wire, "tck-multi-turn start")
    reason = await refusal(wire, "send", text="x", task=first["id"], context="wrong-context-id")
    assert reason == "INVALID_PARAMS"


@check("CORE-MULTI-003")
async def _ids_of_two_conversations_are_an_error(_system: System, wire: ProtocolVariant) -> None:
    first, second = await completed_task(wire), await completed_task(wire)
    ids = {"task": first["id"], "context": second["contextId"]}
    assert await refusal(wire, "send", text="mismatched", **ids) == "INVALID_PARAMS"


@check("CORE-CTX-001")
async def _a_clients_context_is_never_replaced(_system: System, wire: ProtocolVariant) -> None:
    # An agent accepts the client's id or refuses it. Ours accepts it.
    task = await completed_task(wire, context="chosen-by-the-client")
    assert task["contextId"] == "chosen-by-the-client"


@check("CORE-EXEC-001")
async def _a_long_task_is_polled_to_its_end(system: System, wire: ProtocolVariant) -> None:
    task = await started_task(wire)
    system.agent.release(task["id"])
    completed = await poll(wire, task["id"], "completed")
    assert completed["id"] == task["id"]
    assert len(completed["artifacts"]) == 1


@check("CORE-EXEC-002")
async def _polling_shows_the_work(system: System, wire: ProtocolVariant) -> None:
    task = await started_task(wire)
    assert state(await poll(wire, task["id"], "working")) == "working"
    system.agent.release(task["id"])
    assert (await poll(wire, task["id"], "completed"))["id"] == task["id"]


@check("DM-ART-001")
async def _an_artifact_is_text(_system: System, wire: ProtocolVariant) -> None:
    task = await send(wire, "tck-artifact-text hello")
    assert state(task) == "completed"
    assert parts(task)[0]["text"] == "a text"


@check("DM-ART-002")
async def _an_artifact_is_data(_system: System, wire: ProtocolVariant) -> None:
    task = await send(wire, "tck-artifact-data structured")
    assert state(task) == "completed"
    assert parts(task)[0]["data"] == {"count": 3}


@check("DM-ART-003")
async def _an_artifact_is_a_file(_system: System, wire: ProtocolVariant) -> None:
    task = await send(wire, "tck-artifact-file document")
    assert state(task) == "completed"
    (part,) = parts(task)
    assert (part["filename"], part["mediaType"]) == ("report.pdf", "application/pdf")
    assert part["raw"] == "JVBERi0xLjQ="


@check("DM-ART-004")
async def _an_artifact_is_a_files_url(_system: System, wire: ProtocolVariant) -> None:
    task = await send(wire, "tck-artifact-file-url document")
    assert state(task) == "completed"
    (part,) = parts(task)
    assert (part["url"], part["filename"]) == (FILE_URL, "report.pdf")


@check("DM-SERIAL-001")
async def _a_timestamp_is_utc(_system: System, wire: ProtocolVariant) -> None:
    text = (await completed_task(wire))["status"]["timestamp"]
    assert text.endswith("Z")
    assert datetime.fromisoformat(text).utcoffset() is not None


@check("DM-FMT-001")
async def _names_are_in_camel_case(_system: System, wire: ProtocolVariant) -> None:
    task = await send(wire, "tck-artifact-file verify")
    assert "contextId" in task
    assert "_" not in "".join(_names(task))


def _names(value: object) -> list[str]:
    """Return the names of all members below a value."""
    if isinstance(value, dict):
        return [name for key, item in value.items() for name in (key, *_names(item))]
    if isinstance(value, list):
        return [name for item in value for name in _names(item)]
    return []


@check("DM-FMT-002")
async def _enums_have_prefixes(_system: System, wire: ProtocolVariant) -> None:
    answer = await wire.ask("send", text="tck-message-response role")
    assert answer["message"]["role"] == "ROLE_AGENT"
    assert (await completed_task(wire))["status"]["state"] == "TASK_STATE_COMPLETED"


@check("DM-FMT-003")
async def _default_values_are_omitted(_system: System, wire: ProtocolVariant) -> None:
    message = (await wire.ask("send", text="tck-message-response defaults"))["message"]
    # The draft forbids contextId, which A2A 1.0 requires if the agent made one (3.4.1).
    assert "taskId" not in message
    assert message.get("contextId") != ""
    assert '""' not in json.dumps(message)
