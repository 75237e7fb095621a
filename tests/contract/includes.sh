#!/bin/sh
# includes.sh: do the rooms only use what they may? protocol ← shm ← {client, server}; client and server never include
# each other; tests and bench may include all. The event loop and the generated tables have their few places.
set -eu
export LC_ALL=C

root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Prints a line per include that is not allowed under the folder TREE.
violations() ( # violations TREE
	cd "$1"
	find protocol shm client server -name '*.[ch]' -o -name '*.cc' -o -name '*.def' 2>/dev/null | sort |
		xargs -r grep -Hn '^[[:space:]]*#[[:space:]]*include' |
		sed 's/^\([^:]*\):\([0-9]*\):[[:space:]]*#[[:space:]]*include[[:space:]]*\([<"][^>"]*[>"]\).*/\1 \2 \3/' |
		awk '
			function bad(why) { print $1 ":" $2 ": " $3 ": " why }
			{
				room = $1; sub("/.*", "", room)
				what = substr($3, 2, length($3) - 2)
				target = what; sub("/.*", "", target)
				part = $1; sub("^[a-z]*/", "", part); sub("/.*", "", part)
			}
			what ~ /_generated\.h$/ {
				if ($1 != "protocol/wire.cc")
					bad("only wire.cc sees generated tables")
				next
			}
			$3 ~ /^</ {
				if (what ~ /^uv(\/|\.h$)/ &&
				    !(room == "server" && part ~ /^(loop|session|control|service\.c|daemon_main\.c)$/))
					bad("the event loop lives in server/{loop,session,control,service.c,daemon_main.c}")
				if (what ~ /^flatbuffers\// && $1 !~ /\.cc$/)
					bad("flatbuffers is for wire.cc")
				next
			}
			target !~ /^(protocol|shm|client|server)$/ || what !~ /\// {
				bad("own headers are included by their path from the top")
				next
			}
			target == room || target == "protocol" { next }
			target == "shm" && room != "protocol" { next }
			{ bad(room " must not use " target) }
		'
	# Everything is C but the file beside the schema.
	find protocol shm client server \( -name '*.cc' -o -name '*.cpp' -o -name '*.hpp' \) 2>/dev/null |
		grep -v -x protocol/wire.cc | sed 's/$/: must be C/' || true
)

# Self-check: each planted line must be found, each allowed one must not.
plant() { # plant EXPECTED FILE LINE
	rm -rf "$scratch/tree"
	mkdir -p "$scratch/tree/protocol" "$scratch/tree/shm" "$scratch/tree/client" "$scratch/tree/server"
	mkdir -p "$(dirname "$scratch/tree/$2")"
	printf '/* planted */\n%s\n' "$3" >"$scratch/tree/$2"
	found=$(violations "$scratch/tree" | wc -l)
	if [ "$found" -ne "$1" ]; then
		echo "includes.sh: $3 in $2: $found violations found instead of $1" >&2
		exit 1
	fi
}
plant 1 client/state/a.c '#include "server/session/session.h"'
plant 1 server/executor/a.c '#include "client/state/log.h"'
plant 1 shm/a.h '#include "server/log.h"'
plant 1 shm/a.h '# include	"client/state/log.h"'
plant 1 protocol/a.h '#include "shm/layout.h"'
plant 1 server/executor/a.c '#include "executor.h"'
plant 1 server/executor/a.c '#include <uv.h>'
plant 1 client/link/a.c '  #include <uv.h>'
plant 1 server/session/a.c '#include "control_generated.h"'
plant 1 server/session/a.cc '#include "server/session/session.h"'
plant 0 server/loop/a.c '#include <uv.h>'
plant 0 server/fault/a.c '#include "shm/base/log.h"'
plant 0 client/submit/a.c '#include "client/state/log.h"'
plant 0 shm/base/a.c '#include "protocol/command.h"'
plant 0 protocol/wire.cc '#include "control_generated.h"'

violations "$root" >"$scratch/violations"
cat "$scratch/violations" >&2
[ ! -s "$scratch/violations" ]
