"""Receives the message of a call: of bounded size, and in time."""

import asyncio
from dataclasses import dataclass

from google.rpc import code_pb2

from trunkline_bridge.errors import INVALID_REQUEST, WireError
from trunkline_bridge.inbound.grpc.status import Context
from trunkline_bridge.inbound.http import REQUEST_TIMEOUT, TOO_LARGE

_TOO_LARGE = TOO_LARGE._replace(grpc_code=code_pb2.RESOURCE_EXHAUSTED)
_TOO_LATE = REQUEST_TIMEOUT._replace(grpc_code=code_pb2.DEADLINE_EXCEEDED)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a call's message must fit."""

    limit_bytes: int
    timeout_s: float

    async def receive(self, context: Context) -> bytes:
        """Return a call's message. Nothing of grpc's keeps it, however long the call stands.

        Raises:
            WireError: it is larger than the limit, has not come in time, or there is none.
        """
        try:
            async with asyncio.timeout(self.timeout_s):
                body = await context.read()
        except TimeoutError:
            text = f"the message has not come within {self.timeout_s:g} s; send it again"
            raise WireError(_TOO_LATE, text) from None
        if not isinstance(body, bytes):
            # grpc's mark for the end of what a client sends; also for what is too large for it.
            raise WireError(INVALID_REQUEST, "the call has no message; send one")
        if len(body) > self.limit_bytes:
            text = f"the message is larger than {self.limit_bytes} bytes; send large content by url"
            raise WireError(_TOO_LARGE, text)
        return body
