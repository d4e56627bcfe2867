#!/bin/bash
here=$(dirname "$0")
passed=1
[ "$(getent passwd deploy | cut -d: -f6)" = /srv/deploy ] || passed=0
[ "$(greet)" = hi ] || passed=0
cmp -s "$here/data/motd" /etc/motd || passed=0
[ -L /etc/motd ] || passed=0
[ ! -e /opt/old ] || passed=0
file --brief "$here/data/dot.gif" | grep -q GIF || passed=0
echo $passed > /logs/verifier/reward.txt
