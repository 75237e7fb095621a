// Hashes of names and contents that are compared afterwards, or where a collision costs nothing:
// XXH3, 64 bits, of libxxhash. Not against an adversary. Any thread.

#ifndef FRMPS_PROTOCOL_HASH_H
#define FRMPS_PROTOCOL_HASH_H

#include <stddef.h>
#include <stdint.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define HASH_START UINT64_C(0)

/** Adds bytes to a hash, which begins as HASH_START. Bytes that are added in other pieces have
 * another hash. */
static inline uint64_t hash_add(uint64_t hash, const void *bytes, size_t count)
{
	return XXH3_64bits_withSeed(bytes, count, hash);
}

#endif
