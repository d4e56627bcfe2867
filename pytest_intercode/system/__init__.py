"""Access to this machine for the other folders: files, archives, threads, forks, connections."""
