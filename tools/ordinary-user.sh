#!/usr/bin/env bash
# Runs the tests as a user without privileges (clause C16): uid 65534, no
# groups, nothing of root's readable. The test binaries are built first and run
# from a copy of the tree that everybody can read; the go command is not needed
# by the tests and not offered to them. Of rounds that differ by chance only there
# are fewer than in the race step (TESTED_IN_FULL). Fails when a test fails, and
# when a process of that user is left. Without root, the same runs as the caller.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

uid=65534
release=$(realpath "$1")
umask 022
scratch=$(mktemp -d /tmp/handsel-ordinary.XXXXXX)
trap 'rm -rf "$scratch"' EXIT
chmod 755 "$scratch"
mkdir "$scratch/tree" "$scratch/bin" "$scratch/home" "$scratch/tmp"

tar -cf - --exclude=.git --exclude=node_modules --exclude=./.cache --exclude=./bin . |
  tar -xf - --no-same-permissions --no-same-owner -C "$scratch/tree"
chmod -R u+rwX,go=rX "$scratch/tree"
install -m 755 "$release" "$scratch/bin/handsel"
CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$scratch/bin/fakeagent" ./internal/fakeagent/cmd/fakeagent

if [ "$(id -u)" = 0 ]; then
  chown "$uid:$uid" "$scratch/home" "$scratch/tmp"
  become=(setpriv "--reuid=$uid" "--regid=$uid" --clear-groups)
else
  uid=$(id -u)
  become=()
fi
chmod 700 "$scratch/home" "$scratch/tmp"

# A process that has ended counts no more, however slow init is to reap it.
others() { ps -U "$uid" -o pid=,stat= | awk '$2 !~ /^Z/ { print $1 }' | sort || true; }

# as_user BINARY DIR [env VAR=VALUE...] [flags FLAG...]: runs one test binary in
# its package's directory of the copy.
as_user() {
  local binary=$1 dir=$2 flags=()
  shift 2
  case ${1:-} in
    env) shift ;;
    flags) shift && flags=("$@") && set -- ;;
  esac
  (cd "$scratch/tree/$dir" && "${become[@]}" env -i \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME="$scratch/home" TMPDIR="$scratch/tmp" TERM=xterm LANG=C.UTF-8 TESTED_IN_FULL=1 \
    FAKEAGENT_BIN="$scratch/bin/fakeagent" \
    PEER_SCRIPT="$scratch/tree/testdata/peer/peer.py" "$@" \
    "$binary" -test.timeout=10m "${flags[@]}" </dev/null)
}

# check DIR TAGS [FLAG...] builds the tests of one package and runs them. What it
# prints comes at its end, in one piece: others run at the same time.
check() {
  local dir=$1 tags=$2 name binary
  shift 2
  name=$(tr / _ <<<"$dir")${tags:+.$tags}
  binary="$scratch/bin/$name.test"
  CGO_ENABLED=0 go test -c -trimpath -tags "$tags" -o "$binary" "./$dir"
  [ -e "$binary" ] || return 0 # nothing but files of another platform
  (
    start=$EPOCHREALTIME verdict='ok  '
    as_user "$binary" "$dir" "$@" >"$scratch/$name.out" 2>&1 || verdict=FAIL
    took=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.3f", b - a }')
    cat "$scratch/$name.out"
    printf '%s\t%s%s\t%ss\n' "$verdict" "$dir" "${tags:+ ($tags)}" "$took"
    [ "$verdict" != FAIL ] || printf '%s%s\n' "$dir" "${tags:+ ($tags)}" >>"$scratch/failed"
  ) &
}

# room returns when fewer than two packages are being tested.
room() {
  while (($(jobs -rp | wc -l) >= 2)); do wait -n || true; done
}

before=$(others)

mapfile -t packages < <(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' ./... |
  sed -e "s|^$PWD/||" -e "s|^$PWD\$|.|" | grep .)
for dir in "${packages[@]}"; do
  room
  check "$dir" '' env "HANDSEL_BIN=$scratch/bin/handsel"
done
# The crash matrix is the same for every user, and has just run.
seamed=$(bash tools/tagged.sh -t failpoint)
mapfile -t packages < <(bash tools/tagged.sh failpoint | sed 's|^\./||')
for dir in "${packages[@]}"; do
  room
  check "$dir" failpoint flags -test.run="$seamed" -test.skip='^TestSeamCrash$'
done
wait

failed=()
[ ! -e "$scratch/failed" ] || mapfile -t failed <"$scratch/failed"

# What was just told to end may need a moment to be gone.
for _ in {1..20}; do
  left=$(comm -13 <(printf '%s\n' "$before") <(others))
  [ -n "$left" ] || break
  sleep 0.1
done
if [ "$uid" = 65534 ] && [ -n "$left" ]; then
  echo 'the tests left processes:' >&2
  ps -o pid,ppid,stat,args -p "$(tr '\n' ',' <<<"$left" | sed 's/,$//')" >&2 || true
  failed+=('processes left')
fi
if ((${#failed[@]})); then
  printf 'as an ordinary user (uid %d), failed: %s\n' "$uid" "${failed[*]}" >&2
  exit 1
fi
printf 'as an ordinary user (uid %d): %s\n' "$uid" 'all passed'
