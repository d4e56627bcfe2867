. "$(dirname "$0")/tap.sh"

# chain FIRST LAST: files of these numbers, with their number in them
chain() {
  number=$1
  while [ "$number" -le "$2" ]; do
    echo "$number" >app.log.$number
    number=$((number + 1))
  done
}

# wrong SHIFT FIRST LAST: the numbers whose file does not hold what was SHIFT before
wrong() {
  number=$2
  while [ "$number" -le "$3" ]; do
    file=app.log.$number
    if [ -e "$file.gz" ]; then text=$(gzip -dc "$file.gz"); else text=$(cat "$file" 2>&1); fi
    [ "$text" = $((number - $1)) ] || printf '%s ' "$number"
    number=$((number + 1))
  done
}

fresh
chain 1 12
echo 0 >app.log
"$logturn" -k 14 app.log
is "twelve files move up by one" "$(wrong 1 1 13)" ""
is "none is there besides" "$(ls | wc -l)" 14

fresh
chain 1 10
echo 0 >app.log
"$logturn" -k 10 app.log
is "ten are kept" "$(wrong 1 1 10)$(ls | wc -l)" 11

fresh
turn=1
while [ $turn -le 15 ]; do
  echo "$turn" >app.log
  "$logturn" -k 12 app.log
  turn=$((turn + 1))
done
is "turned fifteen times" "$(cat app.log.1 app.log.9 app.log.10 app.log.11 app.log.12 | tr '\n' ' ')" \
  "15 7 6 5 4 "

fresh
chain 1 11
gzip -n app.log.2 app.log.9 app.log.10
echo 0 >app.log
"$logturn" -k 20 -z app.log
is "compressed ones and others" "$(wrong 1 1 12) $(ls -d *.gz | tr '\n' ' ')" \
  " app.log.1.gz app.log.10.gz app.log.11.gz app.log.3.gz "

fresh
chain 96 106
echo 0 >app.log
"$logturn" -k 103 app.log
is "three digits, and what lies beyond KEEP is removed" \
  "$(wrong 1 97 103)$(ls -d app.log.10* | tr '\n' ' ')" "app.log.100 app.log.101 app.log.102 app.log.103 "

fresh
echo 1 >app.log.1
echo 3 >app.log.3
echo 30 >app.log.30
echo 0 >app.log
"$logturn" -k 50 app.log
is "gaps stay" "$(files)" "app.log=
app.log.1=0
app.log.2=1
app.log.31=30
app.log.4=3"

fresh
chain 1 11
mkdir "my logs"
for n in 9 10; do mv app.log.$n "my logs/an app.log.$n"; done
echo 0 >"my logs/an app.log"
"$logturn" -k 20 "my logs/an app.log"
is "in a folder with a blank" "$(cat "my logs/an app.log.10" "my logs/an app.log.11" | tr '\n' ' ')" "9 10 "

finish
