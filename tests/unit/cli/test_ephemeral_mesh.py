"""A command uses the mesh at its URL if a server listens there."""

import asyncio

import pytest

from trunkline.cli.ephemeral_mesh import open_mesh


@pytest.mark.asyncio
@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
async def test_a_url_without_a_port_has_the_port_of_its_scheme(
    monkeypatch: pytest.MonkeyPatch, scheme: str, port: int
) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    actual_port = server.sockets[0].getsockname()[1]
    connect = asyncio.open_connection
    probed: list[tuple[str, int | None]] = []

    async def open_connection(
        host: str, port: int | None
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        probed.append((host, port))
        return await connect(host, actual_port)

    monkeypatch.setattr(asyncio, "open_connection", open_connection)
    async with server, open_mesh(f"{scheme}://localhost") as mesh:
        assert not mesh.is_ephemeral
    assert probed == [("localhost", port)]
