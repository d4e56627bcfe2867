#!/bin/bash
printf 'apple\nfig\npear\n' | cmp -s - /data/sorted.txt
echo $((!$?)) > /logs/verifier/reward.txt
