"""Control runs from outside: interrupt, resume, and respond to questions."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from ..backends.registry import Stores
from ..clock import system_clock
from ..codec import Json, encode
from ..errors import InvalidArgument, SessionNotFound
from ..executor import Action, Intent, all_waiting, decide, find, stream_of
from ..types import PendingClientToolCall, SessionState
from .command import add_command, add_json
from .output import emit, say
from .tail import tail
from .targets import HOW_TO_NAME, executor_named, steering


def add_run_verbs(verbs: Any) -> None:
    """Add `sessions interrupt` and `sessions resume`."""
    interrupt = add_command(verbs, "interrupt", _interrupt, "ask a session's run to stop, wherever it runs")
    interrupt.add_argument("session", help="the id of the session")
    interrupt.add_argument("--reason", help="stored with the session, and sent to readers of its stream")
    interrupt.add_argument("--abort", action="store_true", help="at once; the session ends failed and stays so")
    add_json(interrupt, "one JSON document")
    resume = add_command(verbs, "resume", _resume, "continue a session here, with the agents of your module")
    resume.add_argument("executor", help=HOW_TO_NAME)
    resume.add_argument("session", help="the id of the session")
    resume.add_argument("--message", help="what to say to the agent")
    add_json(resume, "one chunk a line")


HAPPENED: dict[str, bool | None] = {"yes": True, "no": False, "unknown": None}
WAITS_FOR = {"approval": "approval", "client": "result", "outcome": "--happened yes, no or unknown"}
WAITS_FOR |= {"deferred": "the result of a job", "timer": "its time"}


def add_answer(commands: Any) -> None:
    """Add the command `answer`: for an approval, the result of a client tool, or the outcome of a call."""
    answer = add_command(commands, "answer", _answer, "answer what a run waits for; without a call, show what waits")
    answer.add_argument("session", help="the id of the session")
    answer.add_argument("call", nargs="?", help="the id of the tool call")
    kinds = answer.add_mutually_exclusive_group()
    kinds.add_argument("--approve", dest="approved", action="store_const", const=True, help="let the call be made")
    kinds.add_argument("--deny", dest="approved", action="store_const", const=False, help="refuse the call")
    answer.add_argument("--result", metavar="JSON", help="what a client tool, or a call that happened, returned")
    kinds.add_argument("--error", metavar="TEXT", help="why a client tool failed")
    kinds.add_argument("--happened", choices=list(HAPPENED), help="whether a call with unknown outcome took effect")
    answer.add_argument("--arguments", metavar="JSON", help="with --approve: make the call with these instead")
    answer.add_argument("--reason", help="of an approval or denial, for the model")
    add_json(answer, "one question a line, or what became of the answer")


async def _interrupt(given: argparse.Namespace, stores: Stores) -> int:
    async with steering(stores) as executor:
        found = await find(executor.services, given.session)
        session = found.existing
        can_stop = decide(found.seen, Intent.ABORT if given.abort else Intent.INTERRUPT).action is not Action.RETURN
        if can_stop:
            stop = executor.abort if given.abort else executor.interrupt
            await stop(given.session, given.reason)
    if given.json:
        emit({"session_id": given.session, "abort": given.abort, "reason": given.reason, "asked": can_stop})
    elif can_stop:
        say(f"Asked {given.session} to stop.")
    else:
        say(f"Nothing was done: {given.session} is {session.status}.")
    return 0


async def _load(stores: Stores, session_id: str) -> SessionState:
    session = await stores.state.load_state(session_id)
    if session is None:
        raise SessionNotFound(session_id)
    return session


async def _resume(given: argparse.Namespace, stores: Stores) -> int:
    async with executor_named(given.executor, stores) as executor:
        session = await executor.services.store.load_state(given.session)
        if session is None:
            raise SessionNotFound(given.session)
        info = await stream_of(executor.services.streams, session)
        seen = info.latest_sequence if info is not None else 0
        handle = await executor.resume(session.agent_type, given.session, message=given.message)
        streams = executor.services.streams
        await tail(streams, session.stream_id, from_sequence=seen, as_json=given.json, out=sys.stdout)
        result = await handle.result()
    if not given.json:
        say(f"{given.session} is {result.status}.{f' {result.error}' if result.error else ''}")
        for call in result.suspended:
            say(_question(call))
    return 1 if result.status == "failed" else 0


async def _answer(given: argparse.Namespace, stores: Stores) -> int:
    if given.call is None:
        return await _waiting(given, stores)
    answer: dict[str, Any] = {"approved": given.approved, "error": given.error, "reason": given.reason}
    if given.result is not None:
        answer["result"] = _json(given.result, "--result")
    if given.arguments is not None:
        answer["arguments"] = _json(given.arguments, "--arguments")
    if given.happened is not None:
        answer["happened"] = HAPPENED[given.happened]
    if given.approved is None and given.error is None and given.result is None and given.happened is None:
        raise InvalidArgument(
            "Pass a response: --approve, --deny, --result JSON, --error TEXT or --happened yes|no|unknown."
        )
    async with steering(stores) as executor:
        receipt = await executor.submit_tool_result(given.session, given.call, **answer)
        can = await executor.can_resume(given.session)
    if given.json:
        emit(receipt)
        return 0
    say(f"{receipt.status}: {given.call} of {receipt.session_id}.")
    if can.can_resume:
        say(f"Nothing waits any more: helix sessions resume module:executor {given.session}")
    return 0


async def _waiting(given: argparse.Namespace, stores: Stores) -> int:
    session = await _load(stores, given.session)
    for call in await all_waiting(stores.state, session, system_clock()):
        if given.json:
            emit(call)
        else:
            say(_question(call))
    return 0


def _question(call: PendingClientToolCall) -> str:
    asked = f" asks {encode(call.asked.question)}" if call.later == "asked" and call.asked else ""
    return f"waits for {WAITS_FOR[call.kind]}: {call.tool_call_id}  {call.tool_name} {encode(call.input)}{asked}"


def _json(text: str, option: str) -> Json:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"{option} must be JSON, for example '\"some text\"' or 42: {error}.") from error
