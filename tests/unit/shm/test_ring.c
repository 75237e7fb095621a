// shm/ring: order and content of records around the end of the ring, a full ring, a writer that
// breaks the rules, a doorbell that a client has changed, and a stress run of two threads
// (ThreadSanitizer looks at this one).

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "shm/doorbell.h"
#include "shm/ring.h"
#include "tests/lib/suite.h"

static struct shm_view view;
static struct ring_writer writer;
static struct ring_reader reader;

static void make(void)
{
	struct wire_shape shape;
	int client_fd, server_fd;

	shm_shape_init(&shape, 512 << 10, 64 << 10, 1);
	ck_assert_int_eq(shm_region_new(&shape, &client_fd, &server_fd), 0);
	ck_assert_int_eq(shm_view_map(&view, &shape, client_fd, server_fd, SHM_SIDE_SERVER), 0);
	close(client_fd);
	close(server_fd);
	ring_writer_init(&writer, &view);
	ring_reader_init(&reader, &view);
}

static void drop(void)
{
	shm_view_unmap(&view);
}

/* Writes one record whose bytes follow from its number. Returns false while the ring is full. */
static bool put(uint64_t number, uint32_t size)
{
	uint8_t *at = ring_reserve(&writer, size);
	struct frmps_head head = {.size = size, .op = FRMPS_OP_MARK, .seq = number};

	if (!at)
		return false;
	memcpy(at, &head, sizeof(head));
	memset(at + sizeof(head), (int)(number & 0xff), size - sizeof(head));
	ring_publish(&writer, size);
	return true;
}

/* Takes the next record that is no pad; true if it is the one expected, whole. */
static bool take(uint64_t number, uint32_t size)
{
	struct frmps_head head;
	const uint8_t *record;

	while (ring_peek(&reader, &head, &record) == 0 && head.op == FRMPS_OP_PAD)
		ring_consume(&reader, head.size);
	if (ring_peek(&reader, &head, &record) != 0 || head.seq != number || head.size != size)
		return false;
	for (uint32_t i = sizeof(head); i < size; i++)
		if (record[i] != (uint8_t)number)
			return false;
	ring_consume(&reader, size);
	return true;
}

static uint32_t size_of(uint64_t number)
{
	static const uint32_t sizes[] = {32, 48, 128, 4096, 32, FRMPS_RECORD_MAX, 112};

	return sizes[number % 7];
}

TEST(ring, records_come_out_as_they_went_in)
{
	for (uint64_t n = 1; n < 2000; n++) {
		ck_assert(put(n, size_of(n)));
		ck_assert(take(n, size_of(n)));
	}
	ck_assert(!ring_has_work(&reader));
}

TEST(ring, full_ring_takes_no_more_and_loses_nothing)
{
	uint64_t written = 0, read = 0;

	for (int round = 0; round < 20; round++) {
		while (put(written + 1, size_of(written + 1)))
			written++;
		while (read < written) {
			read++;
			ck_assert(take(read, size_of(read)));
		}
	}
	ck_assert_uint_gt(written, 1000);
}

TEST(ring, a_new_reader_goes_on_where_the_old_one_ended)
{
	ck_assert(put(1, 64));
	ck_assert(put(2, 64));
	ck_assert(take(1, 64));
	ring_reader_init(&reader, &view);
	ck_assert(take(2, 64));
}

/* What a hostile writer may leave: each row is one broken rule. */
static const struct {
	uint64_t tail;
	uint32_t size;
} bad[] = {
	{32, 0},
	{32, 16},
	{32, 40},
	{32, 48},
	{64, FRMPS_RECORD_MAX + 16},
	{UINT64_MAX, 32},
	{(512 << 10) + 16, 32},
	{33, 32},
	{32, UINT32_MAX},
};

TEST_LOOP(ring, broken_rules_are_noticed, 0, sizeof(bad) / sizeof(*bad))
{
	struct frmps_head head = {.size = bad[_i].size, .op = FRMPS_OP_MARK};
	const uint8_t *record;

	memcpy(view.ring, &head, sizeof(head));
	word_release(&view.client->tail, bad[_i].tail);
	ck_assert_int_eq(ring_peek(&reader, &head, &record), RING_E_INVALID);
}

/* What was seen once, and checked, is what is read: whatever becomes of the word meanwhile. */
TEST(ring, a_tail_that_is_taken_back)
{
	struct frmps_head head;
	const uint8_t *record;

	ck_assert(put(1, 64));
	ck_assert(put(2, 64));
	ck_assert(take(1, 64));
	word_release(&view.client->tail, UINT64_MAX);
	ck_assert(take(2, 64));
	ck_assert_int_eq(ring_peek(&reader, &head, &record), RING_E_INVALID);
	word_release(&view.client->tail, 128);
	ck_assert_int_eq(ring_peek(&reader, &head, &record), RING_E_EMPTY);
}

TEST(ring, a_record_across_the_end_is_refused)
{
	struct frmps_head head = {.size = 64, .op = FRMPS_OP_MARK};
	const uint8_t *record;

	word_release(&view.server->head, (512 << 10) - 32);
	word_release(&view.client->tail, (512 << 10) + 32);
	ring_reader_init(&reader, &view);
	memcpy(view.ring + (512 << 10) - 32, &head, sizeof(head));
	ck_assert_int_eq(ring_peek(&reader, &head, &record), RING_E_INVALID);
}

#define STRESS_RECORDS 100000

static void *write_all(void *nothing)
{
	for (uint64_t n = 1; n <= STRESS_RECORDS; n++)
		while (!put(n, size_of(n) % 4096 + 32))
			word_pause();
	return nothing;
}

TEST(stress, two_threads)
{
	pthread_t thread;
	uint64_t n = 1;

	ck_assert_int_eq(pthread_create(&thread, NULL, write_all, NULL), 0);
	while (n <= STRESS_RECORDS) {
		struct frmps_head head;
		const uint8_t *record;

		if (ring_peek(&reader, &head, &record) == RING_E_EMPTY)
			continue;
		if (head.op == FRMPS_OP_PAD) {
			ring_consume(&reader, head.size);
			continue;
		}
		ck_assert(take(n, size_of(n) % 4096 + 32));
		n++;
	}
	pthread_join(thread, NULL);
}

static word32 asleep;
static int bell[2];

/* A reader that sleeps by the doorbell's protocol whenever the ring is empty. A lost wake-up hangs
 * it (time limit). */
static void *sleepy_reader(void *nothing)
{
	uint64_t n = 1;

	while (n <= 20000) {
		uint8_t byte[8];

		if (ring_has_work(&reader)) {
			if (!take(n, 32))
				return nothing;
			n++;
			continue;
		}
		word_set(&asleep, 1);
		word_fence();
		if (!ring_has_work(&reader) && read(bell[0], byte, sizeof(byte)) <= 0)
			return nothing;
		word_set(&asleep, 0);
	}
	return &asleep;
}

TEST(stress, doorbell_loses_no_wakeup)
{
	pthread_t thread;
	void *end;

	ck_assert_int_eq(pipe(bell), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, sleepy_reader, NULL), 0);
	for (uint64_t n = 1; n <= 20000; n++) {
		while (!put(n, 32))
			word_pause();
		doorbell_ring(bell[1], &asleep);
	}
	pthread_join(thread, &end);
	ck_assert_ptr_eq(end, &asleep);
	close(bell[0]);
	close(bell[1]);
}

/* The file of a doorbell is the client's as well: it takes O_NONBLOCK away. */
TEST(ring, an_empty_doorbell_holds_nobody_up)
{
	int doorbell = eventfd(0, EFD_CLOEXEC);
	struct pollfd look = {.fd = doorbell, .events = POLLIN};

	ck_assert_int_ge(doorbell, 0);
	doorbell_drain(doorbell);
	doorbell_force(doorbell);
	ck_assert_int_eq(poll(&look, 1, 0), 1);
	doorbell_drain(doorbell);
	ck_assert_int_eq(poll(&look, 1, 0), 0);
	close(doorbell);
}

int main(void)
{
	Suite *suite = suite_create("shm/ring");
	TCase *tests = tcase_create("ring"), *stress = tcase_create("stress");

	tcase_add_checked_fixture(tests, make, drop);
	suite_add(tests, "ring");
	tcase_add_checked_fixture(stress, make, drop);
	tcase_set_timeout(stress, 120);
	suite_add(stress, "stress");
	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, stress);
	return suite_run(suite);
}
