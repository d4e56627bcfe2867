"""Recorded runs scored again, by another profile or function: no agent, no sandbox, no database."""
