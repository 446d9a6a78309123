"""Results that no tool gave: why there is none. Loads nothing of MCP, so that hosts needn't."""

from trunkline.v1 import part_pb2, tool_service_pb2


def failed(text: str) -> tool_service_pb2.ToolResult:
    """Return the result of a tool that failed for a reason of its own."""
    return tool_service_pb2.ToolResult(is_error=True, content=[part_pb2.Part(text=text)])
