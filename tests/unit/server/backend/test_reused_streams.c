// Streams of the cuda backend that are reused. The test is the driver.

#include <stdint.h>

#include "server/backend/cuda/cuda.h"
#include "tests/lib/suite.h"

#define KEPT 64

static uintptr_t made; /* streams are numbers from 1 on */
static CUstream destroyed;
static CUresult state, making; /* of any stream; of making one */

static CUresult create(CUstream *ret_stream, unsigned int flags, int priority)
{
	(void)priority;
	ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
	if (!making)
		*ret_stream = (CUstream)++made;
	return making;
}

static CUresult destroy(CUstream stream)
{
	destroyed = stream;
	return CUDA_SUCCESS;
}

static CUresult query(CUstream stream)
{
	(void)stream;
	return state;
}

static void set_up(void)
{
	cuda_stream_close();
	made = 0;
	destroyed = NULL;
	state = making = CUDA_SUCCESS;
	driver.stream_create = create;
	driver.stream_destroy = destroy;
	driver.stream_query = query;
}

static struct backend_stream *new_stream(int32_t priority)
{
	struct backend_stream *stream = NULL;

	ck_assert_int_eq(cuda_stream_create(priority, 0, &stream), CUDA_SUCCESS);
	ck_assert_ptr_nonnull(stream);
	return stream;
}

/* Return: whether the driver destroyed it */
static bool ends(struct backend_stream *stream)
{
	destroyed = NULL;
	ck_assert_int_eq(cuda_stream_destroy(stream), CUDA_SUCCESS);
	return destroyed == cuda_stream(stream);
}

TEST(reused_streams, the_first_free_one_is_used_again)
{
	struct backend_stream *streams[3];

	for (int i = 0; i < 3; i++)
		streams[i] = new_stream(0);
	ck_assert_uint_eq(made, 3);
	ck_assert(!ends(streams[2]));
	ck_assert(!ends(streams[1]));
	ck_assert_ptr_eq(new_stream(0), streams[1]);
	ck_assert_ptr_eq(new_stream(0), streams[2]);
	ck_assert_uint_eq(made, 3);
	new_stream(0);
	ck_assert_uint_eq(made, 4);
}

/* Whatever else has got a queue meanwhile. */
TEST(reused_streams, the_first_queues_are_the_usual_streams)
{
	struct backend_stream *first;

	cuda_stream_open();
	ck_assert_uint_eq(made, KEPT);
	new_stream(-1);
	first = new_stream(0);
	ck_assert_uint_eq((uintptr_t)first, 1);
	/* None of them is made when it is needed. */
	for (uintptr_t i = 2; i <= KEPT; i++)
		ck_assert_uint_eq((uintptr_t)new_stream(0), i);
	ck_assert_uint_eq(made, KEPT + 1);
	ck_assert_uint_eq((uintptr_t)new_stream(0), KEPT + 2);
}

TEST(reused_streams, at_first_some_may_be_missing)
{
	making = CUDA_ERROR_OUT_OF_MEMORY;
	cuda_stream_open();
	making = CUDA_SUCCESS;
	ck_assert_uint_eq((uintptr_t)new_stream(0), 1);
}

TEST(reused_streams, one_with_work_is_not)
{
	struct backend_stream *stream = new_stream(0);

	state = CUDA_ERROR_NOT_READY;
	ck_assert(ends(stream));
	state = CUDA_SUCCESS;
	ck_assert_ptr_ne(new_stream(0), stream);
}

TEST(reused_streams, nor_one_of_a_lost_context)
{
	struct backend_stream *stream = new_stream(0);

	state = CUDA_ERROR_LAUNCH_FAILED;
	ck_assert(ends(stream));
}

TEST(reused_streams, those_with_a_priority_are_not_reused)
{
	struct backend_stream *stream = new_stream(-1);

	ck_assert(ends(stream));
	ck_assert_ptr_ne(new_stream(0), stream);
}

TEST(reused_streams, beyond_the_most_they_are_the_drivers)
{
	struct backend_stream *first = NULL, *last = NULL;

	for (int i = 0; i < KEPT; i++) {
		last = new_stream(0);
		first = i ? first : last;
	}
	last = new_stream(0);
	ck_assert(ends(last));
	ck_assert(!ends(first));
	ck_assert_ptr_eq(new_stream(0), first);
}

TEST(reused_streams, what_cannot_be_made_takes_no_place)
{
	struct backend_stream *stream;

	making = CUDA_ERROR_OUT_OF_MEMORY;
	ck_assert_int_eq(cuda_stream_create(0, 0, &stream), CUDA_ERROR_OUT_OF_MEMORY);
	making = CUDA_SUCCESS;
	stream = new_stream(0);
	ck_assert(!ends(stream));
	ck_assert_ptr_eq(new_stream(0), stream);
}

int main(void)
{
	Suite *suite = suite_create("server/backend/reused_streams");
	TCase *tests = suite_case(suite, "reused_streams");

	tcase_add_checked_fixture(tests, set_up, NULL);
	suite_add(tests, "reused_streams");
	return suite_run(suite);
}
