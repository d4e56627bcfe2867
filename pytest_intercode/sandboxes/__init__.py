"""Sandboxes: the isolated machines in which actions run, and the channel into them."""
