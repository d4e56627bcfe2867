"""Data that all parts pass around: tasks, turns, usage, rewards, episode records."""
