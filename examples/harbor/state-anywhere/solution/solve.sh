#!/bin/bash
set -e
useradd --create-home --home-dir /srv/deploy deploy
install -m 755 "$(dirname "$0")/greet" /usr/local/bin/greet
echo welcome > /srv/motd
ln -sf /srv/motd /etc/motd
rm -r /opt/old
