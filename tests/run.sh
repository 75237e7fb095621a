#!/bin/sh
# tests/run.sh: builds frmps and runs every test that needs no GPU. On Debian and its relatives missing packages are
# installed first (as root, or with sudo). Three builds beside the sources: build (everything), build-asan (address and
# undefined behaviour), build-tsan (the shared words of ring, doorbell and timelines). Shows what fails, and ends with
# one line that counts tests over all builds; exit status 0 only if none failed.
set -u
export LC_ALL=C
unset CK_RUN_CASE CK_RUN_SUITE CK_FORK MESON_TESTTHREADS

[ $# -eq 0 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
cd "$(dirname "$0")/.." || exit 1
jobs=$(nproc 2>/dev/null || echo 2)
passed=0
failed=0
skipped=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
builder=
trap '[ -z "$builder" ] || kill "$builder"; exit 130' INT TERM

. tests/lib/build.sh

# Sanitizers of this compiler do not know the widest address randomisation of newer kernels; run without any, where that
# is permitted.
wrapper=
if command -v setarch >/dev/null && setarch -R true 2>/dev/null; then
	wrapper='setarch -R'
fi

# Does a program with this sanitizer start at all on this machine, several times in a row?
starts() { # starts SANITIZER
	echo 'int main(void) { return 0; }' >"$scratch/start.c"
	cc -fsanitize="$1" "$scratch/start.c" -o "$scratch/start" 2>/dev/null || return 1
	for i in 1 2 3 4 5 6 7 8; do
		$wrapper "$scratch/start" >/dev/null 2>&1 || return 1
	done
}

# Adds the numbers of meson's summary to ours.
count() { # count LOG
	number() { sed -n "s/^$1:[[:space:]]*\([0-9][0-9]*\).*/\1/p" "$2" | tail -n 1 | grep . || echo 0; }
	passed=$((passed + $(number Ok "$1") + $(number 'Expected Fail' "$1")))
	failed=$((failed + $(number Fail "$1") + $(number 'Unexpected Pass' "$1") + $(number Timeout "$1")))
	skipped=$((skipped + $(number Skipped "$1")))
}

prefix= # how compilers and tests are started
# Configures and compiles a folder. What that prints, and whether it worked, is kept for show_tests.
build() { # build FOLDER OPTIONS...
	folder=$1
	shift
	{
		configure "$folder" "$@" && $prefix ninja -C "$folder" -j"$jobs" && touch "$scratch/$folder.built"
	} >"$scratch/$folder.log" 2>&1
}

# Runs tests of a folder. What that prints, and its exit status, is kept for show_tests, under a name.
run_tests() { # run_tests NAME FOLDER MESON-OPTIONS...
	name=$1
	folder=$2
	shift 2
	[ -e "$scratch/$folder.built" ] || return 0
	$prefix meson test -C "$folder" "$@" --print-errorlogs --num-processes "$jobs" --logbase "$name" \
		${wrapper:+--wrapper "$wrapper"} >"$scratch/$name.tests" 2>&1
	echo $? >"$scratch/$name.status"
}

# The sanitizers' builds, one after the other, and those of their tests that need no machine of their own. Optimised less,
# with fewer notes for debuggers, they compile in two thirds of the time, and their tests are no slower.
sanitized() {
	for kind in 'asan address,undefined' 'tsan thread'; do
		name=${kind% *}
		sanitizers=${kind#* }
		if ! starts "$sanitizers"; then
			touch "$scratch/build-$name.foreign"
			continue
		fi
		prefix='nice -n 19'
		build "build-$name" -Ddebug=true -Doptimization=1 -Dc_args=-g1 -Dcpp_args=-g1 -Db_sanitize="$sanitizers" -Db_lundef=false
		# A test that never had its turn would run out of time.
		prefix='nice -n 10'
		run_tests "$name" "build-$name" --suite "$name" --no-suite "$name-alone"
	done
}

# Whether a folder was built; else says why not.
is_built() { # is_built FOLDER
	[ ! -e "$scratch/$1.built" ] || return 0
	echo "== $1"
	if [ -e "$scratch/$1.foreign" ]; then
		echo "programs with its sanitizers do not run on this machine: skipped"
		skipped=$((skipped + 1))
		return 1
	fi
	grep -E -A 12 'error|ERROR|FAILED' "$scratch/$1.log" | head -n 60
	echo "$1: does not build" | tee -a "$scratch/failures"
	failed=$((failed + 1))
	return 1
}

# Shows what tests have said, and counts them.
show_tests() { # show_tests NAME
	log=$scratch/$1.tests
	status=$(cat "$scratch/$1.status")
	echo "== $1"
	grep -E '^ *[0-9]+/[0-9]+ ' "$log" | sed 's/^ *[0-9]*\/[0-9]* *//'
	if [ "$status" -ne 0 ]; then
		sed '/^ *[0-9]*\/[0-9]* /d' "$log" | tail -n 200
		# The programs of a system test say much before they end: what failed is repeated as the last that is shown.
		{
			grep -E '^ *[0-9]+/[0-9]+ .*(FAIL|TIMEOUT|UNEXPECTEDPASS)' "$log" | sed 's/^ *[0-9]*\/[0-9]* *//'
			grep -E ':[FE]:|ERROR: |runtime error' "$log" | head -n 40
		} | awk -v name="$1" '!seen[$0]++ { print name ": " $0 }' >>"$scratch/failures"
	fi
	before=$((passed + failed + skipped))
	count "$log"
	# No summary: there were no tests.
	if [ $((passed + failed + skipped)) -eq "$before" ]; then
		echo "$1: no test ran" | tee -a "$scratch/failures"
		failed=$((failed + 1))
	fi
}

install_packages
build build -Dbuildtype=debugoptimized
# The plain build's tests wait for most of their time. What compiles and runs meanwhile does so at a low priority, and
# they do not notice it.
sanitized &
builder=$!
if is_built build; then
	run_tests plain build --suite plain
	show_tests plain
fi
wait "$builder"
builder=
if is_built build-asan; then
	show_tests asan
	run_tests asan-alone build-asan --suite asan-alone
	show_tests asan-alone
fi
if is_built build-tsan; then
	show_tests tsan
fi

if [ -s "$scratch/failures" ]; then
	echo "== failures"
	cat "$scratch/failures"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
