"""Work for later: schedules, and events sent to other services."""
