"""Executors run rollouts: inline, in the caller's thread, or concurrently, on several."""
