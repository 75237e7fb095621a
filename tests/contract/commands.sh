#!/bin/sh
# commands.sh: can what the documents give as a command be run? Scripts of the tree that documents name by their path are
# there; those that a command begins with, in a fenced block or with arguments in backquotes, are executable and say their
# interpreter.
set -eu
export LC_ALL=C

root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Prints "mention PATH" or "command PATH" for what the Markdown of a tree has.
commands() ( # commands TREE
	cd "$1"
	find . -name '.?*' -prune -o -path './build*' -prune -o -name '*.md' -print | sort | tr '\n' '\0' | xargs -0 -r awk '
		function word(kind, text) {
			sub(/^[ \t]*([$] )?(sudo )?/, "", text)
			if (text ~ /^[^ ]+ -/)
				kind = "command"
			sub(/[ \t;)].*/, "", text)
			if (text ~ /^(bench|tests|server|client|protocol|shm)\/[A-Za-z0-9_\/.-]+$/)
				print kind, text
		}
		/^```/ { fenced = !fenced; next }
		fenced { word("command", $0); next }
		{
			count = split($0, parts, "`")
			for (i = 2; i <= count; i += 2)
				word("mention", parts[i])
		}' | sort -u
)

# Prints what is wrong with them.
offences() ( # offences TREE
	commands "$1" | while read -r kind path; do
		file=$1/$path
		case $path in
		*.sh | *.py | bench/run) ;;
		*) continue ;;
		esac
		[ -f "$file" ] || { echo "$path: there is none" && continue; }
		[ "$kind" = command ] || continue
		head -n 1 "$file" | grep -q '^#!' || { echo "$path: no interpreter" && continue; }
		[ -x "$file" ] || echo "$path: not executable"
	done
)

# Self-check.
mkdir -p "$scratch/tree/bench/lib"
printf '#!/bin/sh\n' | tee "$scratch/tree/bench/good.sh" "$scratch/tree/bench/plain.sh" >/dev/null
chmod +x "$scratch/tree/bench/good.sh"
: >"$scratch/tree/bench/none.py"
printf '%s\n' '`bench/none.py` is' '`bench/none.py --all` does' '`bench/lost.py` was' '```sh' 'bench/good.sh --all' \
	'bench/plain.sh # why' '```' >"$scratch/tree/README.md"
found=$(offences "$scratch/tree" | tr '\n' ' ')
[ "$found" = "bench/none.py: no interpreter bench/plain.sh: not executable bench/lost.py: there is none " ] || {
	echo "commands.sh: finds: $found" >&2
	exit 1
}

offences "$root" >"$scratch/offences"
sed 's/^/commands.sh: /' "$scratch/offences" >&2
[ ! -s "$scratch/offences" ]
