"""SQLite: a process of its own for each session."""
