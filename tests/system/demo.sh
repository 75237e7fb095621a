#!/bin/sh
# demo.sh BUILD: does the demo say what became of its programs, and is its exit status right? Without a terminal, on the
# host backend; then the view alone with programs that do not fare well.
set -u
export LC_ALL=C

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

problem() { # problem TEXT
	cat "$scratch/out"
	echo "demo.sh: $1" >&2
	exit 1
}
says() { # says PATTERN
	grep -qE -- "$1" "$scratch/out" || problem "the output has no line like: $1"
}

"$root/server/demo.sh" --build "$build" --backend host >"$scratch/out" 2>&1 || problem "the demo fails"
for survivor in survivor-1 survivor-2; do
	says "^$survivor +[0-9]+ +[1-9][0-9]* +[1-9][0-9]* +([0-9.]+|< 1) ms +([0-9.]+|< 1) ms  exact, exit 0$"
done
says '^crasher +[0-9]+ +[1-9][0-9]* +[0-9]+ +- +-  error 700, exit 1$'
says 'CRASH .* crasher writes to address 0x10$'
says 'crasher gets CUDA_ERROR_ILLEGAL_ADDRESS, [0-9.]+ ms after the crash$'
says '^frmps: 2 of 2 survivors went on, with exact data; longest pause '
culprit=$(sed -n 's/^crasher  *\([0-9]*\) .*/\1/p' "$scratch/out")
# It is wrapped. Its program may have ended before the service writes it, and is left out then.
tr -s '\n ' '  ' <"$scratch/out" >"$scratch/joined"
grep -qE "verdict: culprit is (process $culprit \(demo_worker\), )?session [0-9]+, kernel crash, code 700 CUDA_ERROR_ILLEGAL_ADDRESS" \
	"$scratch/joined" || problem "the verdict does not name culprit, kernel and class"
tail -n 2 "$scratch/out" | grep -q 'Under stock MPS' || problem "the last lines do not compare with stock MPS"
[ -z "$(tr -d '\033' <"$scratch/out" | cmp - "$scratch/out")" ] || problem "there are escape sequences in a file"

# Programs that play a part: they run, wait for an order, and end as they are told to.
part() { # part NAME LINE STATUS
	printf '%s\n' '#!/bin/sh' 'echo did 1 1 2' 'read order' "echo $2" "exit $3" >"$scratch/$1"
	chmod +x "$scratch/$1"
}
part good 'end exact' 0
part wrong 'end wrong' 1
part dies 'did 2 2 3' 3
part crasher 'fault 5; echo error 6 700 CUDA_ERROR_ILLEGAL_ADDRESS' 1
part unharmed 'fault 5; echo end exact' 0
view() { # view STATUS SURVIVOR CULPRIT
	"$build/server/demo_view" view first "$scratch/$2" -- second "$scratch/good" -- last "$scratch/$3" \
		>"$scratch/out" 2>&1
	status=$?
	[ $status = "$1" ] || problem "with $2 and $3 the view ends with $status, not $1"
}
view 0 good crasher
says '^view: 2 of 2 survivors'
view 1 wrong crasher
says '^first .* WRONG, exit 1$'
view 1 dies crasher
says 'first ends before its time, with status 3$'
says '^view: 1 of 2 survivors'
view 1 good unharmed
says '^last got no error'
