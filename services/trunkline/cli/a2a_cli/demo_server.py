"""`demo-server`: a mesh with one agent to practise on, in a temporary folder."""

import tempfile
from pathlib import Path
from typing import Annotated, Final

from trunkline.cli.a2a_cli.failures import CommandError, LocalCode
from trunkline.cli.a2a_cli.session import CommandContext
from trunkline.cli.options import option

_AGENT: Final = "trunkline.cli.a2a_cli.demo_agent:demo"
_NO_SERVERS: Final = '{"mcpServers": {}}'
_FREE: Final = "127.0.0.1:0"


async def run_demo_server(
    context: CommandContext,
    *,
    listen: Annotated[
        str, option("HOST:PORT", "Serve A2A over HTTP here.", show_default=True)
    ] = "127.0.0.1:9999",
    grpc_listen: Annotated[
        str, option("HOST:PORT", "Serve A2A over gRPC here. [any port]")
    ] = _FREE,
) -> None:
    """Run an agent to practise on, until a signal comes.

    Raises:
        CommandError: the agent can't be served.
    """
    from trunkline.cli.serve import serve_until_signal
    from trunkline.processes.all_in_one import open_mesh

    context.console.warn(f"starting a demo agent at http://{listen}; Ctrl-C stops it")
    with tempfile.TemporaryDirectory(prefix="trunkline-demo-") as folder:
        servers = Path(folder) / "mcp.json"
        servers.write_text(_NO_SERVERS, encoding="utf-8")
        flags = {
            "http": listen,
            "a2a_grpc": grpc_listen,
            "mesh": _FREE,
            "data_dir": Path(folder) / "data",
            "mcp_file": servers,
            "agents": [_AGENT],
            "default_agent": "demo",
            "allow_webhook": ["127.0.0.1"],
        }
        as_json = context.options.is_json
        code = await serve_until_signal(
            open_mesh, flags, as_json=as_json, reports=not as_json, logs_as="mesh"
        )
    if code:
        raise CommandError(LocalCode.INTERNAL, "the demo agent could not be served")
