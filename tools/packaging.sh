#!/usr/bin/env bash
# Checks the files of packaging/.
#
#	tools/packaging.sh verify BINARY     systemd's own judgement of the units, and
#	                                     that it would notice a wrong one
#	tools/packaging.sh activate BINARY   starts `BINARY dispatch` as a systemd socket
#	                                     unit does, by a connection, and asks it
#
# Needs systemd's programs, no systemd that runs. None of this is a run under a
# real user manager. What is missing is installed, or named as missing; nothing is
# skipped.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
  printf 'packaging: %s\n' "$*" >&2
  exit 1
}

# need COMMAND PACKAGE
need() {
  command -v "$1" >/dev/null && return
  command -v apt-get >/dev/null || die "$1 is missing, and there is no apt-get to install $2 with"
  [ "$(id -u)" = 0 ] || die "$1 is missing, and only root can install it: apt-get install $2"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq </dev/null || die "apt-get update does not work; missing: $2"
  apt-get install -y -qq --no-install-recommends "$2" </dev/null >/dev/null || die "cannot install the package $2"
  command -v "$1" >/dev/null || die "$2 is installed, and $1 is still not there"
  printf 'packaging: installed %s\n' "$2"
}

scratch=$(mktemp -d /tmp/handsel-packaging.XXXXXX)
pids=()
cleanup() {
  local pid
  for pid in "${pids[@]}"; do
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$scratch"
}
trap cleanup EXIT

# judged UNIT... prints what systemd has to say of units, of the system or of a
# user as their directory says; nothing is what it says of good ones.
judged() {
  local how=()
  [[ $1 == */user/* ]] && how=(--user)
  XDG_RUNTIME_DIR="$scratch/runtime" systemd-analyze "${how[@]}" --man=no verify "$@" 2>&1 ||
    printf 'systemd-analyze verify ended with status %d\n' "$?"
}

verify() {
  local binary=$1 unit said
  need systemd-analyze systemd
  mkdir -m 700 "$scratch/runtime"
  cp -R packaging/systemd/. "$scratch/"
  # An instance of each template, and the executable that was just built.
  for unit in "$scratch"/*/*@.*; do
    mv "$unit" "${unit/@./@root.}"
  done
  sed -i "s|^ExecStart=handsel |ExecStart=$binary |" "$scratch"/*/*.service

  for unit in user system; do
    said=$(judged "$scratch/$unit"/*)
    [ -z "$said" ] || die "systemd on the units of $unit: $said"
    printf 'packaging: systemd has nothing to say of %s\n' "$(cd "$scratch/$unit" && echo *)"
  done

  sed -i 's/^KillMode=/KillMod=/' "$scratch/user/handsel.service"
  said=$(judged "$scratch/user/handsel.service")
  [[ $said == *KillMod* ]] || die "a misspelled key went unnoticed: $said"
}

# until_true COMMAND... waits for a condition, for 20 s at most.
until_true() {
  local _
  for _ in {1..400}; do
    "$@" && return
    sleep 0.05
  done
  return 1
}

bound() { [ -S "$home/handoff.sock" ] && [ -S "$home/api.sock" ]; }
notified() { grep -q "^$1\$" "$scratch/notified"; }
ended() { ! kill -0 "$1" 2>/dev/null; }

activate() {
  local binary=$1 home="$scratch/home" activator said
  need systemd-socket-activate systemd
  command -v python3 >/dev/null || die 'python3 is missing'
  mkdir -m 700 "$home"
  printf '[admission]\nmode = "dispatcher"\n' >"$scratch/config.toml"
  chmod 600 "$scratch/config.toml"
  export HANDSEL_HOME=$home HANDSEL_CONFIG=$scratch/config.toml

  # What systemd would be told.
  : >"$scratch/notified"
  python3 -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(s.recv(4096).decode(), flush=True)
' "$scratch/notify" >"$scratch/notified" &
  pids+=($!)
  until_true test -S "$scratch/notify" || die 'nobody listens to notifications'

  systemd-socket-activate --fdname=handoff:api \
    -l "$home/handoff.sock" -l "$home/api.sock" \
    -E "HANDSEL_HOME=$home" -E "HANDSEL_CONFIG=$HANDSEL_CONFIG" -E "NOTIFY_SOCKET=$scratch/notify" \
    "$binary" dispatch 2>"$scratch/log" &
  activator=$!
  pids+=("$activator")
  until_true bound || die "systemd-socket-activate does not listen: $(cat "$scratch/log")"
  [ ! -e "$home/dispatch.json" ] || die 'a dispatcher runs before anybody connected'

  said=$("$binary" dispatch status) || die "dispatch status: $said: $(cat "$scratch/log")"
  printf '%s\n' "$said"
  # It became what the activator was, and serves the very sockets it was given.
  grep -q "\"pid\": *$activator\\b" "$home/dispatch.json" ||
    die "another process than the one that was started answers: $(cat "$home/dispatch.json")"
  until_true notified READY=1 || die 'systemd was not told that it is ready'
  "$binary" dispatch stop || die 'dispatch stop does not work'
  until_true ended "$activator" || die 'the dispatcher is still there after dispatch stop'
  until_true notified STOPPING=1 || die 'systemd was not told that it stops'
  bound || die 'the dispatcher took sockets away that are systemd'\''s'
  printf 'packaging: started by a connection, answered, stopped\n'
}

[ $# = 2 ] || die 'usage: tools/packaging.sh verify|activate BINARY'
[ -x "$2" ] || die "there is no $2: make build"
case $1 in
  verify) verify "$(realpath "$2")" ;;
  activate) activate "$(realpath "$2")" ;;
  *) die "unknown part: $1" ;;
esac
