"""An MCP server of the older protocol, written by hand: one line of JSON in, one or more out."""

import json
import sys
from typing import Any

TEXT = [{"type": "text", "text": "fine"}]
NUMBER = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
SCHEMAS: dict[str, Any] = {"unfit": NUMBER, "unstructured": NUMBER}
RESULTS: dict[str, Any] = {
    "fine": {"content": TEXT},
    "unfit": {"content": TEXT, "structuredContent": {"n": "no number"}},
    "unstructured": {"content": TEXT},
    "unlocated": {"content": [{"type": "resource", "resource": {"uri": "http://[", "text": "x"}}]},
    "nonsense": {"content": "not a list"},
    "table": {
        "content": [
            {
                "type": "resource",
                "resource": {"uri": "file:///t.csv", "mimeType": "text/csv", "text": size * "1"},
            }
            for size in (3, 1_200_000)
        ]
    },
}
FORM = {
    "type": "object",
    "properties": {
        "seats": {"type": "integer", "default": 2},
        "smoke": {"type": "number", "default": 0.5},
        "view": {"type": "string", "enum": ["garden", "street"], "default": "garden"},
        "music": {"type": "boolean", "default": True},
        "name": {"type": "string"},
    },
    "required": ["name"],
}
MATCHES = {
    "reserve": [{"pattern": "^reserve (.+)$", "arguments": {"city": "{1}"}}],
    "table": [{"pattern": "^fetch$"}],
}
listed = [*RESULTS, "last_words", "reserve"]


def say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def page(cursor: str | None) -> dict[str, Any]:
    """Return one tool per page."""
    at = int(cursor or 0)
    tool: dict[str, Any] = {"name": listed[at], "inputSchema": {"type": "object"}}
    if listed[at] in SCHEMAS:
        tool["outputSchema"] = SCHEMAS[listed[at]]
    if listed[at] in MATCHES:
        tool["_meta"] = {"trunkline/match": MATCHES[listed[at]]}
    more = {"nextCursor": str(at + 1)} if at + 1 < len(listed) else {}
    return {"tools": [tool], **more}


def ask(city: str) -> dict[str, Any]:
    """Ask while the call is open, and return the answer as the result of the call."""
    params = {"mode": "form", "message": f"A table in {city}?", "requestedSchema": FORM}
    say({"id": "question", "method": "elicitation/create", "params": params})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "question":
            text = json.dumps(message.get("result") or message.get("error"), sort_keys=True)
            return {"result": {"content": [{"type": "text", "text": text}]}}
    raise EOFError


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return {
                "result": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "plain", "version": "1"},
                }
            }
        case "tools/list":
            return {"result": page(params.get("cursor"))}
        case "tools/call" if params["name"] in RESULTS:
            return {"result": RESULTS[params["name"]]}
        case "tools/call" if params["name"] == "reserve":
            return ask(params["arguments"]["city"])
        case "tools/call" if params["name"] == "last_words":
            return {"error": {"code": -32000, "message": "out of paper"}}
    return {"error": {"code": -32601, "message": f"no {method} here"}}


for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    asked = request.get("params", {})
    say({"id": request["id"], **answer(request["method"], asked)})
    if asked.get("name") == "last_words":
        break
