"""The user of a call is signed by the bridge, checked by every host, and passed on unchanged."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from harness.agents.inline_agents import define, message, status_texts
from harness.journal.host_death import kill_host
from harness.journal.opening import open_journal
from harness.mesh.identity import mesh_credentials
from harness.mesh.other_identities import NAME_OPTION, issue, other_authority
from harness.mesh.small_mesh import PATIENCE_S
from trunkline.core.identity import MeshCredentials, Role, StatementSigner
from trunkline.core.identity.statement_tokens import LIFETIME_S, sign_statement
from trunkline.core.settings import AccountPolicy, PolicySettings, Settings
from trunkline.core.users import USER_METADATA, User, current_statement, current_user
from trunkline.errors import PermissionDeniedError, TaskNotFoundError, UserNotProvenError
from trunkline.mesh.client import ChannelPool, HostClient, MeshChannel
from trunkline.mesh.client.methods import canceling
from trunkline.mesh.client.status import translate_errors
from trunkline.mesh.server import MeshServer
from trunkline.observe.audit import AuditLog, open_audit_log, read_records
from trunkline.tasks.approvals import digest_call
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import (
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    event_pb2,
    message_service_pb2,
    push_notification_pb2,
    snapshot_pb2,
    task_pb2,
    task_service_pb2,
)

ALICE = User("acme", "alice")
BOB = User("globex", "bob")
FAILED = State.TASK_STATE_FAILED
LOG = Path("private") / "audit.jsonl"
POLICY = PolicySettings(accounts={"initech": AccountPolicy(agents=("another",))})


def submission(user: User) -> message_service_pb2.Submission:
    return message_service_pb2.Submission(account=user.account, caller=user.name)


class Meeting:
    """A host, and clients of other processes. Each call of a test has its own user."""

    def __init__(self, folder: Path, address: str, host: TaskHost) -> None:
        self.folder = folder
        self.address = address
        self.host = host
        self.statements: list[str] = []
        self.is_waiting = asyncio.Event()
        self.revoke: Callable[[set[str]], None] = lambda _: None

    @asynccontextmanager
    async def client(
        self, credentials: MeshCredentials, *, has_trunk: bool = True
    ) -> AsyncIterator[HostClient]:
        if has_trunk:
            async with ChannelPool(credentials) as channels:
                yield HostClient(channels.get(self.address))
            return
        async with MeshChannel(
            self.address, target=self.address, credentials=credentials
        ) as channel:
            yield HostClient(channel)

    def plain_channel(self, credentials: MeshCredentials) -> grpc.aio.Channel:
        return grpc.aio.secure_channel(
            self.address, credentials.channel_credentials(), options=NAME_OPTION
        )

    async def credentials(self, role: Role, *agents: str) -> MeshCredentials:
        folder = self.folder / "-".join((role, *agents))
        return await asyncio.to_thread(issue, folder, role=role, agents=agents)


@pytest.fixture
async def meeting(tmp_path: Path) -> AsyncIterator[Meeting]:
    async with open_meeting(tmp_path) as meeting:
        yield meeting


@asynccontextmanager
async def open_meeting(folder: Path, audit: AuditLog | None = None) -> AsyncIterator[Meeting]:
    journal = open_journal(folder / "journal.db")
    statements: list[str] = []
    is_waiting = asyncio.Event()

    async def run(task: TaskContext) -> None:
        statements.append(current_statement())
        if task.text == "pay" or task.turn > 1:
            await task.request_approval("pay", {"n": 1})
        if task.text == "wait":
            is_waiting.set()
            await asyncio.Event().wait()
        if task.text == "ask":
            await task.require_input("which?")

    async with TaskHost(journal, [define(run)]) as host:
        credentials = await asyncio.to_thread(issue, folder / "server", role=Role.MEMBER)
        server = MeshServer(credentials, policy=POLICY, audit=audit)
        server.add_message_service(host)
        server.add_task_service(host)
        server.add_artifact_service(host)
        (address,) = await server.start("127.0.0.1:0")
        try:
            meeting = Meeting(folder, address, host)
            meeting.statements = statements
            meeting.is_waiting = is_waiting
            meeting.revoke = credentials.revoke
            yield meeting
        finally:
            await server.stop(0)
    await journal.close()


@pytest.fixture(autouse=True)
def _nobody() -> None:
    current_user.set(None)


async def send(client: HostClient, user: User, text: str = "hello") -> snapshot_pb2.TaskSnapshot:
    answer = await client.send_message(
        agent="tested", message=message(text), submission=submission(user)
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    return answer


async def signed(user: User) -> User:
    """Return a user with the statement of another bridge's call, as an agent holds it."""
    return replace(user, statement=await StatementSigner(mesh_credentials()).sign(user))


async def test_a_bridge_signs_for_its_callers(meeting: Meeting) -> None:
    bridge = await meeting.credentials(Role.BRIDGE)
    async with meeting.client(bridge) as client:
        current_user.set(ALICE)
        task = await send(client, ALICE)
        assert (await client.get_task(task.task.id, account="acme")).task.id == task.task.id
        # The bridge's own work, such as the delivery of a webhook.
        current_user.set(None)
        assert (await client.get_task(task.task.id, account="acme")).task.id == task.task.id
    assert len([statement for statement in meeting.statements if statement]) == 1
    # A host of the owner signs again when it continues a task, and stores no statement.
    assert not task.user_statement
    (created, *_) = await events(meeting, task.task.id)
    assert created.created.actor == str(bridge.identity)


async def events(meeting: Meeting, task_id: str) -> list[event_pb2.Event]:
    async with (
        meeting.client(mesh_credentials()) as client,
        client.watch_task(task_id, account="acme", after=0, with_snapshot=False) as stream,
    ):
        return [
            event
            async for batches in stream
            for sealed in batches
            for event in event_pb2.EventBatch.FromString(sealed).events
        ]


def reads(client: HostClient, task_id: str, account: str) -> list[Awaitable[Any]]:
    """Return calls that read a task of an account, or all its tasks."""
    return [
        client.get_task(task_id, account=account),
        watch(client, task_id, account),
        client.tasks.ListTasks(task_service_pb2.ListTasksRequest(account=account)),
        client.tasks.ResolveTaskAlias(
            task_service_pb2.ResolveTaskAliasRequest(account=account, alias="alias")
        ),
    ]


def changes(client: HostClient, task_id: str, user: User) -> list[Awaitable[Any]]:
    """Return calls that change something for a user."""
    answer = task_service_pb2.AnswerApprovalRequest(
        task_id=task_id, account=user.account, approval_id=f"{task_id}.1"
    )
    return [
        send(client, user),
        stream(client, user),
        client.cancel_task(task_id, account=user.account),
        client.pause_task(task_id, account=user.account),
        client.resume_task(task_id, account=user.account),
        client.tasks.AnswerApproval(answer),
        client.tasks.SetTaskAlias(
            task_service_pb2.SetTaskAliasRequest(
                account=user.account, alias="alias", task_id=task_id
            )
        ),
    ]


async def watch(client: HostClient, task_id: str, account: str) -> None:
    async with client.watch_task(task_id, account=account):
        pass


async def stream(client: HostClient, user: User) -> None:
    request = message_service_pb2.StreamMessageRequest(
        agent="tested", message=message("hello"), submission=submission(user)
    )
    with canceling(client.messages.StreamMessage(request)) as call:
        await anext(aiter(call))


@pytest.mark.parametrize("has_trunk", [True, False])
async def test_an_agent_acts_only_for_the_user_of_its_statement(
    meeting: Meeting, has_trunk: bool
) -> None:
    async with meeting.client(mesh_credentials()) as owner:
        theirs = (await send(owner, BOB)).task.id
    evil = await meeting.credentials(Role.AGENTS, "evil")
    async with meeting.client(evil, has_trunk=has_trunk) as client:
        for attack in (*reads(client, theirs, "globex"), *changes(client, theirs, BOB)):
            with pytest.raises(UserNotProvenError, match="pass on the statement"):
                await attack
        current_user.set(await signed(ALICE))
        own = await send(client, ALICE)
        assert own.account == "acme"
        attacks = (
            *reads(client, theirs, "globex"),
            *changes(client, theirs, BOB),
            send(client, User("acme", "carol")),
            client.tasks.ListTasks(task_service_pb2.ListTasksRequest()),
        )
        for attack in attacks:
            with pytest.raises(PermissionDeniedError, match="names another"):
                await attack
        repeated = submission(ALICE)
        repeated.task_id = theirs
        with pytest.raises(TaskNotFoundError):
            await client.send_message(agent="tested", message=message("x"), submission=repeated)
    assert len(meeting.statements) == 2


@pytest.mark.parametrize("has_trunk", [True, False])
async def test_the_statement_of_a_reader_changes_nothing(meeting: Meeting, has_trunk: bool) -> None:
    async with meeting.client(mesh_credentials()) as owner:
        task_id = (await send(owner, ALICE)).task.id
    # The host of an agent gets it with each read of a dashboard, for example.
    evil = await meeting.credentials(Role.AGENTS, "evil")
    async with meeting.client(evil, has_trunk=has_trunk) as client:
        current_user.set(await signed(User("acme", "dashboard", is_read_only=True)))
        assert (await client.get_task(task_id, account="acme")).task.id == task_id
        for attack in changes(client, task_id, User("acme", "dashboard")):
            with pytest.raises(PermissionDeniedError, match="only read"):
                await attack
    assert len(meeting.statements) == 1


async def test_files_belong_to_the_user_of_the_statement(meeting: Meeting) -> None:
    async with meeting.client(mesh_credentials()) as owner:
        theirs = (await send(owner, BOB)).task.id
    pb2 = artifact_service_pb2
    statement = (await signed(ALICE)).statement
    async with meeting.plain_channel(await meeting.credentials(Role.AGENTS, "evil")) as channel:
        stub = artifact_service_pb2_grpc.ArtifactServiceStub(channel)
        ids: dict[str, Any] = {"task_id": theirs, "account": "globex"}
        for metadata, error in (
            ((), UserNotProvenError),
            (((USER_METADATA, statement),), PermissionDeniedError),
        ):
            upload = iter([pb2.UploadArtifactRequest(**ids, artifact_id="a")])
            download = pb2.DownloadArtifactRequest(**ids, artifact_id="a")
            for call in (
                stub.UploadArtifact(upload, metadata=metadata),
                stub.ListArtifacts(pb2.ListArtifactsRequest(**ids), metadata=metadata),
                stub.DownloadArtifact(download, metadata=metadata).read(),
            ):
                with pytest.raises(error), translate_errors("the host"):
                    await call


@pytest.mark.parametrize("method", ["WatchTask", "SendMessage"])
async def test_a_revoked_process_gets_nothing_more_on_open_calls(
    meeting: Meeting, method: str
) -> None:
    evil = await asyncio.to_thread(issue, meeting.folder / "evil", agents=["evil"], instance="i-1")
    statement = await StatementSigner(mesh_credentials()).sign(ALICE)
    async with meeting.client(mesh_credentials()) as owner:
        task = await send(owner, ALICE, "ask")
    watch = task_service_pb2.WatchTaskRequest(task_id=task.task.id, account="acme")
    waiting = message_service_pb2.SendMessageRequest(
        agent="tested", message=message("wait"), submission=submission(ALICE)
    )
    # A plain call: those on a trunk end with it.
    async with grpc.aio.secure_channel(
        meeting.address, evil.channel_credentials(), options=NAME_OPTION
    ) as channel:
        start: Any = (
            channel.unary_stream(
                "/trunkline.v1.TaskService/WatchTask", lambda _: watch.SerializeToString(), bytes
            )
            if method == "WatchTask"
            else channel.unary_unary(
                "/trunkline.v1.MessageService/SendMessage",
                lambda _: waiting.SerializeToString(),
                bytes,
            )
        )
        call = start(None, metadata=((USER_METADATA, statement),))
        async with asyncio.timeout(PATIENCE_S):
            if method == "WatchTask":
                await call.read()
            else:
                await meeting.is_waiting.wait()
            meeting.revoke({"i-1"})
            with pytest.raises(grpc.aio.AioRpcError, match="is revoked"):
                await (call.read() if method == "WatchTask" else call)


async def test_a_forged_statement_is_no_proof(meeting: Meeting) -> None:
    foreign = await asyncio.to_thread(
        issue, meeting.folder / "foreign", role=Role.BRIDGE, authority=other_authority()
    )
    forged = await StatementSigner(foreign).sign(ALICE)
    own = (await signed(ALICE)).statement
    async with meeting.client(await meeting.credentials(Role.AGENTS, "evil")) as client:
        for statement in (forged, own[:-8] + "AAAAAAAA", "nonsense", "ä", own * 5):
            current_user.set(User("acme", "alice", statement=statement))
            with pytest.raises(UserNotProvenError, match="not valid"):
                await send(client, ALICE)
    assert not meeting.statements


async def test_the_owner_names_accounts_itself(meeting: Meeting) -> None:
    async with meeting.client(mesh_credentials()) as client:
        task = await send(client, ALICE)
        # The command line reads and cancels without a signature.
        assert (await client.get_task(task.task.id, account="acme")).account == "acme"
    (statement,) = meeting.statements
    assert statement


async def test_each_turn_works_by_the_statement_of_its_message(meeting: Meeting) -> None:
    async with meeting.client(await meeting.credentials(Role.BRIDGE)) as client:
        current_user.set(ALICE)
        task = await send(client, ALICE, "ask")
        current_user.set(User("acme", "bob"))
        answer = message("this", task_id=task.task.id)
        await client.send_message(
            agent="tested", message=answer, submission=submission(User("acme", "bob"))
        )
    first, second = meeting.statements
    assert first
    assert second
    assert first != second


async def test_a_child_is_for_the_user_of_the_statement(meeting: Meeting) -> None:
    # Bob answers a task of Alice: the supervisor continues it with a child, by Bob's statement.
    async with meeting.client(await meeting.credentials(Role.AGENTS, "supervisor")) as client:
        current_user.set(await signed(User("acme", "bob")))
        child = submission(ALICE)
        child.parent.task_id, child.parent.agent = "j-1", "supervisor"
        answer = await client.send_message(
            agent="tested", message=message("hello"), submission=child
        )
        assert isinstance(answer, snapshot_pb2.TaskSnapshot)
        assert answer.caller == "bob"


@pytest.mark.parametrize("has_trunk", [True, False])
async def test_refused_calls_are_in_the_audit_log(tmp_path: Path, has_trunk: bool) -> None:
    settings = Settings(data_dir=tmp_path)
    async with (
        open_audit_log(settings, process="test") as audit,
        open_meeting(tmp_path, audit) as meeting,
    ):
        evil, tools, bridge = [
            await meeting.credentials(Role.AGENTS, "evil"),
            await meeting.credentials(Role.TOOLS),
            await meeting.credentials(Role.BRIDGE),
        ]
        async with meeting.client(evil, has_trunk=has_trunk) as client:
            for _ in range(3):
                with pytest.raises(UserNotProvenError):
                    await client.get_task("j-1", account="globex")
            current_user.set(await signed(ALICE))
            with pytest.raises(PermissionDeniedError):
                await client.cancel_task("j-1", account="globex")
        async with meeting.client(bridge, has_trunk=has_trunk) as client:
            peter = current_user.set(await signed(User("initech", "peter")))
            with pytest.raises(PermissionDeniedError, match=r"policy\.accounts\.initech"):
                await send(client, User("initech", "peter"))
            current_user.reset(peter)
        async with meeting.client(tools, has_trunk=has_trunk) as client:
            with pytest.raises(PermissionDeniedError):
                await client.get_task("j-1", account="acme")
    entries = [record.entry for record in read_records(tmp_path / LOG) if record.entry]
    assert {entry["outcome"] for entry in entries} == {"denied"}
    seen = [(entry["action"], entry["actor"], entry["object"]) for entry in entries]
    method, here = "trunkline.v1.TaskService", {"kind": "process", "address": "127.0.0.1"}
    alice = {"name": str(evil.identity), "account": "acme", "user": "alice"}
    got, canceled, sent, called, more = seen
    target = {"account": "globex", "task": "j-1"}
    unproven = here | {"name": str(evil.identity)}
    assert got == ("caller.authenticate", unproven, {"method": f"{method}/GetTask", **target})
    assert canceled == (
        "caller.authorize", here | alice, {"method": f"{method}/CancelTask", **target}
    )  # fmt: skip
    assert sent[1] == here | {"name": str(bridge.identity), "account": "initech", "user": "peter"}
    assert sent[2]["agent"] == "tested"
    assert called[:2] == ("caller.authorize", here | {"name": str(tools.identity)})
    # The first refusal, and the number of the others.
    assert (more, entries[-1]["count"]) == (got, 2)


@pytest.mark.parametrize(
    ("role", "age_s", "state"),
    [
        (Role.AGENTS, 60, State.TASK_STATE_COMPLETED),
        (Role.AGENTS, LIFETIME_S + 600, FAILED),
        # A process of the mesh's owner signs again.
        (Role.MEMBER, LIFETIME_S + 600, State.TASK_STATE_COMPLETED),
    ],
)
async def test_a_stored_statement_works_after_a_restart_until_it_ends(
    meeting: Meeting, role: Role, age_s: int, state: task_pb2.TaskState.ValueType
) -> None:
    reached = asyncio.Event()
    path = meeting.folder / "parent.db"
    certificate, key = mesh_credentials().read_pem()
    signed_at = int(datetime.now(UTC).timestamp()) - age_s
    statement = sign_statement(ALICE, certificate_pem=certificate, key_pem=key, issued_at=signed_at)
    agents = ["parent"] if role is Role.AGENTS else []
    async with meeting.client(await meeting.credentials(role, *agents)) as client:

        async def call_others(task: TaskContext) -> None:
            if task.attempt == 1:
                await task.working()
                reached.set()
                await asyncio.Event().wait()
            await send(client, ALICE)

        parent = define(call_others, repeatable=True)
        first = await TaskHost(open_journal(path), [parent]).__aenter__()
        user = current_user.set(User("acme", "alice", statement=statement))
        accepted = await first.submit("tested", message("begin"), submission(ALICE))
        assert isinstance(accepted, SubmitResult)
        current_user.reset(user)
        await reached.wait()
        await kill_host(first)
        async with TaskHost(open_journal(path), [parent]) as second:
            ended = await second.wait_turn(accepted.task_id)
            await second.journal.close()
    assert ended.task.status.state == state
    if state == FAILED:
        assert "expired" in status_texts(ended)
        assert meeting.statements == []
    else:
        (received,) = meeting.statements
        assert (received == statement) == (role is Role.AGENTS)


async def test_an_agent_sets_and_reads_no_webhooks(meeting: Meeting) -> None:
    config = push_notification_pb2.TaskPushNotificationConfig(url="https://evil.example/hook")
    async with meeting.client(await meeting.credentials(Role.AGENTS, "evil")) as client:
        current_user.set(await signed(ALICE))
        task_id = (await send(client, ALICE)).task.id
        config.task_id = task_id
        with_webhook = submission(ALICE)
        with_webhook.push_notification_config.CopyFrom(config)
        for attack in (
            client.set_push_config(config, account="acme", version="1.0"),
            client.tasks.GetPushNotificationConfig(
                task_service_pb2.GetPushNotificationConfigRequest(task_id=task_id, account="acme")
            ),
            client.tasks.ListPushNotificationConfigs(
                task_service_pb2.ListPushNotificationConfigsRequest(task_id=task_id, account="acme")
            ),
            client.tasks.DeletePushNotificationConfig(
                task_service_pb2.DeletePushNotificationConfigRequest(
                    task_id=task_id, account="acme"
                )
            ),
            client.send_message(agent="tested", message=message("hello"), submission=with_webhook),
        ):
            with pytest.raises(PermissionDeniedError):
                await attack


async def test_an_agent_passes_on_only_approvals_that_a_user_gave(meeting: Meeting) -> None:
    async with meeting.client(mesh_credentials()) as owner:
        task = await send(owner, ALICE, "pay")
    (approval,) = task.approvals
    approval_id, task_id = approval.requested.approval_id, task.task.id
    answer = task_service_pb2.AnswerApprovalRequest(
        task_id=task_id,
        account="acme",
        approval_id=approval_id,
        decision=event_pb2.APPROVAL_DECISION_APPROVED,
    )
    digest = digest_call(approval_id, "pay", {"n": 1})
    async with meeting.client(await meeting.credentials(Role.AGENTS, "evil")) as client:
        for approved in ("", digest_call(approval_id, "pay", {"n": 2})):
            current_user.set(await signed(replace(ALICE, approved=frozenset({approved}))))
            for attack in (
                client.tasks.AnswerApproval(answer),
                client.send_message(
                    agent="tested",
                    message=message("approve", task_id=task_id),
                    submission=submission(ALICE),
                ),
            ):
                with pytest.raises(PermissionDeniedError, match="no statement of the user"):
                    await attack
        current_user.set(await signed(replace(ALICE, approved=frozenset({digest}))))
        answered = (await client.tasks.AnswerApproval(answer)).approval.answered
    assert (answered.user, answered.call_digest) == ("alice", digest)
