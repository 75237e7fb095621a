#!/bin/sh
# cuda_abi.sh [CUDA_HOME]: is protocol/cuda_abi.h the interface of the installed CUDA? Compares every
# enumerator and constant of our header, and the structures listed in cuda_abi.c, with <cuda.h>; compiles the
# prototypes of client/entry/api.h against <cuda.h>; and, for the very version that frmps implements, checks
# that no result or attribute is missing and that client/api.def names the symbols of the stub library. Exits
# 77 (skipped) without CUDA. CC and CXX choose the compilers.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
cuda=${1:-${CUDA_HOME:-/usr/local/cuda}}
if [ ! -f "$cuda/include/cuda.h" ]; then
	echo "cuda_abi.sh: no $cuda/include/cuda.h, skipped" >&2
	exit 77
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
export LC_ALL=C

fail() {
	echo "cuda_abi.sh: $1" >&2
	failed=1
}

compile() { # compile ARGUMENTS...
	${CC:-cc} -std=gnu11 -Wall -Wno-deprecated-declarations -I"$scratch" -I"$root" "$@"
}

# Ours alone, as strictly as the languages allow.
for language in "${CC:-cc} -xc -std=c11" "${CXX:-c++} -xc++ -std=c++11"; do
	echo '#include "client/entry/api.h"' |
		$language -Wall -Wextra -Wpedantic -Werror -I"$root" -fsyntax-only - ||
		fail "our header does not compile alone ($language)"
done

{
	sed -n 's/^\t\(CU[A-Z0-9_a-z]*\) = .*,$/N(\1);/p' "$root/protocol/cuda_abi.h"
	sed -n 's/^X(\(CUDA[A-Z0-9_]*\), .*/N(\1);/p' "$root/protocol/errors.def"
	sed -n 's/^#define \(CU_[A-Z0-9_]*\)[ \t].*/N(\1);/p' "$root/protocol/cuda_abi.h"
} >"$scratch/abi_names.inc"
[ "$(wc -l <"$scratch/abi_names.inc")" -gt 400 ] || fail "cannot find the enumerators of our header"

compile "$root/tests/contract/cuda_abi.c" -o "$scratch/ours"
compile -DREAL -I"$cuda/include" "$root/tests/contract/cuda_abi.c" -o "$scratch/real"
"$scratch/ours" >"$scratch/ours.txt"
"$scratch/real" >"$scratch/real.txt"
diff -u "$scratch/real.txt" "$scratch/ours.txt" || fail "our header differs from $cuda/include/cuda.h"

cat >"$scratch/prototypes.c" <<'END'
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>
#define FRMPS_PROTOCOL_CUDA_ABI_H /* the types are the real ones here */
#include "client/entry/api.h"
END
compile -Werror -I"$cuda/include" -fsyntax-only "$scratch/prototypes.c" ||
	fail "a prototype in client/entry/api.h is wrong"

ours=$(sed -n 's/^#define CUDA_ABI_VERSION[ \t]*\([0-9]*\)$/\1/p' "$root/protocol/cuda_abi.h")
real=$(sed -n 's/^#define CUDA_VERSION[ \t]*\([0-9]*\).*/\1/p' "$cuda/include/cuda.h")
if [ "$ours" = "$real" ]; then
	for family in CUDA_ERROR_ CU_DEVICE_ATTRIBUTE_ CU_FUNC_ATTRIBUTE_ CU_POINTER_ATTRIBUTE_ CU_LIMIT_ CU_JIT_; do
		sed -n "s/^[ \t,]*\(${family}[A-Z0-9_]*\)[ \t]*\(=.*\|,.*\|\)\$/\1/p" "$cuda/include/cuda.h" |
			grep -Ev '_ACCESS_FLAG_|CU_JIT_INPUT_|CU_JIT_NUM_INPUT' | sort -u |
			while read -r name; do
				grep -q "^N($name);\$" "$scratch/abi_names.inc" || echo "$name"
			done >"$scratch/missing"
		[ ! -s "$scratch/missing" ] || fail "missing in our header: $(tr '\n' ' ' <"$scratch/missing")"
	done
	stub=$cuda/lib64/stubs/libcuda.so
	if [ -f "$stub" ]; then
		nm -D --defined-only "$stub" | awk '{ print $3 }' | sort >"$scratch/stub"
		sed -n 's/^API(\([A-Za-z0-9_]*\),.*/\1/p' "$root/client/api.def" | sort >"$scratch/rows"
		diff -u "$scratch/stub" "$scratch/rows" || fail "client/api.def and the stub library differ"
	fi
fi

[ $failed -ne 0 ] || echo "cuda_abi.sh: equal, $(wc -l <"$scratch/ours.txt") facts compared"
exit $failed
