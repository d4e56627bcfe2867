#!/bin/bash
passed=1
[ "$(id -un)" = judge ] || passed=0
[ "$FROM_HOST" ] || passed=0
[ "$(pwd)" = /srv/work ] || passed=0
[ "$(cat name.txt)" = "$EXPECTED" ] || passed=0
[ "$(stat -c %U name.txt)" = "$EXPECTED" ] || passed=0
echo $passed > /logs/verifier/reward.txt
