"""Atomic writes as programs, run by one script or by MULTI."""
