#!/bin/bash
# What test scripts fetch from the network, for verifiers that have none. One file under many names:
# curl, wget, apt, apt-get, uv, uvx, pip, pip3, pytest, python, python3. The kit is read-only, and
# its Python brings its own C library, so that it runs in every image.
kit=/opt/verifier-kit
name=${0##*/}
say() { printf 'verifier kit: %s\n' "$*" >&2; }
real() { # the program of the image, which the kit's own stand before
  local folder IFS=:
  for folder in $PATH; do
    case $folder in "$kit"/*) continue ;; esac
    [ -x "$folder/$1" ] && { printf '%s' "$folder/$1"; return; }
  done
  return 1
}
python() {
  local version=$kit/python
  exec "$version/lib/ld.so" --library-path "$version/lib" --argv0 "$version/bin/python3" \
    "$version/bin/python" "$@"
}
environment() { printf '%s' "${VIRTUAL_ENV:-$PWD/.venv}"; }
# Runs a command with packages: those of a set that was made for exactly these, or made now.
with_packages() { # FILE-WITH-REQUIREMENTS COMMAND ARGUMENTS...
  local wanted set found='' command=$2
  wanted=$(sort -u "$1")
  shift 2
  for set in "$kit"/sets/*/; do
    if [ "$(cat "$set/requirements.txt")" = "$wanted" ]; then found=${set%/}; break; fi
  done
  if [ -z "$found" ]; then
    found=$(mktemp -d)
    local words=()
    mapfile -t words <<<"$wanted"
    if ! (PYTHONPATH=$kit/pip python -m pip install --quiet --no-index --find-links "$kit/wheels" \
      --no-warn-script-location --root-user-action ignore --target "$found" "${words[@]}"); then
      say "it has not all of ${words[*]}; add them with: pytest-intercode kit ${words[*]}"
      exit 2
    fi
  fi
  export PYTHONPATH=$found PYTHONDONTWRITEBYTECODE=1 PATH=$kit/fallback:$PATH
  case $command in
  pytest | py.test) python -m pytest "$@" ;;
  python | python3 | python3.*) python "$@" ;;
  *)
    if [ -f "$found/bin/$command" ]; then python "$found/bin/$command" "$@"; fi
    exec "$command" "$@"
    ;;
  esac
}
require() { # adds requirements to those of an environment
  local folder=$1 word skip=''
  shift
  mkdir -p "$folder/bin"
  for word in "$@"; do
    if [ "$skip" ]; then skip=''; continue; fi
    case $word in
    -p | --python | -i | --index-url | --extra-index-url | -c | -f | --find-links | --index | -t | \
      --target | --index-strategy | --group) skip=yes ;;
    -r | --requirement) skip=yes; say "requirement files are not read" ;;
    -*) ;;
    *) printf '%s\n' "$word" >>"$folder/requirements.txt" ;;
    esac
  done
  activate "$folder"
}
activate() { # makes the programs of an environment
  local folder program
  mkdir -p "$1/bin"
  folder=$(cd "$1" && pwd)
  printf 'export VIRTUAL_ENV=%q PATH=%q:"$PATH"\ndeactivate() { :; }\n' "$folder" "$folder/bin" \
    >"$folder/bin/activate"
  touch "$folder/requirements.txt"
  for program in python python3 pytest; do
    printf '#!/bin/bash\nVIRTUAL_ENV=%q exec %q run %q "$@"\n' "$folder" "$kit/bin/uv" "$program" \
      >"$folder/bin/$program"
    chmod 755 "$folder/bin/$program"
  done
}
run() { # uvx, uv run, uv tool run
  local wanted word
  wanted=$(mktemp)
  [ ! -f "$(environment)/requirements.txt" ] || [ "$1" = --alone ] || cat "$(environment)/requirements.txt" >"$wanted"
  [ "$1" != --alone ] || shift
  while [ $# -gt 0 ]; do
    case $1 in
    -w | --with | --from) tr , '\n' <<<"$2" >>"$wanted"; shift 2 ;;
    --with=* | --from=*) tr , '\n' <<<"${1#*=}" >>"$wanted"; shift ;;
    -p | --python | --directory | --project | --index | --index-url | --extra-index-url | \
      --index-strategy | --env-file) shift 2 ;;
    --) shift; break ;;
    -*) shift ;;
    *) break ;;
    esac
  done
  [ $# -gt 0 ] || { say "$name run: a command is needed"; exit 2; }
  word=${1%%@*}
  # What is run is a package itself, unless it came with the others.
  if [ "$word" = pytest ] && ! grep -qiE '^pytest([^A-Za-z0-9_-]|$)' "$wanted"; then
    echo "${1/@/==}" >>"$wanted"
  fi
  shift
  with_packages "$wanted" "$word" "$@"
}
install_uv() { # what the script that is fetched does
  cat <<'END'
mkdir -p "$HOME/.local/bin" && rm -rf "$HOME/.local/bin/env" "$HOME/.local/bin/uv" "$HOME/.local/bin/uvx"
echo 'export PATH="/opt/verifier-kit/bin:$PATH"' >"$HOME/.local/bin/env"
END
}
fetch() {
  local program
  case "$*" in
  *astral.sh/uv* | *astral-sh/uv*) install_uv; exit ;;
  esac
  if program=$(real "$name"); then exec "$program" "$@"; fi
  if [ "$name" = curl ] && [ -x "$kit/python/bin/curl" ]; then
    exec "$kit/python/lib/ld.so" --library-path "$kit/python/lib" "$kit/python/bin/curl" "$@"
  fi
  say "there is no $name here, and no network"
  exit 6
}
packages() { # apt: what is there already is installed
  local word installs='' missing=()
  for word in "$@"; do
    case $word in
    install) installs=yes ;;
    -*) ;;
    *)
      [ "$installs" ] || continue
      case ${word%%[=:/]*} in
      curl | ca-certificates | python3-pip | python3-venv | python3 | wget) continue ;;
      esac
      dpkg-query -W -f '${Status}' "${word%%[=:/]*}" 2>/dev/null | grep -q 'ok installed' ||
        missing+=("${word%%[=:/]*}")
      ;;
    esac
  done
  [ ${#missing[@]} = 0 ] && exit 0
  say "the image lacks the packages ${missing[*]}, and there is no network"
  exit 100
}
case $name in
curl | wget) fetch "$@" ;;
apt | apt-get) packages "$@" ;;
uvx) run --alone "$@" ;;
uv)
  while [[ ${1:-} == -* ]]; do shift; done
  command=${1:-}
  shift
  case $command in
  init | sync | lock | python | self | cache) exit 0 ;;
  venv)
    folder=.venv
    while [ $# -gt 0 ]; do
      case $1 in
      -p | --python) shift ;;
      -*) ;;
      *) folder=$1 ;;
      esac
      shift
    done
    rm -rf "$folder"
    activate "$folder"
    ;;
  add) require "$PWD/.venv" "$@" ;;
  pip)
    action=${1:-}
    shift
    [ "$action" = install ] || exit 0
    require "$(environment)" "$@"
    ;;
  run) run "$@" ;;
  tool)
    action=${1:-}
    shift
    [ "$action" = run ] && run --alone "$@"
    ;;
  *) say "uv $command is not known"; exit 2 ;;
  esac
  ;;
pip | pip3)
  if program=$(real "$name"); then exec "$program" "$@"; fi
  [ "${1:-}" = install ] || exit 0
  shift
  require /tmp/.verifier-kit "$@"
  ;;
pytest | python | python3)
  if program=$(real "$name"); then exec "$program" "$@"; fi
  if [ "$name" != pytest ] && [ "${1:-} ${2:-} ${3:-}" = "-m pip install" ]; then
    shift 3
    require /tmp/.verifier-kit "$@"
    exit
  fi
  VIRTUAL_ENV=/tmp/.verifier-kit run "$name" "$@"
  ;;
*) say "$name is not known"; exit 2 ;;
esac
