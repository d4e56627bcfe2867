"""Database engines: SQLite in a process of its own, MySQL in a container."""
