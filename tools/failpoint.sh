#!/usr/bin/env bash
# Runs the tests for the failpoint build in that build (docs/reference has the
# seams; clause C16). The others have nothing that the race step did not run.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mapfile -t packages < <(bash tools/tagged.sh failpoint)
((${#packages[@]})) || {
  echo 'no package has a test for the failpoint build' >&2
  exit 1
}
unset HANDSEL_BIN # the tests must use their own build, which has the failpoints
CGO_ENABLED=0 go test -tags failpoint -count=1 -timeout 10m -run "$(bash tools/tagged.sh -t failpoint)" "${packages[@]}"
