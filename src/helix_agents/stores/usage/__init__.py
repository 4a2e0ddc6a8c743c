"""The usage store: what a session cost, entry by entry and added up."""
