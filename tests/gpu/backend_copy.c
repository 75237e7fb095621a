// Copies and fills of the cuda backend against a naive reference, and whether any of them waits for
// the device.

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/gpu/backend_bed.h"

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
			memcpy(dst + (z * c->dst_rows + y) * c->dst_pitch,
				src + (z * c->src_rows + y) * c->src_pitch, c->width);
}

static struct backend_copy random_copy(bool dst_is_host, bool src_is_host)
{
	uint32_t kind = next_random() % 3; /* line, rectangle, box */
	struct backend_copy c = {.width = 1 + next_random() % 60,
		.height = kind ? 1 + next_random() % 12 : 1,
		.depth = kind == 2 ? 1 + next_random() % 9 : 1,
		.dst_is_host = dst_is_host,
		.src_is_host = src_is_host};

	c.dst_pitch = kind ? c.width + next_random() % 20 : 0;
	c.src_pitch = kind ? c.width + next_random() % 20 : 0;
	c.dst_rows = kind == 2 ? c.height + next_random() % 5 : 0;
	c.src_rows = kind == 2 ? c.height + next_random() % 5 : 0;
	return c;
}

/* Brings bytes from or to a side, which the host reaches itself or not. */
static void move(struct backend_stream *stream, uint64_t dst, uint64_t src, bool is_here)
{
	if (!is_here) {
		ok(copy_line(stream, dst, src, SIDE));
		return;
	}
	wait_stream(stream);
	memcpy(at(dst), at(src), SIDE);
}

/* Between two sides of each kind, through staging buffers in pinned memory. */
void check_copies(bool dst_is_host, bool src_is_host)
{
	uint64_t stage_dst = HOST_DATA, stage_src = HOST_DATA + SIDE;
	uint64_t dst = dst_is_host ? HOST_DATA + 2 * SIDE : WINDOW + 3,
		 src = src_is_host ? HOST_DATA + 3 * SIDE + 5 : WINDOW + 2 * SIDE;
	struct backend_stream *stream = stream_new();
	uint8_t *expected = malloc(SIDE), *before = at(stage_dst), *from = at(stage_src);
	int wrong = 0;

	for (int round = 0; round < 100; round++) {
		struct backend_copy c = random_copy(dst_is_host, src_is_host);

		for (uint32_t i = 0; i < SIDE; i++) {
			before[i] = (uint8_t)(i * 7 + (uint32_t)round);
			from[i] = (uint8_t)next_random();
		}
		memcpy(expected, before, SIDE);
		reference_copy(expected, from, &c);
		c.dst = dst;
		c.src = src;
		move(stream, dst, stage_dst, dst_is_host);
		move(stream, src, stage_src, src_is_host);
		ok(OPS->copy(stream, &c));
		move(stream, stage_dst, dst, dst_is_host);
		wait_stream(stream);
		wrong += memcmp(expected, before, SIDE) != 0;
	}
	check(!wrong);
	free(expected);
	ok(OPS->stream_destroy(stream));
}

void check_sets(void)
{
	struct backend_stream *stream = stream_new();
	struct frmps_set set = {.width = 5, .pitch = 32, .value = 0xa1b2c3d4};
	uint8_t *bytes = at(HOST_DATA);
	int wrong = 0;

	for (uint32_t size = 1; size <= 4; size *= 2) {
		for (set.height = 1; set.height <= 3; set.height += 2) {
			set.dst = WINDOW;
			set.element_bytes = size;
			ok(OPS->set(stream, &(struct frmps_set){.dst = WINDOW,
						    .width = 1024,
						    .height = 1,
						    .value = 0xee,
						    .element_bytes = 1}));
			ok(OPS->set(stream, &set));
			ok(copy_line(stream, HOST_DATA, WINDOW, 1024));
			wait_stream(stream);
			for (uint32_t i = 0; i < 1024; i++) {
				bool in = i / 32 < set.height && i % 32 < 5 * size;

				wrong += bytes[i] != (in ? (uint8_t)(set.value >> 8 * (i % size)) : 0xee);
			}
		}
	}
	check(!wrong);
	set.element_bytes = 3;
	refused(OPS->set(stream, &set), CUDA_ERROR_INVALID_VALUE);
	ok(OPS->stream_destroy(stream));
}

/* No call that issues work may wait for the work before it. */
void check_nothing_waits(void)
{
	struct backend_stream *stream = stream_new();
	struct backend_copy box = {.width = 64,
		.height = 8,
		.depth = 4,
		.dst_pitch = 64,
		.src_pitch = 64,
		.dst_rows = 8,
		.src_rows = 8};
	pthread_t thread;

	close_gate(stream, 1, 1);
	pthread_create(&thread, NULL, watchdog, (void *)(uintptr_t)3000);
	for (int sides = 0; sides < 3; sides++) {
		box.dst_is_host = sides & 1;
		box.src_is_host = sides & 2;
		box.dst = box.dst_is_host ? HOST_DATA : WINDOW;
		box.src = box.src_is_host ? HOST_DATA + SIDE : WINDOW + SIDE;
		for (uint64_t bytes = 64; bytes <= (1 << 20); bytes *= 64) {
			ok(copy_line(stream, box.dst, box.src, bytes));
			if (gate_is_open())
				printf("a copy of %lu bytes waits, sides %d\n", (unsigned long)bytes, sides);
		}
		ok(OPS->copy(stream, &box));
		if (gate_is_open())
			printf("a box waits, sides %d\n", sides);
	}
	ok(OPS->set(stream,
		&(struct frmps_set){.dst = WINDOW, .width = 1 << 20, .height = 1, .element_bytes = 1}));
	ok(OPS->mark(stream, at(MARK), 6));
	check(!gate_is_open());
	open_gate();
	pthread_join(thread, NULL);
	wait_stream(stream);
	ok(OPS->stream_destroy(stream));
}
