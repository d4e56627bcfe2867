"""MySQL and MariaDB: a real server in a sandbox of its own."""
