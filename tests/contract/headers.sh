#!/bin/sh
# headers.sh BUILD: does every header compile alone, as the first include of a file, and twice in a row, with the headers
# that the build makes? CC and CXX choose the compilers.
set -eu
export LC_ALL=C

build=$(cd "$1" && pwd)
cd "$(dirname "$0")/../.."
root=$PWD
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

alone() { # alone FOLDER HEADER
	printf '#include "%s"\n#include "%s"\n' "$2" "$2" >"$scratch/alone.c"
	${CC:-cc} -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Wshadow -Wundef -Wstrict-prototypes -Wno-unused-function \
		-Werror -I"$1" -I"$build" -fsyntax-only "$scratch/alone.c" 2>"$scratch/errors"
}

# Self-check: a header that leans on the file that includes it.
mkdir "$scratch/protocol"
echo 'int planted(uint32_t value);' >"$scratch/protocol/planted.h"
if alone "$scratch" protocol/planted.h; then
	echo "headers.sh: a header that does not compile alone is not noticed" >&2
	exit 1
fi

failed=0
# Those of the corpus are CUDA C++: nvcc's.
find protocol shm client server tests bench -name '*.h' ! -path 'tests/gpu/corpus/*' | sort >"$scratch/headers"
[ -s "$scratch/headers" ] || failed=1
while read -r header; do
	alone "$root" "$header" || {
		echo "headers.sh: $header does not compile alone" >&2
		head -n 12 "$scratch/errors" >&2
		failed=1
	}
done <"$scratch/headers"

# The headers that C++ files of ours include.
for header in protocol/wire.h protocol/command.h; do
	echo "#include \"$header\"" | ${CXX:-c++} -std=c++17 -Wall -Wextra -Werror -I"$root" -I"$build" -fsyntax-only -xc++ - || {
		echo "headers.sh: $header does not compile as C++" >&2
		failed=1
	}
done
echo "$(wc -l <"$scratch/headers") headers"
exit $failed
