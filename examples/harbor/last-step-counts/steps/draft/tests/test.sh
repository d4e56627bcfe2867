#!/bin/bash
[ "$(cat /app/text.txt)" = draft ]
echo "0.$((5 * !$?))" > /logs/verifier/reward.txt
