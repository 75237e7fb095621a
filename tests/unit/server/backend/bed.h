// The bed of the host backend's tests: the backend open as an executor, one window with one chunk
// mapped, the test kernels loaded, short forms of what tests do often.

#ifndef FRMPS_TESTS_UNIT_SERVER_BACKEND_BED_H
#define FRMPS_TESTS_UNIT_SERVER_BACKEND_BED_H

#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "server/backend/backend.h"
#include "shm/order.h"
#include "tests/host/host.h"
#include "tests/lib/host_kernels.h"
#include "tests/lib/suite.h"

#define OPS	 (&backend_host)
#define ok(call) ck_assert_int_eq((int)(call), (int)CUDA_SUCCESS)

#define BED_WINDOW (BACKEND_CHUNK_GRANULE * 8)

struct bed {
	struct backend_device device;
	uint64_t window; /* BED_WINDOW bytes; its first granule is mapped */
	uint64_t chunk;	 /* handle */
	int chunk_fd;
	struct backend_module *module;
};

static struct bed bed;

/* Somewhere free, so that the tests run under sanitizers, which own much of the address space: the
 * low end of a large gap, because threads that start meanwhile take the high end. */
static inline uint64_t free_address(uint64_t bytes)
{
	uint64_t room = bytes + (UINT64_C(16) << 30);
	void *at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	ck_assert_ptr_ne(at, MAP_FAILED);
	munmap(at, room);
	return ((uintptr_t)at + BACKEND_CHUNK_GRANULE - 1) / BACKEND_CHUNK_GRANULE * BACKEND_CHUNK_GRANULE;
}

static inline struct backend_module *bed_load(void)
{
	struct backend_module *module;
	struct backend_load load;
	char log[512];
	size_t bytes = 0;
	void *image = host_kernels_read(&bytes);

	ck_assert_msg(image != NULL, "FRMPS_TEST_KERNELS does not name the test kernels");
	load = (struct backend_load){
		.image = image, .bytes = bytes, .room = UINT64_MAX, .log = log, .log_bytes = sizeof(log)};
	ck_assert_msg(!OPS->module_load(&load, &module), "%s", log);
	free(image);
	return module;
}

static inline void bed_init(void)
{
	ok(OPS->open_executor(0, &bed.device));
	ok(OPS->thread_enter());
	bed.window = free_address(BED_WINDOW);
	ok(OPS->window_reserve(bed.window, BED_WINDOW));
	ok(OPS->chunk_create(BACKEND_CHUNK_GRANULE, &bed.chunk, &bed.chunk_fd));
	ok(OPS->chunk_map(bed.window, BACKEND_CHUNK_GRANULE, bed.chunk_fd));
	bed.module = bed_load();
}

static inline void bed_deinit(void)
{
	ok(OPS->module_unload(bed.module));
	ok(OPS->chunk_unmap(bed.window, BACKEND_CHUNK_GRANULE));
	ok(OPS->window_release(bed.window, BED_WINDOW));
	ok(OPS->chunk_release(bed.chunk));
	close(bed.chunk_fd);
	OPS->close();
}

/* A device address and the same as a pointer: this backend's device is this process. */
static inline uint64_t device(uint64_t offset)
{
	return bed.window + offset;
}

static inline void *memory(uint64_t offset)
{
	return (void *)(uintptr_t)(bed.window + offset);
}

static inline struct backend_stream *stream_new(void)
{
	struct backend_stream *stream;

	ok(OPS->stream_create(0, 0, &stream));
	return stream;
}

/* One block of one thread unless the caller changes it; arguments as a struct of the kernel's
 * parameters. */
static inline CUresult try_launch(struct backend_stream *stream, const char *name, const void *arguments,
	const struct backend_launch *wishes)
{
	static struct backend_function_info info;
	struct backend_launch launch = wishes ? *wishes : (struct backend_launch){0};
	CUresult code = OPS->function_find(bed.module, name, true, &launch.function, &info);

	ck_assert_int_eq(code, CUDA_SUCCESS);
	launch.info = &info;
	launch.arguments = arguments;
	launch.argument_bytes = info.argument_bytes;
	for (int i = 0; i < 3; i++) {
		launch.grid[i] = wishes ? launch.grid[i] : 1;
		launch.block[i] = wishes ? launch.block[i] : 1;
	}
	return OPS->launch(stream, &launch);
}

static inline void launch(struct backend_stream *stream, const char *name, const void *arguments)
{
	ok(try_launch(stream, name, arguments, NULL));
}

/* Waits for a word that only ever grows; the suite's time limit is the end of it. */
static inline void wait_word(void *word, uint64_t value)
{
	while (word_acquire((word64 *)word) < value)
		sched_yield();
}

static inline void wait_stream(struct backend_stream *stream)
{
	CUresult code;

	while ((code = OPS->stream_query(stream)) == CUDA_ERROR_NOT_READY)
		sched_yield();
	ck_assert_int_eq(code, CUDA_SUCCESS);
}

/* A gate: a kernel on the stream spins until the word at `offset` is 1. */
static inline void close_gate(struct backend_stream *stream, uint64_t offset)
{
	launch(stream, "spin_until", &(struct spin_until_params){.word = device(offset), .value = 1});
}

static inline void open_gate(uint64_t offset)
{
	word_release((word32 *)memory(offset), 1);
}

#endif
