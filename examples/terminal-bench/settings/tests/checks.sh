test_shape() { [ "$(cat /home/maker/shape.txt)" = circle ]; }
test_owner() { [ "$(stat -c %U /home/maker/shape.txt)" = maker ]; }
test_begun() { [ -s /home/maker/begun ]; }
