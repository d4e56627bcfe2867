#!/bin/bash
# Makes the databases of a suite: initialises a server, runs the suite's scripts in their order,
# makes the accounts, and shuts the server down cleanly, so that it can be started read-only.
set -euo pipefail
exec 2>&1
here=/opt/intercode
home=/srv/intercode
socket=/run/intercode/mysql.sock
client=$(command -v mariadb || command -v mysql)

run() {
  "$client" --no-defaults --socket="$socket" --user=root --default-character-set=utf8mb4 \
    --max-allowed-packet=256M "$@"
}

stop() {
  echo "$1"
  grep -i error "$home/error.log" | tail -n 5 || true
  exit 1
}

install -d -o mysql -g mysql -m 0750 "$home" "$home/tmp" "$home/log" /run/intercode
if command -v mariadbd >/dev/null; then
  mariadb-install-db --defaults-file="$here/server.cnf" --auth-root-authentication-method=normal \
    --skip-test-db >"$home/error.log" 2>&1 || stop 'the server cannot be initialised'
else
  bash "$here/serve.sh" loading --initialize-insecure >"$home/error.log" 2>&1 ||
    stop 'the server cannot be initialised'
fi

bash "$here/serve.sh" loading >"$home/error.log" 2>&1 &
server=$!
for ((attempt = 0; ; attempt++)); do
  run -e 'DO 0' 2>/dev/null && break
  kill -0 $server 2>/dev/null && ((attempt < 600)) || stop 'the server does not start'
  sleep 0.1
done

read_script() {
  case $1 in
  *.gz) gzip -dc "$1" ;;
  *) cat "$1" ;;
  esac
}
for script in /opt/scripts/*; do
  echo "loading ${script##*/}"
  said=$(read_script "$script" | run 2>&1) || { echo "$said" && exit 1; }
done

# The accounts that statements run as. Each session has an account to itself, as sessions of one
# account can see and kill each other's statements.
#   agent001 ... agent200   look at the suite's databases, and call their routines
#   agent                   does with the suite's databases whatever it likes
readers=$(printf ', agent%03d@localhost' {1..200})
readers=${readers#, }
run -e "CREATE USER agent@localhost, $readers"
ours="('mysql', 'sys', 'information_schema', 'performance_schema')"
run -N -r -e "SELECT REPLACE(REPLACE(schema_name, '\`', '\`\`'), '_', '\\\\_')
  FROM information_schema.schemata WHERE schema_name NOT IN $ours" |
  while IFS= read -r name; do
    echo "GRANT SELECT, SHOW VIEW, EXECUTE ON \`$name\`.* TO $readers;"
    echo "GRANT ALL ON \`$name\`.* TO agent@localhost;"
  done | run
# Row order without ORDER BY goes by statistics, which must not depend on when they were taken.
run -N -r -e "SELECT CONCAT('ANALYZE TABLE \`', REPLACE(table_schema, '\`', '\`\`'), '\`.\`',
    REPLACE(table_name, '\`', '\`\`'), '\`;') FROM information_schema.tables
  WHERE table_type = 'BASE TABLE' AND table_schema NOT IN $ours" | run >/dev/null
run -e 'SET GLOBAL innodb_fast_shutdown = 0; SHUTDOWN'
wait $server
rm -rf "$home"/tmp/* "$home"/log/* "$home"/data/*.pem "$home"/data/*.err
