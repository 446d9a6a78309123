"""The text format: `Label: value` lines, and blocks below a label that end with an empty line."""

import base64
import binascii
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from trunkline.a2a_wire.json_values import Json
from trunkline.cli.a2a_cli.card import ResolvedCard
from trunkline.cli.a2a_cli.console import pretty
from trunkline.core.printable import escape_controls

PROGRAM: Final = "trunkline a2a"
INTERRUPTED_STATES: Final = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})
TERMINAL_STATES: Final = frozenset(
    {
        "TASK_STATE_COMPLETED",
        "TASK_STATE_FAILED",
        "TASK_STATE_CANCELED",
        "TASK_STATE_REJECTED",
    }
)
_MULTIPLES: Final = ("bytes", "kB", "MB", "GB")


def field_line(label: str, value: object) -> str:
    """Return one field; line breaks in the value are escaped."""
    return f"{label}: {escape_controls(str(value))}\n"


def block(label: str, content: str) -> str:
    """Return a block. Empty lines inside become a space, because an empty line ends it."""
    lines = [line or " " for line in content.rstrip("\n").splitlines()]
    return "\n".join([f"{label}:", *lines, "", ""])


def task_fields(task_id: str, context_id: str, state: str) -> str:
    """Return the three fields that every command about a task prints."""
    return (
        field_line("Task", task_id) + field_line("Context", context_id) + field_line("State", state)
    )


def resume_command(target: str, task_id: str, context_id: str, state: str) -> str:
    """Return the field with the command that continues a task.

    Empty while it works, and without a `target`, the flags that name its agent.
    """
    if not target:
        return ""
    # The ids are the agent's: they must not become commands of the user's shell.
    task_id, context_id = (shlex.quote(text) if text else "" for text in (task_id, context_id))
    send = f"{PROGRAM} send {target}"
    if state == "TASK_STATE_AUTH_REQUIRED":
        command = f"{PROGRAM} task get {target} --wait {task_id}"
        return field_line("Wait", command) + field_line(
            "Resume", f'{send} --task-id {task_id} "<reply>"'
        )
    if state in INTERRUPTED_STATES:
        return field_line("Resume", f'{send} --task-id {task_id} "<reply>"')
    if state in TERMINAL_STATES and context_id:
        return field_line("Continue", f'{send} --context-id {context_id} "<message>"')
    if task_id and state not in TERMINAL_STATES:
        command = f"{PROGRAM} task get {target} --wait {task_id}"
        return field_line("Wait", command)
    return ""


class TextFormat:
    """Renders results and events as text."""

    def __init__(self, target: str, *, is_verbose: bool) -> None:
        """`target` are the flags that name the agent, for commands to copy."""
        self._target = target
        self._is_verbose = is_verbose

    def task(self, task: Json, *, has_history: bool = False) -> str:
        """Render a task with its artifacts, and with its history if that was asked for."""
        status = _object(task.get("status"))
        state = str(status.get("state", "TASK_STATE_UNSPECIFIED"))
        task_id, context_id = str(task.get("id", "")), str(task.get("contextId", ""))
        text = task_fields(task_id, context_id, state)
        text += resume_command(self._target, task_id, context_id, state)
        for artifact in _objects(task.get("artifacts")):
            text += self._artifact(artifact)
        text += self._status_message(status)
        for message in _objects(task.get("history")) if has_history or self._is_verbose else ():
            text += field_line("History", message.get("role", ""))
            text += self._parts(message.get("parts"), "Message")
        if self._is_verbose:
            text += block("Task object", pretty(task))
        return text

    def message(self, message: Json) -> str:
        """Render a direct reply, which has no task."""
        text = field_line("Message ID", message.get("messageId", ""))
        if message.get("contextId"):
            text += field_line("Context", message["contextId"])
        text += self._parts(message.get("parts"), "Text")
        if self._is_verbose:
            text += block("Message object", pretty(message))
        return text

    def result(self, response: Json) -> str:
        """Render a SendMessageResponse."""
        if "message" in response:
            return self.message(_object(response["message"]))
        return self.task(_object(response.get("task")))

    def event(self, event: Json) -> str:
        """Render an event of a stream."""
        if "statusUpdate" in event:
            update = _object(event["statusUpdate"])
            status = _object(update.get("status"))
            text = task_fields(
                str(update.get("taskId", "")),
                str(update.get("contextId", "")),
                str(status.get("state", "TASK_STATE_UNSPECIFIED")),
            )
            text += self._status_message(status)
        elif "artifactUpdate" in event:
            text = self._artifact(_object(_object(event["artifactUpdate"]).get("artifact")))
        else:
            return self.result(event)
        if self._is_verbose:
            text += block("Event object", pretty(event))
        return text

    def card(self, resolved: ResolvedCard, notes: Mapping[str, str]) -> str:
        """Render an agent card; `notes` are further fields."""
        card = resolved.value
        text = "".join(
            field_line(label, card[name])
            for label, name in (
                ("Name", "name"),
                ("Description", "description"),
                ("Version", "version"),
                ("Documentation", "documentationUrl"),
            )
            if card.get(name)
        )
        provider = _object(card.get("provider"))
        if provider:
            text += field_line("Provider", provider.get("organization", ""))
        capabilities = _object(card.get("capabilities"))
        for label, name in (
            ("Streaming", "streaming"),
            ("Push notifications", "pushNotifications"),
            ("Extended card", "extendedAgentCard"),
        ):
            text += field_line(label, "yes" if resolved.declares(name) else "no")
        for extension in _objects(capabilities.get("extensions")):
            needed = " (required)" if extension.get("required") else ""
            text += field_line("Extension", f"{extension.get('uri', '')}{needed}")
        for interface in resolved.interfaces:
            names = f"{interface.protocol_binding} {interface.protocol_version}"
            tenant = f" tenant={interface.tenant}" if interface.tenant else ""
            text += field_line("Interface", f"{names} {interface.url}{tenant}")
        for name, scheme in _object(card.get("securitySchemes")).items():
            # A scheme of v0.3 has its kind in `type`.
            kinds = _object(scheme).get("type") or ", ".join(_object(scheme))
            text += field_line("Security scheme", f"{name} ({kinds})")
        for skill in _objects(card.get("skills")):
            text += field_line("Skill", f"{skill.get('id', '')}: {skill.get('description', '')}")
        text += "".join(field_line(label, value) for label, value in notes.items())
        if self._is_verbose:
            text += block("Card object", pretty(card))
        return text

    def _status_message(self, status: Json) -> str:
        return self._parts(_object(status.get("message")).get("parts"), "Message")

    def _artifact(self, artifact: Json) -> str:
        text = field_line("Artifact", artifact.get("artifactId", ""))
        if artifact.get("name"):
            text += field_line("Artifact name", artifact["name"])
        return text + self._parts(artifact.get("parts"), "Text")

    def _parts(self, parts: object, label: str) -> str:
        text = ""
        for part in _objects(parts):
            if "text" in part:
                text += block(label, str(part["text"]))
            elif "data" in part:
                text += block("Data", pretty(part["data"]))
            elif "raw" in part or "url" in part:
                text += field_line("File", describe_file(part))
            else:
                # A part of a kind that is not known yet.
                text += block("Part", pretty(part))
            if self._is_verbose and part.get("metadata"):
                text += block("Part metadata", pretty(part["metadata"]))
        return text


def describe_file(part: Json) -> str:
    """Return the name, media type, and size or URL of a file part."""
    name, media_type = part.get("filename") or "unnamed", part.get("mediaType") or "unknown type"
    if "url" in part:
        return f"{name} ({media_type}, at {part['url']})"
    return f"{name} ({media_type}, {_size(len(decode_raw(part)))})"


def decode_raw(part: Json) -> bytes:
    """Return the content of a file part; empty if it is not base64."""
    try:
        return base64.b64decode(str(part.get("raw", "")))
    except (binascii.Error, ValueError):
        return b""


def artifact_parts(task: Json) -> Iterator[tuple[Json, Json]]:
    """Yield each artifact of a task with each of its parts."""
    for artifact in _objects(task.get("artifacts")):
        for part in _objects(artifact.get("parts")):
            yield artifact, part


def _size(count: int) -> str:
    value, unit = float(count), 0
    while value >= 1000 and unit < len(_MULTIPLES) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_MULTIPLES[unit]}"


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> Sequence[Json]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []
