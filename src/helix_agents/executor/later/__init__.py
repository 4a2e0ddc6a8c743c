"""Work that comes later: schedules, and the events that are sent to other services."""
