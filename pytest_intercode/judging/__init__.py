"""Judges: a model grades an agent's work by a task's rubric; the agent's words are only data."""
