"""An MCP server of the older protocol that sends what the test says, byte by byte.

Its only argument is a JSON object: `pages`, lists of tools; `cursor`, the cursor that each page
names, or else each page names the next; `first`, printed in front of the first message;
`description`, the length of every description; `is_list_cut`, to send half a list; `is_restless`,
to report a change of the tools after each listing.
"""

import json
import sys
from typing import Any

script: dict[str, Any] = json.loads(sys.argv[1])
pages: list[list[Any]] = script["pages"]
for each in [tool for page in pages for tool in page] if "description" in script else []:
    each["description"] = "x" * script["description"]
out = sys.stdout.buffer
listings = 0


def say(message: dict[str, Any]) -> None:
    out.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    out.flush()


def list_page(params: dict[str, Any]) -> dict[str, Any]:
    global listings
    number = int(params.get("cursor") or 0)
    listings += number == 0
    result: dict[str, Any] = {"tools": pages[number % len(pages)]}
    if "cursor" in script:
        result["nextCursor"] = script["cursor"]
    elif number + 1 < len(pages):
        result["nextCursor"] = str(number + 1)
    return result


def call(request: dict[str, Any]) -> None:
    arguments = request["params"].get("arguments", {})
    text = "fine"
    content = None
    match request["params"]["name"]:
        case "raw":
            line = arguments["line"].replace("$ID", str(request["id"]))
            out.write(line.encode("latin-1") + b"\n")
            out.flush()
            if arguments.get("is_all", True):
                return
        case "hold":
            return
        case "flood":
            flood(arguments)
        case "parts":
            content = arguments["parts"]
        case "listings":
            text = str(listings)
    say({"id": request["id"], "result": {"content": content or [{"type": "text", "text": text}]}})


def flood(arguments: dict[str, Any]) -> None:
    """Send a line many times, on stdout or on stderr, then answer."""
    stream = sys.stderr.buffer if arguments.get("is_stderr") else out
    line = arguments["line"].encode() + b"\n"
    for _ in range(arguments["count"]):
        stream.write(line)
    stream.flush()


INFO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {"listChanged": True}},
    "serverInfo": {"name": "raw", "version": "1"},
}

out.write(script.get("first", "").encode())
for received in sys.stdin:
    request = json.loads(received)
    # Answers to requests of its own have none.
    match request.get("method"):
        case "initialize":
            say({"id": request["id"], "result": INFO})
        case "tools/list" if "is_list_cut" in script:
            out.write(b'{"jsonrpc":"2.0","id":%d,"result":\n' % request["id"])
            out.flush()
        case "tools/list":
            say({"id": request["id"], "result": list_page(request.get("params", {}))})
            if script.get("is_restless"):
                say({"method": "notifications/tools/list_changed"})
        case "tools/call":
            call(request)
        case str() if "id" in request:
            say({"id": request["id"], "error": {"code": -32601, "message": "no such method"}})
