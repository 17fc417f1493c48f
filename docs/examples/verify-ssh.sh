#!/bin/sh
# Vouches for a verdict by an SSH signature, as the command of [review] verify:
#
#	[review]
#	verify = ["/usr/local/libexec/handsel-verify-ssh", "/etc/handsel/allowed_signers"]
#
# The reviewer signs what `handsel accept X --statement` prints, and hands the
# signature in with the verdict:
#
#	handsel accept X --statement >statement
#	ssh-keygen -Y sign -n handsel-verdict -f ~/.ssh/id_ed25519 statement
#	handsel accept X --evidence REF --signature statement.sig
#
# The file of allowed signers says who may sign (ssh-keygen(1), ALLOWED SIGNERS),
# one `NAME namespaces="handsel-verdict" KEY` a line. It must not be writable by
# the agents. NAME is what is compared with the --author of the work.
#
# In: HANDSEL_STATEMENT and HANDSEL_SIGNATURE (the verdict itself is on stdin).
# Out: who signed, on one line. Any status but 0: nobody whom we know.
set -eu

signers=${1:?the file of allowed signers is not named}
if [ -z "${HANDSEL_SIGNATURE:-}" ]; then
	echo "the verdict has no signature: sign what --statement prints, and use --signature" >&2
	exit 1
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
printf '%s' "$HANDSEL_STATEMENT" >"$dir/statement"
printf '%s\n' "$HANDSEL_SIGNATURE" >"$dir/signature"

who=$(ssh-keygen -Y find-principals -s "$dir/signature" -f "$signers" 2>/dev/null | head -n 1)
if [ -z "$who" ]; then
	echo "nobody in $signers has the key of the signature" >&2
	exit 1
fi
if ! ssh-keygen -Y verify -f "$signers" -I "$who" -n handsel-verdict -s "$dir/signature" <"$dir/statement" >/dev/null 2>&1; then
	echo "the signature is not one of $who on this verdict" >&2
	exit 1
fi
printf '%s\n' "$who"
