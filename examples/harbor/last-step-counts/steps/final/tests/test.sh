#!/bin/bash
[ "$(cat /app/text.txt)" = final ]
echo $((!$?)) > /logs/verifier/reward.txt
