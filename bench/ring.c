// The ring alone, between two processes: the writer's cost per record, records per second, and the
// round trip of a record and its answering word. The reader does the work of an executor before the
// driver's call: read the head once, copy the record, free the slot.
//
//   ring

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/lib/stats.h"
#include "shm/ring.h"

#define RECORD_BYTES 128u
#define RECORDS	     2000000u
#define TRIPS	     200000u

static struct shm_view view;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Copies every record out; answers each with its number in stream 0's done word, until number 0
 * arrives. */
static void serve(void)
{
	static uint8_t copy[FRMPS_RECORD_MAX];
	struct shm_timeline *timeline = shm_view_timeline(&view, 1);
	struct ring_reader reader;

	ring_reader_init(&reader, &view);
	for (;;) {
		struct frmps_head head;
		const uint8_t *record;

		if (ring_peek(&reader, &head, &record) != 0) {
			word_pause();
			continue;
		}
		memcpy(copy, record, head.size);
		ring_consume(&reader, head.size);
		if (head.op == FRMPS_OP_PAD)
			continue;
		if (head.seq == 0)
			_exit(0);
		word_release(&timeline->stream[0].done, head.seq);
	}
}

static void put(struct ring_writer *writer, uint64_t seq)
{
	struct frmps_head head = {.size = RECORD_BYTES, .op = FRMPS_OP_LAUNCH, .seq = seq};
	uint8_t *at;

	while (!(at = ring_reserve(writer, RECORD_BYTES)))
		word_pause();
	memcpy(at, &head, sizeof(head));
	memset(at + sizeof(head), 0, RECORD_BYTES - sizeof(head));
	ring_publish(writer, RECORD_BYTES);
}

static void wait_done(uint64_t seq)
{
	while (shm_view_done(&view, 0) < seq)
		word_pause();
}

static void throughput(struct ring_writer *writer)
{
	struct samples rate, issue;
	uint64_t seq = 0;

	samples_init(&rate, 10);
	samples_init(&issue, 10 * 1000);
	for (int round = 0; round < 10; round++) {
		uint64_t begin = now();

		for (uint32_t i = 0; i < RECORDS / 10; i++)
			put(writer, ++seq);
		wait_done(seq);
		samples_add(&rate, RECORDS / 10 / ((double)(now() - begin) / 1e9) / 1e6);
		/* The writer's own cost, while the ring has room for all records. */
		for (int i = 0; i < 1000; i++) {
			begin = now();
			put(writer, ++seq);
			samples_add(&issue, (double)(now() - begin));
		}
		wait_done(seq);
	}
	samples_print(&rate, "ring_rate", "M/s");
	samples_print(&issue, "ring_issue", "ns");
	samples_deinit(&rate);
	samples_deinit(&issue);
}

static void round_trips(struct ring_writer *writer)
{
	uint64_t base = shm_view_done(&view, 0);
	struct samples trips;

	samples_init(&trips, TRIPS);
	for (uint64_t i = 1; i <= TRIPS; i++) {
		uint64_t begin = now();

		put(writer, base + i);
		wait_done(base + i);
		samples_add(&trips, (double)(now() - begin));
	}
	samples_print(&trips, "ring_round_trip", "ns");
	samples_deinit(&trips);
}

int main(void)
{
	struct wire_shape shape;
	struct ring_writer writer;
	int client_fd, server_fd;
	pid_t reader;

	shm_shape_init(&shape, SHM_RING_BYTES, 1 << 20, 1);
	if (shm_region_new(&shape, &client_fd, &server_fd) ||
		shm_view_map(&view, &shape, client_fd, server_fd, SHM_SIDE_SERVER)) {
		fprintf(stderr, "ring: no regions\n");
		return 1;
	}
	reader = fork();
	if (reader == 0)
		serve();
	ring_writer_init(&writer, &view);
	throughput(&writer);
	round_trips(&writer);
	put(&writer, 0);
	waitpid(reader, NULL, 0);
	return 0;
}
