"""Ownership of a session: what may be done with it now, claims, leases, closing."""
