"""Migrations and the ledger of those applied."""
