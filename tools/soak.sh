#!/usr/bin/env bash
# Runs every test that knows a longer version of itself, in full: the tests read
# HANDSEL_SOAK (clause C16).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export HANDSEL_SOAK=1
mapfile -t packages < <(bash tools/tagged.sh -w HANDSEL_SOAK)
((${#packages[@]})) || {
  echo 'no package has a test that reads HANDSEL_SOAK' >&2
  exit 1
}
go test -count=1 -p 1 -timeout 3h -v "${packages[@]}"
mapfile -t packages < <(bash tools/tagged.sh failpoint | grep -Fx -f <(printf '%s\n' "${packages[@]}") || true)
((${#packages[@]} == 0)) || go test -tags failpoint -count=1 -p 1 -timeout 3h -v "${packages[@]}"
