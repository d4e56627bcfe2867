. "$(dirname "$0")/tap.sh"
tab=$(printf '\t')

# scene: the same files each time
scene() {
  fresh
  echo new >app.log
  chmod 640 app.log
  for n in 1 3 9 10; do echo "text $n" >app.log.$n; done
  echo zipped | gzip -n >app.log.2.gz
  echo new >"it's my \$HOME \"app\" *.log"
  echo older >"it's my \$HOME \"app\" *.log.1"
  echo 'a\tb' >'back\slash.log'
  echo new >"ends in
a line end
"
  echo dash >-n.log
  : >empty.log
  printf '%s\n' "app.log${tab}keep=10 compress=yes" 'back\slash.log' >list
}

# state: all that a scene holds
state() {
  for entry in *; do
    printf '<%s> %s %s\n' "$entry" "$(stat -c '%a %s' "$entry")" "$(cksum <"$entry")"
  done
}

# same WHAT ARGUMENT...: what -n prints, run by a shell, does what is done without it
same() {
  what=$1
  shift
  scene
  before=$(state)
  said=$("$logturn" -n "$@" 2>&1)
  is "$what: nothing is done" "$(state)" "$before"
  printf '%s\n' "$said" >../said
  sh ../said >../out 2>&1
  after=$(state)
  is "$what: the commands say nothing" "$(cat ../out)" ""
  scene
  "$logturn" "$@"
  if [ "$after" = "$before" ]; then after="no change"; fi
  is "$what: the commands do it" "$after" "$(state)"
}

same "one file" app.log
same "compressed" -z app.log
same "few are kept" -k 2 app.log
same "a list" -c list
same "odd names" "it's my \$HOME \"app\" *.log" 'back\slash.log' "ends in
a line end
"
same "a leading dash" -- -n.log

scene
is "nothing to do, nothing to say" "$("$logturn" -n empty.log none.log; echo $?)" 0

scene
before=$(state)
message=$("$logturn" -n -k 0 app.log 2>/dev/null)
is "mistakes are mistakes" "$? $message" "2 "

finish
