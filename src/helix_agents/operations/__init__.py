"""Maintenance of stores: cleanup, verification, export and import."""
