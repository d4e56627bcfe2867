test_name() { [ "$(cat /tmp/name.txt)" = debian ]; }
