echo "=== short test summary info ==="
[ "$ANSWER" = 42 ] && echo "PASSED t.sh::test_answer" || echo "FAILED t.sh::test_answer - no"
