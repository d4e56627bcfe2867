#!/bin/bash
echo "SWEBench results starts here"
[ "$(cat /app/state)" = ok ] && echo PASSED || echo FAILED
echo "SWEBench results ends here"
