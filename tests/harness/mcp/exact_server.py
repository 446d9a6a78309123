"""An MCP server on stdio whose tool `get` has JSON that is exactly the text in EXACT_JSON.

No library is between its JSON and the mesh, as with a server in another language.
"""

import json
import os
import sys


def main() -> None:
    """Answer each request in turn."""
    text = os.environ["EXACT_JSON"]
    schema = f'{{"type": "object", "properties": {{"value": {{"default": {text}}}}}}}'
    results = {
        "initialize": '{"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, '
        '"serverInfo": {"name": "exact", "version": "1"}}',
        "tools/list": f'{{"tools": [{{"name": "get", "inputSchema": {schema}, '
        '"annotations": {"readOnlyHint": true}}]}',
        "tools/call": f'{{"content": [], "structuredContent": {text}}}',
    }
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            result = results.get(request["method"], "{}")
            number = json.dumps(request["id"])
            sys.stdout.write(f'{{"jsonrpc": "2.0", "id": {number}, "result": {result}}}\n')
            sys.stdout.flush()


if __name__ == "__main__":
    main()
