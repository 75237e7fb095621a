#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The frmps authors
#
# tests/gpu/run.sh [BUILD]: every test that needs a GPU, one line each. Exit status 0: all passed, 1: some failed, 77: no
# GPU here. BUILD is a build folder (default: build) that may have been made on another machine; nvcc builds what the
# tests run on the device, if it is not there yet.
#
# The programs of corpus/ and of frameworks.py run natively and through one service; their outputs must be the same to the
# byte; what differs runs natively once more. FRMPS_GPU_TEST_ONLY is a pattern (of grep -E) for the names of the checks to
# run.
#
# FRMPS_GPU_TEST_SCALE=full runs the long forms: 100 000 launches of each of eight clients, 1000 killed clients, 64
# clients at a time. A check may take FRMPS_GPU_TEST_LIMIT seconds (600).
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(cd "${1:-build}" && pwd) || exit 1
nvidia-smi -L >/dev/null 2>&1 || { echo "no GPU"; exit 77; }
PATH=$PATH:/usr/local/cuda/bin
scratch=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
passed=0
failed=0

# Runs a command with its output in a file; one line of result, the output where it failed.
check() { # check NAME COMMAND...
	name=$1
	shift
	echo "$name" | grep -qE "${FRMPS_GPU_TEST_ONLY:-.}" || return 0
	begin=$(date +%s.%N)
	limit="timeout -k 20 ${FRMPS_GPU_TEST_LIMIT:-600}"
	case $1 in same | compared) limit= ;; esac # have their own
	$limit "$@" >"$scratch/out" 2>&1
	status=$?
	took=$(echo "$(date +%s.%N) $begin" | awk '{printf "%.1f", $1 - $2}')
	if [ $status -eq 0 ]; then
		passed=$((passed + 1))
		echo "ok    $name (${took} s)"
	elif [ $status -eq 77 ]; then
		echo "skip  $name: $(tail -n 1 "$scratch/out")"
	else
		failed=$((failed + 1))
		echo "FAIL  $name (status $status, ${took} s)"
		tail -n 40 "$scratch/out" | sed 's/^/      /'
	fi
}

device=$scratch/device
mkdir "$device"
nvcc -arch=sm_90 -cubin -o "$device/kernels.cubin" tests/lib/kernels.cu || exit 1
nvcc -arch=sm_90 -cubin -o "$device/count_kernels.cubin" tests/lib/count_kernels.cu || exit 1
nvcc -arch=sm_90 -cubin -o "$device/print.cubin" tests/lib/print.cu || exit 1
nvcc -std=c++17 -arch=sm_90 -cudart static -o "$device/runtime" tests/gpu/runtime.cu || exit 1
nvcc -std=c++17 -arch=sm_90 -cudart shared -o "$device/runtime-shared" tests/gpu/runtime.cu || exit 1
mkdir "$device/corpus"
for source in tests/gpu/corpus/*.cu; do
	# The first lines of a program may say "// libraries: cublas cufft", what it links more; "// options: ...", what
	# stands for -rdc=true, further sources among it; "// plugin: FILE", a library to be beside it, named NAME.so;
	# "// compared: errors", that standard error has to be the same, too.
	name=$(basename "$source" .cu)
	libraries=$(sed -n '1,12s,^// libraries: ,,p' "$source" | sed 's/[^ ]*/-l&/g')
	options=$(sed -n '1,12s,^// options: ,,p' "$source")
	plugin=$(sed -n '1,12s,^// plugin: ,,p' "$source")
	# shellcheck disable=SC2086
	nvcc -std=c++17 -arch=sm_90 ${options:--rdc=true} -o "$device/corpus/$name" "$source" -lcuda $libraries \
		>"$device/corpus/$name.log" 2>&1 &
	[ -z "$plugin" ] || nvcc -std=c++17 -arch=sm_90 -shared -Xcompiler -fPIC -o "$device/corpus/$name.so" "$plugin" \
		>"$device/corpus/$name.so.log" 2>&1 &
done
wait

export FRMPS_TEST_SERVER="$build/server/frmps-server" FRMPS_TEST_BACKEND=cuda FRMPS_TEST_KERNELS="$device/kernels.cubin"
export FRMPS_TEST_RUN="$build/server/frmps-run" FRMPS_TEST_COUNT_KERNELS="$device/count_kernels.cubin"
export FRMPS_TEST_PRINT="$device/print.cubin"
native=$(dirname "$(ldconfig -p | sed -n 's/.*libcuda\.so\.1 .*=> //p' | head -n 1)")
[ -d "$native" ] || native=/usr/local/nvidia/lib64
shim=$build/client
if [ "${FRMPS_GPU_TEST_SCALE:-}" = full ]; then
	export FRMPS_TEST_LAUNCHES=100000 FRMPS_TEST_KILLS=1000 FRMPS_TEST_MANY=64
fi

# A program natively, and through the service: what it prints and how it ends in FILE.
natively() { # natively FILE COMMAND...
	file=$1
	shift
	LD_LIBRARY_PATH="$native:${LD_LIBRARY_PATH:-}" timeout 240 "$@" >"$file" 2>"$file.err"
	echo "exit status $?" >>"$file"
}

served() { # served FILE COMMAND...
	file=$1
	shift
	FRMPS_SOCKET="$scratch/frmps.sock" timeout 240 "$build/server/frmps-run" "$@" >"$file" 2>"$file.err"
	echo "exit status $?" >>"$file"
}

# What a program printed and how it ended must be the same in RUN.natively and RUN.served. With $errors set, what it
# printed on standard error is, too.
errors=
compared() { # compared RUN COMMAND...
	run=$1
	shift
	[ "$(tail -n 1 "$run.natively")" = "exit status 0" ] ||
		{ echo "fails natively:" && cat "$run.natively" "$run.natively.err" && return 1; }
	[ -z "$errors" ] || diff "$run.natively.err" "$run.served.err" || return 1
	diff "$run.natively" "$run.served" && return 0
	natively "$run.again" "$@"
	cmp -s "$run.natively" "$run.again" || echo "natively it is not the same twice"
	grep -ih 'frmps\|error' "$run.served.err" | sort | uniq -c | sort -rn | head -n 10
	return 1
}

same() { # same COMMAND...
	natively "$scratch/one.natively" "$@"
	served "$scratch/one.served" "$@"
	compared "$scratch/one" "$@"
}

[ -x "$build/tests/backend_check" ] && check "backend operations" "$build/tests/backend_check"
for suite in semantics process text graphs arrays; do
	check "$suite, native" env FRMPS_TEST_NATIVE=1 LD_LIBRARY_PATH="$native:${LD_LIBRARY_PATH:-}" \
		"$build/tests/system-test_$suite"
	check "$suite, through the service" env LD_LIBRARY_PATH="$shim:${LD_LIBRARY_PATH:-}" "$build/tests/system-test_$suite"
done
for suite in sharing trouble limits placing; do
	check "$suite" env LD_LIBRARY_PATH="$shim:${LD_LIBRARY_PATH:-}" "$build/tests/system-test_$suite"
done

"$build/server/frmps-server" --config /dev/null --socket "$scratch/frmps.sock" --backend cuda 2>"$scratch/log" &
server=$!
tries=0
until FRMPS_SOCKET="$scratch/frmps.sock" "$build/server/frmpsctl" status >/dev/null 2>&1 || [ $tries -gt 300 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
for program in "$device/runtime" "$device/runtime-shared"; do
	check "as natively: $(basename "$program")" same "$program"
done
for source in tests/gpu/corpus/*.cu; do
	name=$(basename "$source" .cu)
	errors=$(sed -n '1,12s,^// compared: ,,p' "$source")
	if [ -x "$device/corpus/$name" ]; then
		check "as natively: $name" same "$device/corpus/$name"
	else
		check "as natively: $name" sh -c "cat '$device/corpus/$name.log'; exit 1"
	fi
done
errors=
# Frameworks take seconds to start: several at a time.
cases=$(python3 tests/gpu/frameworks.py --list | sed 's/^/as natively: /' | grep -E "${FRMPS_GPU_TEST_ONLY:-.}" | sed 's/.*: //')
mkdir "$scratch/cases"
pids=
for name in $cases; do
	for way in natively served; do
		$way "$scratch/cases/$name.$way" python3 tests/gpu/frameworks.py "$name" &
		pids="$pids $!"
	done
	# shellcheck disable=SC2086
	[ "$(echo $pids | wc -w)" -lt 12 ] || { wait $pids; pids=; }
done
# shellcheck disable=SC2086
[ -z "$pids" ] || wait $pids
for name in $cases; do
	check "as natively: $name" compared "$scratch/cases/$name" python3 tests/gpu/frameworks.py "$name"
done
check "service holds nothing afterwards" sh -c "FRMPS_SOCKET='$scratch/frmps.sock' '$build/server/frmpsctl' status | tee /dev/stderr | grep -q 'no programs'"
kill $server
wait $server
server=
check "frameworks' processes" python3 -B tests/gpu/framework_processes.py --build "$build"
check "frameworks beside faults" python3 -B tests/gpu/framework_faults.py --build "$build" \
	--on-fault "default${FRMPS_GPU_TEST_SCALE:+,fast}"
check "demo" server/demo.sh --build "$build" --backend cuda

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
