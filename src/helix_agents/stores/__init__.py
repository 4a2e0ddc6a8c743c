"""Durable state: the contract, the commit as a value, and what all backends share."""
