printf 'def square(side):\n    return side * side\n' > area.py
