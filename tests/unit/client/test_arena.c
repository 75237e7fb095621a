// Staging memory: how it is cut, and who gets how much of it.

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/link/connect.h"
#include "client/stage/arena.h"
#include "client/state/stream.h"
#include "tests/unit/client/shim.h"

#define PIECES_MOST 2048

static struct arena_lease leases[PIECES_MOST];
static unsigned int held;

static struct client_stream *new_stream(void)
{
	struct client_stream *stream;
	CUstream handle;

	OK(cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING));
	OK(stream_resolve(handle, false, &stream));
	return stream;
}

/* Holds as many pieces for a stream as it may have, of one size. Return: how many. */
static unsigned int hold_share(struct client_stream *stream, uint64_t bytes)
{
	unsigned int before = held;
	CUresult r;

	while ((r = arena_try(bytes, stream, &leases[held])) == CUDA_SUCCESS && leases[held].bytes == bytes)
		++held;
	if (r == CUDA_SUCCESS)
		arena_release(&leases[held]);
	else
		ck_assert_int_eq(r, CUDA_ERROR_NOT_READY);
	return held - before;
}

/* Holds all pieces of a size. Return: how many. */
static unsigned int hold_all(uint64_t bytes)
{
	unsigned int before = held;

	while (hold_share(new_stream(), bytes) > 0)
		continue;
	return held - before;
}

static const struct cut {
	uint64_t arena, largest;
	unsigned int count; /* of the largest */
} cuts[] = {{64 << 10, 4096, 16}, {256 << 10, 4096, 64}, {512 << 10, 65536, 7}, {2 << 20, 65536, 30},
	{8 << 20, 1 << 20, 6}, {32 << 20, 1 << 20, 24}, {64 << 20, 1 << 20, 50},
	{UINT64_C(1) << 30, 1 << 20, 1006}};

/* Of the largest size a large copy gets, there are as many as fit. */
TEST_LOOP(sizes, arenas_of_all_sizes_have_large_pieces, 0, sizeof(cuts) / sizeof(*cuts))
{
	const struct cut *cut = &cuts[_i];
	uint8_t *taken = calloc(cut->arena / 4096, 1);

	word_set(&loopback->arena_bytes, cut->arena);
	shim_attach();
	ck_assert_uint_eq(hold_all(cut->largest), cut->count);
	for (uint64_t bytes = 4096; bytes < cut->largest; bytes *= 16)
		ck_assert_uint_ge(hold_all(bytes), 4);
	for (unsigned int i = 0; i < held; ++i) {
		ck_assert_uint_le(leases[i].offset + leases[i].bytes, cut->arena);
		ck_assert_uint_eq(leases[i].offset / SHM_ARENA_PART_BYTES,
			(leases[i].offset + leases[i].bytes - 1) / SHM_ARENA_PART_BYTES);
		for (uint64_t page = 0; page < leases[i].bytes / 4096; ++page)
			ck_assert_uint_eq(taken[leases[i].offset / 4096 + page]++, 0);
	}
	free(taken);
}

TEST(shares, a_stream_leaves_pieces_to_others)
{
	struct client_stream *first = new_stream();

	ck_assert_uint_eq(hold_share(first, 4096), 384);
	ck_assert_uint_eq(hold_share(new_stream(), 4096), 96);
	/* What comes back is shared anew. */
	arena_release(&leases[0]);
	FAILS(arena_try(4096, first, &leases[0]), NOT_READY);
	OK(arena_try(4096, new_stream(), &leases[0]));
}

/* What a stream has used does not count when its commands are done, whoever saw that. */
TEST(shares, what_is_done_comes_back)
{
	struct client_stream *stream;
	CUstream handle;
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, 64));
	OK(cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING));
	OK(stream_resolve(handle, false, &stream));
	shim_pause();
	OK(cuMemsetD8Async(p, 1, 64, handle));
	ck_assert_uint_eq(hold_share(stream, 4096), 384);
	for (unsigned int i = 0; i < held; ++i)
		arena_sent(&leases[i], word_acquire(&stream->seq));
	FAILS(arena_try(4096, stream, &leases[0]), NOT_READY);
	shim_resume();
	held = 0;
	OK(arena_hold(4096, stream, &leases[held++]));
	ck_assert_uint_eq(hold_share(stream, 4096), 383);
}

TEST(shares, small_copies_have_large_pieces_when_there_is_no_other)
{
	hold_all(4096);
	OK(arena_try(4, new_stream(), &leases[held]));
	ck_assert_uint_eq(leases[held].bytes, 65536);
}

/* It never waits for another piece with one in hand. */
TEST(shares, one_piece_is_enough_for_a_large_copy)
{
	size_t bytes = 5 * MiB + 3;
	uint8_t *out = shim_pattern(bytes, 1), *in = calloc(1, bytes);
	CUdeviceptr p;

	OK(cuMemAlloc_v2(&p, bytes));
	OK(cuMemcpyHtoD_v2(p, out, bytes));
	OK(cuCtxSynchronize());
	hold_all(MiB);
	hold_all(65536);
	hold_all(4096);
	for (int size = 0; size < 3; ++size) {
		static const uint64_t sizes[] = {4096, 65536, 1 << 20};

		for (unsigned int i = 0; i < held; ++i)
			if (leases[i].bytes == sizes[size]) {
				arena_release(&leases[i]);
				break;
			}
	}
	OK(cuMemcpyDtoH_v2(in, p, bytes));
	ck_assert_int_eq(memcmp(in, out, bytes), 0);
	OK(cuMemcpyHtoD_v2(p, out, bytes));
	free(in);
	free(out);
}

static void *hold_one(void *stream)
{
	struct arena_lease lease;

	return (void *)(uintptr_t)arena_hold(MiB, stream, &lease);
}

/* Holders wait for commands, then go on with the pieces for a while. */
TEST(shares, a_piece_in_somebodys_hands_is_waited_for)
{
	struct client_stream *stream, *other = new_stream();
	unsigned int count;
	pthread_t thread;
	CUstream handle;
	CUdeviceptr p;
	void *result;

	OK(cuMemAlloc_v2(&p, 64));
	shim_pause();
	do {
		OK(cuStreamCreate(&handle, CU_STREAM_NON_BLOCKING));
		OK(stream_resolve(handle, false, &stream));
		OK(cuMemsetD8Async(p, 1, 64, handle));
		count = hold_share(stream, MiB);
		for (unsigned int i = held - count; i < held; ++i)
			arena_awaits(&leases[i], word_acquire(&stream->seq));
	} while (count > 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, hold_one, other), 0);
	shim_resume();
	OK(cuCtxSynchronize());
	arena_release(&leases[held - 1]);
	pthread_join(thread, &result);
	OK((CUresult)(uintptr_t)result);
}

int main(void)
{
	Suite *suite = suite_create("arena");
	TCase *sizes = suite_case(suite, "sizes"), *shares = suite_case(suite, "shares");

	tcase_add_checked_fixture(sizes, shim_setup_service, shim_teardown);
	suite_add(sizes, "sizes");
	tcase_add_checked_fixture(shares, shim_setup, shim_teardown);
	suite_add(shares, "shares");
	return suite_run(suite);
}
