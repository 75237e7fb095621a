// Tests of client/stage/copy_thread.c: every byte arrives, with one thread, with several threads
// that need the copy thread at once, and after the copy thread slept in between. A lost wake-up
// hangs (time limit). Runs under ThreadSanitizer, too.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/stage/copy_thread.h"
#include "tests/lib/suite.h"

#define BYTES ((size_t)(2 * COPY_THREAD_LEAST + 12345))

static void copy(void *dst, const void *src, uint64_t bytes)
{
	memcpy(dst, src, bytes);
}

/* Checks each word between two copies: long enough for the copy thread to fall asleep now and
 * then. */
static void *copy_often(void *seed)
{
	uint8_t *from = malloc(BYTES), *to = malloc(BYTES);
	uintptr_t wrong = 0;

	for (int round = 0; round < 60; round++) {
		size_t bytes = BYTES - (size_t)round * 7919;

		for (size_t i = 0; i < BYTES; i++)
			from[i] = (uint8_t)(i * 31 + (size_t)round + (uintptr_t)seed);
		memset(to, 0, BYTES);
		copy_thread_copy(copy, to, from, bytes);
		wrong += memcmp(to, from, bytes) != 0;
		wrong += bytes < BYTES && to[bytes] != 0;
	}
	free(from);
	free(to);
	return (void *)wrong;
}

TEST(copy_thread, one_thread)
{
	ck_assert_ptr_null(copy_often((void *)1));
}

TEST(copy_thread, several_threads_share_one_copy_thread)
{
	pthread_t threads[4];
	void *wrong;

	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, copy_often, (void *)i), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
}

int main(void)
{
	Suite *suite = suite_create("copy_thread");
	TCase *cases = suite_case(suite, "copy_thread");

	suite_add(cases, "copy_thread");
	return suite_run(suite);
}
