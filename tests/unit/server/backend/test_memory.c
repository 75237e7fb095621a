// Memory of the host backend: chunks, windows, registration, copies and fills against a naive
// reference.

#include "tests/unit/server/backend/bed.h"

#include <errno.h>
#include <sys/stat.h>

#define GRANULE BACKEND_CHUNK_GRANULE

TEST(memory, chunks_are_counted_against_the_device)
{
	uint64_t handles[3], one_more;
	int fds[3], fd;

	/* The bed has one granule. */
	ck_assert_int_eq(setenv("FRMPS_HOST_MEMORY", "8M", 1), 0);
	for (int i = 0; i < 3; i++)
		ok(OPS->chunk_create(GRANULE, &handles[i], &fds[i]));
	ck_assert_int_eq(OPS->chunk_create(GRANULE, &one_more, &fd), CUDA_ERROR_OUT_OF_MEMORY);
	ok(OPS->chunk_release(handles[1]));
	ck_assert_int_eq(OPS->chunk_release(handles[1]), CUDA_ERROR_INVALID_VALUE);
	ok(OPS->chunk_create(GRANULE, &one_more, &fd));
	ck_assert_int_eq(OPS->chunk_create(0, &one_more, &fd), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(OPS->chunk_create(4096, &one_more, &fd), CUDA_ERROR_INVALID_VALUE);
	ok(OPS->chunk_release(handles[0]));
	ok(OPS->chunk_release(handles[2]));
	ok(OPS->chunk_release(one_more));
	close(fd);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
}

TEST(memory, a_chunk_is_shared_by_its_mappings)
{
	uint32_t *here = memory(0), *there = memory(2 * GRANULE);
	uint64_t free_bytes, free_before, total;

	ok(OPS->memory_info(&free_before, &total));
	ck_assert_uint_eq(total, bed.device.total_bytes);
	ok(OPS->chunk_map(device(2 * GRANULE), GRANULE, bed.chunk_fd));
	ok(OPS->memory_info(&free_bytes, &total));
	ck_assert_uint_eq(free_bytes, free_before - GRANULE);
	here[5] = 0xabcd;
	ck_assert_uint_eq(there[5], 0xabcd);
	ok(OPS->chunk_unmap(device(2 * GRANULE), GRANULE));
}

TEST(memory, wrong_mappings_are_refused)
{
	uint64_t outside = free_address(GRANULE);
	int pipe_ends[2];

	ck_assert_int_eq(OPS->window_reserve(bed.window + GRANULE, GRANULE), CUDA_ERROR_MAP_FAILED);
	ck_assert_int_eq(OPS->window_reserve(bed.window + 1, GRANULE), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(OPS->chunk_map(outside, GRANULE, bed.chunk_fd), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(OPS->chunk_map(device(0), GRANULE, bed.chunk_fd), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		OPS->chunk_map(device(GRANULE), 2 * GRANULE, bed.chunk_fd), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(OPS->chunk_map(device(BED_WINDOW), GRANULE, bed.chunk_fd), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		OPS->chunk_map(device(GRANULE) + 4096, GRANULE, bed.chunk_fd), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(pipe(pipe_ends), 0);
	ck_assert_int_eq(OPS->chunk_map(device(GRANULE), GRANULE, pipe_ends[0]), CUDA_ERROR_INVALID_VALUE);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
	ck_assert_int_eq(OPS->chunk_unmap(device(GRANULE), GRANULE), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(OPS->chunk_unmap(device(0), 2 * GRANULE), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(
		OPS->window_release(bed.window, BED_WINDOW), CUDA_ERROR_INVALID_VALUE); /* not empty */
}

TEST(memory, an_unmapped_chunk_leaves_the_window_reserved)
{
	void *at;

	ok(OPS->chunk_map(device(GRANULE), GRANULE, bed.chunk_fd));
	ok(OPS->chunk_unmap(device(GRANULE), GRANULE));
	at = mmap(memory(GRANULE), GRANULE, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	ck_assert_ptr_eq(at, MAP_FAILED);
	ck_assert_int_eq(errno, EEXIST);
}

TEST(memory, registered_memory_is_kept_in_books)
{
	char *at = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	ok(OPS->host_register(at, 32768));
	ck_assert_int_eq(OPS->host_register(at + 16384, 32768), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	ok(OPS->host_register(at + 32768, 32768));
	ck_assert_int_eq(OPS->host_unregister(at + 4096), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	ok(OPS->host_unregister(at));
	ck_assert_int_eq(OPS->host_unregister(at), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	ok(OPS->host_unregister(at + 32768));
	munmap(at, 65536);
	ck_assert_int_eq(OPS->host_register(at, 65536), CUDA_ERROR_INVALID_VALUE);
}

/*
 * Copies
 */

static uint32_t next_random(void)
{
	static uint32_t state = 12345;

	state = state * UINT32_C(1664525) + UINT32_C(1013904223);
	return state >> 8;
}

static void reference_copy(uint8_t *dst, const uint8_t *src, const struct backend_copy *c)
{
	for (uint64_t z = 0; z < c->depth; z++)
		for (uint64_t y = 0; y < c->height; y++)
			for (uint64_t x = 0; x < c->width; x++)
				dst[(z * c->dst_rows + y) * c->dst_pitch + x] =
					src[(z * c->src_rows + y) * c->src_pitch + x];
}

TEST(memory, copies_equal_a_naive_copy)
{
	enum { SIDE = 65536 };
	struct backend_stream *stream = stream_new();
	uint8_t *expected = malloc(SIDE), *dst = memory(0), *src = memory(SIDE);

	for (int round = 0; round < 200; round++) {
		bool flat = round % 4 == 0;
		struct backend_copy c = {.width = 1 + next_random() % 60,
			.height = flat ? 1 : 1 + next_random() % 12,
			.depth = flat ? 1 : 1 + next_random() % 9};

		c.dst_pitch = flat ? 0 : c.width + next_random() % 20;
		c.src_pitch = flat ? 0 : c.width + next_random() % 20;
		c.dst_rows = flat ? 0 : c.height + next_random() % 5;
		c.src_rows = flat ? 0 : c.height + next_random() % 5;
		c.dst = (uintptr_t)dst;
		c.src = (uintptr_t)src;
		for (int i = 0; i < SIDE; i++) {
			dst[i] = (uint8_t)(i * 7 + round);
			src[i] = (uint8_t)next_random();
		}
		memcpy(expected, dst, SIDE);
		reference_copy(expected, src, &c);
		ok(OPS->copy(stream, &c));
		wait_stream(stream);
		ck_assert_int_eq(memcmp(expected, dst, SIDE), 0);
	}
	free(expected);
	ok(OPS->stream_destroy(stream));
}

TEST_LOOP(memory, fills_touch_what_they_name, 0, 3)
{
	static const uint8_t sizes[] = {1, 2, 4};
	struct backend_stream *stream = stream_new();
	uint32_t size = sizes[_i], value = 0xa1b2c3d4;
	struct frmps_set set = {.dst = device(64),
		.width = 5,
		.height = 3,
		.pitch = 32,
		.value = value,
		.element_bytes = size};
	uint8_t *bytes = memory(0);

	memset(bytes, 0xee, 4096);
	ok(OPS->set(stream, &set));
	wait_stream(stream);
	for (uint32_t i = 0; i < 4096; i++) {
		uint32_t in_row = i >= 64 && i < 64 + 3 * 32 ? (i - 64) % 32 : 32;
		uint8_t want = in_row < 5 * size ? ((uint8_t *)&value)[in_row % size] : 0xee;

		ck_assert_msg(bytes[i] == want, "byte %u is %02x, not %02x", i, bytes[i], want);
	}
	set.element_bytes = 3;
	ck_assert_int_eq(OPS->set(stream, &set), CUDA_ERROR_INVALID_VALUE);
	set.element_bytes = 4;
	set.dst++;
	ck_assert_int_eq(OPS->set(stream, &set), CUDA_ERROR_INVALID_VALUE);
	ok(OPS->stream_destroy(stream));
}

int main(void)
{
	Suite *suite = suite_create("server/backend/memory");
	TCase *tests = suite_case(suite, "memory");

	tcase_add_checked_fixture(tests, bed_init, bed_deinit);
	suite_add(tests, "memory");
	return suite_run(suite);
}
