. "$(dirname "$0")/tap.sh"

fresh
echo new >"my app.log"
echo older >"my app.log.1"
echo other >my
"$logturn" "my app.log"
is "blanks" "$(files)" "my=other
my app.log=
my app.log.1=new
my app.log.2=older"

fresh
mkdir "var  log"
echo new >"var  log/app.log"
"$logturn" "var  log/app.log"
is "two blanks, in a folder" "$(cat "var  log/app.log.1" 2>&1)" new

fresh
echo star >'*.log'
echo other >app.log
echo third >b.log
"$logturn" '*.log'
is "a star is a star" "$(files)" "*.log=
*.log.1=star
app.log=other
b.log=third"

fresh
echo new >-k.log
echo older >-k.log.1
"$logturn" -- -k.log
is "a leading dash" "$(files)" "-k.log=
-k.log.1=new
-k.log.2=older"

fresh
echo new >'a\nb$HOME"c.log'
"$logturn" 'a\nb$HOME"c.log'
is "what a shell finds special" "$(files)" 'a\nb$HOME"c.log=
a\nb$HOME"c.log.1=new'

fresh
line='two
lines.log'
echo new >"$line"
"$logturn" "$line"
is "a line end" "$(cat "$line.1" 2>&1)" new

fresh
echo x >"a b"
echo y >c
"$logturn" "a b" c
is "several files, one with a blank" "$(files)" "a b=
a b.1=x
c=
c.1=y"

fresh
echo x >a
"$logturn" "" a
is "an empty name is no file" "$? $(files)" "0 a=
a.1=x"

finish
