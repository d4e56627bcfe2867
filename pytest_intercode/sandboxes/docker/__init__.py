"""The Docker backend: images, containers, their attached streams, and what cleans up after us."""
