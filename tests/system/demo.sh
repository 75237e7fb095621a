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
	cat "$out"
	echo "demo.sh: $1" >&2
	exit 1
}
says() { # says PATTERN
	grep -qE -- "$1" "$out" || problem "the output has no line like: $1"
}

# Help, from wherever it is asked for.
out=$scratch/help
(cd "$root/server" && sh demo.sh --help) >"$out" 2>&1 || problem "--help from another folder ends with $?"
says 'server/demo.sh \[--build FOLDER\]'

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
# A view waits for seconds: all of them run at once, beside the demo.
view() { # view SURVIVOR CULPRIT
	"$build/server/demo_view" view first "$scratch/$1" -- second "$scratch/good" -- last "$scratch/$2" \
		>"$scratch/$1-$2" 2>&1 &
	echo $! >"$scratch/$1-$2.pid"
}
shown() { # shown STATUS SURVIVOR CULPRIT
	out=$scratch/$2-$3
	wait "$(cat "$out.pid")"
	status=$?
	[ $status = "$1" ] || problem "with $2 and $3 the view ends with $status, not $1"
}
view good crasher
view wrong crasher
view dies crasher
view good unharmed

out=$scratch/out
"$root/server/demo.sh" --build "$build" --backend host >"$out" 2>&1 || problem "the demo fails"
for survivor in survivor-1 survivor-2; do
	says "^$survivor +[0-9]+ +[1-9][0-9]* +[1-9][0-9]* +([0-9.]+|< 1) ms +([0-9.]+|< 1) ms  exact, exit 0$"
done
says '^crasher +[0-9]+ +[1-9][0-9]* +[0-9]+ +- +-  error 700, exit 1$'
says 'CRASH .* crasher writes to address 0x10$'
says 'crasher gets CUDA_ERROR_ILLEGAL_ADDRESS, [0-9.]+ ms after the crash$'
says '^frmps: 2 of 2 survivors went on, with exact data; longest pause '
culprit=$(sed -n 's/^crasher  *\([0-9]*\) .*/\1/p' "$out")
# It is wrapped. Its program may have ended before the service writes it, and is left out then.
tr -s '\n ' '  ' <"$out" >"$scratch/joined"
grep -qE "verdict: culprit is (process $culprit \(demo_worker\), )?session [0-9]+, kernel crash, code 700 CUDA_ERROR_ILLEGAL_ADDRESS" \
	"$scratch/joined" || problem "the verdict does not name culprit, kernel and class"
tail -n 2 "$out" | grep -q 'Under stock MPS' || problem "the last lines do not compare with stock MPS"
[ -z "$(tr -d '\033' <"$out" | cmp - "$out")" ] || problem "there are escape sequences in a file"

shown 0 good crasher
says '^view: 2 of 2 survivors'
shown 1 wrong crasher
says '^first .* WRONG, exit 1$'
shown 1 dies crasher
says 'first ends before its time, with status 3$'
says '^view: 1 of 2 survivors'
shown 1 good unharmed
says '^last got no error'
