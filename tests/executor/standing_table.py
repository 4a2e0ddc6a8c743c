"""The table of standings as `docs/design.md` shows it: `python -m tests.executor.standing_table` prints it."""

from __future__ import annotations

from helix_agents.executor.session.standing import TABLE, Decision, Intent, Standing

ERRORS = {
    "AlreadyRunning": "busy",
    "SessionNotFound": "not found",
    "RunLost": "lost",
    "StaleTicket": "stale",
    "NotResumable": "not resumable",
}


def cell(decision: Decision) -> str:
    """Return the text of a cell: the action, or the error in italics."""
    return decision.action.value if decision.error is None else f"*{ERRORS[decision.error.__name__]}*"


def table() -> str:
    """Return one row per standing, one column per intent."""
    intents = list(Intent)
    lines = [
        "| standing | " + " | ".join(intent.value for intent in intents) + " |",
        "|---|" + "---|" * len(intents),
    ]
    for standing in Standing:
        cells = [cell(TABLE[standing, intent]) for intent in intents]
        lines.append(f"| {standing.value} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
