# The keeper: the first process of every sandbox. bash reads this text, and then commands, from
# the standard input that the client holds open: when the client goes, however it goes, the input
# ends, the keeper with it, and everything in the sandbox with the keeper.
#
# The agent's shell is a child that can neither look into the keeper nor hold its input open: the
# engine starts the keeper so that the kernel protects it from other processes (see GUARD in
# attached.py). Where that is impossible, the shell has one capability less ($lowered). Everything
# else that is started here has no more rights than the agent, which may have replaced any program.
#
# The shell is bash or, with $python, a Python interpreter, which is called a shell here as well.
#
# Descriptors: 0 commands; 1 what the agent's processes print; 201 answers to the client; 202 the
# shell's input; 203 a file without a name, in which a shell leaves its state for the next one (bash
# has 201 and 203 too, but no program that it starts has). An answer carries the nonce of its
# command, so that none can be forged ahead of time. Commands:
#
#   A SIZE          give the shell an action: so many characters of ASCII that follow; where nothing
#                   but keeper and shell runs, a client may write them to 202 by itself
#   M TEXT          print a marker
#   S NONCE STATE FIRST   start a shell, with or without the state of the last ("kept", "fresh");
#                   what it does first                      P NONCE        is the shell alive?
#   K NONCE [all]   kill the shell and what the last action started (or everything): how many?
#   I NONCE         interrupt the shell, kill what the last action started; no answer
#   X NONCE SIZE    run a command, so many characters that follow, outside the shell
#   T NONCE SIZE    unpack a tar archive                    N NONCE        how many processes?
#   V NONCE         what machine is this?
#   B NONCE SIZE    take on a builtin, the lister (see lister.c), before the agent acts
#   L NONCE SIZE    have it answer a request

# There are three pipes, so answers go out by standard error; what bash itself complains of, such as
# a killed job or a fork that fails, must not be among them.
exec 201>&2 2>/dev/null
path=$INTERCODE_PATH # what comes first on the shell's, and not on that of our own commands
unset INTERCODE_SANDBOX INTERCODE_PATH # by the first of which an engine may have named us
[ -z "$offline" ] || # the engine writes this file only for a container with a network
  printf '127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n' >/etc/hosts
set -m # else what is started here would ignore SIGINT
if [ -z "$python" ]; then
  # The engine may have opened it, without a name: that saves a process.
  [ -e /proc/self/fd/203 ] || exec 203<>/dev/shm/.intercode
  [ -z "$user" ] || chmod 666 /proc/self/fd/203 /proc/self/fd/1 </dev/null # opened again by it
  if [ -e /dev/shm/.intercode ]; then rm -f /dev/shm/.intercode </dev/null & fi
fi
shell=0 before=
# The shell's own line numbers must differ from all others (see channel.py, which counts from here).
# A simple command that sets LINENO restores it at its end, so this does not use one.
ahead='{ :; } 2>&$((LINENO=1000, 2))'
lower() { # by the lister, as the agent may have replaced a program that does it
  [ -z "$lowered" ] || lister lower || exit 126
  exec "$@"
}
worker() {
  # Short of memory, the kernel shall end what the agent runs, and not us.
  echo 1000 >/proc/self/oom_score_adj
  [ -z "$path" ] || export PATH="$path:$PATH"
  [ -z "$user" ] || as_user "$@"
  lower "$@"
}
as_user() { # a name or a number, which need not be in the list of users
  local name number group home id=$user gid=0 at=/ groups=--clear-groups
  while IFS=: read -r name _ number group _ home _; do
    [ "$name" != "$user" ] && [ "$number" != "$user" ] && continue
    id=$number gid=$group at=$home groups=--init-groups
    export USER="$name" LOGNAME="$name"
    break
  done </etc/passwd
  export HOME="$at"
  lower setpriv --reuid "$id" --regid "$gid" $groups "$@"
}
feed() { # a long line in a child: a keeper that blocks would not see its input end
  if [ ${#1} -gt 4000 ]; then printf '%s' "$1" >&202 & else printf '%s' "$1" >&202; fi
}
others() { # all processes but these
  local p
  found=
  for p in /proc/[0-9]*; do
    p=${p#/proc/}
    case $1 in *" $p "*) ;; *) found="$found$p " ;; esac
  done
}
# On a busy machine, a fork that is under way continues although its process was stopped, and its
# child appears after the list was read. No fork continues after SIGKILL: so none is left only when
# no other process is found after all were killed.
kill_all() { # only builtins: a fork bomb leaves no room for another process
  killed=' '
  local p parent round spared=" 1 $1 " jobs=" $1 "
  # The processes whose children are spared. Keeper and shell are not among them: their children
  # are what the action has left and what it runs now.
  jobs=${jobs/ 1 / } jobs=${jobs/ $shell / }
  kill -STOP -1
  [ "$shell" = 0 ] || kill -KILL "$shell"
  for round in {1..50}; do
    others "$spared$killed"
    [ "$found" ] || break
    for p in $found; do
      parent=
      read -r parent <"/proc/$p/stat"
      # A program's name may contain blanks and brackets: only what follows the last bracket is from
      # the kernel.
      parent=${parent##*) } parent=${parent#* } parent=${parent%% *}
      case $jobs in
      *" ${parent:-none} "*) jobs="$jobs$p " spared="$spared$p " ;; # of an earlier job
      *) kill -KILL "$p"; killed="$killed$p " ;;
      esac
    done
  done
  kill -CONT -1
  await_end $killed
}
# A killed process finishes its current system call, such as a rename, which may hide a file from a
# program that reads them all. Its other threads do so even when the first one has ended.
await_end() {
  local p state limit=$((SECONDS + 5))
  for p; do
    while [ "$SECONDS" -lt "$limit" ]; do
      state=
      read -r state <"/proc/$p/stat"
      state=${state##*) }
      set -- "/proc/$p/task/"*
      case $state in
      '') break ;;
      [ZX]*) [ $# -gt 1 ] || break ;;
      esac
    done
  done
}
interrupt() { # without stopping the shell: bash would take it for ended, and lose its status
  local round new=' ' spared=" 1 $shell $before "
  kill -INT "$shell"
  for round in {1..50}; do # until every process of a bomb stands still
    others "$spared$new"
    [ "$found" ] || break
    kill -STOP $found
    new="$new$found"
  done
  for round in {1..50}; do
    kill -KILL $new
    others "$spared$new"
    [ "$found" ] || break
    new="$new$found"
  done
}
while IFS= read -r line; do
  command=${line%% *} line=${line#* } nonce=${line%% *} rest=${line#* }
  case $command in
  A)
    IFS= read -rN "$nonce" line # in one piece, and not byte by byte
    others ' '
    before=$found
    feed "$line"
    ;;
  M) printf '%s' "$line" ;;
  P)
    state=
    read -r state <"/proc/$shell/stat"
    state=${state##*) }
    case $state in
    '' | [ZX]*) wait "$shell"; echo "P $nonce dead $?" >&201 ;;
    *) echo "P $nonce alive 0" >&201 ;;
    esac
    ;;
  K)
    case $rest in
    all) kill_all '' ;;
    *) kill_all "$before" ;;
    esac
    set -- $killed
    echo "K $nonce $#" >&201
    ;;
  I) interrupt ;;
  S)
    if [ "$python" ]; then
      exec 202> >(worker python3 -uc 'exec(eval(input()))' 2>&1 202>&-)
    else
      exec 202> >(worker bash 2>&1 202>&-)
      # Before the state: if nothing follows, the state keeps the shell from starting, and the next
      # one is started without it.
      line="builtin printf 'U %s\\n' $nonce >&201; "
      [ "${rest%% *}" = fresh ] || line="$line{ . /proc/self/fd/203; } >/dev/null 2>&1; "
      # The status says whether a file was read that may have defined anything; see channel.py.
      line="$line$start${rest#* }! [[ \${BASH_ENV-} ]]; __intercode_end $nonce"
      # Like our own script, it is read in one piece.
      line="$ahead
IFS= read -rN $((${#line} + 1)) __intercode; eval \"\$__intercode\"
$line"
    fi
    # A shell must not hold its own input open (202>&-), so that it ends with this script, and when
    # 202 is opened for the next shell.
    shell=$!
    feed "$line
"
    ;;
  N)
    others ' '
    set -- $found
    echo "N $nonce $#" >&201
    ;;
  V) echo "V $nonce ${BASH_VERSINFO[5]%%-*}" >&201 ;;
  B)
    IFS= read -rN "$rest" line
    file=/.intercode-$nonce # on the disk: /dev/shm may hold no programs
    printf %b "$line" >"$file" && enable -f "$file" lister
    status=$?
    rm -f "$file" </dev/null
    echo "B $nonce $status" >&201
    ;;
  X | L)
    IFS= read -rN "$rest" line
    echo "$command $nonce" >&201 # what follows, up to the line below, is the output
    {
      case $command in
      X)
        eval "line=$line"
        (lower bash -c "$line" </dev/null >&201 2>&1 201>&- 202>&- 203>&-)
        ;;
      L) (lister "$SECONDS" "$line" >&201) ;;
      esac
      printf '\n%s %s %s\n' "$command" "$nonce" "$?" >&201
    # Do not wait for it: the keeper would see neither the end of its input, nor a K for a command
    # whose time is up.
    } &
    ;;
  T)
    why=$(
      head -c "$rest" | {
        tar -xpf - -C / --numeric-owner 2>&1 201>&-
        status=$?
        while IFS= read -rN 65536 left; do :; done # what tar left would be taken for commands
        exit $status
      }
    )
    status=$?
    why=${why:0:2000}
    echo "T $nonce $status ${why//$'\n'/; }" >&201
    ;;
  esac
done
exit 77 # the input has ended
