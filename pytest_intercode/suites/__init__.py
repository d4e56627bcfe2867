"""Suites: tasks and where they are read from."""
