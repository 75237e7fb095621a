#!/bin/bash
# tests/gpu/kept_pointers.sh BUILD PROGRAM OTHER: PROGRAM (kept_pointers.cu) keeps pointers to its functions, loses its
# executor, and must find its functions where they were in the next one, although OTHER, which is gone, had loaded code
# before it. Exit status: 1 if not.
set -u
build=$1 program=$2 other=$3
scratch=$(mktemp -d)
server=
trap 'kill $server 2>/dev/null; rm -rf "$scratch"' EXIT
export FRMPS_SOCKET=$scratch/frmps.sock

executor() { # executor WHICH: the process of one that has this role, or is in this state
	"$build/server/frmpsctl" status | awk -v which="$1" '$1 == "executor" && ($3 == which || $4 == which) { print $2; exit }'
}

await() { # await COMMAND...: until it says something, for half a minute
	local tries=0 said
	until said=$("$@" 2>/dev/null) && [ -n "$said" ]; do
		tries=$((tries + 1))
		[ $tries -lt 300 ] || { echo "never: $*" >&2 && return 1; }
		sleep 0.1
	done
	echo "$said"
}

"$build/server/frmps-server" --config /dev/null --devices 0 --socket "$FRMPS_SOCKET" --backend cuda 2>"$scratch/log" &
server=$!
await "$build/server/frmpsctl" status >/dev/null || exit 1
"$build/server/frmps-run" "$other" >/dev/null || exit 1
mkfifo "$scratch/on"
"$build/server/frmps-run" "$program" <"$scratch/on" >"$scratch/said" 2>&1 &
running=$!
exec 3>"$scratch/on"
await grep -m 1 . "$scratch/said" >/dev/null || exit 1
await executor warm >/dev/null || exit 1
old=$(await executor active) || exit 1
kill -9 "$old"
echo >&3
wait $running
cat "$scratch/said"
[ "$(await executor active)" != "$old" ] || { echo "the executor is still there" && exit 1; }
if [ "$(wc -l <"$scratch/said")" -ne 2 ] || [ "$(sort -u "$scratch/said" | wc -l)" -ne 1 ] ||
	! grep -q '^cudaSuccess: ' "$scratch/said"; then
	tail -n 20 "$scratch/log"
	exit 1
fi
