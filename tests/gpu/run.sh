#!/bin/bash
# tests/gpu/run.sh [BUILD]: every test that needs a GPU, one line each. Exit status 0: all passed, 1: some failed, 77: no
# GPU here. BUILD is a build folder (default: build) that may have been made on another machine; nvcc builds what the
# tests run on the device, if it is not there yet.
#
# The programs of corpus/ and of frameworks.py run natively and through one service; their outputs must be the same to the
# byte; what differs runs natively once more. FRMPS_GPU_TEST_ONLY is a pattern (of grep -E) for the names of the checks to
# run. FRMPS_GPU_TEST_DEVICE is a folder for what nvcc builds; what is there already is not built again.
# FRMPS_GPU_TEST_LOG is a file for the log of that service; what it and a program that does not end wait for goes into a
# second one beside it, .stacks.
#
# FRMPS_GPU_TEST_SCALE=full runs the long forms: 100 000 launches of each of eight clients, 1000 killed clients, 64
# clients at a time, 20 programs one after the other that get an executor of their own (4, because a context needs its
# time there). A check may take FRMPS_GPU_TEST_LIMIT seconds (600).
set -u
cd "$(dirname "$0")/../.." || exit 1
folder=$(cd "${1:-build}" && pwd) || exit 1
nvidia-smi -L >/dev/null 2>&1 || { echo "no GPU"; exit 77; }
PATH=$PATH:/usr/local/cuda/bin
scratch=$(mktemp -d)
log=${FRMPS_GPU_TEST_LOG:-$scratch/log}
server=
trap 'kill $server 2>/dev/null; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
passed=0
failed=0

# Checks run side by side, $width at a time; each has its line when it ends.
width=1
begun=0
declare -A report_of=()

selected() { # selected NAME
	echo "$1" | grep -qE "${FRMPS_GPU_TEST_ONLY:-.}"
}

check() { # check NAME COMMAND...
	selected "$1" || return 0
	begun=$((begun + 1))
	run "$scratch/check.$begun" "$@" &
	report_of[$!]=$scratch/check.$begun
	[ ${#report_of[@]} -lt $width ] || next
}

run() { # run REPORT NAME COMMAND...
	local report=$1 begin limit status
	echo "$2" >"$report.name"
	shift 2
	begin=$(date +%s.%N)
	limit="timeout -k 20 ${FRMPS_GPU_TEST_LIMIT:-600}"
	case $1 in same | holds_nothing) limit= ;; esac # have their own
	$limit "$@" >"$report" 2>&1
	status=$?
	echo "$(date +%s.%N) $begin" | awk '{printf "%.1f\n", $1 - $2}' >"$report.took"
	echo $status >"$report.status"
}

# Waits until one of the checks has ended, and says how, with the end of its output where it failed.
next() {
	local ended report name status took
	wait -n -p ended "${!report_of[@]}"
	report=${report_of[$ended]}
	unset "report_of[$ended]"
	name=$(cat "$report.name") status=$(cat "$report.status") took=$(cat "$report.took")
	if [ "$status" -eq 0 ]; then
		passed=$((passed + 1))
		echo "ok    $name ($took s)"
	elif [ "$status" -eq 77 ]; then
		echo "skip  $name: $(tail -n 1 "$report")"
	else
		failed=$((failed + 1))
		echo "FAIL  $name (status $status, $took s)"
		tail -n 40 "$report" | sed 's/^/      /'
	fi
}

collect() {
	while [ ${#report_of[@]} -gt 0 ]; do next; done
}

device=${FRMPS_GPU_TEST_DEVICE:-$scratch/device}
mkdir -p "$device/corpus"
device=$(cd "$device" && pwd) || exit 1

build() { # build FILE OPTIONS...: with nvcc, unless it is there
	file=$1
	shift
	[ -e "$file" ] || nvcc -std=c++17 -arch=sm_90 -o "$file" "$@"
}

for source in kernels count_kernels held_kernels print; do
	build "$device/$source.cubin" -cubin "tests/lib/$source.cu" || exit 1
done
build "$device/runtime" -cudart static tests/gpu/runtime.cu || exit 1
build "$device/runtime-shared" -cudart shared tests/gpu/runtime.cu || exit 1
build "$device/kept_pointers" -rdc=true tests/gpu/kept_pointers.cu || exit 1
for source in tests/gpu/corpus/*.cu; do
	# The first lines of a program may say "// libraries: cublas cufft", what it links more; "// options: ...", what
	# stands for -rdc=true, further sources among it; "// plugin: FILE", a library to be beside it, named NAME.so;
	# "// compared: errors", that standard error has to be the same, too; "// alone", that nothing may run beside it.
	name=$(basename "$source" .cu)
	# settled() runs the first.
	[ "$name" = vector_add ] || selected "as natively: $name" || continue
	libraries=$(sed -n '1,12s,^// libraries: ,,p' "$source" | sed 's/[^ ]*/-l&/g')
	options=$(sed -n '1,12s,^// options: ,,p' "$source")
	plugin=$(sed -n '1,12s,^// plugin: ,,p' "$source")
	# shellcheck disable=SC2086
	build "$device/corpus/$name" ${options:--rdc=true} "$source" -lcuda $libraries >"$device/corpus/$name.log" 2>&1 &
	[ -z "$plugin" ] || build "$device/corpus/$name.so" -shared -Xcompiler -fPIC "$plugin" \
		>"$device/corpus/$name.so.log" 2>&1 &
done
wait

export FRMPS_TEST_SERVER="$folder/server/frmps-server" FRMPS_TEST_BACKEND=cuda FRMPS_TEST_KERNELS="$device/kernels.cubin"
export FRMPS_TEST_RUN="$folder/server/frmps-run" FRMPS_TEST_COUNT_KERNELS="$device/count_kernels.cubin"
export FRMPS_TEST_HELD_KERNELS="$device/held_kernels.cubin"
export FRMPS_TEST_PRINT="$device/print.cubin" FRMPS_TEST_CTL="$folder/server/frmpsctl"
export FRMPS_TEST_SAVED_PROGRAM="$folder/tests/saved_program"
export FRMPS_TEST_NVML_LIBRARY="$folder/tests/fake_nvml.so"
# Suites and programs are about one GPU, natively too.
export FRMPS_TEST_DEVICES=0
first=${CUDA_VISIBLE_DEVICES:-0}
export CK_LOG_FILE_NAME=- # each test is named when it ends: where one hangs, the last one is seen
native=$(dirname "$(ldconfig -p | sed -n 's/.*libcuda\.so\.1 .*=> //p' | head -n 1)")
[ -d "$native" ] || native=/usr/local/nvidia/lib64
shim=$folder/client
if [ "${FRMPS_GPU_TEST_SCALE:-}" = full ]; then
	export FRMPS_TEST_LAUNCHES=100000 FRMPS_TEST_KILLS=1000 FRMPS_TEST_MANY=64
else
	export FRMPS_TEST_SPLITS=4 FRMPS_TEST_SUSPEND_KILLS=12
fi

# A program natively, and through the service: what it prints and how it ends in FILE.
natively() { # natively FILE COMMAND...
	local into=$1
	shift
	CUDA_VISIBLE_DEVICES=$first LD_LIBRARY_PATH="$native:${LD_LIBRARY_PATH:-}" timeout 240 "$@" >"$into" 2>"$into.err"
	echo "exit status $?" >>"$into"
}

served() { # served FILE COMMAND...
	local into=$1 program
	shift
	FRMPS_SOCKET="$scratch/frmps.sock" timeout 240 "$folder/server/frmps-run" "$@" >"$into" 2>"$into.err" &
	program=$!
	timeout 200 tail --pid="$program" --sleep-interval=0.1 -f /dev/null ||
		python3 -B tests/gpu/stacks.py "$program" "$server" >>"$log.stacks"
	wait "$program"
	echo "exit status $?" >>"$into"
}

# What a program printed and how it ended must be the same natively and through the service. With $errors set, what it
# printed on standard error is, too.
errors=
same() { # same COMMAND...
	local into
	into=$(mktemp -d -p "$scratch")/out
	natively "$into.natively" "$@"
	served "$into.served" "$@"
	[ "$(tail -n 1 "$into.natively")" = "exit status 0" ] ||
		{ echo "fails natively:" && cat "$into.natively" "$into.natively.err" && return 1; }
	[ -z "$errors" ] || diff "$into.natively.err" "$into.served.err" || return 1
	diff "$into.natively" "$into.served" && return 0
	natively "$into.again" "$@"
	cmp -s "$into.natively" "$into.again" || echo "natively it is not the same twice"
	grep -ih 'frmps\|error' "$into.served.err" | sort | uniq -c | sort -rn | head -n 10
	return 1
}

# What one program's fault has left to do, and the memory of a new standby, is not the next one's affair: executors are
# there, a standby among them, and are the same for a second.
settled() {
	local tries=0 before='' now=none
	FRMPS_SOCKET="$scratch/frmps.sock" "$folder/server/frmps-run" "$device/corpus/vector_add" >/dev/null 2>&1
	until [ "$now" = "$before" ] && echo "$now" | grep -q 'standby *warm' || [ $tries -gt 30 ]; do
		tries=$((tries + 1))
		before=$now
		sleep 1
		now=$(FRMPS_SOCKET="$scratch/frmps.sock" "$folder/server/frmpsctl" status | grep '^ *executor')
	done
}

corpus() { # corpus NAME
	local source=tests/gpu/corpus/$1.cu
	errors=$(sed -n '1,12s,^// compared: ,,p' "$source")
	if [ -x "$device/corpus/$1" ]; then
		check "as natively: $1" same "$device/corpus/$1"
	else
		check "as natively: $1" sh -c "cat '$device/corpus/$1.log'; exit 1"
	fi
	errors=
}

[ -x "$folder/tests/backend_check" ] && {
	check "backend operations" "$folder/tests/backend_check"
	check "backend fence" "$folder/tests/backend_check" --fence
	check "backend fence beside a fault" "$folder/tests/backend_check" --fence fault
	check "trial of contained faults" "$folder/tests/backend_check" --trial
	check "trial of contained faults, 100 times" "$folder/tests/backend_check" --trial 100
	check "trial with warps outside their kernel" "$folder/tests/backend_check" --trial leave 50
	check "trial where faults are not contained" "$folder/tests/backend_check" --trial off
}
for suite in trouble limits exact bursts sharing placing events timing guard device caps pauses suspend saved drain weights; do
	check "$suite" env LD_LIBRARY_PATH="$shim:${LD_LIBRARY_PATH:-}" "$folder/tests/system-test_$suite"
done
for suite in semantics contexts streams threads calls process graphs graph_memory conditions captures capture_modes text arrays registered checkpoint green; do
	check "$suite, native" env FRMPS_TEST_NATIVE=1 CUDA_VISIBLE_DEVICES="$first" LD_LIBRARY_PATH="$native:${LD_LIBRARY_PATH:-}" \
		"$folder/tests/system-test_$suite"
	check "$suite, through the service" env LD_LIBRARY_PATH="$shim:${LD_LIBRARY_PATH:-}" "$folder/tests/system-test_$suite"
done
collect

"$folder/server/frmps-server" --config /dev/null --devices 0 --socket "$scratch/frmps.sock" --backend cuda \
	2>"$log" &
server=$!
tries=0
until FRMPS_SOCKET="$scratch/frmps.sock" "$folder/server/frmpsctl" status >/dev/null 2>&1 || [ $tries -gt 300 ]; do
	tries=$((tries + 1))
	sleep 0.1
done
width=8
for program in "$device/runtime" "$device/runtime-shared"; do
	check "as natively: $(basename "$program")" same "$program"
done
alone=
for source in tests/gpu/corpus/*.cu; do
	name=$(basename "$source" .cu)
	if sed -n 1,12p "$source" | grep -q '^// alone'; then
		alone="$alone $name"
	else
		corpus "$name"
	fi
done
for name in $(python3 tests/gpu/frameworks.py --list); do
	check "as natively: $name" same python3 tests/gpu/frameworks.py "$name"
done
collect
width=1
for name in $alone; do
	selected "as natively: $name" || continue
	settled
	corpus "$name"
done
# What a program leaves is given back when nothing runs any more.
holds_nothing() {
	local tries=0
	until FRMPS_SOCKET="$scratch/frmps.sock" "$folder/server/frmpsctl" status | tee "$scratch/status" | grep -q 'no programs'; do
		tries=$((tries + 1))
		[ $tries -lt 100 ] || { cat "$scratch/status" && return 1; }
		sleep 0.1
	done
}
check "service holds nothing afterwards" holds_nothing
collect
kill $server
wait $server
server=
check "frameworks' processes" python3 -B tests/gpu/framework_processes.py --build "$folder"
check "frameworks beside faults" python3 -B tests/gpu/framework_faults.py --build "$folder"
check "suspended training" python3 -B tests/gpu/suspended_training.py --build "$folder"
check "saved training" python3 -B tests/gpu/saved_training.py --build "$folder"
check "training on a drained device" python3 -B tests/gpu/drained.py --build "$folder"
check "training on changing devices" python3 -B tests/gpu/migrated.py --build "$folder"
check "trainings that take turns" python3 -B tests/gpu/swapped_training.py --build "$folder"
check "pointers to functions outlive an executor" bash tests/gpu/kept_pointers.sh "$folder" "$device/kept_pointers" \
	"$device/corpus/vector_add"
check "several devices" python3 -B tests/gpu/devices.py --build "$folder"
check "the size of a logical device" python3 -B tests/gpu/device_memory.py --build "$folder"
check "what NVML shows" python3 -B tests/gpu/nvml.py --build "$folder"
check "traces" python3 -B tests/gpu/trace.py --build "$folder"
check "verbs of stock MPS" python3 -B tests/gpu/mps_verbs.py --build "$folder"
check "demo" server/demo.sh --build "$folder" --backend cuda
collect

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
