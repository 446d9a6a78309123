"""Refuses calls of methods that nobody serves, and says which there are."""

from collections.abc import Sequence
from typing import Any

import grpc

from trunkline_bridge.errors import METHOD_NOT_FOUND, WireError
from trunkline_bridge.inbound import tracing
from trunkline_bridge.inbound.grpc.metadata import Metadata
from trunkline_bridge.inbound.grpc.service import Service
from trunkline_bridge.inbound.grpc.status import Context, abort, code_of, cut, text_of

# A name that strangers can't make many of.
_SPAN = "_OTHER"
_SHOWN_BYTES = 200


class UnknownMethods(grpc.GenericRpcHandler):
    """Answers what no handler before it takes."""

    def __init__(self, services: Sequence[Service]) -> None:
        self._services = services

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Return what refuses a call, whether its client sends one message or many."""
        error, text = self._refusal(handler_call_details.method)

        async def refuse(_requests: object, context: Context) -> None:
            metadata = Metadata(context.invocation_metadata())
            with tracing.call(_SPAN, metadata.carrier()) as told:
                tracing.mark_failed(error.row.reason)
                tracing.note_code(code_of(error).name)
            trailing = (("traceresponse", told),) if told else ()
            await abort(context, error, text=text, trailing=trailing)

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _refusal(self, path: str) -> tuple[WireError, str]:
        """Return the error for a path, and what is said of it beside its status."""
        name, _, method = path.removeprefix("/").rpartition("/")
        known = next((one for one in self._services if one.name == name), None)
        if known is None:
            names = " and ".join(one.name for one in self._services)
            text = f"no service {_shown(name)} here; A2A is served as {names}"
        else:
            owner = next((one for one in self._services if method in _methods(one)), None)
            text = f"{name} has no method {_shown(method)}"
            if owner is not None:
                text += f"; {owner.name} has it, of A2A {owner.version}"
            else:
                text += f"; it has {', '.join(_methods(known))}"
        error = WireError(METHOD_NOT_FOUND, text, {"method": path.removeprefix("/")})
        return error, known.text_of(error) if known is not None else text_of(error)


def _methods(service: Service) -> list[str]:
    return [method.name for method in service.methods]


def _shown(name: str) -> str:
    return repr(cut(name, _SHOWN_BYTES))
