"""Agents: how the code under test is found and called, and the built-in ones."""
