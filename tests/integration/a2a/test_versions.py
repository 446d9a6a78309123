"""The version of a request: named in a header or the query, or implied by the method or path."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from harness.a2a.grpc_client import GrpcMesh
from harness.a2a.protocol_variants import (
    HEADERS,
    SPOKEN,
    GrpcVariant,
    JsonRpcVariant,
    RestVariant,
    Spoken,
    find_variant,
    open_variants,
)
from harness.agents.partner_agent import partner

pytestmark = pytest.mark.asyncio(loop_scope="module")

UNSUPPORTED = "VERSION_NOT_SUPPORTED"
SERVED: dict[Spoken, tuple[str, ...]] = {
    ("1.0", JsonRpcVariant): ("1.0", "1.0.1", ""),
    ("1.0", RestVariant): ("1.0", "1.0.1", ""),
    ("1.0", GrpcVariant): ("1.0", "1.0.7", ""),
    ("0.3", JsonRpcVariant): ("0.3", "0.3.0", ""),
    ("0.3", RestVariant): ("0.3", "0.3.0", ""),
    ("0.3", GrpcVariant): ("0.3", "0.3.0", ""),
    ("0.1", JsonRpcVariant): ("0.1", "0.1.0"),
}
UNKNOWN = ("0.2", "2.0", "1.1", "latest", "1")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GrpcMesh]:
    async with open_variants(tmp_path_factory.mktemp("versions"), partner) as mesh:
        yield mesh


async def reason(mesh: GrpcMesh, spoken: Spoken, named: str) -> str:
    """Return the reason why a task that does not exist can't be read in a named version."""
    wire = find_variant(mesh, spoken)
    return (await wire.refusal("get", {"A2A-Version": named}, task="nope")).reason


async def test_each_binding_serves_its_versions(mesh: GrpcMesh) -> None:
    for spoken, versions in SERVED.items():
        for named in versions:
            assert await reason(mesh, spoken, named) == "TASK_NOT_FOUND", (spoken, named)
        for named in UNKNOWN:
            assert await reason(mesh, spoken, named) == UNSUPPORTED, (spoken, named)


async def test_a_version_must_be_served_by_the_binding_and_have_the_method(mesh: GrpcMesh) -> None:
    for version in ("1.0", "0.3"):
        other = "0.3" if version == "1.0" else "1.0"
        assert await reason(mesh, (version, JsonRpcVariant), other) == "METHOD_NOT_FOUND"
        for binding in (RestVariant, GrpcVariant):
            for named in (other, "0.1"):
                assert await reason(mesh, (version, binding), named) == UNSUPPORTED


async def test_the_query_may_name_the_version(mesh: GrpcMesh) -> None:
    bridged = mesh.bridged
    rpc = bridged.at("/?A2A-Version=0.3.0")
    assert (await rpc.error("tasks/get", {"id": "nope"}, HEADERS))["code"] == -32001
    assert (await rpc.error("GetTask", {"id": "nope"}, HEADERS))["code"] == -32601
    for path, status in (("/tasks", 200), ("/tasks/nope", 404)):
        for named, expected in (("1.0", status), ("2.0", 400), ("0.3", 400)):
            url = f"{bridged.url}{path}?A2A-Version={named}"
            assert (await bridged.client.get(url, headers=HEADERS)).status_code == expected


async def test_a_strict_bridge_takes_requests_without_a_version_as_v0_3(tmp_path: Path) -> None:
    async with open_variants(tmp_path, partner, strict_versions=True) as mesh:
        for spoken in SPOKEN:
            wire = find_variant(mesh, spoken)
            expected = "TASK_NOT_FOUND" if wire.version == "0.3" else UNSUPPORTED
            error = await wire.refusal("send", {"A2A-Version": ""}, text="hi", task="nope")
            assert error.reason == expected, spoken
            if wire.version == "1.0":
                assert await reason(mesh, spoken, "1.0") == "TASK_NOT_FOUND"
