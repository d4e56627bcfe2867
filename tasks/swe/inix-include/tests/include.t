# Files that include others.
program=$(pwd)/iniget
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
ulimit -n 64
count=0
failed=0

is() {
  count=$((count + 1))
  if [ "$2" = "$3" ]; then
    echo "ok $count include: $1"
  else
    failed=1
    echo "not ok $count include: $1"
    printf '%s\n' "got: $2" "wanted: $3" | sed 's/^/# /'
  fi
}

# runs ARGUMENT...: output, errors and status of the program
runs() {
  "$program" "$@" 2>&1
  echo "$?"
}

mkdir -p etc/parts "etc/two  words"
cat >etc/main.ini <<'EOF'
top = 1
[server]
port = 80
!include parts/common.ini   ; a comment
name = main
EOF
cat >etc/parts/common.ini <<'EOF'
level = common
[server]
port = 8080
[log]
file = x
!include deeper.ini
EOF
printf 'top = 2\n[log]\nfile = y' >etc/parts/deeper.ini

is "a file, from elsewhere" "$(runs etc/main.ini)" "top=2
server.port=8080
level=common
log.file=y
server.name=main
0"
is "a file, from its own folder" "$(cd etc && runs main.ini server name)" "main
0"
is "the section goes on behind it" "$(runs etc/main.ini log name)" 1
is "a file begins without a section" "$(runs etc/main.ini '' level)" "common
0"

printf '[a]\nx = 1\n!include parts/deeper.ini\n!include parts/deeper.ini\n[b]\n!include ./parts/deeper.ini\n' >etc/twice.ini
is "the same file more than once" "$(runs etc/twice.ini)" "a.x=1
top=2
log.file=y
0"

echo '!include "two  words/a;b.ini"' >etc/quoted.ini
echo 'q = 1' >"etc/two  words/a;b.ini"
is "a path in quotes" "$(runs etc/quoted.ini)" "q=1
0"
echo '!include two  words/c.ini' >etc/plain.ini
echo 'q = 2' >"etc/two  words/c.ini"
is "a path with blanks" "$(runs etc/plain.ini)" "q=2
0"

echo "!include $folder/etc/parts/deeper.ini" >absolute.ini
is "an absolute path" "$(runs absolute.ini '' top)" "2
0"
is "an absolute path is not looked for beside the file" "$(cd etc && runs ../absolute.ini)" "top=2
log.file=y
0"

printf '\n  !include\tparts/deeper.ini\r\n' >etc/tab.ini
is "blanks and tabs" "$(runs etc/tab.ini '' top)" "2
0"

printf 'a = 1\n\n!include parts/none.ini\n' >etc/missing.ini
is "a file that is not there" "$(runs etc/missing.ini)" \
  "iniget: etc/missing.ini:3: etc/parts/none.ini: No such file or directory
2"
printf '!include parts\n' >etc/folder.ini
is "a folder" "$(runs etc/folder.ini)" "iniget: etc/folder.ini:1: etc/parts: Is a directory
2"

printf '[ok]\nwrong\n' >etc/parts/bad.ini
printf 'a = 1\n!include parts/bad.ini\n' >etc/outer.ini
is "a mistake in it" "$(runs etc/outer.ini)" "iniget: etc/parts/bad.ini:2: this cannot be read
2"
printf '!include parts/deeper.ini\nwrong\n' >etc/after.ini
is "a mistake behind it" "$(runs etc/after.ini)" "iniget: etc/after.ini:2: this cannot be read
2"

printf 'a = 1\n!include self.ini\n' >etc/self.ini
is "itself" "$(runs etc/self.ini)" "iniget: etc/self.ini:2: a file cannot include itself
2"
echo '!include parts/../parts/b.ini' >etc/a.ini
echo '!include ../two  words/../a.ini' >etc/parts/b.ini
is "itself, by way of another" "$(runs etc/a.ini)" \
  "iniget: etc/parts/../parts/b.ini:1: a file cannot include itself
2"
ln -s link.ini etc/other.ini
echo '!include other.ini' >etc/link.ini
is "itself, by a link" "$(runs etc/link.ini)" "iniget: etc/link.ini:1: a file cannot include itself
2"

for line in '!include' '!include ""' '!includeparts/deeper.ini' '!exclude x' '!include "x'; do
  echo "$line" >etc/wrong.ini
  is "$line" "$(runs etc/wrong.ini)" "iniget: etc/wrong.ini:1: this cannot be read
2"
done

printf '!include = 1\n' >etc/key.ini
echo 'v = 2' >'etc/= 1'
is "it is no key" "$(runs etc/key.ini)" "v=2
0"

at=0
while [ $at -lt 200 ]; do
  echo '!include parts/deeper.ini'
  at=$((at + 1))
done >etc/many.ini
is "many in turn" "$(runs etc/many.ini '' top)" "2
0"

echo "1..$count"
exit $failed
