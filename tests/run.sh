#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The frmps authors
#
# tests/run.sh: builds frmps and runs every test that needs no GPU. On Debian and its relatives missing packages are
# installed first (as root, or with sudo). Three builds beside the sources: build (everything), build-asan (address and
# undefined behaviour), build-tsan (the shared words of ring, doorbell and timelines). Shows what fails, and ends with
# one line that counts tests over all builds; exit status 0 only if none failed.
set -u
export LC_ALL=C
unset CK_RUN_CASE CK_RUN_SUITE CK_FORK MESON_TESTTHREADS

cd "$(dirname "$0")/.." || exit 1
jobs=$(nproc 2>/dev/null || echo 2)
passed=0
failed=0
skipped=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

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

test_build() { # test_build FOLDER SUITE OPTIONS...
	folder=$1
	suite=$2
	shift 2
	echo "== $folder"
	if ! configure "$folder" "$@" >"$scratch/log" 2>&1; then
		tail -n 20 "$scratch/log"
		echo "$folder: cannot be configured"
		failed=$((failed + 1))
		return
	fi
	# The plain build is everything; the others are what their tests need.
	if [ "$suite" = plain ] && ! ninja -C "$folder" -j"$jobs" >"$scratch/log" 2>&1; then
		grep -E -A 12 'error|FAILED' "$scratch/log" | head -n 60
		echo "$folder: does not build"
		failed=$((failed + 1))
		return
	fi
	meson test -C "$folder" --suite "$suite" --print-errorlogs --num-processes "$jobs" \
		${wrapper:+--wrapper "$wrapper"} >"$scratch/log" 2>&1
	status=$?
	grep -E '^ *[0-9]+/[0-9]+ ' "$scratch/log" | sed 's/^ *[0-9]*\/[0-9]* *//'
	if [ $status -ne 0 ]; then
		sed '/^ *[0-9]*\/[0-9]* /d' "$scratch/log" | tail -n 200
		# The programs of a system test say much before they end: what failed is repeated as the last that is shown.
		{
			grep -E '^ *[0-9]+/[0-9]+ .*(FAIL|TIMEOUT|UNEXPECTEDPASS)' "$scratch/log" | sed 's/^ *[0-9]*\/[0-9]* *//'
			grep -E ':[FE]:|ERROR: |runtime error' "$scratch/log" | head -n 40
		} | sed "s|^|$folder: |" >>"$scratch/failures"
	fi
	before=$((passed + failed + skipped))
	count "$scratch/log"
	# No summary: the tests did not build, or there were none.
	if [ $((passed + failed + skipped)) -eq "$before" ]; then
		echo "$folder: no test ran"
		failed=$((failed + 1))
	fi
}

install_packages
test_build build plain -Dbuildtype=debugoptimized
for kind in 'asan address,undefined' 'tsan thread'; do
	name=${kind% *}
	sanitizers=${kind#* }
	if starts "$sanitizers"; then
		test_build "build-$name" "$name" -Dbuildtype=debugoptimized -Db_sanitize="$sanitizers" -Db_lundef=false
	else
		echo "== build-$name"
		echo "programs with -fsanitize=$sanitizers do not run on this machine: skipped"
		skipped=$((skipped + 1))
	fi
done

if [ -s "$scratch/failures" ]; then
	echo "== failures"
	cat "$scratch/failures"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
