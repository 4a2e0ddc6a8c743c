"""SQLite, the embedded default: files that many processes share."""
