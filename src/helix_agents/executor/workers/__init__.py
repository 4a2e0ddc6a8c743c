"""Runs that any worker can start or continue: submission, the pool, the stepper."""
