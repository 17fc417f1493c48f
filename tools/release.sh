#!/usr/bin/env bash
# Runs the script suite on the release build, and
# checks that this build has neither failpoints nor the seam to a false world
# (clause C16).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=$(realpath "$1")
for seam in HANDSEL_TEST_SYS HANDSEL_FAILPOINT; do
  if grep -qa "$seam" "$bin"; then
    printf '%s: a release build must not know %s\n' "$1" "$seam" >&2
    exit 1
  fi
done

# What else drives an executable, the acceptance tests, ran as root on a build of
# the same code in the race step, and runs on this one in the next.
HANDSEL_BIN=$bin CGO_ENABLED=0 go test -count=1 -timeout 10m ./internal/cli
