"""Tests of a repository's own: its copy, what an agent did there, and what a test asks of that."""
