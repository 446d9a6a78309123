"""Promise 7: one trace per request, without orphans, whatever happens to the request."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from harness.mesh.identity import mesh_credentials
from harness.mesh.mixed_runs import MixedRuns, Request, open_mixed_runs
from harness.mesh.trace_rules import (
    Span,
    unpublished_names,
    wrong_attributes,
    wrong_parents,
)
from harness.promise_scale import PromiseScale
from trunkline.core.json_values import has_member
from trunkline.errors import TraceNotFoundError
from trunkline.mesh.client import ChannelPool
from trunkline.mesh.client.trace_tree import TraceTree
from trunkline.observe import telemetry
from trunkline.v1 import trace_service_pb2, trace_service_pb2_grpc

AT_ONCE = 6
# One of so many runs kills a host, which takes as long as a hundred others.
KILL_SHARE = 20
POLL_S = 0.1
ARRIVAL_S = 60.0


async def make_runs(runs: MixedRuns, count: int, rng: random.Random) -> list[Request]:
    """Make each kind of run, and then any, up to the count; return their requests."""
    others = [kind for kind in runs.kinds if kind != "kill"]
    kinds = [*runs.kinds, *rng.choices(others, k=max(0, count - len(runs.kinds)))]
    kinds[len(runs.kinds) :: KILL_SHARE] = ["kill"] * len(kinds[len(runs.kinds) :: KILL_SHARE])
    slots = asyncio.Semaphore(AT_ONCE)

    async def run(kind: str) -> Sequence[Request]:
        async with slots:
            return await runs.kinds[kind]()

    async with asyncio.TaskGroup() as group:
        made = [group.create_task(run(kind)) for kind in kinds[: max(count, len(runs.kinds))]]
    return [request for task in made for request in task.result()]


async def whole_trace(
    client: "trace_service_pb2_grpc.TraceServiceAsyncStub", request: Request
) -> list[Span]:
    """Return the spans of a request once they are complete."""
    spans: list[Span] = []
    try:
        async with asyncio.timeout(ARRIVAL_S):
            while True:
                try:
                    spans = list(
                        (
                            await client.GetTrace(
                                trace_service_pb2.GetTraceRequest(trace_id=request.trace_id)
                            )
                        ).spans
                    )
                except TraceNotFoundError:
                    await asyncio.sleep(POLL_S)
                    continue
                if is_whole(request, spans):
                    return spans
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        shown = [(span.service, span.name, span.HasField("end_time")) for span in spans]
        raise AssertionError(f"{request}: {shown}") from None


def is_whole(request: Request, spans: Sequence[Span]) -> bool:
    """Return whether all spans of a request have arrived.

    If its agent was killed, that says only that its answer was sent.
    """
    ended = {span.name for span in spans if span.HasField("end_time")}
    if request.is_killed:
        return request.root in ended and {*request.has} <= {span.name for span in spans}
    is_complete = TraceTree.build(spans).is_complete and {request.root, *request.has} <= ended
    return is_complete and (not request.repeats or is_repeated(spans, request.repeats))


def is_repeated(spans: Sequence[Span], name: str) -> bool:
    """Return whether there are two attempts with a name, and one says that it's not the first."""
    attempts = [span for span in spans if span.name == name]
    return len({span.parent_span_id for span in attempts}) == 1 and any(
        has_member(span.attributes, telemetry.HTTP_REQUEST_RESEND_COUNT) for span in attempts
    )


def find_problems(request: Request, spans: Sequence[Span]) -> list[str]:
    """Return what is wrong with a trace."""
    tree = TraceTree.build(spans)
    root = tree.top_nodes[0].span
    lost = {span.span_id for span in spans if is_lost(span)}
    kept = [span for span in spans if not {span.span_id, span.parent_span_id} & lost]
    wanted_links = {request.links_to} if request.links_to else set()
    checks = {
        "more than one root, or an orphan": len(tree.top_nodes) == 1 and not tree.orphans,
        "another root": (root.service, root.name) == ("bridge", request.root),
        "another caller": root.parent_span_id == request.parent,
        "lost spans": request.is_killed or not lost,
        f"parents {wrong_parents(kept)}": not wrong_parents(kept),
        f"names {unpublished_names(spans)}": not unpublished_names(spans),
        f"attributes {wrong_attributes(spans)}": not wrong_attributes(spans),
        "links": {link.trace_id for link in root.links} == wanted_links,
    }
    problems = [problem for problem, is_right in checks.items() if not is_right]
    outline = [f"{'  ' * depth}{node.span.service} {node.span.name}" for depth, node in tree.walk()]
    return [f"{request}: {problems}: {outline}"] if problems else []


def is_lost(span: Span) -> bool:
    """Return whether a span is a stand-in."""
    return has_member(span.attributes, telemetry.LOST)


async def test_every_request_is_one_trace_without_orphans(
    tmp_path: Path, scale: PromiseScale, rng: random.Random
) -> None:
    count = scale.pick(ci=20, prove=1000)
    began = time.monotonic()
    async with (
        open_mixed_runs(tmp_path, rng) as runs,
        ChannelPool(mesh_credentials()) as channels,
    ):
        client = trace_service_pb2_grpc.TraceServiceStub(channels.get(runs.mesh.mesh_address))
        requests = await make_runs(runs, count, rng)
        kinds, spans_seen, lost = Counter(each.kind for each in requests), 0, 0
        problems: list[str] = []
        for request in requests:
            spans = await whole_trace(client, request)
            problems += find_problems(request, spans)
            lost += sum(map(is_lost, spans))
            spans_seen += len(spans)
        assert not problems, "\n".join(problems)
        await check_replays(client, requests)
    scale.report(
        runs=count,
        requests=len(requests),
        spans=spans_seen,
        lost=lost,
        killed=kinds["killed"],
        took_s=round(time.monotonic() - began),
    )


async def check_replays(
    client: "trace_service_pb2_grpc.TraceServiceAsyncStub", requests: Sequence[Request]
) -> None:
    """A replayed message has a link to the span of its original, in the trace before it."""
    for original, replay in pairwise(requests):
        if replay.kind == "replay":
            spans = list(
                (
                    await client.GetTrace(
                        trace_service_pb2.GetTraceRequest(trace_id=replay.trace_id)
                    )
                ).spans
            )
            (sent,) = [span for span in spans if span.name == "send teacher"]
            assert [link.trace_id for link in sent.links] == [original.trace_id]
