"""SQL: an action is a statement, on SQLite or a real MySQL."""
