// Hashes of names and contents.

#include "protocol/hash.h"

#include "tests/lib/suite.h"

#define MOST 40

/* As the authors of FNV-1a give them. */
TEST(hash, short_names_have_the_hashes_of_fnv_1a)
{
	ck_assert_uint_eq(hash_add(HASH_START, "", 0), UINT64_C(0xcbf29ce484222325));
	ck_assert_uint_eq(hash_add(HASH_START, "a", 1), UINT64_C(0xaf63dc4c8601ec8c));
	ck_assert_uint_eq(hash_add(HASH_START, "foobar", 6), UINT64_C(0x85944171f73967e8));
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

/* Multiplications alone carry the highest bit of a word nowhere. */
TEST(hash, the_highest_bits_of_two_words_do_not_meet)
{
	uint8_t bytes[16] = {0};
	uint64_t before = hash_add(HASH_START, bytes, sizeof(bytes));

	bytes[7] = bytes[15] = 0x80;
	ck_assert_uint_ne(hash_add(HASH_START, bytes, sizeof(bytes)), before);
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
