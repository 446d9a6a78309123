"""Converts references to stored files to URLs that A2A clients can fetch, and back.

A reference is the mesh's own URL of a stored file.
"""

from collections.abc import Iterable
from typing import Final
from urllib.parse import quote, unquote

from trunkline.a2a.v1 import a2a_pb2
from trunkline.client.artifacts import Reference, parse_reference, sanitize_filename
from trunkline.errors import InvalidArgumentError
from trunkline.v1 import message_pb2, part_pb2, task_pb2

FILES_PATH: Final = "/artifacts/"
_DEFAULT_NAME: Final = "file"


class FileLinks:
    """Converts between references of the mesh and URLs below a bridge's base URL."""

    __slots__ = ("_base",)

    def __init__(self, base_url: str) -> None:
        """`base_url` is the bridge's URL as the client reaches it, without a trailing slash."""
        self._base = base_url + FILES_PATH

    def to_urls(self, parts: Iterable[part_pb2.Part]) -> None:
        """Replace the references in parts by URLs, in place."""
        for part in parts:
            if part.url and (reference := parse_reference(part.url)) is not None:
                # The name is only for people; it is quoted because proxies act on slashes and dots.
                name = quote(sanitize_filename(part.filename) or _DEFAULT_NAME, safe="")
                part.url = f"{self._base}{reference.task_id}/{reference.blob_id}/{name}"

    def task_to_urls(self, task: task_pb2.Task) -> task_pb2.Task:
        """Replace all references in a task by URLs, in place; return the task."""
        for artifact in task.artifacts:
            self.to_urls(artifact.parts)
        for message in task.history:
            self.to_urls(message.parts)
        self.to_urls(task.status.message.parts)
        return task

    def event_to_urls(self, response: a2a_pb2.StreamResponse) -> a2a_pb2.StreamResponse:
        """Replace all references in an event by URLs, in place; return the event.

        The event must not be a task; use `task_to_urls` for that.
        """
        match response.WhichOneof("payload"):
            case "artifact_update":
                self.to_urls(response.artifact_update.artifact.parts)
            case "status_update":
                self.to_urls(response.status_update.status.message.parts)
            case "message":
                self.to_urls(response.message.parts)
        return response

    def to_references(self, message: message_pb2.Message) -> None:
        """Replace our URLs by references, in place: clients may send files back that we sent."""
        for part in message.parts:
            if part.url.startswith(self._base):
                reference = find_reference_at_path(part.url.removeprefix(self._base))
                if reference is not None:
                    part.url = reference.url


RELATIVE_LINKS: Final = FileLinks("")
"""Links relative to the bridge's URL."""


def find_reference_at_path(path: str) -> Reference | None:
    """Return the reference of a URL path below `FILES_PATH`; None if the path has none."""
    task_id, _, rest = path.partition("/")
    blob_id, _, _ = rest.partition("/")
    try:
        return Reference.create(unquote(task_id), unquote(blob_id))
    except InvalidArgumentError:
        return None
