#!/bin/sh
# symbols.sh LIBCUDA SERVER NVML: does the built shim look like a driver library from outside? It exports exactly the
# symbols of client/api.def and what NVTX calls, without versions, answers to libcuda.so.1, needs nothing but the C library, 2.28 or newer,
# and lets nobody redirect its own references. Also keeps the version script equal to api.def. The server's own ioctl() and
# pthread_mutex_lock() must be found by the real driver library before those of the C library.
set -eu

library=${1:?usage: symbols.sh path/to/libcuda.so.1 path/to/frmps-server path/to/libnvidia-ml.so.1}
server=$2
nvml=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

fail() {
	echo "symbols.sh: $1" >&2
	failed=1
}

same() { # same WHAT EXPECTED FOUND
	diff -u "$2" "$3" >"$scratch/diff" || {
		fail "$1"
		head -n 40 "$scratch/diff" >&2
	}
}

export LC_ALL=C
sed -n 's/^API(\([A-Za-z0-9_]*\),.*/\1/p' "$root/client/api.def" | sort >"$scratch/wanted"
sed -n 's/^\t\([A-Za-z0-9_]*\);$/\1/p' "$root/client/libcuda.map" | sort >"$scratch/mapped"
nm -D --defined-only --with-symbol-versions "$library" >"$scratch/nm"
awk '{ print $3 }' "$scratch/nm" | sed 's/@.*//' | sort >"$scratch/exported"

[ "$(wc -l <"$scratch/wanted")" -eq 637 ] || fail "client/api.def does not have 637 rows"
[ -z "$(uniq -d "$scratch/wanted")" ] || fail "client/api.def names a symbol twice"
echo InitializeInjectionNvtx2 >>"$scratch/wanted"
sort -o "$scratch/wanted" "$scratch/wanted"
same "client/libcuda.map and client/api.def differ" "$scratch/wanted" "$scratch/mapped"
same "the exports and client/api.def differ" "$scratch/wanted" "$scratch/exported"

if grep -q '@' "$scratch/nm"; then
	fail "exported symbols carry versions"
fi
if awk '$2 != "T" { bad = 1; print } END { exit !bad }' "$scratch/nm" >&2; then
	fail "an export is not a function"
fi

readelf -dW "$library" >"$scratch/dynamic"
grep -q 'SONAME.*\[libcuda\.so\.1\]' "$scratch/dynamic" || fail "the SONAME is not libcuda.so.1"
sed -n 's/.*(NEEDED).*\[\(.*\)\].*/\1/p' "$scratch/dynamic" |
	grep -Ev '^(libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux-[a-z0-9_-]*\.so\.[0-9]+)$' >"$scratch/needed" || true
[ ! -s "$scratch/needed" ] || fail "needs more than the C library: $(tr '\n' ' ' <"$scratch/needed")"

# Undefined symbols of a version that glibc 2.28 does not have; a name without a number is private to one glibc.
newer() { # newer <NM_OUTPUT
	awk 'match($2, /@GLIBC_/) {
		split(substr($2, RSTART + 7), v, ".")
		if (v[1] !~ /^[0-9]+$/ || v[1] > 2 || v[1] == 2 && v[2] > 28) print $2
	}'
}
for version in 2.28 2.2.5 2.17; do
	[ -z "$(echo "U good@GLIBC_$version" | newer)" ] || fail "takes glibc $version for newer than 2.28"
done
for version in 2.29 2.34 2.100 3.0 PRIVATE ABI_DT_RELR; do
	[ -n "$(echo "U bad@GLIBC_$version" | newer)" ] || fail "does not notice glibc $version"
done
nm -D --undefined-only --with-symbol-versions "$library" >"$scratch/undefined"
grep -q ' malloc@GLIBC_' "$scratch/undefined" || fail "nm does not show versions"
if readelf -hW "$library" | grep -q 'X86-64'; then
	newer <"$scratch/undefined" >"$scratch/newer"
	[ ! -s "$scratch/newer" ] || fail "needs a newer glibc than 2.28: $(tr '\n' ' ' <"$scratch/newer")"
	if readelf -VW "$library" | grep 'Name: GLIBC_[A-Z]' >&2; then
		fail "needs something that only the glibc of this machine has"
	fi
fi

# A relocation that names a driver symbol is looked up in every loaded object at load time.
if readelf -rW "$library" | grep -E ' cu[A-Z][A-Za-z0-9_]* \+ ' | head -n 5 | grep . >&2; then
	fail "references to the library's own symbols are looked up by name (link with -Wl,-Bsymbolic)"
fi

for name in ioctl pthread_mutex_lock; do
	nm -D --defined-only "$server" | grep -q " T $name\$" || fail "$server does not export $name"
done

# The library in the place of NVML: its table, its version script and its exports.
{
	sed -n 's/^\(OWN\|REAL\)(\([A-Za-z0-9_]*\))$/\2/p' "$root/client/nvml/nvml.def"
	echo frmps_nvml
} | sort >"$scratch/wanted"
sed -n 's/^\t\([A-Za-z0-9_]*\);$/\1/p' "$root/client/nvml/nvml.map" | sort >"$scratch/mapped"
nm -D --defined-only "$nvml" | awk '{ print $3 }' | sort >"$scratch/exported"
same "client/nvml/nvml.map and nvml.def differ" "$scratch/wanted" "$scratch/mapped"
same "the exports and client/nvml/nvml.def differ" "$scratch/wanted" "$scratch/exported"
readelf -dW "$nvml" | grep -q 'SONAME.*\[libnvidia-ml\.so\.1\]' || fail "the SONAME is not libnvidia-ml.so.1"
if readelf -dW "$nvml" | grep NEEDED | grep -q 'stdc++'; then
	fail "libnvidia-ml.so.1 needs a C++ library"
fi

exit $failed
