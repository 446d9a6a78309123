"""References from parts to files: the URL `trunkline:<task id>/<blob id>`."""

import re
import uuid
from typing import Final, NamedTuple, Self

from trunkline.errors import InvalidArgumentError
from trunkline.v1 import part_pb2

SCHEME: Final = "trunkline:"
INLINE_LIMIT_BYTES: Final = 64 * 1024
"""Content larger than this is stored in a file, not in an event."""

# Both become names of files, so no other characters are allowed.
_TASK = re.compile(r"[A-Za-z0-9_-]{1,200}", re.ASCII)
_BLOB = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
_FILENAME_LENGTH: Final = 200
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]+")


class Reference(NamedTuple):
    """The key of a file: the id of its task, and the id of the file within the task."""

    task_id: str
    blob_id: str

    @classmethod
    def new(cls, task_id: str) -> Self:
        """Return a new, unused reference."""
        return cls.create(task_id, uuid.uuid4().hex)

    @classmethod
    def create(cls, task_id: str, blob_id: str) -> Self:
        """Return a reference made of ids from a request.

        Raises:
            InvalidArgumentError: an id is malformed.
        """
        if _TASK.fullmatch(task_id) is None:
            raise InvalidArgumentError(
                "task_id", "must be 1 to 200 letters, digits, hyphens and underscores"
            )
        if _BLOB.fullmatch(blob_id) is None:
            problem = "must be 1 to 100 letters, digits, hyphens and underscores"
            raise InvalidArgumentError("artifact_id", problem)
        return cls(task_id, blob_id)

    @property
    def url(self) -> str:
        """The URL in `Part.url`."""
        return f"{SCHEME}{self.task_id}/{self.blob_id}"


def parse_reference(url: str) -> Reference | None:
    """Return the reference in a part's URL, or None if the URL is another one or malformed."""
    if not url.startswith(SCHEME):
        return None
    task_id, _, blob_id = url.removeprefix(SCHEME).partition("/")
    try:
        return Reference.create(task_id, blob_id)
    except InvalidArgumentError:
        return None


def exceeds_inline_limit(part: part_pb2.Part) -> bool:
    """Return whether a part's bytes are too large for an event."""
    return len(part.raw) > INLINE_LIMIT_BYTES


def sanitize_filename(name: str) -> str:
    """Return the last 200 characters of a name without folders and control characters.

    The result may be empty.
    """
    return _UNSAFE.sub(" ", name.replace("\\", "/").rpartition("/")[2]).strip(" .")[
        -_FILENAME_LENGTH:
    ]
