#!/bin/bash
even=0 odd=0
[ "$(cat even.txt)" = 4 ] && even=1
[ "$(cat odd.txt)" = 5 ] && odd=1
echo "{\"even\": $even, \"odd\": $odd}" > /logs/verifier/reward.json
exit 3
