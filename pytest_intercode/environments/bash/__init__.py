"""Bash: an action is what a person would type."""
