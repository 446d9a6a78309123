"""Servers of gRPC that are stopped while they start."""

import asyncio

import grpc
import pytest

from trunkline.core.runtime import start_grpc_server


async def test_grpc_reports_no_error_when_a_start_is_canceled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = grpc.aio.server()
    server.add_insecure_port("127.0.0.1:0")
    async with asyncio.TaskGroup() as group:
        starting = group.create_task(start_grpc_server(server))
        # One pass of the loop: the start has begun, and has not ended.
        await asyncio.sleep(0)
        starting.cancel()
    assert starting.cancelled()
    has_timed_out = await server.wait_for_termination(5)
    assert not has_timed_out
    assert caplog.messages == []
