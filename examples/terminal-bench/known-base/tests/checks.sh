test_double() { [ "$(cat /app/double.txt)" = 14 ]; }
