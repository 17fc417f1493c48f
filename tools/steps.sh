#!/usr/bin/env bash
# Runs the steps of `make test` one after the other, all of them even when one
# fails, and ends with a table of what each took. Fails when any step failed.
set -euo pipefail

# Whoever started us in the background may have left SIGINT ignored; the tests
# send it, and their stand-ins must not inherit deafness. A shell cannot undo it.
if [ "${1:-}" != --plainly ] && env --default-signal true 2>/dev/null; then
  exec env --default-signal bash "$0" --plainly
fi

read -ra steps <<<"${STEPS:?}"
table=()
failed=()
began=$SECONDS

for step in "${steps[@]}"; do
  printf '\n=== %s\n' "$step"
  start=$SECONDS
  if "${MAKE:-make}" --no-print-directory "$step" </dev/null; then
    verdict=ok
  else
    verdict=FAILED
    failed+=("$step")
  fi
  took=$((SECONDS - start))
  printf '=== %s: %s after %d s\n' "$step" "$verdict" "$took"
  table+=("$(printf '%-12s %-6s %5d s' "$step" "$verdict" "$took")")
done

printf '\n%-12s %-6s %5s\n' step '' took
printf '%s\n' "${table[@]}"
printf '%-12s %-6s %5d s\n' all '' "$((SECONDS - began))"

if ((${#failed[@]})); then
  printf '\nfailed: %s\n' "${failed[*]}" >&2
  exit 1
fi
