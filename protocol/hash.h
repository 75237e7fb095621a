// FNV-1a, 64 bits (Fowler, Noll, Vo; the constants are theirs), of words of eight bytes: names and
// contents that are compared afterwards, or where a collision costs nothing. A multiplication
// carries differences upwards only, so each step brings the upper half down as well. Two contents
// that differ in one word never have the same hash. Not against an adversary. Any thread.

#ifndef FRMPS_PROTOCOL_HASH_H
#define FRMPS_PROTOCOL_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define HASH_START UINT64_C(0xcbf29ce484222325)
#define HASH_PRIME UINT64_C(0x100000001b3)

/** Adds bytes to a hash, which begins as HASH_START. Bytes that are added in other pieces have
 * another hash. */
static inline uint64_t hash_add(uint64_t hash, const void *bytes, size_t count)
{
	const uint8_t *at = (const uint8_t *)bytes;
	uint64_t word;

	for (; count >= sizeof(word); at += sizeof(word), count -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		hash = (hash ^ word) * HASH_PRIME;
		hash ^= hash >> 29;
	}
	for (; count; at++, count--)
		hash = (hash ^ *at) * HASH_PRIME;
	return hash;
}

#endif
