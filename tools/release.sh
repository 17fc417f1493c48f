#!/usr/bin/env bash
# Checks that the release build runs, and that it has neither failpoints nor the
# seam to a false world (clause C16). The script suite and the acceptance tests
# run on this build in the next step, as an ordinary user; on a build of the same
# code they ran as root in the race step.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=$(realpath "$1")
for seam in HANDSEL_TEST_SYS HANDSEL_FAILPOINT; do
  if grep -qa "$seam" "$bin"; then
    printf '%s: a release build must not know %s\n' "$1" "$seam" >&2
    exit 1
  fi
done
"$bin" version
