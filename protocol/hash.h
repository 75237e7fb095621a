// FNV-1a, 64 bits (Fowler, Noll, Vo): names and contents that are compared afterwards, or where a
// collision costs nothing. Not against an adversary. Any thread.

#ifndef FRMPS_PROTOCOL_HASH_H
#define FRMPS_PROTOCOL_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(0xcbf29ce484222325)
#define HASH_PRIME UINT64_C(0x100000001b3)

/** Adds bytes to a hash, which begins as HASH_START. */
static inline uint64_t hash_add(uint64_t hash, const void *bytes, size_t count)
{
	const uint8_t *at = (const uint8_t *)bytes;

	for (size_t i = 0; i < count; i++)
		hash = (hash ^ at[i]) * HASH_PRIME;
	return hash;
}

#endif
