#!/bin/sh
# style.sh: prints how long functions and files are, per room, and fails on a function of more than 120 lines, a file
# without a head that says what it does, a file that claims a licence (the owner has named none), a call that has a
# better way here, a comment of more than 100 columns, or a test that never runs. The budget (median 15, 90 % below 40,
# few over 60) is read, not enforced. Lengths are counted from the brace in column 0 to the closing one.
set -eu
export LC_ALL=C
LIMIT=120
COLUMNS_MAX=100

root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Prints "length file:line name" for every function of the files.
lengths() { # lengths FILE...
	awk '
		FNR == 1 { start = 0; signature = "" }
		/^{$/ && signature !~ /^(namespace|extern)/ { start = FNR; next }
		/^}/ && start {
			name = signature; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
			print FNR - start - 1, FILENAME ":" start, name
			start = 0
		}
		/^[A-Za-z_].*/ && !start { signature = $0 }
	' "$@"
}

headless() { # headless FILE...
	for file; do
		head -c 2 "$file" | grep -qE '^(//|/\*)$' || echo "$file"
	done
}

licensed() { # licensed FILE...
	grep -lE 'SPDX-[L]icense-Identifier' "$@" /dev/null || true
}

# Threads name themselves: server/executor/serve.c says why. The unit takes clone3 away: server/worker/supervise.c.
shunned() { # shunned FILE...
	grep -nE 'pthread_setname_np\([^)]|SYS_clone3' "$@" /dev/null || true
}

# What clang-format takes for C++ and formats as that: names that are words of C++, a comparison that could be a template.
garbled() { # garbled FILE...
	grep -nE -e '^[^"/]*(struct|enum|union) (class|export|operator|namespace|template|friend|private|public|using|new|delete|this)\>' \
		-e '^[^"/]*\<operator *([*=,;)&]|->)' -e '^[^"/]*(struct [a-z_]+|char|void)[*] [a-z]' \
		-e '^[^"/#]*[a-z_0-9]<[a-z_]+;' -e '^[^"/]*[a-z_0-9)] ([+][+]|--)[];),]' "$@" /dev/null | grep -vE ':[[:space:]]+[*] ' || true
}

# Tests of a group that no case takes, or that libcheck would have to be given: they would never run.
idle() { # idle FILE...
	awk '
		function report(  key, part) {
			for (key in groups) if (!(key in added)) print file ": group " key
			for (key in started) if (!(key in named)) print file ": " key
			delete groups; delete added; delete started; delete named
		}
		FNR == 1 { report(); file = FILENAME }
		/^TEST(_LOOP)?\(/ { split($0, part, /[(,]/); groups[part[2]]; next }
		/^START_TEST\(/ { split($0, part, /[()]/); started[part[2]]; next }
		/suite_add\(/ { split($0, part, "\""); added[part[2]] }
		{ n = split($0, part, /[^A-Za-z0-9_]+/); for (i = 1; i <= n; i++) named[part[i]] }
		END { report() }' "$@" /dev/null
}

# But for diagrams and tables. A tab at the begin of a line is eight columns.
wide() { # wide FILE...
	awk -v most="$COLUMNS_MAX" '
		/^[ \t]*(\/\/|\/\*|\* )/ && !/[^ -~\t]/ && !/[^ \t].*\t/ {
			match($0, /^\t*/)
			if (length($0) + 7 * RLENGTH > most)
				print FILENAME ":" FNR
		}' "$@" /dev/null
}

# Self-check.
{
	echo 'int main(void)'
	echo '{'
	yes '	x();' | head -n $((LIMIT + 1))
	echo '}'
} >"$scratch/long.c"
[ "$(lengths "$scratch/long.c" | awk '{ print $1, $3 }')" = "$((LIMIT + 1)) main" ] &&
	[ -n "$(headless "$scratch/long.c")" ] && echo '// SPDX-'License-Identifier >"$scratch/claims.c" &&
	[ -n "$(licensed "$scratch/claims.c")" ] && echo 'pthread_setname_np(thread, "x");' >"$scratch/named.c" &&
	[ -n "$(shunned "$scratch/named.c")" ] && printf '\t/* %087d */\n\t/* %086d */\n' 0 0 >"$scratch/wide.c" &&
	[ "$(wide "$scratch/wide.c")" = "$scratch/wide.c:1" ] &&
	printf 'struct operator* operator= context;\nfor (n = 0; n<length; n += n> 1)\nstruct class\n{\n\tclass ++;\n' >"$scratch/cpp.c" &&
	[ "$(garbled "$scratch/cpp.c" | wc -l)" -eq 4 ] &&
	printf 'TEST(a, one)\nTEST_LOOP(b, two, 0, 2)\nSTART_TEST(three)\nsuite_add(all, "a");\n' >"$scratch/idle.c" &&
	[ "$(idle "$scratch/idle.c" | wc -l)" -eq 2 ] || {
	echo "style.sh: a long function, a file without a head, a licence, a call that is shunned, a wide comment, code" \
		"that is formatted as C++ or a test that never runs is not noticed" >&2
	exit 1
}

cd "$root"
failed=0
printf '%-20s %9s %6s %5s %5s %5s\n' room functions median p90 '>60' max
for room in protocol shm client server tests bench; do
	find "$room" -name '*.c' -o -name '*.cc' | sort >"$scratch/files"
	[ -s "$scratch/files" ] || continue
	lengths $(cat "$scratch/files") | sort -n >"$scratch/lengths"
	awk -v room="$room" '
		{ n[NR] = $1; over += $1 > 60 }
		END {
			if (NR)
				printf "%-20s %9d %6d %5d %4.1f%% %5d\n", room, NR, n[int((NR + 1) / 2)],
					n[int(NR * 0.9 + 0.5)], 100 * over / NR, n[NR]
		}' "$scratch/lengths"
	awk -v limit="$LIMIT" '$1 > limit { print "style.sh: " $2 ": " $3 " has " $1 " lines" }' \
		"$scratch/lengths" >"$scratch/long"
	cat "$scratch/long" >&2
	[ ! -s "$scratch/long" ] || failed=1
done

find . -name '.?*' -prune -o -path './build*' -prune -o -type f \( -name '*.[ch]' -o -name '*.cc' -o -name '*.def' \
	-o -name '*.fbs' -o -name '*.map' -o -name '*.sh' -o -name '*.py' -o -name meson.build \) -print |
	sort >"$scratch/files"
headless $(grep -E '[.](c|cc|h)$' "$scratch/files") | sed 's/^/style.sh: no head: /' >"$scratch/found"
licensed $(cat "$scratch/files") | sed 's/^/style.sh: claims a licence: /' >>"$scratch/found"
shunned $(grep -E '^[.]/(client|server|shm)/.*[.]c$' "$scratch/files") | sed 's/^/style.sh: shunned: /' >>"$scratch/found"
wide $(grep -E '[.](c|cc|h|def)$' "$scratch/files") | sed 's/^/style.sh: a wide comment: /' >>"$scratch/found"
garbled $(grep -E '[.][ch]$' "$scratch/files" | grep -v /gpu/corpus/) | sed 's/^/style.sh: formatted as C++: /' >>"$scratch/found"
idle $(grep -E '^[.]/(tests|bench)/.*[.]c$' "$scratch/files") | sed 's/^/style.sh: never runs: /' >>"$scratch/found"
cat "$scratch/found" >&2
[ ! -s "$scratch/found" ] || failed=1

echo
echo "files over 600 lines:"
xargs wc -l <"$scratch/files" | awk '$1 > 600 && $2 != "total" { print "  " $2 ": " $1 }'
exit $failed
