#!/bin/sh
# server/demo.sh: what the project is for, in one command. Installs what is missing and builds, starts a private service
# (on the GPU if there is one, else on the host backend), runs three unmodified programs that share it, lets one of them
# fault, and ends with a table: who faulted, how long the others paused, their checksums against the expected ones.
#
#   server/demo.sh [--build FOLDER] [--backend cuda|host]
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1

build=build
backend=
prepared=no
while [ $# -gt 0 ]; do
	case $1 in
	--build) build=$2 prepared=yes; shift 2 ;;
	--backend) backend=$2; shift 2 ;;
	*) sed -n '5,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
	esac
done

scratch=$(mktemp -d)
server=
clean_up() {
	[ -n "$server" ] && kill "$server" 2>/dev/null && wait "$server" 2>/dev/null
	rm -rf "$scratch"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

. tests/lib/build.sh
if [ "$prepared" = no ]; then
	install_packages
	echo "building …"
	{ configure "$build" -Dbuildtype=debugoptimized && ninja -C "$build"; } >"$scratch/build" 2>&1 || {
		tail -n 30 "$scratch/build"
		echo "the build failed"
		exit 1
	}
fi
build=$(cd "$build" && pwd)

export FRMPS_SOCKET="$scratch/frmps.sock"
start() { # start BACKEND
	backend=$1
	"$build/server/frmps-server" --config /dev/null --socket "$FRMPS_SOCKET" --backend "$backend" 2>"$scratch/log" &
	server=$!
}
wanted=$backend
start "${wanted:-cuda}"
tries=0
until "$build/server/frmpsctl" status --json 2>/dev/null | grep -q standby; do
	# 69: there is no usable GPU.
	if ! kill -0 "$server" 2>/dev/null && [ -z "$wanted" ]; then
		wait "$server"
		[ $? = 69 ] && wanted=host && cat "$scratch/log" && start host
	fi
	kill -0 "$server" 2>/dev/null && [ $tries -lt 600 ] || {
		cat "$scratch/log"
		echo "the service did not start"
		exit 1
	}
	tries=$((tries + 1))
	sleep 0.1
done

[ $backend = host ] && export FRMPS_DEMO_MODULE="$build/server/demo_host_module.so"
echo "backend: $backend. Three programs share one context; 'crasher' will write to nowhere after two seconds."
echo
for program in survivor-1 survivor-2 crasher; do
	fault=
	recovery=replay # the survivors' kernels only overwrite: they may be repeated
	[ $program = crasher ] && fault=--fault recovery=fail
	FRMPS_LOG=off "$build/server/frmps-run" --recovery $recovery \
		"$build/server/demo_worker" $program 5 $fault >"$scratch/$program" 2>"$scratch/$program.err" &
	eval "pid_$(echo $program | tr - _)=$!"
done
tail -q -n +1 -F --pid="$pid_survivor_1" "$scratch/survivor-1" "$scratch/survivor-2" "$scratch/crasher" 2>/dev/null |
	grep --line-buffered -v '^result' &
watcher=$!
wait "$pid_survivor_1" "$pid_survivor_2" "$pid_crasher"
wait "$watcher"
cat "$scratch"/*.err

echo
printf '%-12s %8s %8s %16s  %-18s %-18s %s\n' program pid rounds 'longest pause' checksum expected ended
good=yes
for program in survivor-1 survivor-2 crasher; do
	result=$(sed -n 's/^result //p' "$scratch/$program")
	[ -n "$result" ] || result="$program - 0 - - - 'died'"
	# shellcheck disable=SC2086
	set -- $result
	ended="with $7"
	[ "$7" = none ] && ended="well"
	printf '%-12s %8s %8s %13s ms  %-18s %-18s %s\n' "$1" "$2" "$3" "$4" "$5" "$6" "$ended"
	[ "$5" = "$6" ] || good=no
	case $program in
	crasher) [ "$7" != none ] || good=no ;;
	*) [ "$7" = none ] || good=no ;;
	esac
done
echo
grep 'promotion: ' "$scratch/log"
if [ $good = yes ]; then
	echo "One program faulted. The others went on, and every result they computed is right."
else
	echo "This did not go as it should; the service's log:"
	cat "$scratch/log"
	exit 1
fi
