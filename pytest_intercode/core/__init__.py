"""Plain data that all parts share (tasks, turns, usage, records), and parsers of texts."""
