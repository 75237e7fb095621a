// Executes a queued command, in a pool thread. Addresses were checked before the command was
// queued; a wrong address nonetheless ends the process here, as a copy engine's fault ends a
// context.

#include <string.h>

#include "tests/host/host.h"
#include "shm/order.h"

#define FILLED 1024 /* elements */

static void run_blocks(const struct host_launch *launch)
{
	const struct host_grid *grid = &launch->grid;
	struct host_block_index block = {.shared = launch->shared,
		.objects = host_objects,
		.object_count = HOST_OBJECTS_MAX,
		.limits = (const uint64_t *)(const void *)host_limits};

	for (block.z = 0; block.z < grid->grid.z; block.z++)
		for (block.y = 0; block.y < grid->grid.y; block.y++)
			for (block.x = 0; block.x < grid->grid.x; block.x++)
				launch->kernel->run(grid, &block, launch->params);
}

static void run_launch(const struct host_launch *launch)
{
	sigjmp_buf back;

	switch (sigsetjmp(back, 0)) {
	case 0:
		host_faults_begin(launch, &back);
		/* The signal may have come before. */
		if (!word_acquire(&launch->over))
			run_blocks(launch);
		host_faults_end();
		return;
	case HOST_BACK_FAULT:
		host_faults_settle(launch);
		break;
	default:
		break; /* the kernel was ended */
	}
	host_faults_back();
}

/* memmove() of the address checker goes byte by byte; few copies overlap. */
static void copy_row(char *dst, const char *src, uint64_t bytes)
{
	if (dst < src + bytes && src < dst + bytes)
		memmove(dst, src, bytes);
	else
		memcpy(dst, src, bytes);
}

static void run_copy(const struct backend_copy *copy)
{
	char *dst = (char *)(uintptr_t)copy->dst;
	const char *src = (const char *)(uintptr_t)copy->src;

	for (uint64_t plane = 0; plane < copy->depth; plane++)
		for (uint64_t row = 0; row < copy->height; row++)
			copy_row(dst + (plane * copy->dst_rows + row) * copy->dst_pitch,
				src + (plane * copy->src_rows + row) * copy->src_pitch, copy->width);
}

/* One by one: somebody may look at an element at any time. */
static void fill_elements(void *at, const struct frmps_set *set, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++) {
		if (set->element_bytes == 4)
			((uint32_t *)at)[i] = set->value;
		else if (set->element_bytes == 2)
			((uint16_t *)at)[i] = (uint16_t)set->value;
		else
			((uint8_t *)at)[i] = (uint8_t)set->value;
	}
}

/* The rest of a long row is copied from its beginning. */
static void fill_row(char *at, const struct frmps_set *set)
{
	const uint64_t first = set->width < FILLED ? set->width : FILLED,
		       bytes = set->width * set->element_bytes;

	fill_elements(at, set, first);
	for (uint64_t done = first * set->element_bytes, more; done < bytes; done += more) {
		more = bytes - done < first * set->element_bytes ? bytes - done : first * set->element_bytes;
		memcpy(at + done, at, more);
	}
}

static void run_set(const struct frmps_set *set)
{
	for (uint64_t row = 0; row < set->height; row++)
		fill_row((char *)(uintptr_t)set->dst + row * set->pitch, set);
}

/* Pairs with pollers of the word: all earlier work of the stream happened before. */
static void run_write(const struct frmps_write_value *write)
{
	if (write->bytes == 8)
		word_release((word64 *)(uintptr_t)write->address, write->value);
	else
		word_release((word32 *)(uintptr_t)write->address, (uint32_t)write->value);
}

/* Kernels may write there at this moment: every word is read once. */
static void run_check(const struct host_check *check)
{
	const volatile uint32_t *words = (const volatile uint32_t *)(uintptr_t)check->address;

	for (uint64_t i = 0; i < check->bytes / sizeof(*words); i++) {
		if (words[i] == check->pattern)
			continue;
		__atomic_store_n(check->word, 1, __ATOMIC_RELEASE);
		return;
	}
}

void host_work_run(struct host_work *work)
{
	switch (work->kind) {
	case HOST_LAUNCH:
		run_launch(&work->launch);
		break;
	case HOST_COPY:
		run_copy(&work->copy);
		break;
	case HOST_SET:
		run_set(&work->set);
		break;
	case HOST_WRITE:
		run_write(&work->write);
		break;
	case HOST_CHECK:
		run_check(&work->check);
		break;
	case HOST_RECORD:
	case HOST_WAIT:
	case HOST_BRANCH:
		break; /* the pool's */
	}
}
