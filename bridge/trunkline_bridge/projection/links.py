"""Shows where A2A clients fetch what parts refer to inside the mesh."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

from trunkline.a2a.v1 import a2a_pb2
from trunkline.client.artifacts import Reference, parse_reference, sanitize_filename
from trunkline.errors import InvalidArgumentError
from trunkline.v1 import message_pb2, part_pb2, task_pb2

FILES_PATH: Final = "/artifacts/"
_NAMELESS: Final = "file"


class FileLinks:
    """References of the mesh as URLs below a bridge's own, and back."""

    __slots__ = ("_base",)

    def __init__(self, base_url: str) -> None:
        """`base_url` is how the reader reaches the bridge, without a last slash."""
        self._base = base_url + FILES_PATH

    def to_urls(self, parts: Iterable[part_pb2.Part]) -> None:
        """Put URLs in the place of references."""
        for part in parts:
            if part.url and (reference := parse_reference(part.url)) is not None:
                # For people alone. Servers and proxies act on slashes and dots, encoded or not.
                name = quote(sanitize_filename(part.filename) or _NAMELESS, safe="")
                part.url = f"{self._base}{reference.task_id}/{reference.blob_id}/{name}"

    def task_to_urls(self, task: task_pb2.Task) -> task_pb2.Task:
        """Put URLs in the place of all references of a task; return it."""
        for artifact in task.artifacts:
            self.to_urls(artifact.parts)
        for message in task.history:
            self.to_urls(message.parts)
        self.to_urls(task.status.message.parts)
        return task

    def event_to_urls(self, response: a2a_pb2.StreamResponse) -> a2a_pb2.StreamResponse:
        """Put URLs in the place of all references of an event that is no task; return it."""
        match response.WhichOneof("payload"):
            case "artifact_update":
                self.to_urls(response.artifact_update.artifact.parts)
            case "status_update":
                self.to_urls(response.status_update.status.message.parts)
            case "message":
                self.to_urls(response.message.parts)
        return response

    def to_references(self, message: message_pb2.Message) -> None:
        """Put references in the place of URLs that were shown: a client gives a file back."""
        for part in message.parts:
            if part.url.startswith(self._base):
                reference = find_reference_at_path(part.url.removeprefix(self._base))
                if reference is not None:
                    part.url = reference.url


RELATIVE_LINKS: Final = FileLinks("")
"""Relative to a bridge's own URL, for whoever knows that."""


def find_reference_at_path(path: str) -> Reference | None:
    """Return what the path of a shown URL refers to, behind `PATH`; None: nothing."""
    task_id, _, rest = path.partition("/")
    blob_id, _, _ = rest.partition("/")
    try:
        return Reference.create(unquote(task_id), unquote(blob_id))
    except InvalidArgumentError:
        return None
