#!/bin/sh
# text.sh: does the project speak of itself alone? No paths of somebody's home, not even in what is no text, no numbers
# of tickets, no words about how it came to be.
set -eu
export LC_ALL=C

root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Bracketed, so that this file does not find itself.
cat >"$scratch/patterns" <<'PATTERNS'
(^|[^A-Za-z0-9_.])/(home|work|root|Users)[/]
(^|[^A-Za-z0-9_&%$#{(])[#][0-9]+([^0-9A-Za-z]|$)
[Hh]elper[ -]session
([Ff]acts|[Dd]esign|[Ss]tyle)([.]md)? ?[§]
shared[/](facts|design|style|hooks)
[Cc]laude|[Aa]nthropic|[Cc]hat[ ]?GPT|[Ll]anguage[ ]model
[Cc]o-authored[-]by
PATTERNS

# In what is no text only paths are looked for, and the name of the file is enough.
offences() ( # offences TREE
	cd "$1"
	find . -name .git -prune -o -path './build*' -prune -o -path './.cache' -prune -o -type f -print | sort |
		tr '\n' '\0' >"$scratch/files"
	xargs -0 -r grep -EIHn -f "$scratch/patterns" <"$scratch/files" || true
	xargs -0 -r grep -EIL '' <"$scratch/files" | tr '\n' '\0' |
		xargs -0 -r grep -aEl '(^|[^A-Za-z0-9_.])/(home|work|root|Users)[/][A-Za-z]' || true
)

# Self-check: one file per forbidden text, one for texts that only look like it.
mkdir "$scratch/tree"
i=0
for text in 'see /hom''e/x/y' '"/wor''k/main"' 'fixes #''12' 'a helper'' session' 'facts ''§4' 'design.md ''§1' 'share''d/facts/x' 'Clau''de'; do
	i=$((i + 1))
	echo "$text" >"$scratch/tree/$i"
done
i=$((i + 1))
printf '\0\1/wor''k/here/a.cu\0' >"$scratch/tree/$i"
found=$(offences "$scratch/tree" | wc -l)
rm "$scratch"/tree/*
printf '\0\1/wor''k/%%\0#''12\0' >"$scratch/tree/good_binary"
printf '%s\n' '#define X 1' '#if 0' 'printf("%#018x")' 'client/work/a.c' '$root/protocol' '${#12}' '&#39;' '# 1 title' \
	>"$scratch/tree/good"
wrong=$(offences "$scratch/tree")
if [ "$found" -ne "$i" ] || [ -n "$wrong" ]; then
	echo "text.sh: finds $found of $i forbidden texts; finds in good text: $wrong" >&2
	exit 1
fi

offences "$root" >"$scratch/offences"
cat "$scratch/offences" >&2
[ ! -s "$scratch/offences" ]
