"""What the other folders use of this machine: files, archives, threads, forks and connections."""
