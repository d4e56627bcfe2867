"""Bash in a machine, often in a repository; graded by running tests in another sandbox."""
