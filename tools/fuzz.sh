#!/usr/bin/env bash
# Runs every fuzz target for FUZZTIME, one after the other.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

found=0
while IFS=: read -r file target; do
  found=1
  printf '=== %s in %s\n' "$target" "$(dirname "$file")"
  go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-20s}" "./$(dirname "$file")"
done < <(grep -rEo --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]+' . |
  sed -e 's|^\./||' -e 's/:func /:/')
((found)) || {
  echo 'there is no fuzz target' >&2
  exit 1
}
