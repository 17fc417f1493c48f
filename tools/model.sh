#!/usr/bin/env bash
# Checks the model of the handoff (docs/model, clause L26) with spin: what must
# hold is searched exhaustively, and each broken variant must have a
# counterexample, to the promise that is named here. Ends with a table, and fails
# naming what came out otherwise.
#
#	tools/model.sh            all of it
#	tools/model.sh NAME...    those, with the story of each counterexample
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

model=$PWD/docs/model/handoff.pml

# name, what is searched for, macros. `promises`: whatever breaks one. `cycles`:
# runs that never come to rest. `steps`: steps that are never taken, of which the
# other searches would then say nothing.
sound=(
  'handoff promises -DOFFERS=3 -DKILLS=2'
  'rest cycles -DOFFERS=2 -DKILLS=2'
  'steps steps -DOFFERS=2 -DKILLS=2'
  'slots promises -DOFFERS=2 -DKILLS=1 -DNEIGHBOUR'
  'patient promises -DOFFERS=2 -DKILLS=2 -DPATIENT'
)

# The promise that each variant breaks first, on the shortest way there is.
declare -A breaks=(
  [NO_TOKEN]='no old token is accepted'
  [UNLOCK]='a waiting row has its lane'
  [TRUST_ROW]='a waiting row has its lane'
  [SPAWN_FIRST]='never two agents in one lane'
  [DROP_ROW]='every row is accounted for'
  [ONE_LOOK]='a row is displaced by somebody who stays'
  [NO_ARBITER]='what has begun is never queued again'
  [EARLY_CLOSE]="the lane is ours from acceptance to the agent's end"
  [CLOSE_FIRST]='what has an outcome is not lost'
  [STALE_OUTCOME]='what has an outcome is not lost'
  [FREE_ONLY]='what lives is not lost'
  [NO_SEARCH]="the lane is ours from acceptance to the agent's end"
  [BELIEVE_NO]='what was refused is not queued'
  [ASK_IS_NO]='what was refused is not queued'
  [ANSWER_FIRST]='what was answered was committed'
  [RESTAMP]='start and priority never move'
  [LEAK]='no descriptor is left behind'
  [NO_DEADLINE]='every row is accounted for'
)

die() {
  printf 'model: %s\n' "$*" >&2
  exit 1
}

for tool in spin gcc; do
  command -v "$tool" >/dev/null || die "$tool is missing: bash tools/setup.sh installs it"
done

# variants prints the names that the model itself lists.
variants() { sed -n '/^ \* variants:/,/^ \*\//s/^ \* \([A-Z_]\{2,\}\) .*/\1/p' "$model"; }

known=$(variants | sort)
expected=$(printf '%s\n' "${!breaks[@]}" | sort)
[ "$known" = "$expected" ] ||
  die "the model's variants and those expected here differ: $(diff <(echo "$known") <(echo "$expected") | grep '^[<>]' | paste -sd ' ')"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# build DIR SPIN-FLAGS... -- CC-FLAGS...: makes DIR/pan. 1900 MB is all it may use.
build() {
  local dir=$1 flags=()
  shift
  while [ "$1" != -- ]; do
    flags+=("$1")
    shift
  done
  shift
  mkdir -p "$dir"
  (cd "$dir" && spin -a "${flags[@]}" "$model" >said 2>&1 &&
    gcc -w -DNOREDUCE -DMEMLIM=1900 "$@" -o pan pan.c) || {
    cat "$dir/said"
    return 1
  }
}

# figure DIR PATTERN: the number that pan says in the line that matches.
figure() { sed -n "s/^ *\\([0-9.e+]*\\)[ \\t]*$2.*/\\1/p" "$1/found" | head -n 1; }

# row NAME VERDICT DIR REMARK: a line of the table.
row() {
  local dir=$3
  printf '%-14s %-15s %9s %6s %5.0f MB %6.1f s  %s\n' "$1" "$2" "$(figure "$dir" 'states, stored')" \
    "$(sed -n 's/.*depth reached \([0-9]*\).*/\1/p' "$dir/found")" \
    "$(figure "$dir" 'total actual memory usage')" \
    "$(sed -n 's/.*elapsed time \([0-9.]*\).*/\1/p' "$dir/found")" "$4"
}

# surprise NAME WHAT: what makes the whole fail.
surprise() { printf '%s: %s\n' "$1" "$2" >>"$scratch/surprises"; }

# complete NAME DIR: tells whether pan searched all there is, without an error.
complete() {
  if ! grep -q '^Full statespace search' "$2/found" || ! grep -q 'errors: 0$' "$2/found" ||
    grep -qiE 'not completed|too small|out of memory|bitstate|hash-compact' "$2/found"; then
    surprise "$1" "the search was not exhaustive"
    cat "$2/found"
    return 1
  fi
}

# verify NAME KIND MACROS...: must have no error.
verify() {
  local name=$1 kind=$2 dir=$scratch/$1 cc=(-DSAFETY) run=()
  shift 2
  case $kind in
    cycles) cc=(-DNP) run=(-l) ;;
    steps) cc=(-DSAFETY -DBFS -DPRINTF) ;; # each step says its sentence
  esac
  build "$dir" "$@" -- -O2 "${cc[@]}" || {
    surprise "$name" 'it does not build'
    return
  }
  (cd "$dir" && ./pan "${run[@]}" -m10000 -w24 2>&1 |
    awk '{ once = $0; gsub(/[0-9]+/, "N", once) } !seen[once]++' >found) || true
  if [ -f "$dir/handoff.pml.trail" ]; then
    row "$name" BROKEN "$dir" "$*"
    surprise "$name" "does not hold: $(promise "$dir" "$@")"
    story "$dir" "$@"
    return
  fi
  complete "$name" "$dir" || return 0
  row "$name" verified "$dir" "$kind, $*"
  [ "$kind" != steps ] || idle "$dir" | while read -r sentence; do
    surprise "$name" "never taken: $sentence"
  done
}

# idle DIR: the sentences of the model that no step has said.
idle() {
  sed 's/[0-9][0-9]*/N/g' "$1/found" >"$1/taken"
  grep -o 'Printf("[^"]*"' "$1/pan.m" |
    sed -e 's/^Printf("//' -e 's/"$//' -e 's/\\n$//' -e 's/%e.*//' -e 's/%d/N/g' -e 's/[0-9][0-9]*/N/g' |
    grep -v '^broken: ' | sort -u | while read -r sentence; do
    grep -qF -- "$sentence" "$1/taken" || printf '%s\n' "$sentence"
  done
}

# refute VARIANT: must have a counterexample, and that of its promise.
refute() {
  local name=$1 dir=$scratch/$1
  build "$dir" "-D$name" -- -O0 -DSAFETY -DBFS || {
    surprise "$name" 'it does not build'
    return
  }
  (cd "$dir" && ./pan -m10000 -w20 >found 2>&1) || true
  if [ ! -f "$dir/handoff.pml.trail" ]; then
    row "$name" 'NOT BROKEN' "$dir" "must break: ${breaks[$name]}"
    surprise "$name" 'has no counterexample: the model cannot tell it from the sound protocol'
    return
  fi
  local broken
  broken=$(promise "$dir" "-D$name")
  row "$name" counterexample "$dir" "$broken"
  [ "$broken" = "${breaks[$name]}" ] || surprise "$name" "breaks \"$broken\", and not \"${breaks[$name]}\""
  [ -z "$told" ] || story "$dir" "-D$name"
}

# story DIR MACROS...: the counterexample, step by step.
story() {
  local dir=$1
  shift
  (cd "$dir" && spin -t -k handoff.pml.trail "$@" "$model") | sed -e '/^spin: /d' -e '/^#processes/,$d' -e '/^ *$/d'
}

# promise DIR MACROS...: which promise the counterexample breaks.
promise() {
  local said
  said=$(story "$@" | sed -n 's/^ *broken: //p' | head -n 1)
  printf '%s\n' "${said:-every run comes to rest}"
}

# one NAME: checks it, wherever it is listed.
one() {
  local line words
  for line in "${sound[@]}"; do
    read -ra words <<<"$line"
    if [ "${words[0]}" = "$1" ]; then
      verify "${words[@]}"
      return
    fi
  done
  refute "$1"
}

mapfile -t all < <(printf '%s\n' "${sound[@]}" | cut -d ' ' -f 1 && variants)
names=("$@")
told=yes
if ((${#names[@]} == 0)); then
  names=("${all[@]}")
  told=
fi
for name in "${names[@]}"; do
  printf '%s\n' "${all[@]}" | grep -qxF -- "$name" || die "there is no $name; there are: ${all[*]}"
done

# The long searches come first; two at a time, which is all that CI has.
began=$SECONDS
for name in "${names[@]}"; do
  while (($(jobs -rp | wc -l) >= 2)); do wait -n || true; done
  one "$name" >"$scratch/$name.row" 2>&1 &
done
wait

printf '%-14s %-15s %9s %6s %8s %8s\n' search verdict states depth memory took
for name in "${names[@]}"; do
  cat "$scratch/$name.row"
  grep -q . "$scratch/$name.row" || surprise "$name" 'was not checked'
done
printf 'all of it in %d s\n' "$((SECONDS - began))"

if [ -s "$scratch/surprises" ]; then
  sed 's/^/model: /' "$scratch/surprises" >&2
  exit 1
fi
