test_folder() { [ -d /app/a/b ]; }
test_file() { [ -f /app/a/b/c ] && [ ! -s /app/a/b/c ]; }
