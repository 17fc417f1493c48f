#!/usr/bin/env bash
# Runs the tests that drive a handsel executable on the release build, and
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

mapfile -t packages < <(bash tools/tagged.sh -w HANDSEL_BIN)
((${#packages[@]})) || {
  echo 'no package has a test that reads HANDSEL_BIN' >&2
  exit 1
}
HANDSEL_BIN=$bin CGO_ENABLED=0 go test -count=1 -timeout 10m "${packages[@]}"
