"""Capture the flag: Bash, and a flag to submit."""
