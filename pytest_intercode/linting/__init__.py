"""Finds what is wrong with task folders and suites from their files alone; nothing is run."""
