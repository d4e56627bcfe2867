#!/bin/bash
cat /run/service/word > /app/word.txt
