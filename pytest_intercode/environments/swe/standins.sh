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
shared=/tmp/.verifier-kit # the environment of those that install without one
# What environments have is noted where nobody could put anything before the tests began.
export VERIFIER_KIT_STATE=${VERIFIER_KIT_STATE:-$(mktemp -d)}
note_of() { printf '%s/%s' "$VERIFIER_KIT_STATE" "${1//\//%}"; } # the requirements of a folder
environment() { printf '%s' "${VIRTUAL_ENV:-$PWD/.venv}"; }
# Runs a command with packages: those of a set that was made for exactly these, or made now.
with_packages() { # FILE-WITH-REQUIREMENTS COMMAND ARGUMENTS...
  local wanted set found='' command=$2
  wanted=$(LC_ALL=C sort -u "$1")
  shift 2
  for set in "$kit"/sets/*/; do
    if [ "$(cat "$set/requirements.txt")" = "$wanted" ]; then found=${set%/}; break; fi
  done
  if [ -z "$found" ] && [ "$wanted" ]; then
    found=$(mktemp -d)
    local words=()
    mapfile -t words <<<"$wanted"
    if ! (PYTHONPATH=$kit/pip python -m pip install --quiet --no-index --find-links "$kit/wheels" \
      --no-warn-script-location --root-user-action ignore --target "$found" "${words[@]}"); then
      say "it has not all of ${words[*]}; add them with: pytest-intercode kit ${words[*]}"
      exit 2
    fi
  fi
  # Read by the kit's Python alone. What the caller has in PYTHONPATH stays, and comes before it.
  export VERIFIER_KIT_PACKAGES=$found PYTHONDONTWRITEBYTECODE=1 PATH=$kit/fallback:$PATH
  case $command in
  pytest | py.test) python -m pytest "$@" ;;
  python | python3 | python3.*) python "$@" ;;
  *)
    if [ -f "$found/bin/$command" ]; then python "$found/bin/$command" "$@"; fi
    exec "$command" "$@"
    ;;
  esac
}
words_of() { # puts what words of a command line mean into the array `meant`
  local word
  meant=()
  while IFS= read -r -d '' word; do meant+=("$word"); done < <(python -I "$kit/requirements.py" "$@")
}
require() { # adds requirements to those of an environment
  local folder=$1
  shift
  words_of install "$@"
  activate "$folder"
  [ ${#meant[@]} = 0 ] || printf '%s\n' "${meant[@]}" >>"$(note_of "$(cd "$folder" && pwd)")"
}
activate() { # makes the programs of an environment
  local folder program
  mkdir -p "$1/bin"
  folder=$(cd "$1" && pwd)
  rm -rf "$folder/bin/activate"
  printf 'export VIRTUAL_ENV=%q PATH=%q:"$PATH"\ndeactivate() { :; }\n' "$folder" "$folder/bin" \
    >"$folder/bin/activate"
  for program in 'python run python' 'python3 run python3' 'pytest run pytest' 'pip pip' 'pip3 pip'; do
    rm -rf "$folder/bin/${program%% *}"
    printf '#!/bin/bash\nVIRTUAL_ENV=%q exec %q %s "$@"\n' "$folder" "$kit/bin/uv" "${program#* }" \
      >"$folder/bin/${program%% *}"
    chmod 755 "$folder/bin/${program%% *}"
  done
}
make_environment() { # uv venv, python -m venv
  local folder=.venv
  while [ $# -gt 0 ]; do
    case $1 in
    -p | --python | --prompt) shift ;;
    -*) ;;
    *) folder=$1 ;;
    esac
    shift
  done
  rm -rf "$folder"
  activate "$folder"
  rm -f "$(note_of "$(cd "$folder" && pwd)")"
}
install() { # ENVIRONMENT, and the words behind pip install or uv pip install
  local folder=$1 program
  shift
  case " $* " in
  *" --system "*) # into the Python of the image, if it has one
    if program=$(real pip3) || program=$(real pip); then
      words_of install "$@"
      PIP_BREAK_SYSTEM_PACKAGES=1 exec "$program" install "${meant[@]}"
    fi
    require "$shared" "$@"
    ;;
  *) require "$folder" "$@" ;;
  esac
}
run() { # run or tool, and the words of uv run or uvx
  local wanted count
  words_of "$@"
  count=${meant[1]}
  local command=("${meant[@]:2+count}")
  [ ${#command[@]} -gt 0 ] || { say "$name $1: a command is needed"; exit 2; }
  case ${command[*]:0:3} in
  python*' -m pip') pip "${command[@]:3}"; exit ;;
  python*' -m venv') make_environment "${command[@]:3}"; exit ;;
  esac
  wanted=$(mktemp)
  [ "$count" = 0 ] || printf '%s\n' "${meant[@]:2:count}" >"$wanted"
  if [ "${meant[0]}" = project ]; then
    local note
    note=$(note_of "$(environment)")
    [ ! -f "$note" ] || cat "$note" >>"$wanted"
    # What is run is a package itself, unless it came with the others.
    case ${command[0]} in
    pytest | py.test) grep -qiE '^pytest([^A-Za-z0-9_-]|$)' "$wanted" || echo pytest >>"$wanted" ;;
    esac
  fi
  with_packages "$wanted" "${command[@]}"
}
pip() {
  while [[ ${1:-} == -* ]]; do shift; done
  [ "${1:-}" = install ] || exit 0
  install "$(environment)" "${@:2}"
}
tool() { # uv tool
  local action=${1:-} folder program
  shift
  case $action in
  run) run tool "$@" ;;
  install)
    require "$shared" "$@"
    words_of install "$@"
    program=${meant[0]%%[!A-Za-z0-9._-]*}
    folder=$HOME/.local/bin
    mkdir -p "$folder"
    printf '#!/bin/bash\nVIRTUAL_ENV=%q exec %q run %q "$@"\n' "$shared" "$kit/bin/uv" "$program" \
      >"$folder/$program"
    chmod 755 "$folder/$program"
    ;;
  esac
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
uvx) run tool "$@" ;;
uv)
  while [[ ${1:-} == -* ]]; do
    case $1 in
    --directory | --project | --cache-dir | --config-file | --color) shift ;;
    --version | -V) echo "uv 0.0.0 (verifier kit)"; exit ;;
    esac
    shift
  done
  command=${1:-}
  shift
  case $command in
  init | sync | lock | python | self | cache | version) exit 0 ;;
  venv) make_environment "$@" ;;
  add) require "$PWD/.venv" "$@" ;;
  pip) pip "$@" ;;
  run) run run "$@" ;;
  tool) tool "$@" ;;
  *) say "uv $command is not known"; exit 2 ;;
  esac
  ;;
pip | pip3)
  if program=$(real "$name"); then exec "$program" "$@"; fi
  VIRTUAL_ENV=$shared pip "$@"
  ;;
pytest | python | python3)
  if program=$(real "$name"); then exec "$program" "$@"; fi
  VIRTUAL_ENV=$shared run run -- "$name" "$@"
  ;;
*) say "$name is not known"; exit 2 ;;
esac
