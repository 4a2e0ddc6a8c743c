"""A chat for two users: run `python examples/chat/server.py [port]`, then open /chat there."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from starlette.responses import FileResponse
from starlette.routing import Route

from helix_agents import Agent, AgentExecutor, ScriptedLLM, ToolContext, create_app, open_stores, tool
from helix_agents.llm import Call, Line, ModelRequest
from helix_agents.server import User, bearer_tokens

USERS = {"ann-token": User("ann"), "bob-token": User("bob")}


@tool(effect="read", requires_approval=lambda arguments: "secret" in arguments["text"])
def note(text: str, ctx: ToolContext) -> str:
    """Write something down; secrets only if the user agrees."""
    ctx.update_state(lambda state: state["notes"].append(text))
    return f"noted {text}"


def reply(request: ModelRequest) -> Line:
    """Stand in for a model. A real one: `OpenAILLM("model", api_key=...)` in place of `ScriptedLLM(reply, ...)`."""
    last, content = request.messages[-1], request.messages[-1]["content"]
    if isinstance(content, list):
        return "You sent: " + ", ".join(part.get("name", part["type"]) for part in content if part["type"] != "text")
    match content.split(" ", 1):
        case ["note", text]:
            return [Call("note", {"text": text})]
        case ["story"]:
            return " ".join(f"word{number}" for number in range(300))
    return f"Done: {content}" if last["role"] == "tool" else f"You said: {content}"


@asynccontextmanager
async def open_executor() -> AsyncIterator[AgentExecutor]:
    """Open the stores, and an executor for one agent on them."""
    agent = Agent("companion", instructions="Be kind.", tools=[note], state={"notes": []})
    llm = ScriptedLLM(reply, delay_seconds=0.02, piece=8)
    async with open_stores("sqlite:chat.db") as stores, AgentExecutor(stores, llm, agents=[agent]) as executor:
        yield executor


page = FileResponse(Path(__file__).with_name("index.html"))
app = create_app(open_executor, authenticate=bearer_tokens(USERS))
app.router.routes.insert(0, Route("/chat", lambda request: page))

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
