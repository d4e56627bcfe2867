"""Judges: a model grades what an agent did by a task's rubric, and its words are only data."""
