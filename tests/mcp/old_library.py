"""A server of an older protocol for the tests, written by hand: it asks with a separate request during a call."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

JOURNAL = os.environ.get("LIBRARY_JOURNAL", os.devnull)
SCHEMA = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
TOOL = {
    "name": "print_book",
    "description": "Print a book.",
    "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
    "annotations": {"destructiveHint": False},
}


def send(message: dict[str, Any]) -> None:
    """Write one message."""
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def note(line: str) -> None:
    """Write down what happened."""
    with open(JOURNAL, "a") as journal:
        journal.write(f"{line}\n")


def main() -> None:
    """Serve until standard input ends."""
    calls: dict[int, Any] = {}
    for line in sys.stdin:
        message = json.loads(line)
        match message:
            case {"method": "initialize", "id": request, "params": {"protocolVersion": version}}:
                info = {"name": "old", "version": "1"}
                send({"id": request, "result": {"protocolVersion": version, "capabilities": {}, "serverInfo": info}})
            case {"method": "tools/list", "id": request}:
                send({"id": request, "result": {"tools": [TOOL]}})
            case {"method": "tools/call", "id": request}:
                calls[1000 + len(calls)] = request
                asked = {"message": "How many copies?", "requestedSchema": SCHEMA}
                send({"id": 999 + len(calls), "method": "elicitation/create", "params": asked})
            case {"method": "notifications/cancelled", "params": {"requestId": request}}:
                note("cancelled")
            case {"method": str(), "id": request}:
                send({"id": request, "error": {"code": -32601, "message": "Method not found"}})
            case {"result": {"action": action, **rest}, "id": question}:
                content: Any = rest.get("content") or {}
                count = content.get("count")
                note(f"{action} {count}")
                said = [{"type": "text", "text": f"{action} {count}"}]
                send({"id": calls[question], "result": {"content": said}})
            case {"error": error, "id": question}:
                content = [{"type": "text", "text": str(error["message"])}]
                send({"id": calls[question], "result": {"content": content, "isError": True}})


if __name__ == "__main__":
    main()
