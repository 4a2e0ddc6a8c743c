"""One file or folder per technology: verbs, no policy."""
