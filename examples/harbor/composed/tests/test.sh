#!/bin/bash
[ "$(cat /work/colour.txt)" = green ]
echo $((!$?)) > /logs/verifier/reward.txt
