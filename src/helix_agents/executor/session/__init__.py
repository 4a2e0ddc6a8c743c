"""Who owns a session: what may happen to it now, claims, leases, closing."""
