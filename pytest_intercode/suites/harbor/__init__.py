"""Task folders in the formats of Harbor and of Terminal-Bench 1, read as tasks and written."""
