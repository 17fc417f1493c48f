#!/usr/bin/env bash
# Fails when gofmt would change a Go file of ours, and names it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

gofmt=$(go env GOROOT)/bin/gofmt
unformatted=$(find . \( -name .git -o -name node_modules -o -name .cache \) -prune -o -name '*.go' -print0 |
  xargs -0 "$gofmt" -l)
if [ -n "$unformatted" ]; then
  printf 'gofmt -w would change:\n%s\n' "$unformatted" >&2
  exit 1
fi
