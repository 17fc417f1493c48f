#!/usr/bin/env bash
# Builds everything and vets it, tests included, for each platform we name.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CGO_ENABLED=0
for platform in linux/amd64 linux/arm64 darwin/arm64 windows/amd64; do
  start=$SECONDS
  export GOOS=${platform%/*} GOARCH=${platform#*/}
  go build ./...
  go vet ./...
  go vet -tags failpoint ./...
  printf '%s: ok after %d s\n' "$platform" "$((SECONDS - start))"
done
