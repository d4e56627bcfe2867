#!/bin/bash
if [ "$(cat /app/word.txt)" = marigold ]; then
  echo '{"reward": 1.0, "speed": 0.5}' > /logs/verifier/reward.json
else
  echo '{"reward": 0.0, "speed": 0.5}' > /logs/verifier/reward.json
fi
