#!/usr/bin/env bash
# Gives the demo a handsel that only runs its command, as if there were no caps
# at all, and fails when the demo does not notice.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cat >"$scratch/handsel" <<'SH'
#!/bin/sh
while [ $# -gt 0 ]; do
  if [ "$1" = -- ]; then
    shift
    exec "$@"
  fi
  shift
done
SH
chmod 755 "$scratch/handsel"

status=0
timeout 120 go run ./examples/demo -handsel "$scratch/handsel" >"$scratch/said" 2>&1 || status=$?
if ((status == 0)); then
  cat "$scratch/said"
  echo 'the demo passes with a handsel that only runs its command: it proves nothing' >&2
  exit 1
fi
if ((status == 124)); then
  cat "$scratch/said"
  echo 'the demo hangs with a handsel that only runs its command' >&2
  exit 1
fi
printf 'the demo refuses a handsel that only runs its command: %s\n' "$(grep -v '^exit status' "$scratch/said" | tail -n 1)"
