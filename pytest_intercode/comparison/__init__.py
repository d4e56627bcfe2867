"""Results files next to each other: what changed between two runs, and shards made one file."""
