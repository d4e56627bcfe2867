. "$(dirname "$0")/tap.sh"
tab=$(printf '\t')

# sized BYTES: a file of that size
sized() {
  fresh
  head -c "$1" /dev/zero | tr '\0' x >app.log
}

# turns OPTION...: whether the file is turned
turns() {
  "$logturn" "$@" 2>/dev/null || echo "failed with $?"
  if [ -e app.log.1 ]; then echo yes; else echo no; fi
}

sized 2047; is "2047 bytes are less than 2k" "$(turns -s 2k app.log)" no
sized 2048; is "2048 bytes are 2k" "$(turns -s 2k app.log)" yes
sized 2048; is "2048 bytes are 2K" "$(turns -s 2K app.log)" yes
sized 1048575; is "just below 1M" "$(turns -s 1M app.log)" no
sized 1048576; is "1m" "$(turns -s 1m app.log)" yes
sized 1048576; is "far below 3G" "$(turns -s 3G app.log)" no
sized 1048576; is "nor 8g, which is more than 32 bits" "$(turns -s 8g app.log)" no

for bad in k 0k 1kk 1.5k 1T "1 k" kB; do
  sized 10
  is "-s '$bad' is refused" "$(turns -s "$bad" app.log)" "failed with 2
no"
done

sized 2047
printf 'app.log\tsize=2k\n' >list
is "a list: less than 2k" "$(turns -c list)" no
sized 2048
printf 'app.log\tsize=2k keep=3\n' >list
is "a list: 2k" "$(turns -c list)" yes

for bad in size=1x size= size=0 keep=x keep=0 keep= keep=2k 'size=*'; do
  fresh
  echo new >a.log
  echo new >b.log
  printf 'a.log\t%s\nb.log\n' "$bad" >list
  message=$("$logturn" -c list 2>&1)
  status=$?
  rm list
  is "a list: $bad is a mistake, and the next line is read" "$status $message $(files)" \
    "2 logturn: a.log: what is $bad? a.log=new
b.log=
b.log.1=new"
done

fresh
echo new >a.log
echo new >c.log
printf 'a.log\tkeep=x\n' >list
"$logturn" -c list c.log 2>/dev/null
is "files of the command line are turned all the same" "$? $(ls | tr '\n' ' ')" \
  "2 a.log c.log c.log.1 list "

fresh
echo new >a.log
printf 'a.log\n' >list
"$logturn" -c list
is "without a mistake the status is 0" "$?" 0

finish
