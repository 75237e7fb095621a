#!/bin/sh
# format.sh: is the code what .clang-format makes of it? Versions of clang-format differ, so only 14 counts; exits 77
# (skipped) without it.
set -eu

cd "$(dirname "$0")/../.."
format=clang-format-14
command -v $format >/dev/null || {
	echo "format.sh: no $format, skipped" >&2
	exit 77
}
scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
status=0
find protocol shm client server tests bench -name '*.[ch]' -o -name '*.cc' | xargs $format --dry-run -Werror 2>"$scratch" || status=1
sed -n 's/^\([^ :]*\):\([0-9]*\):.*/\1/p' "$scratch" | sort | uniq -c >&2
exit $status
