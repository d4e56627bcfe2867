#!/bin/bash
. "$TEST_DIR/checks.sh"
echo "=========================== short test summary info ============================"
for check in $(compgen -A function test_); do
  if (set -e; "$check") >/dev/null 2>&1; then
    echo "PASSED ../tests/checks.sh::$check"
  else
    echo "FAILED ../tests/checks.sh::$check - it failed - twice"
  fi
done
