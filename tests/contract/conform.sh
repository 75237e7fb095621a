#!/bin/sh
# conform.sh [FLATC]: can today's protocol still be spoken with every frozen version? Tables and unions are compared by
# `flatc --conform`; structs, the root type and the file identifier never change at all, so their text is compared.
# Every struct of command.fbs must be proved in command_proof.cc. Before that the script breaks copies of the schemas in
# every way that must be noticed, and fails if one is not.
set -eu

flatc=${1:-flatc}
protocol=$(cd "$(dirname "$0")/../../protocol" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

fail() {
	echo "conform.sh: $1" >&2
	failed=1
}

# One line per declaration that is never allowed to change, without comments and layout.
fixed() { # fixed FILE
	sed 's|//.*||' "$1" | tr -s ' \t\n' ' ' | sed 's/[;{}]/&\n/g' | sed 's/^ *//; s/ *$//; s/ *: */:/g' |
		awk '/^struct .*{$/ { line = $0; inside = 1; next }
		     inside { line = line " " $0; if ($0 ~ /}/) { print line; inside = 0 } next }
		     /^(root_type|file_identifier|namespace) / { print }' | sort
}

conforms() { # conforms FROZEN LIVE
	"$flatc" --conform "$1" "$2" >"$scratch/out" 2>&1 || return 1
	fixed "$1" >"$scratch/old"
	fixed "$2" >"$scratch/new"
	comm -23 "$scratch/old" "$scratch/new" >"$scratch/out"
	[ ! -s "$scratch/out" ]
}

proved() { # proved SCHEMA PROOF: every struct of the schema has its line in the proof
	fixed "$1" | sed -n 's/^struct \([A-Za-z]*\).*/\1/p' >"$scratch/structs"
	[ -s "$scratch/structs" ] || return 1
	while read -r name; do
		grep -q "^PROVE(frmps_[a-z_]*, $name, [A-Z_]*);" "$2" || {
			echo "$name" >"$scratch/out"
			return 1
		}
	done <"$scratch/structs"
}

# The breaks: name of the schema, then a sed script. Each must change the file, leave it a valid schema, and be noticed.
noticed() { # noticed SCHEMA SED
	live=$protocol/$1.fbs
	sed "$2" "$live" >"$scratch/$1.fbs"
	if cmp -s "$live" "$scratch/$1.fbs"; then
		fail "self-check does nothing any more, adapt it: $2"
	elif ! "$flatc" --cpp -o "$scratch/generated" "$scratch/$1.fbs" >/dev/null 2>&1; then
		fail "self-check is no valid schema any more, adapt it: $2"
	elif conforms "$live" "$scratch/$1.fbs"; then
		fail "this break is not noticed: $2"
	fi
}

allowed() { # allowed SCHEMA SED
	sed "$2" "$protocol/$1.fbs" >"$scratch/$1.fbs"
	cmp -s "$protocol/$1.fbs" "$scratch/$1.fbs" && fail "self-check does nothing any more, adapt it: $2"
	conforms "$protocol/$1.fbs" "$scratch/$1.fbs" || fail "this change is allowed, but refused: $2"
}

mkdir "$scratch/generated"
noticed control '/^table Hello/,/^}/s/^  minor:uint32;//'
noticed control '/^table SetFunction/s/function:uint32; attribute:uint32;/attribute:uint32; function:uint32;/'
noticed control '/^table MapHost/s/flags:uint32;/flags:uint64;/'
noticed control '/^table MapHost/s/flags:uint32;/flags:uint32 = 3;/'
noticed control '/^union Body/,/^}/s/UnmapMemory, MapHost,/MapHost, UnmapMemory,/'
noticed control '/^union Body/,/^}/s/Shutdown, Ping/Ping/'
noticed control 's/^struct Option { id:uint32; reserved:uint32;/struct Option { reserved:uint32; id:uint32;/'
noticed control 's/FRMC/FRMD/'
noticed command '/^struct Head/,/^}/s/^  op:uint16;//'
noticed command '/^struct Head/,/^}/s/^  op:uint16;/  op:uint32;/'
noticed command '/^struct Copy/,/^}/s/^  dst_rows:uint64;/  more:uint64;/'
noticed command '/^struct Wake/,/^}/s/seq:uint64;/seq:uint64; more:uint64;/'
noticed command '/^struct Wake/,/^}/d'
allowed control '/^table MapHost/s/flags:uint32;/flags:uint32; more:uint8;/'
allowed control '/^union Body/,/^}/s/^}/, More }/; s/^union Body/table More { }\n&/'
allowed command 's/^struct Wake/struct More { seq:uint64; }\n&/'

grep -v '^PROVE(frmps_wake,' "$protocol/command_proof.cc" >"$scratch/proof"
proved "$protocol/command.fbs" "$scratch/proof" && fail "a missing proof is not noticed"
proved "$protocol/command.fbs" "$protocol/command_proof.cc" || fail "command_proof.cc lacks struct $(cat "$scratch/out")"

count=0
for frozen in "$protocol"/frozen/v*_control.fbs "$protocol"/frozen/v*_command.fbs; do
	live=$protocol/${frozen##*_}
	conforms "$frozen" "$live" || {
		fail "$(basename "$live") breaks $(basename "$frozen"):"
		cat "$scratch/out" >&2
	}
	count=$((count + 1))
done
[ "$count" -ge 2 ] || fail "there is no frozen schema"
exit $failed
