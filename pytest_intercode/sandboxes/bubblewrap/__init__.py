"""The bubblewrap backend: sandboxes without a daemon, for root and for ordinary users."""
