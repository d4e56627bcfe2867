"""Executors run rollouts: inline, in the turn of whoever asks, or concurrently, on threads."""
