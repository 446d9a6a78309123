"""Records of the audit log: one act each. They contain identifiers, never content or secrets."""

import json
import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from trunkline.core.network import peer_host
from trunkline.core.printable import escape_json_controls
from trunkline.core.users import current_actor, current_user

OK: Final = "ok"
"""The outcome of an act that was done."""
DENIED: Final = "denied"
"""The outcome of an act that the actor may not do. Other outcomes are the reasons of errors."""
FAILED: Final = "INTERNAL"
"""The outcome of an act that ended with an unexpected error, or was cut off."""

# Longer texts are cut. Callers choose ids, and a record is one line.
_TEXT_LIMIT: Final = 256
# `json.dumps` would make an encoder for each record.
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_DENIED_REASONS: Final = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "USER_NOT_PROVEN"})


class Action(StrEnum):
    """The kinds of acts that are recorded."""

    CALLER_AUTHENTICATE = "caller.authenticate"
    """Credentials were refused. Accepted credentials are in the record of the caller's act."""
    CALLER_AUTHORIZE = "caller.authorize"
    """Credentials were not for a method or an agent. Allowed acts are records of their own."""
    MESSAGE_SEND = "message.send"
    MESSAGE_STREAM = "message.stream"
    ENVELOPE_SEND = "envelope.send"
    """A user or an agent sent messages between agents."""
    ENVELOPE_REPLAY = "envelope.replay"
    ENVELOPE_REDRIVE = "envelope.redrive"
    ENVELOPE_PURGE = "envelope.purge"
    ROOM_JOIN = "room.join"
    ROOM_LEAVE = "room.leave"
    TASK_CANCEL = "task.cancel"
    TASK_PAUSE = "task.pause"
    TASK_RESUME = "task.resume"
    TASK_GET = "task.get"
    TASK_LIST = "task.list"
    TASK_SUBSCRIBE = "task.subscribe"
    WORKFLOW_ROLL_BACK = "workflow.roll_back"
    """A caller chose the version of a workflow that new tasks take."""
    APPROVAL_ANSWER = "approval.answer"
    WEBHOOK_CREATE = "webhook.create"
    WEBHOOK_DELETE = "webhook.delete"
    WEBHOOK_GET = "webhook.get"
    WEBHOOK_LIST = "webhook.list"
    WEBHOOK_REPLAY = "webhook.replay"
    FILE_CREATE = "file.create"
    """A process stored a file with a task."""
    FILE_GET = "file.get"
    CARD_GET = "card.get"
    """The extended card. Public cards are not recorded."""
    TOOL_CALL = "tool.call"
    """A call that a person approved, or a refused call."""
    TOOL_SIGN_IN = "tool.sign_in"
    """An operator signed in to a tool server from the page."""
    AGENT_REGISTER = "agent.register"
    AGENT_DEREGISTER = "agent.deregister"
    AGENT_INSPECT = "agent.inspect"
    """An operator called an agent elsewhere from the page."""
    JOURNAL_RELEASE = "journal.release"
    """A journal got free, whose owner was gone."""
    ROOT_ROTATE = "root.rotate"
    """The root of the mesh is being replaced."""
    KEY_ADD = "key.add"
    KEY_REMOVE = "key.remove"
    KEY_ROTATE = "key.rotate"
    SECRET_SHOW = "secret.show"  # noqa: S105  the name of an act
    """The secret that signs webhooks was printed."""
    DATA_BACKUP = "data.backup"
    DATA_RESTORE = "data.restore"
    DATA_MIGRATE = "data.migrate"
    DATA_COPY = "data.copy"
    DATA_PRUNE = "data.prune"
    DATA_REKEY = "data.rekey"
    AUDIT_LOST = "audit.lost"
    """Records could not be written; `count` is their number."""


READS: Final = frozenset(
    {
        Action.TASK_GET,
        Action.TASK_LIST,
        Action.TASK_SUBSCRIBE,
        Action.WEBHOOK_GET,
        Action.WEBHOOK_LIST,
        Action.FILE_GET,
        Action.CARD_GET,
    }
)
"""The acts that change nothing. They are recorded only if the settings ask for it."""


class ActorKind(StrEnum):
    """The way in which an actor was identified."""

    API_KEY = "api_key"
    JWT = "jwt"
    CERTIFICATE = "certificate"
    ANONYMOUS = "anonymous"
    """The caller has no identity. `account` and `name` belong to anonymous callers."""
    PROCESS = "process"
    """A process of the mesh, or a command. `account` is the account that it acted for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The actor of a record."""

    kind: ActorKind
    account: str = ""
    name: str = ""
    """The name of the API key, the token's subject, the SPIFFE id of a process, or the user of a
    command."""
    user: str = ""
    """The user within the account for whom a process acts, by the signed statement of the call."""
    key_id: str = ""
    """The beginning of an API key's hash, or a token's `kid`, to distinguish keys of one name."""
    address: str = ""
    """The address of the peer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRecord:
    """An act on a mesh."""

    action: Action
    actor: Actor
    outcome: str = OK
    objects: Mapping[str, str] = field(default_factory=dict)
    """The ids of the objects by their kinds: task, context, approval, webhook, agent, key, …"""
    decision: str = ""
    """The decision about an approval."""
    count: int = 1
    """The number of acts, if the record stands for several equal acts."""
    trace_id: str = ""
    time: datetime = field(default_factory=lambda: datetime.now(UTC))

    def to_line(self, process: str) -> bytes:
        """Return the record as one line of JSON, as `process` writes it.

        Control characters are escaped, so that a text from outside can't begin a line.
        """
        actor = self.actor
        entry: dict[str, Any] = {
            "time": self.time.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "process": process,
            "action": self.action.value,
            "outcome": self.outcome,
            "actor": _without_empty(
                {
                    "kind": actor.kind.value,
                    "account": actor.account,
                    "name": actor.name,
                    "user": actor.user,
                    "key_id": actor.key_id,
                    "address": actor.address,
                }
            ),
            "object": _without_empty(self.objects),
        }
        if self.decision:
            entry["decision"] = self.decision
        if self.count != 1:
            entry["count"] = self.count
        if self.trace_id:
            entry["trace_id"] = self.trace_id
        return escape_json_controls(_encode(entry)).encode() + b"\n"


def outcome_of(reason: str) -> str:
    """Return the outcome of an act that failed for the reason of an error."""
    return DENIED if reason in _DENIED_REASONS else reason


def process_actor(peer: str = "", *, account: str = "") -> Actor:
    """Return the actor of the call that is being answered: a process, and the user it acts for.

    `peer` is gRPC's name of the caller's end. `account` is the account of the request. An account
    that a statement proves takes precedence.
    """
    user = current_user.get()
    return Actor(
        kind=ActorKind.PROCESS,
        account=account if user is None else user.account,
        name=current_actor.get(),
        user="" if user is None else user.name,
        address=peer_host(peer),
    )


def command_actor() -> Actor:
    """Return the actor of a command: the user of this process."""
    uid = os.geteuid()
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        name = str(uid)
    return Actor(kind=ActorKind.PROCESS, name=f"user {name}")


def _without_empty(texts: Mapping[str, str]) -> dict[str, str]:
    return {
        name: text if len(text) <= _TEXT_LIMIT else f"{text[:_TEXT_LIMIT]}…"
        for name, text in texts.items()
        if text
    }
