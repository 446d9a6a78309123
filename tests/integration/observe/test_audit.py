"""The audit log of meshes: every act of a caller over any wire, with who it was, and no content."""

import json
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.a2a.grpc_client import GrpcMesh, open_bridge_grpc, send_request
from harness.agents.shop import Orders, shop
from harness.mesh.command_line import COMMAND, run_command
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import running_mesh
from harness.remote.token_issuer import SigningKey, key_set, token_settings
from trunkline import TaskContext, agent
from trunkline.core.settings import Settings
from trunkline.mesh.client.artifacts import ArtifactClient
from trunkline.observe.audit import open_audit_log, read_records
from trunkline.v1 import task_service_pb2
from trunkline.v1.push_notification_pb2 import TaskPushNotificationConfig
from trunkline_agents.echo.agent import echo
from trunkline_bridge.callers.api_keys import ApiKey, hash_key, save_keys

KEY = "key-of-ann-which-is-secret"
ANN = {"X-API-Key": KEY}
READER = "key-of-reader"
HOOK = "http://127.0.0.1:9/hook?token=hook-secret"
CONTENT = "the content of a message"
ISSUER = SigningKey("issuer")

Json = dict[str, Any]


@agent(name="asker", description="Asks back.")
async def asker(task: TaskContext) -> None:
    await task.require_input("what else?")


@dataclass(frozen=True)
class Audited:
    """A mesh with an audit log."""

    mesh: GrpcMesh
    path: Path

    @property
    def bridged(self) -> BridgedMesh:
        return self.mesh.bridged

    @property
    def text(self) -> str:
        return self.path.read_text()

    def entries(self, **fields: str) -> list[Json]:
        """Return the records with these fields."""
        entries = [record.entry for record in read_records(self.path)]
        assert None not in entries
        return [
            entry
            for entry in entries
            if entry is not None and all(entry.get(name) == text for name, text in fields.items())
        ]


@asynccontextmanager
async def open_audited(folder: Path, *, reads: bool = False) -> AsyncIterator[Audited]:
    """Open a mesh that accepts Ann's key and tokens; the log is complete after the block."""
    (folder / "jwks.json").write_bytes(key_set(ISSUER))
    reader = ApiKey("reader", "acme", hash_key(READER), methods=("read",))
    save_keys(folder / "keys.toml", [ApiKey("ann", "acme", hash_key(KEY)), reader])
    settings = Settings(
        default_agent="asker",
        api_keys_file=folder / "keys.toml",
        **token_settings(folder / "jwks.json", account_claim="org"),
        allow_webhook=("127.0.0.1",),
    )
    audit_settings = Settings(data_dir=folder / "data", audit_reads=reads)
    async with (
        open_audit_log(audit_settings, process="test") as audit,
        open_bridged_mesh(folder, settings, audit=audit) as bridged,
    ):
        await bridged.mesh.join(asker, echo)
        async with open_bridge_grpc(bridged) as mesh:
            yield Audited(mesh, folder / "data" / "private" / "audit.jsonl")


async def act_over_json_rpc(audited: Audited, headers: Mapping[str, str] = ANN) -> str:
    """Do everything that changes something, over JSON-RPC; return the task's id."""
    caller = audited.bridged.at("/")
    message = {"message": caller.message(CONTENT)}
    task_id: str = (await caller.call("SendMessage", message, headers))["task"]["id"]
    async with caller.stream(
        "SendStreamingMessage", {"message": caller.message(CONTENT)}, headers
    ) as stream:
        await anext(stream)
    config = {"taskId": task_id, "id": "hook", "url": HOOK, "token": "hook-secret"}
    await caller.call("CreateTaskPushNotificationConfig", config, headers)
    await caller.call("GetTask", {"id": task_id}, headers)
    await caller.call("ListTasks", {}, headers)
    named = {"taskId": task_id, "id": "hook"}
    await caller.post("DeleteTaskPushNotificationConfig", named, headers)
    await caller.call("CancelTask", {"id": task_id}, headers)
    return task_id


def acts(entries: list[Json]) -> list[tuple[str, str]]:
    return [(entry["action"], entry["outcome"]) for entry in entries]


async def test_acts_of_a_caller_are_recorded_without_content_and_secrets(tmp_path: Path) -> None:
    async with open_audited(tmp_path) as audited:
        task_id = await act_over_json_rpc(audited)
    by_ann = [entry for entry in audited.entries() if entry["actor"]["kind"] == "api_key"]
    assert acts(by_ann) == [
        ("message.send", "ok"),
        ("message.stream", "ok"),
        ("webhook.create", "ok"),
        ("webhook.delete", "ok"),
        ("task.cancel", "ok"),
    ]
    for entry in by_ann:
        assert entry["actor"] == {
            "kind": "api_key",
            "account": "acme",
            "name": "ann",
            "key_id": hash_key(KEY)[:12],
            "address": "127.0.0.1",
        }
        assert entry["object"]["agent"] == "asker"
    assert [entry["object"].get("task") for entry in by_ann if entry is not by_ann[1]] == [
        task_id
    ] * 4
    # A stream's task is known before its first event.
    assert by_ann[1]["object"]["task"] not in ("", task_id)
    assert by_ann[1]["object"]["context"]
    assert [entry["object"].get("webhook") for entry in by_ann[2:4]] == ["hook", "hook"]
    for secret in (KEY, CONTENT, HOOK, "hook-secret", hash_key(KEY)):
        assert secret not in audited.text


async def test_reads_are_recorded_if_asked_for(tmp_path: Path) -> None:
    async with open_audited(tmp_path, reads=True) as audited:
        await act_over_json_rpc(audited)
    by_ann = [entry for entry in audited.entries() if entry["actor"]["kind"] == "api_key"]
    assert ("task.get", "ok") in acts(by_ann)
    assert ("task.list", "ok") in acts(by_ann)


async def test_acts_over_all_bindings_and_versions_are_recorded(tmp_path: Path) -> None:
    async with open_audited(tmp_path) as audited:
        client, url = audited.bridged.client, audited.bridged.url
        v1 = {"message": audited.bridged.at("/").message(CONTENT)}
        old = {"kind": "message", "messageId": "m-old", "role": "user"}
        v0_3 = {"message": {**old, "parts": [{"kind": "text", "text": CONTENT}]}}
        v0_1 = {"id": "chosen", "message": {"role": "user", "parts": v0_3["message"]["parts"]}}
        for path, body in (
            ("/", {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": v0_3}),
            ("/", {"jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": v0_1}),
            ("/message:send", v1),
        ):
            response = await client.post(f"{url}{path}", json=body, headers=ANN)
            assert response.status_code == 200, response.text
            assert "error" not in response.json(), response.text
        metadata = (("x-api-key", KEY),)
        sent = await audited.mesh.v1.SendMessage(send_request(CONTENT), metadata=metadata)
        await audited.mesh.v1.CancelTask(
            a2a_pb2.CancelTaskRequest(id=sent.task.id), metadata=metadata
        )
    by_ann = [entry for entry in audited.entries() if entry["actor"]["kind"] == "api_key"]
    assert acts(by_ann) == [("message.send", "ok")] * 4 + [("task.cancel", "ok")]
    assert {entry["actor"]["address"] for entry in by_ann} == {"127.0.0.1"}
    assert all(entry["object"]["task"] for entry in by_ann)


async def test_refused_and_failed_acts_are_recorded(tmp_path: Path) -> None:
    async with open_audited(tmp_path) as audited:
        caller = audited.bridged.at("/")
        await caller.post("CancelTask", {"id": "t"}, {"X-API-Key": "guessed-key"})
        with pytest.raises(grpc.aio.AioRpcError):
            await audited.mesh.v1.SendMessage(send_request(CONTENT))
        await caller.error("CancelTask", {"id": "no\nsuch"}, ANN)
        unknown = {**caller.message(CONTENT), "taskId": "unknown"}
        await caller.error("SendStreamingMessage", {"message": unknown}, ANN)
    denied = audited.entries(outcome="denied")
    assert [entry["action"] for entry in denied] == ["caller.authenticate"] * 2
    assert {entry["actor"]["address"] for entry in denied} == {"127.0.0.1"}
    (failed,) = audited.entries(action="task.cancel")
    assert failed["outcome"] == "TASK_NOT_FOUND"
    assert failed["object"]["task"] == "no\nsuch"
    (failed,) = audited.entries(action="message.stream")
    assert failed["outcome"] == "TASK_NOT_FOUND"
    assert failed["object"]["task"] == "unknown"
    assert "guessed-key" not in audited.text


async def test_a_call_that_a_key_is_not_for_is_recorded_as_denied(tmp_path: Path) -> None:
    async with open_audited(tmp_path) as audited:
        caller = audited.bridged.at("/")
        message = {"message": caller.message(CONTENT)}
        await caller.post("SendMessage", message, {"X-API-Key": READER})
    (denied,) = audited.entries(action="caller.authorize")
    assert denied["outcome"] == "denied"
    assert denied["object"] == {"agent": "asker", "method": "SendMessage"}
    assert denied["actor"]["name"] == "reader"


async def test_the_bearer_of_a_token_is_recorded_by_subject_and_key(tmp_path: Path) -> None:
    async with open_audited(tmp_path) as audited:
        token = ISSUER.token({"sub": "tom", "org": "acme"})
        await act_over_json_rpc(audited, {"Authorization": f"Bearer {token}"})
    (sent,) = audited.entries(action="message.send")
    assert sent["actor"] == {
        "kind": "jwt",
        "account": "jwt:acme",
        "name": "tom",
        "key_id": "issuer",
        "address": "127.0.0.1",
    }
    assert token not in audited.text


async def test_registrations_and_acts_inside_the_mesh_are_recorded(tmp_path: Path) -> None:
    async with open_audited(tmp_path) as audited:
        task_id = await audited.bridged.mesh.begin(CONTENT, agent="asker")
        directory = audited.bridged.mesh.directory
        client = directory.client_for_task(task_id)
        config = TaskPushNotificationConfig(task_id=task_id, id="hook", url=HOOK)
        await client.set_push_config(config, account="", version="1.0")
        await client.tasks.DeletePushNotificationConfig(
            task_service_pb2.DeletePushNotificationConfigRequest(
                task_id=task_id, config_id="hook", account=""
            )
        )
        await ArtifactClient(directory).upload(task_id, "", b"a" * 9, media_type="text/plain")
        await client.cancel_task(task_id, account="")
    registered = audited.entries(action="agent.register")
    assert {entry["object"]["agent"] for entry in registered} == {"asker", "echo"}
    assert {entry["actor"]["address"] for entry in registered} == {"127.0.0.1"}
    deregistered = audited.entries(action="agent.deregister")
    assert {entry["object"]["agent"] for entry in deregistered} == {"asker", "echo"}
    for action in ("webhook.create", "webhook.delete", "file.create", "task.cancel"):
        (entry,) = audited.entries(action=action)
        assert entry["object"]["task"] == task_id
        assert entry["actor"]["kind"] == "process"
        # The process by its certificate.
        assert entry["actor"]["name"] == str(mesh_credentials().identity)
    assert {entry["actor"]["name"] for entry in registered} == {str(mesh_credentials().identity)}
    assert HOOK not in audited.text


@pytest.mark.parametrize("text", ["approve", "reject it is too much"])
async def test_answers_to_approvals_are_recorded(tmp_path: Path, text: str) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    async with (
        open_audit_log(settings, process="test") as audit,
        open_bridged_mesh(tmp_path, Settings(default_agent="apples"), audit=audit) as bridged,
    ):
        await bridged.mesh.join(shop("apples", Orders()))
        task = await bridged.at("/").send("order 3 apples")
        await bridged.at("/").send(text, taskId=task["id"])
    path = tmp_path / "data" / "private" / "audit.jsonl"
    entries = [record.entry for record in read_records(path) if record.entry is not None]
    (answered,) = [entry for entry in entries if entry["action"] == "approval.answer"]
    assert answered["object"] == {
        "approval": f"{task['id']}.1",
        "task": task["id"],
        "agent": "apples",
    }
    assert answered["decision"] == ("approved" if text == "approve" else "rejected")
    assert answered["actor"] == {
        "kind": "process",
        "account": "anonymous",
        "name": str(mesh_credentials().identity),
        "user": "anonymous",
    }
    # The bridge's record of the message has the caller's address, and the same trace.
    assert "too much" not in path.read_text()


async def test_the_command_filters_the_log_of_a_running_mesh(tmp_path: Path) -> None:
    async with running_mesh(tmp_path) as mesh:
        data = ("--data", str(tmp_path / "data"))
        asked = await run_command("ask", "echo hello", "--url", mesh.http_url, folder=tmp_path)
        assert asked.exit == 0, asked.err
        backup = await run_command("data", "backup", str(tmp_path / "copy"), *data, folder=tmp_path)
        assert backup.exit == 0, backup.err
    everything = await run_command("audit", *data, "--json", folder=tmp_path)
    assert everything.exit == 0, everything.err
    entries = [json.loads(line) for line in everything.out.splitlines()]
    assert {"agent.register", "message.stream", "data.backup", "agent.deregister"} <= {
        entry["action"] for entry in entries
    }
    (backed_up,) = [entry for entry in entries if entry["action"] == "data.backup"]
    assert backed_up["process"] == "cli"
    assert backed_up["actor"]["name"].startswith("user ")
    (streamed,) = [entry for entry in entries if entry["action"] == "message.stream"]
    task_id = streamed["object"]["task"]
    for words, expected in (
        (("--task", task_id), {"message.stream"}),
        (("--action", "data.*"), {"data.backup"}),
        (("--account", "anonymous", "--since", "1h"), {"message.stream"}),
        (("--outcome", "denied"), set()),
        (("--since", "2100-01-01"), set()),
    ):
        filtered = await run_command("audit", *data, "--json", *words, folder=tmp_path)
        assert filtered.exit == 0, filtered.err
        actions = {json.loads(line)["action"] for line in filtered.out.splitlines()}
        assert actions == expected, words
    plain = await run_command("audit", *data, "--task", task_id, folder=tmp_path)
    assert "anonymous" in plain.out
    assert f"task={task_id}" in plain.out
    assert len(plain.out.splitlines()) == 1
    wrong = await run_command("audit", *data, "--since", "yesterday", folder=tmp_path)
    assert wrong.exit == 2
    assert "--since" in wrong.err


async def test_a_log_with_a_damaged_line_is_shown_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "private" / "audit.jsonl"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b'{"time":"x","action":"task.cancel","outcome":"\\u001b[2J"}\nnot JSON\n')
    shown = await run_command("audit", "--data", str(tmp_path), folder=tmp_path)
    assert shown.exit == 1
    assert "1 lines are no records" in shown.err
    assert shown.out.count("\n") == 1
    assert "\x1b" not in shown.out


def test_a_closed_pipe_is_no_error_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "private" / "audit.jsonl"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(b'{"time":"x","action":"task.cancel","outcome":"ok"}\n')
    reading, writing = os.pipe()
    os.close(reading)
    ended = subprocess.run(
        [*COMMAND, "audit", "--data", str(tmp_path)],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writing)
    assert (ended.returncode, ended.stderr) == (1, b"")
