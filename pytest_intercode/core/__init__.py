"""Plain data that all parts pass around: tasks, turns, usage, records; and what reads texts."""
