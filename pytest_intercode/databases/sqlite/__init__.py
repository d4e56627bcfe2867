"""SQLite: each session has a process of its own."""
