#!/bin/sh
# manual.sh GENERATED: do the manual pages and the completions of the build folder GENERATED say everything, in a form that
# troff has no complaint about? A command, an option or a key that the tables have is in its page by construction; that
# every variable of the environment which the product reads is in a table is looked for here. Skips what needs a program
# that is not installed (groff, bash).
set -eu
export LC_ALL=C.UTF-8

generated=$(cd "${1:?usage: manual.sh GENERATED}" && pwd)
cd "$(dirname "$0")/../.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
missing=

fail() {
	echo "manual.sh: $1" >&2
	failed=1
}

complaints() { # complaints PAGE
	groff -mandoc -Tutf8 -ww -z "$1" 2>&1
}

if command -v groff >/dev/null; then
	printf '.Dd x\n.Dt X 1\n.Os\n.Sh NAME\n.Nm x\n.Nd y\n.Nonsense\n' >"$scratch/bad"
	[ -n "$(complaints "$scratch/bad")" ] || fail "a page with an unknown macro is not noticed"
	for page in frmps-server.8 frmps.conf.5 frmps-run.1 frmpsctl.1 frmps-exporter.1; do
		text=$(complaints "$generated/$page")
		[ -z "$text" ] || fail "$page: $text"
		groff -mandoc -Tutf8 -P-cbu "$generated/$page" | grep -q 'SEE ALSO' || fail "$page: is not whole"
	done
else
	missing="$missing groff"
fi

# What a word begins with, what it is completed to.
completes() { # completes EXPECTED PROGRAM WORD...
	expected=$1
	shift
	found=$(bash -c '. "$0/$1"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
		"_${1//-/_}"; echo "${COMPREPLY[@]}"' "$generated" "$@")
	[ "$found" = "$expected" ] || fail "completion of '$*': '$found' instead of '$expected'"
}
if command -v bash >/dev/null; then
	completes isolate frmpsctl iso
	completes isolate frmpsctl --socket status iso
	completes --json frmpsctl status --j
	completes '--follow' frmpsctl events --f
	completes '--now' frmpsctl suspend --n
	completes '--since' frmpsctl checkpoint 7 folder --s
	completes 'lift' frmpsctl quarantine l
	completes terminate_client frmpsctl terminate_
	completes add frmpsctl sm_partition a
	completes replay frmpsctl recovery 7 re
	completes 'fail replay' frmps-run --recovery ''
	completes '' frmps-run program --rec
	completes --allow-native frmps-run --allow-n
	completes '--check-config' frmps-server --check
	completes 'error warning info debug' frmps-server --log-level ''
else
	missing="$missing bash"
fi

# For zsh and fish: each option, each command of one word, and nothing that these shells do not understand.
for name in frmpsctl frmps-run frmps-server frmps-exporter; do
	grep -oE '^OPTION\(.[^,]*, "[^"]+"' "server/tools/$name.def" | sed 's/.*"\(.*\)"/\1/' | while read -r option; do
		grep -qE -- "--$option(=|-=|\[)" "$generated/_$name" && grep -q -- " -l $option " "$generated/$name.fish" ||
			echo "$name --$option"
	done
	if command -v zsh >/dev/null && ! zsh -n "$generated/_$name"; then echo "_$name"; fi
	if command -v fish >/dev/null && ! fish --no-execute "$generated/$name.fish"; then echo "$name.fish"; fi
done >"$scratch/uncompleted"
grep -oE '^COMMAND\("[^" ]+"' server/tools/frmpsctl.def | sed 's/.*"\(.*\)"/\1/' | while read -r command; do
	grep -q "$command\\\\:" "$generated/_frmpsctl" && grep -q -- " -a $command -d" "$generated/frmpsctl.fish" || echo "frmpsctl $command"
done >>"$scratch/uncompleted"
[ ! -s "$scratch/uncompleted" ] || fail "not completed by zsh or fish: $(tr '\n' ' ' <"$scratch/uncompleted")"

# Variables that no user is told of: those of the host backend, of the demo, and what the service tells its children.
unnamed() { # unnamed FOLDER
	grep -rhoE --include='*.[ch]' --include='*.cc' '"(FRMPS|CUDA_MPS)_[A-Z_]+"' "$1" | sort -u | tr -d '"' |
		grep -vE '^FRMPS_(HOST_.*|DEMO_MODULE|LOG_DEVICE)$' | while read -r name; do
		grep -q "^VARIABLE(\"$name\"," server/tools/*.def || echo "$name"
	done
}
mkdir "$scratch/planted"
echo 'getenv("FRMPS_PLANTED"); getenv("FRMPS_SOCKET"); getenv("CUDA_MPS_PLANTED");' >"$scratch/planted/a.c"
[ "$(unnamed "$scratch/planted" | tr '\n' ' ')" = 'CUDA_MPS_PLANTED FRMPS_PLANTED ' ] ||
	fail "a variable that is in no table is not noticed"
for folder in server client protocol shm; do
	for name in $(unnamed "$folder"); do
		fail "$name is read in $folder and is in no table of server/tools"
	done
done

[ "$failed" -eq 0 ] || exit 1
[ -z "$missing" ] || { echo "not installed:$missing"; exit 77; }
