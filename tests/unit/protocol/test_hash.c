// Hashes of names and contents.

#include "protocol/hash.h"

#include "tests/lib/suite.h"

#define MOST 40

/* Archives and caches outlive a build. */
TEST(hash, is_xxh3)
{
	ck_assert_uint_eq(hash_add(HASH_START, "", 0), UINT64_C(0x2d06800538d394c2));
	ck_assert_uint_eq(hash_add(HASH_START, "foobar", 6), UINT64_C(0xd78fda63144c5c84));
}

TEST(hash, every_bit_matters)
{
	uint8_t bytes[MOST] = {0};

	for (size_t count = 1; count <= MOST; count++) {
		uint64_t before = hash_add(HASH_START, bytes, count);

		ck_assert_uint_ne(before, hash_add(HASH_START, bytes, count - 1));
		for (size_t bit = 0; bit < 8 * count; bit++) {
			bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
			ck_assert_uint_ne(hash_add(HASH_START, bytes, count), before);
			bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
}

TEST(hash, bytes_may_lie_anywhere)
{
	uint8_t bytes[MOST + 8];
	uint64_t first = 0;

	for (size_t at = 0; at < 8; at++) {
		for (size_t i = 0; i < MOST; i++)
			bytes[at + i] = (uint8_t)(i * 37);
		if (!at)
			first = hash_add(HASH_START, bytes, MOST);
		ck_assert_uint_eq(hash_add(HASH_START, bytes + at, MOST), first);
	}
}

int main(void)
{
	Suite *suite = suite_create("hash");

	suite_add(suite_case(suite, "hash"), "hash");
	return suite_run(suite);
}
