"""The types of messages: pydantic models, registered by name and version.

A payload is validated where it is sent and where it is received. Plain text is a payload of any
type; a model with one required field of type `str` gets the text in this field.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trunkline.core.json_values import struct_json
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.v1 import envelope_pb2

ENTRY_POINTS: Final = "trunkline.message_types"
"""The entry points of packages that declare types: each names a module."""
_NAME_PATTERN: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_ModelT = TypeVar("_ModelT", bound=type[BaseModel])


@dataclass(frozen=True, slots=True)
class MessageType:
    """A type of messages."""

    name: str
    version: int
    model: type[BaseModel]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


class MessageTypes:
    """The known types."""

    def __init__(self) -> None:
        self._types: dict[str, dict[int, MessageType]] = {}
        self._by_model: dict[type[BaseModel], MessageType] = {}

    def register(self, model: type[BaseModel], *, name: str, version: int = 1) -> MessageType:
        """Add a type. Repeating it with the same model is harmless.

        Raises:
            ConfigurationError: the name or version is invalid, or belongs to another model.
        """
        where = f"message type {name!r}"
        if not _NAME_PATTERN.fullmatch(name):
            raise ConfigurationError(where, "use lower-case letters, digits, `_` and `-`")
        if version < 1:
            raise ConfigurationError(where, "its version must be at least 1")
        known = self._types.setdefault(name, {}).get(version)
        if known is not None and known.model is not model:
            problem = f"version {version} is registered by {known.model.__module__} already"
            raise ConfigurationError(where, problem)
        message_type = MessageType(name, version, model)
        self._types[name][version] = self._by_model[model] = message_type
        return message_type

    def find(self, name: str, version: int = 0) -> MessageType | None:
        """Return a type, or None if it is unknown. Version 0 stands for the newest version."""
        versions = self._types.get(name, {})
        return versions.get(version or max(versions, default=0))

    def resolve(self, name: str, version: int) -> int:
        """Return the version. For 0, return the newest version that is known here, or 1."""
        found = self.find(name, version)
        return version or (found.version if found is not None else 1)

    def of_model(self, model: type[BaseModel]) -> MessageType | None:
        """Return the type of a model, or None if the model is not registered."""
        return self._by_model.get(model)

    def names(self) -> list[str]:
        """Return the names of the types, sorted."""
        return sorted(self._types)

    def validate(self, envelope: envelope_pb2.Envelope) -> BaseModel | str:
        """Return the payload of a message: an object of its type's model, or its plain text.

        The data of an unknown type is returned as JSON text.

        Raises:
            InvalidArgumentError: the payload does not fit the type. It names the field.
        """
        message_type = self.find(envelope.type, envelope.type_version)
        if envelope.WhichOneof("payload") != "data":
            return _read_text(envelope.text, message_type)
        data = struct_json(envelope.data)
        if message_type is None:
            return json.dumps(data)
        return _validate(message_type, data)


def _read_text(text: str, message_type: MessageType | None) -> BaseModel | str:
    if message_type is None:
        return text
    fields = message_type.model.model_fields
    required = [name for name, field in fields.items() if field.is_required()]
    if len(required) != 1 or fields[required[0]].annotation is not str:
        return text
    return _validate(message_type, {required[0]: text})


def _validate(message_type: MessageType, data: Mapping[str, Any]) -> BaseModel:
    try:
        # JSON has one kind of numbers, so 80.0 is an integer.
        return message_type.model.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, first["loc"])) or "payload"
        raise InvalidArgumentError(f"{message_type.name}.{path}", first["msg"]) from None


TYPES: Final = MessageTypes()
"""The types of this process: built-in types, and types of installed packages."""


def load_type_plugins() -> None:
    """Import the modules of all installed packages that declare types.

    Raises:
        ConfigurationError: a module can't be imported.
    """
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except ConfigurationError:
            raise
        # The code of a package may raise anything.
        except Exception as error:
            problem = f"can't be imported: {error}"
            raise ConfigurationError(f"message types of {entry.value}", problem) from error


@overload
def message_type(name: str, /, *, version: int = 1) -> Callable[[_ModelT], _ModelT]: ...


@overload
def message_type(name: _ModelT, /) -> _ModelT: ...


def message_type(
    name: str | _ModelT, /, *, version: int = 1
) -> _ModelT | Callable[[_ModelT], _ModelT]:
    """Declare a pydantic model as the payload of a type of messages.

        @message_type("invoice", version=2)
        class Invoice(BaseModel):
            number: str
            total: Decimal

    Without a name, the type has the name of the class, in lower case with underscores.

    Raises:
        ConfigurationError: the name is invalid, or registered for another model.
    """
    if isinstance(name, str):
        type_name = name

        def register(model: _ModelT) -> _ModelT:
            TYPES.register(model, name=type_name, version=version)
            return model

        return register
    TYPES.register(name, name=_to_snake_case(name.__name__))
    return name


def _to_snake_case(name: str) -> str:
    letters = (f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(name))
    return "".join(letters)


class _Payload(BaseModel):
    # Senders of newer versions may add fields.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")


@message_type("user_message")
class UserMessage(_Payload):
    """A message of a person."""

    content: str


@message_type("answer")
class TextAnswer(_Payload):
    """The answer of an agent without handlers."""

    content: str


@message_type("proposal")
class Proposal(_Payload):
    """A draft."""

    draft: str


@message_type("evaluation_request")
class EvaluationRequest(_Payload):
    """Asks for an evaluation of a proposal."""

    proposal: Annotated[str, Field(min_length=1, max_length=50_000)]
    context: str = ""
    urgency: Literal["low", "normal", "high"] = "normal"


@message_type("evaluation_result")
class EvaluationResult(_Payload):
    """The evaluation of a proposal."""

    approved: bool
    proposal: str
    score: Annotated[float, Field(ge=0, le=100)] | None = None
    feedback: str | None = None


@message_type("broadcast")
class Broadcast(_Payload):
    """A text for a room."""

    content: str


@message_type("system")
class SystemMessage(_Payload):
    """A notice of the messaging service."""

    event: Literal["join", "leave", "error"]
    member: str = ""
    text: str = ""
