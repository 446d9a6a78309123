"""Which version of A2A a JSON-RPC call is in: what it says, else what its method is."""

from trunkline_bridge.errors import METHOD_NOT_FOUND, WireError
from trunkline_bridge.inbound.jsonrpc.dialects.dialect import Dialect
from trunkline_bridge.inbound.versions import not_named
from trunkline_bridge.wire.versions import V0_1, V0_3, V1_0

_SHOWN_LENGTH = 100
# What a method of one version is called in another.
_SAME = (
    ("SendMessage", "message/send", "tasks/send"),
    ("SendStreamingMessage", "message/stream", "tasks/sendSubscribe"),
    ("GetTask", "tasks/get", "tasks/get"),
    ("ListTasks", "tasks/list", ""),
    ("CancelTask", "tasks/cancel", "tasks/cancel"),
    ("SubscribeToTask", "tasks/resubscribe", "tasks/resubscribe"),
    (
        "CreateTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/set",
        "tasks/pushNotification/set",
    ),
    (
        "GetTaskPushNotificationConfig",
        "tasks/pushNotificationConfig/get",
        "tasks/pushNotification/get",
    ),
    ("ListTaskPushNotificationConfigs", "tasks/pushNotificationConfig/list", ""),
    ("DeleteTaskPushNotificationConfig", "tasks/pushNotificationConfig/delete", ""),
    ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard", ""),
)


class Dialects:
    """The versions that are served over JSON-RPC, the newest one first."""

    def __init__(self, *dialects: Dialect, is_strict: bool) -> None:
        """`is_strict`: a call that names no version is in v0.3, as the specification has it."""
        self.by_version = {one.version: one for one in dialects}
        self._is_strict = is_strict
        # Of two that have a method the later one counts.
        self._by_method = {
            method: dialect
            for dialect in sorted(dialects, key=lambda one: one.version)
            for method in (*dialect.answers, *dialect.streams)
        }

    def choose(self, version: str, method: str) -> Dialect:
        """Return the version of a call; `version` is what it says, if anything.

        Raises:
            WireError: no version has the method, or not the one that the call is in.
        """
        dialect = self._by_method.get(method)
        if version:
            named = self.by_version[version]
            if not _has(named, method):
                raise _unknown(method, version, dialect)
            return named
        if dialect is None:
            raise _unknown(method, "", None)
        if self._is_strict and dialect.version != V0_3:
            raise not_named(self.by_version)
        return dialect

    def may_be_original(self, version: str, method: str) -> bool:
        """Whether a call of one task is of v0.1, or names no version and may be of v0.1 or v0.3."""
        is_open = version == V0_1 or not (version or self._is_strict)
        return is_open and _has(self.by_version[V0_1], method)


def _has(dialect: Dialect, method: str) -> bool:
    return method in dialect.answers or method in dialect.streams


def _unknown(method: str, version: str, owner: Dialect | None) -> WireError:
    """The error for a method that isn't there, with the one to take instead."""
    method = method[:_SHOWN_LENGTH]
    heir = _name_in(version or V1_0, method)
    if owner is not None:
        text = f"method {method!r} is of A2A {owner.version}, and the request says {version}"
        text += f": send {heir}" if heir else f": send A2A-Version: {owner.version}"
    elif heir:
        text = f"no version of A2A has the method {method!r} over JSON-RPC: send {heir}"
    else:
        text = f"no method {method!r}; A2A 1.0 has SendMessage, SendStreamingMessage and others"
    return WireError(METHOD_NOT_FOUND, text, {"method": method})


def _name_in(version: str, method: str) -> str:
    place = (V1_0, V0_3, V0_1).index(version)
    return next((names[place] for names in _SAME if method in names), "")
