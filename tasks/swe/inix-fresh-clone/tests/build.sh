# Builds copies of the project in several ways.
top=$(pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
count=0
failed=0
unset MAKEFLAGS MFLAGS MAKELEVEL

is() {
  count=$((count + 1))
  if [ "$2" = "$3" ]; then
    echo "ok $count build: $1"
  else
    failed=1
    echo "not ok $count build: $1"
    printf '%s\n' "got: $2" "wanted: $3" | sed 's/^/# /'
  fi
}

# fresh: a copy of what a clone would have
fresh() {
  rm -rf "$folder/copy"
  mkdir "$folder/copy"
  (cd "$top" && tar cf - --exclude=.git --exclude=version.h --exclude='*.[oa]' --exclude=./iniget .) |
    tar xf - -C "$folder/copy"
  cd "$folder/copy" || exit 1
}

version() {
  ./iniget --version 2>&1
}

fresh
make -s libinix.a >log 2>&1
is "the library" "$?" 0

fresh
make -s >log 2>&1
is "make" "$?" 0
is "the program says its version" "$(version)" "iniget $(cat VERSION)"

fresh
make -s iniget >log 2>&1
is "make iniget" "$? $(version)" "0 iniget $(cat VERSION)"

fresh
make -s -j8 iniget >log 2>&1
first="$? $(version)"
fresh
make -s -j8 >log 2>&1
is "make -j8, with and without iniget" "$first, $? $(version)" \
  "0 iniget $(cat VERSION), 0 iniget $(cat VERSION)"

fresh
make -s iniget.o >log 2>&1
is "make iniget.o" "$?" 0

fresh
make -s >log 2>&1
sleep 0.02
echo 7.7 >VERSION
make -s >log 2>&1
is "another version" "$(version)" "iniget 7.7"

fresh
make -s >log 2>&1
make -s clean
make -s -j8 iniget >log 2>&1
is "make clean and make -j8 iniget" "$? $(version)" "0 iniget $(cat VERSION)"

fresh
printf 'a = 1\n' >a.ini
make -s >log 2>&1
is "the program works" "$(./iniget a.ini 2>&1)" "a=1"

echo "1..$count"
exit $failed
