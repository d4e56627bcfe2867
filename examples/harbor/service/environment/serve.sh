#!/bin/bash
mkdir -p /run/service
[ "$LITERAL" = 'a ${HOME} in the middle stays' ] || exit 1
printf '%s\n' "$SERVICE_WORD" > /run/service/word
sleep 0.3
echo ready > /run/service/ready
exec "$@"
