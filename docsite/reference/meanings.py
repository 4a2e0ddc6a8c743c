"""What the reference says beyond docstrings: meanings of statuses and failure reasons, and what to do about errors."""

from __future__ import annotations

from collections.abc import Mapping

SESSION_STATUSES: Mapping[str, str] = {
    "active": "new, or a run works on it; its run's lease says whether the process is alive",
    "paused": "stopped by your program; resumed by `resume`, or by a worker once `wake_at` has come",
    "interrupted": "stopped between two steps on request; `resume` continues it",
    "completed": "the last turn has an output; the next message starts another turn",
    "failed": "the last turn failed: see `error` and `failure_reason`; `retry` runs it again",
    "suspended_client_tool": "waits for results of client tools, or for approvals",
    "suspended_awaiting_children": "waits for a sub-agent that is suspended itself",
    "suspended_step_partial": "waits for both; calls of the step that have finished are stored",
}
RUN_STATUSES: Mapping[str, str] = {
    "running": "a process works on it, or did until its lease expired",
    "completed": "ended with an output",
    "failed": "ended with an error",
    "interrupted": "ended on request, or by a crash; the next attempt is another run of the same turn",
    "suspended_client_tool": "ended its work to wait for a client or a person",
    "suspended_awaiting_children": "ended its work to wait for a sub-agent",
    "suspended_step_partial": "ended its work to wait for both",
}
STREAM_STATUSES: Mapping[str, str] = {
    "active": "takes chunks; readers wait for more",
    "paused": "takes no chunks until `resume_stream`; readers finish",
    "ended": "complete; readers finish after the last chunk",
    "failed": "its producer failed; live readers raise `StreamFailed` after the last chunk",
}

FAILURE_REASONS: Mapping[str, str] = {
    "aborted": "a caller ended the run with `abort`",
    "error": "something that the library did not expect; the log has the traceback",
    "history_error": "a history processor raised or returned messages that cannot be sent",
    "input_refused": "`check_input` rejected the message",
    "max_steps": "the run reached `max_steps` without an output",
    "model_error": "the model did not reply, also after retries",
    "not_storable": "a result or a state is too large for the backend, or not JSON",
    "output_refused": "`check_output` rejected the output, also after its retries",
    "parent_failed": "the step of its parent failed; a retry of the parent runs it again",
    "parent_moved_on": "the user sent the parent a message instead of a response",
    "parent_restored": "the parent was restored to an earlier checkpoint",
    "parent_suspended": "it was interrupted so that its parent could suspend; it continues with it",
    "parent_timeout": "it took longer than its parent's tool call may",
    "poisoned": "process after process died at work on it without a commit",
    "session_expired": "`expires_at` has passed, and a cleanup found it",
    "stream_error": "its stream rejected a chunk: too large, or the stream was ended by another program",
    "tools_unavailable": "a tool server did not respond",
    "usage_limit": "a `UsageLimits` was reached",
}

FIXES: Mapping[str, str] = {
    "HelixError": "Catch a class below it: this one only groups them.",
    "InvalidArgument": "Correct the argument that the message names. A retry cannot help.",
    "NotSerializable": "Convert the value at the path to JSON: dict, list, str, int, float, bool or None.",
    "SessionNotFound": "Create the session first, or check the id; it may have been deleted or have expired.",
    "SessionExists": "Load the session, or choose another id.",
    "RunNotFound": "Create the run first, or check the id.",
    "CheckpointNotFound": "List the checkpoints of the session, and choose one of them.",
    "VersionConflict": "Load the session again and repeat your change.",
    "EpochConflict": "Stop writing: another process owns the session. Load it again to read what it did.",
    "LeaseConflict": "Load the run again, and decide anew.",
    "IllegalTransition": "Choose a status that the message offers; see [statuses](statuses.md).",
    "AlreadyRunning": 'Wait for the run, interrupt it, or pass `if_running="enqueue"`.',
    "StaleTicket": "Continue with the ticket that the step returned; the step of this one is done.",
    "IdempotencyConflict": "Use a new key for a new request, and the same key only to repeat the same one.",
    "NotResumable": "Ask `can_resume`, which says why; send a message instead, or submit what it waits for.",
    "RunLost": "Nothing in this process: another one continues the session. Follow it with `get_handle`.",
    "ModelError": "Retry later if `retryable`; else check key, model name and request.",
    "ToolsUnavailable": "Start the tool server, or check its address; then `retry` the session.",
    "DraftClosed": "Make the change inside the function that you pass to `update`.",
    "PatchError": "Load the whole state again: the patch was made for another one.",
    "StreamError": "Catch a class below it: this one only groups them.",
    "StreamNotActive": "Resume or reset the stream, or write to another one.",
    "StreamFenced": "Stop writing: a newer owner writes the stream.",
    "StreamFailed": "Show the error to the reader; `get_all_chunks` still has the chunks.",
    "StreamTruncated": "Take a snapshot of the session, and read on from its sequence; keep more with `max_chunks`.",
    "StreamCursorAhead": "Read from the start: the stream was reset, or the cursor belongs to another one.",
    "StoreError": "Catch a class below it: this one only groups them.",
    "StoreUnavailable": "Check server, disk and network, then retry: reads and versioned writes are safe to repeat.",
    "StoreCorrupt": "Restore a backup; `helix verify` lists what is damaged.",
    "SchemaTooNew": "Update this library, or use another database.",
    "NotMigrated": "Run `helix migrate`, or open the stores with migration.",
}
