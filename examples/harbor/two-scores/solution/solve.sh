#!/bin/bash
echo 4 > even.txt
echo 5 > odd.txt
exit 1
