import asyncio, gc, json, sys, tempfile, time, statistics
from contextlib import AsyncExitStack
from pathlib import Path
sys.path.insert(0, "/work/wt/channel/tests")
import grpc
import uvloop
from harness.agents.inline_agents import NOTHING, define, message
from harness.mesh.identity import mesh_credentials
from trunkline.client import ChannelPool, HostClient
from trunkline.journal.journal import Journal
from trunkline.server import MeshServer
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.v1 import message_service_pb2, task_service_pb2

async def run(folder):
    async def answer(task: TaskContext) -> None:
        words = task.text.split()
        if words[0] == "stream":
            artifact = task.artifact("a")
            for i in range(int(words[1])):
                await artifact.append("0123456789")
                if len(words) > 2: await asyncio.sleep(float(words[2]))
        await task.complete("done")
    journal = Journal.open(folder / "journal.db")
    out = {}
    async with TaskHost(journal, [define(answer)]) as host, AsyncExitStack() as stack:
        server = MeshServer(mesh_credentials())
        server.add_message_service(host); server.add_task_service(host)
        (address,) = await server.start("127.0.0.1:0")
        clients = {}
        for name in ("trunk", "plain"):
            pool = await stack.enter_async_context(ChannelPool(mesh_credentials()))
            channel = pool.get(address)
            if name == "plain": channel.trunk = None
            clients[name] = HostClient(channel)
        # bare gRPC: the same bytes, neither interceptor nor spans
        bare = grpc.aio.server()
        async def get(request, context):
            return (task_service_pb2.GetTaskResponse(snapshot=await host.snapshot(request.task_id, account=request.account)))
        bare.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("trunkline.v1.TaskService", {"GetTask": grpc.unary_unary_rpc_method_handler(get, request_deserializer=task_service_pb2.GetTaskRequest.FromString, response_serializer=task_service_pb2.GetTaskResponse.SerializeToString)}),))
        c = mesh_credentials()
        port = bare.add_secure_port("127.0.0.1:0", c.server_credentials()); await bare.start()
        bch = grpc.aio.secure_channel(f"127.0.0.1:{port}", c.channel_credentials(), options=(("grpc.ssl_target_name_override", "mesh.trunkline" ),))
        from trunkline.identity import MESH_NAME
        await bch.close()
        bch = grpc.aio.secure_channel(f"127.0.0.1:{port}", c.channel_credentials(), options=(("grpc.ssl_target_name_override", MESH_NAME),))
        stub = bch.unary_unary("/trunkline.v1.TaskService/GetTask", request_serializer=task_service_pb2.GetTaskRequest.SerializeToString, response_deserializer=task_service_pb2.GetTaskResponse.FromString)
        class Bare:
            async def get_task(self, task_id, *, account):
                return (await stub(task_service_pb2.GetTaskRequest(task_id=task_id, account=account), timeout=60)).snapshot
        snap = await clients["trunk"].send_message(agent="tested", message=message("hello"), submission=NOTHING)
        tid = snap.task.id
        account = NOTHING.account
        async def get_n(client, n, width):
            async def one():
                for _ in range(n // width): await client.get_task(tid, account=account)
            await asyncio.gather(*(one() for _ in range(width)))
            return n
        async def send_n(client, n, width):
            async def one():
                for _ in range(n // width):
                    await client.send_message(agent="tested", message=message("hello"), submission=NOTHING)
            await asyncio.gather(*(one() for _ in range(width)))
            return n
        async def stream_n(client, n, width, text):
            events = 0
            from trunkline.client.resuming_stream import allocate_task_id
            async def one():
                nonlocal events
                for _ in range(n // width):
                    req = message_service_pb2.StreamMessageRequest(agent="tested", message=message(text), submission=NOTHING)
                    async with client.open_stream(req) as s:
                        async for batches in s:
                            events += len(batches)
            await asyncio.gather(*(one() for _ in range(width)))
            return n
        rows = {
          "GetTask, one at a time": (("trunk","plain","bare"), lambda c: get_n(c, 200, 1)),
          "GetTask, 32 at once": (("trunk","plain","bare"), lambda c: get_n(c, 640, 32)),
          "SendMessage echo, 32 at once": (("trunk","plain"), lambda c: send_n(c, 128, 32)),
          "stream echo, 16 at once": (("trunk","plain"), lambda c: stream_n(c, 64, 16, "hello")),
          "stream 500 tokens, 16 at once (per task)": (("trunk","plain"), lambda c: stream_n(c, 16, 16, "stream 500")),
          "paced 100 tokens at 50/s, 64 at once (per task)": (("trunk","plain"), lambda c: stream_n(c, 64, 64, "stream 100 0.02")),
        }
        res = {}
        clients["bare"] = Bare()
        for row, (names, work) in rows.items():
            rounds = 3 if "paced" in row else 9
            costs = {n: [] for n in names}; lat = {n: [] for n in names}
            for r in range(rounds + 1):
                for n in names:
                    gc.collect()
                    t0, w0 = time.process_time(), time.perf_counter()
                    k = await work(clients[n])
                    cpu, wall = (time.process_time()-t0)/k*1e6, (time.perf_counter()-w0)/k*1e6
                    if r: costs[n].append(cpu); lat[n].append(wall)
            for n in names:
                print(f"{row:50} {n:6} cpu us {statistics.median(costs[n]):8.0f} ({min(costs[n]):.0f} to {max(costs[n]):.0f}) wall us {statistics.median(lat[n]):8.0f}", flush=True)
        await bch.close(); await bare.stop(0); await server.stop(0)
    journal.close()

with tempfile.TemporaryDirectory() as f:
    import uvloop
    uvloop.run(run(Path(f)))
