"""InterCode's data: which files they are, and how they get onto this machine when asked for."""
