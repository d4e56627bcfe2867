"""SQL: an action is a statement for SQLite or a real MySQL."""
