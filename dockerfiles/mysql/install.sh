#!/bin/bash
# Installs what the base image lacks: a server with its client, tar and setpriv. A base that has
# MySQL or MariaDB (mysql:8.4, mariadb:11) keeps its own.
set -euo pipefail
exec 2>&1
export DEBIAN_FRONTEND=noninteractive

has() { command -v "$1" >/dev/null; }
install() { apt-get install -y --no-install-recommends "$@"; }

if ! { has mysqld || has mariadbd; } || ! { has mysql || has mariadb; } || ! has setpriv; then
  if has microdnf; then
    microdnf install -y tar util-linux
  else
    apt-get update
    if has mariadbd; then
      install mariadb-client-core
    elif ! has mysqld; then
      # Debian has MySQL in its unstable suite alone; the mirror is the one that the base uses.
      mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)
      echo "deb ${mirror%/} sid main" >/etc/apt/sources.list.d/sid.list
      apt-get -o Acquire::Check-Valid-Until=false update
      install -t sid mysql-server-core mysql-client-core
    fi
    rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/*.log
  fi
fi

for tool in tar setpriv; do
  has "$tool" || { echo "the base image needs $tool" && exit 1; }
done
getent passwd mysql >/dev/null || useradd --system --no-create-home --shell /usr/sbin/nologin mysql
