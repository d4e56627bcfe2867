"""What is wrong with task folders and suites, as far as their files show it; nothing is run."""
