#!/bin/bash
# Becomes the database server; the arguments are further options of it.
#
#   reading   nothing can be changed, not even by root
#   writing   with a binary log, which tells whether anything was changed
#   loading   for the build of the image
set -eu
trap '' XFSZ # a file that may grow no more is an error of a statement, not the server's end
mode=$1
shift
server=$(command -v mariadbd || command -v mysqld)
case $mode in
reading) set -- --innodb_read_only=ON --read_only=ON --skip-log-bin --innodb_doublewrite=OFF "$@" ;;
writing)
  set -- --log-bin=/srv/intercode/log/bin --server-id=1 --sync-binlog=0 --binlog_format=ROW \
    --max_binlog_size=64M --max_binlog_cache_size=128M --log_bin_trust_function_creators=ON \
    --innodb_doublewrite=OFF --innodb_flush_log_at_trx_commit=2 "$@"
  ;;
loading) set -- --skip-log-bin --max_allowed_packet=256M "$@" ;;
esac
case $server in
*mysqld) set -- --secure_file_priv=NULL "$@" ;;
esac
exec "$server" --defaults-file=/opt/intercode/server.cnf "$@"
