"""The checks of the UsageStore contract."""
