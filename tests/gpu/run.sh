#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# SPDX-FileCopyrightText: The frmps authors
#
# tests/gpu/run.sh [BUILD]: every test that needs a GPU, one line each. Exit status 0: all passed, 1: some failed, 77: no
# GPU here. BUILD is a build folder (default: build) that may have been made on another machine; nvcc builds what the
# tests run on the device, if it is not there yet.
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
	begin=$(date +%s.%N)
	timeout -k 20 "${FRMPS_GPU_TEST_LIMIT:-600}" "$@" >"$scratch/out" 2>&1
	status=$?
	took=$(echo "$(date +%s.%N) $begin" | awk '{printf "%.1f", $1 - $2}')
	if [ $status -eq 0 ]; then
		passed=$((passed + 1))
		echo "ok    $name (${took} s)"
	else
		failed=$((failed + 1))
		echo "FAIL  $name (status $status, ${took} s)"
		tail -n 40 "$scratch/out" | sed 's/^/      /'
	fi
}

device=$scratch/device
mkdir "$device"
nvcc -arch=sm_90 -cubin -o "$device/kernels.cubin" tests/lib/kernels.cu || exit 1
nvcc -std=c++17 -arch=sm_90 -cudart static -o "$device/runtime" tests/gpu/runtime.cu || exit 1
nvcc -std=c++17 -arch=sm_90 -cudart shared -o "$device/runtime-shared" tests/gpu/runtime.cu || exit 1

export FRMPS_TEST_SERVER="$build/server/frmps-server" FRMPS_TEST_BACKEND=cuda FRMPS_TEST_KERNELS="$device/kernels.cubin"
export FRMPS_TEST_RUN="$build/server/frmps-run"
native=$(dirname "$(ldconfig -p | sed -n 's/.*libcuda\.so\.1 .*=> //p' | head -n 1)")
[ -d "$native" ] || native=/usr/local/nvidia/lib64
shim=$build/client
if [ "${FRMPS_GPU_TEST_SCALE:-}" = full ]; then
	export FRMPS_TEST_LAUNCHES=100000 FRMPS_TEST_KILLS=1000 FRMPS_TEST_MANY=64
fi

# The same program natively and through a service; its output must be the same to the byte.
same_output() { # same_output PROGRAM
	LD_LIBRARY_PATH="$native:${LD_LIBRARY_PATH:-}" "$1" >"$scratch/native" || return 1
	FRMPS_SOCKET="$scratch/frmps.sock" "$build/server/frmps-run" "$1" >"$scratch/shim" || return 1
	diff "$scratch/native" "$scratch/shim"
}

[ -x "$build/tests/backend_check" ] && check "backend operations" "$build/tests/backend_check"
check "semantics, native" env FRMPS_TEST_NATIVE=1 LD_LIBRARY_PATH="$native:${LD_LIBRARY_PATH:-}" \
	"$build/tests/system-test_semantics"
check "semantics, through the service" env LD_LIBRARY_PATH="$shim:${LD_LIBRARY_PATH:-}" "$build/tests/system-test_semantics"
for suite in sharing trouble limits; do
	check "$suite" env LD_LIBRARY_PATH="$shim:${LD_LIBRARY_PATH:-}" "$build/tests/system-test_$suite"
done

"$build/server/frmps-server" --config /dev/null --socket "$scratch/frmps.sock" --backend cuda 2>"$scratch/log" &
server=$!
tries=0
until FRMPS_SOCKET="$scratch/frmps.sock" "$build/server/frmpsctl" status >/dev/null 2>&1 || [ $tries -gt 300 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
for program in runtime runtime-shared; do
	same_output "$device/$program" >"$scratch/diff" 2>&1
	status=$?
	check "$program: output as natively" sh -c "cat '$scratch/diff' '$scratch/log'; exit $status"
done
kill $server
wait $server
server=
check "demo" server/demo.sh --build "$build" --backend cuda

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
