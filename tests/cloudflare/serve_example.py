"""`./dev worker`: run an example on local workerd until Ctrl-C, and print how to talk to it."""

from __future__ import annotations

import contextlib
import signal
import sys

from tests.cloudflare.workerd import ASSISTANT, WORKFLOW, PythonWorkerd

EXAMPLES = {"durable-object": ASSISTANT, "workflow": WORKFLOW}


def main(arguments: list[str]) -> int:
    name = arguments[0] if arguments else "durable-object"
    if name not in EXAMPLES or len(arguments) > 1:
        print(f"./dev worker takes one of {', '.join(EXAMPLES)}, not {' '.join(arguments)}.", file=sys.stderr)
        return 2
    print(f"Starting the {name} example on workerd; Python takes some seconds there.", flush=True)
    with PythonWorkerd(EXAMPLES[name]) as server:
        address, token = f"{server.url}/entry", f'-H "Authorization: Bearer {server.token}"'
        body = '{"agent_type": "assistant", "message": "Hello", "session_id": "first"}'
        print(f"curl {token} -H 'Content-Type: application/json' -d '{body}' {address}/execute")
        print(f"curl -N {token} {address}/stream/first")
        print(f'curl {token} "{address}/result/first?wait=30"')
        print(
            f"Or open {address}/ in a browser and enter the token {server.token}. Ctrl-C stops the example.", flush=True
        )
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
