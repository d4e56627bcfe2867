test_link() { [ "$(readlink -f /app/latest)" = /app/release-2 ]; }
test_first_is_gone() { [ ! -e /app/release-1 ]; }
test_third_is_gone() { [ ! -e /app/release-3 ]; }
test_second_is_there() { [ -d /app/release-2 ]; }
