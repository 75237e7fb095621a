#!/bin/sh
# server/demo.sh: the project's purpose, shown by one command. Installs missing packages and builds, starts a private
# service (on the GPU if there is one, else on the host backend) and unmodified programs that share it. One of them
# crashes. A table shows how the others fare, and the last line compares with stock MPS.
#
#   server/demo.sh [--build FOLDER] [--backend cuda|host]
#
#   --build    use a folder that is built already; install and build nothing
#   --backend  only this backend
#
# Exit status: 0 if the survivors' data is exact and the culprit got its error, else 1; 2: usage.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1

usage() {
	sed -n '6,9s/^# \{0,1\}//p' server/demo.sh >&2
	exit 2
}

build=build
backend=
prepared=no
while [ $# -gt 0 ]; do
	case "$1 ${2-}" in
	"--build "?*) build=$2 prepared=yes ;;
	"--backend cuda" | "--backend host") backend=$2 ;;
	"--help "* | "-h "*) sed -n '2,12s/^# \{0,1\}//p' server/demo.sh; exit 0 ;;
	*) usage ;;
	esac
	shift 2
done

scratch=$(mktemp -d) || exit 1
server=
view=
mps=no
stop() { # stop PID
	[ -z "$1" ] || { kill "$1" && wait "$1"; } 2>/dev/null
}
clean_up() {
	trap '' INT TERM HUP
	stop "$view"
	stop "$server"
	[ $mps = no ] || echo quit -t 1 | nvidia-cuda-mps-control >/dev/null 2>&1
	rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

fail() { # fail TEXT [LOG]
	[ -z "${2-}" ] || tail -n 30 "$2" >&2
	echo "demo.sh: $1" >&2
	exit 1
}

compile() {
	ninja -C "$build" demo 2>&1
	echo $? >"$scratch/compiled"
}
# On a terminal: how many of the steps are done.
show_progress() {
	while read -r step _; do
		case $step in
		\[*/*\]) [ ! -t 1 ] || printf '\r%s ' "$step" ;;
		esac
	done
	[ ! -t 1 ] || echo
}

. tests/lib/build.sh
if [ "$prepared" = no ]; then
	install_packages
	echo "building in $build/, which takes some minutes the first time …"
	configure "$build" -Dbuildtype=debugoptimized >"$scratch/build" 2>&1 ||
		fail "the build cannot be configured" "$scratch/build"
	compile | tee "$scratch/build" | show_progress
	[ "$(cat "$scratch/compiled")" = 0 ] || fail "the build failed" "$scratch/build"
fi
for file in server/frmps-server server/frmps-run server/frmpsctl server/demo_view server/demo_worker \
	tests/host/demo_host_module.so tests/host/host_backend.so; do
	[ -e "$build/$file" ] || fail "$build/$file is not there: build it with ninja -C $build demo"
done
build=$(cd "$build" && pwd)

# In a folder of its own, apart from any other service and its files.
export FRMPS_SOCKET="$scratch/frmps.sock"
start() { # start BACKEND
	backend=$1
	"$build/server/frmps-server" --config /dev/null --devices 0 --socket "$FRMPS_SOCKET" --backend "$backend" 2>"$scratch/log" &
	server=$!
}
status() {
	"$build/server/frmpsctl" status --json 2>/dev/null
}
wanted=$backend
start "${wanted:-cuda}"
tries=0
until status | grep -q standby; do
	if ! kill -0 "$server" 2>/dev/null; then
		wait "$server"
		# 69: there is no usable GPU.
		{ [ $? = 69 ] && [ -z "$wanted" ]; } || { server=; fail "the service ended" "$scratch/log"; }
		wanted=host
		start host
	fi
	[ $tries -lt 600 ] || fail "the service does not become ready within a minute" "$scratch/log"
	tries=$((tries + 1))
	sleep 0.1
done

if [ "$backend" = host ]; then
	export FRMPS_DEMO_MODULE="$build/tests/host/demo_host_module.so"
	echo "Without a GPU: kernels are C functions, and a fault is a real signal in the"
	echo "process that runs them. Pauses are those of this machine's processors."
fi
python=
[ "$backend" = host ] || ! python3 -c 'import torch; assert torch.version.cuda' 2>/dev/null || python=yes

# Runs the programs, each started by a runner, shows them, and waits for their end.
show() { # show TITLE RUNNER
	title=$1 runner=$2 worker=$build/server/demo_worker
	set -- survivor-1 "$runner" "$worker" -- survivor-2 "$runner" "$worker" --
	[ -z "$python" ] || set -- "$@" pytorch "$runner" python3 -B server/demo/survivor.py --
	"$build/server/demo_view" "$title" "$@" crasher "$runner" "$worker" 2>"$scratch/errors" &
	view=$!
	wait "$view"
	result=$?
	view=
}

# The service's own text, in lines that fit.
verdict() {
	tries=0
	until text=$(status | sed -n 's/.*"verdict": *"\([^"]*culprit[^"]*\)".*/\1/p') && [ -n "$text" ]; do
		[ $tries -lt 20 ] || { echo "The service names nobody."; return; }
		tries=$((tries + 1))
		sleep 0.1
	done
	echo "The service's verdict:"
	echo "$text" | sed 's/\([^;]*;[^;]*\);.*/\1/' | fold -s -w 76 | sed 's/^/  /; s/ *$//'
}

echo "Programs share one context. After two seconds one of them writes to address 0x10."
echo
export FRMPS_LOG=off
show frmps "$build/server/frmps-run"
[ $result -lt 128 ] || exit $result
[ $result = 0 ] || cat "$scratch/errors" "$scratch/log"
good=$result
verdict
echo

# The same under stock MPS, where available. The result does not affect this script's exit status.
if [ "$backend" = cuda ] && command -v nvidia-cuda-mps-control >/dev/null; then
	stop "$server"
	server=
	unset FRMPS_SOCKET
	export CUDA_MPS_PIPE_DIRECTORY="$scratch/mps" CUDA_MPS_LOG_DIRECTORY="$scratch/mps-log"
	mkdir "$CUDA_MPS_PIPE_DIRECTORY" "$CUDA_MPS_LOG_DIRECTORY"
	if nvidia-cuda-mps-control -d >"$scratch/mps-errors" 2>&1; then
		mps=yes
		show "stock MPS" env
		exit "$good"
	fi
	cat "$scratch/mps-errors"
fi
echo "Under stock MPS every program that shares the GPU gets an error at such a fault"
echo "(measured on an H200: bench/results/README.md, \"Stock MPS\")."
exit "$good"
