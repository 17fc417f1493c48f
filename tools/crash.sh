#!/usr/bin/env bash
# Plays the whole crash matrix (clause L25): every failpoint in the code, alone
# and in pairs, and prints how many cases there were and how many of them fired.
# It takes hours of one machine; HANDSEL_CRASH=2/8 plays the second of eight
# parts of the pairs, HANDSEL_CRASH=500 that many of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export HANDSEL_CRASH=${HANDSEL_CRASH:-all}
unset HANDSEL_BIN # the tests must use their own build, which has the failpoints
log=$(mktemp)
trap 'rm -f "$log"' EXIT
CGO_ENABLED=0 go test -tags failpoint -count=1 -timeout 12h -v -run '^TestSeamCrash$' ./internal/acceptance/ >"$log" 2>&1 || {
  grep -vE '^ *(=== |--- PASS)' "$log" >&2
  exit 1
}
grep -o '[0-9]* failpoints in the code;.*' "$log"
