"""Suites of tasks, and the formats that they are read from."""
