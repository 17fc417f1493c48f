#!/usr/bin/env bash
# Gives the demo handsels that cheat, each in one thing, and fails when the demo
# does not notice, or notices something else. Usage: demo-proves.sh HANDSEL
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=$(realpath "${1:-bin/handsel}")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
go build -o "$scratch/demo" ./examples/demo

# shown STEP runs the demo, from that step on, with the handsel in scratch.
shown() {
  local status=0
  timeout 120 "$scratch/demo" -from "$1" -handsel "$scratch/handsel" >"$scratch/said" 2>&1 || status=$?
  if ((status == 124)); then
    cat "$scratch/said"
    echo 'the demo hangs' >&2
    exit 1
  fi
  return "$status"
}

# installed reads the cheat from stdin; in it, $real is the handsel that is not one.
installed() {
  printf '#!/bin/sh\nreal=%q\n' "$bin" >"$scratch/handsel"
  cat >>"$scratch/handsel"
  chmod 755 "$scratch/handsel"
}

# notices STEP CHEAT WORDS: the demo fails and says why, in these words.
notices() {
  installed
  if shown "$1"; then
    cat "$scratch/said"
    printf 'the demo passes with a handsel that %s: it proves nothing\n' "$2" >&2
    exit 1
  fi
  if ! grep -q "^demo failed: .*$3" "$scratch/said"; then
    cat "$scratch/said"
    printf 'the demo fails with a handsel that %s, and not for that\n' "$2" >&2
    exit 1
  fi
  printf 'noticed, a handsel that %s: %s\n' "$2" "$(grep '^demo failed: ' "$scratch/said")"
}

notices 1 'only runs its command, as if there were no caps at all' 'waited in vain for: claude to be admitted' <<'SH'
while [ $# -gt 0 ]; do
  if [ "$1" = -- ]; then
    shift
    exec "$@"
  fi
  shift
done
SH

# What is left alone must be shown as it is, or what follows would prove nothing.
installed <<'SH'
exec "$real" "$@"
SH
if ! shown 4; then
  cat "$scratch/said"
  echo 'the demo fails with a handsel that does not cheat' >&2
  exit 1
fi

notices 4 'says that a lane was handed over and keeps it not' '0 lanes wait of the 3' <<'SH'
if [ "$1" = enqueue ]; then
  echo "$2 01930000-0000-7000-8000-000000000000"
  exit 0
fi
exec "$real" "$@"
SH

notices 4 'lets the last lane go first' 'lane tests stands in the place of review' <<'SH'
if [ "$1 $2" = 'enqueue tests' ]; then
  shift 2
  set -- enqueue tests --priority 5 "$@"
fi
exec "$real" "$@"
SH

notices 4 'forgets what waits when it is killed' '0 lanes wait of the 3 that were accepted before the kill' <<'SH'
if [ "$*" = dispatch ]; then
  rm -f "$HANDSEL_HOME"/handsel.db*
fi
exec "$real" "$@"
SH

notices 4 'stops and starts where it should hand over' 'a third process got lane' <<'SH'
if [ "$*" = 'dispatch takeover' ]; then
  "$real" dispatch stop
  exec "$real" dispatch
fi
exec "$real" "$@"
SH

notices 4 'does not know the agent of a killed driver' 'not for the agent that lives in the lane' <<'SH'
if [ "$*" = 'run --wait 0 --lane review -- pi' ]; then
  : >"$HANDSEL_HOME/lanes/review.lock"
fi
exec "$real" "$@"
SH

notices 4 'says that it cancelled and did nothing' 'waited in vain for: the agent of lane review to be gone' <<'SH'
if [ "$1" = cancel ]; then
  exit 0
fi
exec "$real" "$@"
SH

notices 4 'runs an agent twice' 'the agents began in the order .*codex gemini codex' <<'SH'
if [ "$1" = wait ]; then
  "$real" "$@" || exit
  exec codex
fi
exec "$real" "$@"
SH
