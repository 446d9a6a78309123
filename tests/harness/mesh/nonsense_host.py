"""A host on the mesh that answers every call with bytes that can't be parsed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from harness.mesh.identity import mesh_credentials
from trunkline.mesh.client import ChannelPool, RegistryClient
from trunkline.mesh.registry import Membership
from trunkline.v1 import agent_card_pb2, registry_service_pb2

PATIENCE_S = 300.0
NONSENSE = b"\xff\xfe\xfd nothing that a parser likes"


class _Handler(grpc.GenericRpcHandler):
    """Serves every method as a stream of unparsable bytes."""

    def service(self, _details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        async def answer(
            _requests: object, context: "grpc.aio.ServicerContext[bytes, bytes]"
        ) -> None:
            await context.write(NONSENSE)

        return grpc.stream_stream_rpc_method_handler(answer)


@asynccontextmanager
async def serving_nonsense() -> AsyncIterator[str]:
    """Serve it for the length of a block; yield its address."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Handler(),))
    port = server.add_secure_port("127.0.0.1:0", mesh_credentials().server_credentials())
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def nonsense_host(mesh_address: str, name: str) -> AsyncIterator[str]:
    """Register such a host on a mesh with an agent `name`; yield its address."""
    card = agent_card_pb2.AgentCard(
        name=name,
        description="Answers nonsense.",
        version="1",
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
        skills=[agent_card_pb2.AgentSkill(id=name, name=name, tags=[name])],
    )
    async with serving_nonsense() as address, ChannelPool(mesh_credentials()) as channels:
        host = registry_service_pb2.Host(
            host_id="nonsense",
            address=address,
            journal_ids=["nonsense"],
            agents=[registry_service_pb2.AgentRegistration(card=card, routable=True)],
        )
        registry = RegistryClient(channels.get(mesh_address))
        async with Membership([registry], host) as member:
            async with asyncio.timeout(PATIENCE_S):
                await member.registered.wait()
            yield address
