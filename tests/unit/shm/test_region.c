// shm/region: what a shape must fulfil, what a client can do to the region that it may only read.

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "shm/region.h"
#include "tests/lib/suite.h"

static struct wire_shape shape;
static int client_fd, server_fd;

static void make(void)
{
	shm_shape_init(&shape, 1 << 20, 1 << 20, 16);
	ck_assert_int_eq(shm_region_new(&shape, &client_fd, &server_fd), 0);
}

static void drop(void)
{
	close(client_fd);
	close(server_fd);
}

TEST(region, both_sides_see_the_same_memory)
{
	struct shm_view client = SHM_VIEW_NULL, server = SHM_VIEW_NULL;
	int readonly;

	ck_assert_int_eq(shm_region_readonly(server_fd, &readonly), 0);
	ck_assert_int_eq(shm_view_map(&client, &shape, client_fd, readonly, SHM_SIDE_CLIENT), 0);
	ck_assert_int_eq(shm_view_map(&server, &shape, client_fd, server_fd, SHM_SIDE_SERVER), 0);
	client.arena[shape.arena_bytes - 1] = 42;
	ck_assert_uint_eq(server.arena[shape.arena_bytes - 1], 42);
	word_release(&shm_view_timeline(&server, 1)->stream[7].done, 9);
	ck_assert_uint_eq(shm_view_done(&client, 7), 9);
	ck_assert_uint_eq(word_relaxed(&client.server->state), SHM_SESSION_RUNNING);
	shm_view_unmap(&client);
	shm_view_unmap(&server);
	shm_view_unmap(&server);
	close(readonly);
}

static const uint32_t slots[] = {0, 1, SHM_PIECE - 1, SHM_PIECE, 2 * SHM_PIECE - 1, SHM_STREAMS - 1};

/* Each of each generation, and of both sides. */
TEST(region, streams_have_words_of_their_own)
{
	enum { SLOTS = sizeof(slots) / sizeof(*slots) };
	struct shm_view view = SHM_VIEW_NULL;
	uint64_t value = 0;

	ck_assert_int_eq(shm_view_map(&view, &shape, client_fd, server_fd, SHM_SIDE_SERVER), 0);
	ck_assert_uint_eq(shm_view_slots(&view), SHM_STREAMS);
	for (uint32_t at = 0; at < SLOTS * SHM_TIMELINES; at++)
		word_set(&shm_timeline_at(
				 shm_view_timeline(&view, at % SHM_TIMELINES), slots[at / SHM_TIMELINES])
				  ->done,
			++value);
	for (uint32_t i = 0; i < SLOTS; i++) {
		word_set(&shm_view_host(&view, slots[i])->done, ++value);
		shm_view_entry(&view, slots[i])->priority = (int32_t)++value;
	}
	value = 0;
	for (uint32_t at = 0; at < SLOTS * SHM_TIMELINES; at++) {
		word_set(&view.server->generation, at % SHM_TIMELINES);
		ck_assert_uint_eq(shm_view_done(&view, slots[at / SHM_TIMELINES]), ++value);
	}
	for (uint32_t i = 0; i < SLOTS; i++) {
		ck_assert_uint_eq(word_relaxed(&shm_view_host(&view, slots[i])->done), ++value);
		ck_assert_int_eq(shm_view_entry(&view, slots[i])->priority, (int32_t)++value);
	}
	/* And nobody else's. */
	ck_assert((void *)(shm_timeline_at(shm_view_timeline(&view, SHM_TIMELINES - 1), SHM_STREAMS - 1) +
			   1) <= (void *)view.times);
	ck_assert_uint_eq(word_relaxed(&view.client->tail), 0);
	shm_view_unmap(&view);
}

TEST(region, an_older_service_has_room_for_fewer_streams)
{
	struct wire_shape older = shape;
	struct shm_view view = SHM_VIEW_NULL;

	older.more_offset = 0;
	ck_assert_int_eq(shm_view_map(&view, &older, client_fd, server_fd, SHM_SIDE_CLIENT), 0);
	ck_assert_uint_eq(shm_view_slots(&view), SHM_PIECE);
	shm_view_unmap(&view);
}

TEST(region, an_older_service_has_room_for_fewer_events)
{
	struct wire_shape older = shape;
	struct shm_view view = SHM_VIEW_NULL;

	ck_assert_int_eq(shm_view_map(&view, &older, client_fd, server_fd, SHM_SIDE_CLIENT), 0);
	ck_assert_uint_eq(shm_view_events(&view), SHM_EVENTS);
	shm_view_unmap(&view);
	older.journal_offset = older.times_offset + 65536 * sizeof(struct shm_time);
	ck_assert_int_eq(shm_view_map(&view, &older, client_fd, server_fd, SHM_SIDE_SERVER), 0);
	ck_assert_uint_eq(shm_view_events(&view), 65536);
	shm_view_unmap(&view);
}

TEST(region, readonly_descriptor_cannot_be_mapped_writable)
{
	int readonly;

	ck_assert_int_eq(shm_region_readonly(server_fd, &readonly), 0);
	ck_assert_ptr_eq(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, readonly, 0), MAP_FAILED);
	ck_assert_int_eq(errno, EACCES);
	ck_assert_int_eq(write(readonly, "x", 1), -1);
	close(readonly);
}

TEST(region, regions_cannot_be_made_shorter)
{
	ck_assert_int_eq(ftruncate(client_fd, 4096), -1);
	ck_assert_int_eq(ftruncate(server_fd, 4096), -1);
	ck_assert_int_eq(fcntl(server_fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
}

TEST(region, the_clients_region_cannot_grow)
{
	ck_assert_int_eq(ftruncate(client_fd, (off_t)shape.client_bytes + 4096), -1);
}

TEST(region, the_client_cannot_make_the_servers_region_grow)
{
	const off_t place = (off_t)shm_graph_place(&shape, 1, SHM_GRAPH_BYTES);
	int readonly;

	ck_assert_int_eq(shm_region_readonly(server_fd, &readonly), 0);
	ck_assert_int_eq(ftruncate(readonly, place + 4096), -1);
	ck_assert_int_eq(fallocate(readonly, 0, place, 4096), -1);
	ck_assert_int_eq(lseek(readonly, 0, SEEK_END), (off_t)shape.server_bytes);
	close(readonly);
}

/* Mappings from before stay, and the region can be mapped again. */
TEST(region, a_graphs_place_is_there_once_it_is_needed)
{
	const off_t place = (off_t)shm_graph_place(&shape, 1, SHM_GRAPH_BYTES);
	struct shm_view before = SHM_VIEW_NULL, after = SHM_VIEW_NULL;

	ck_assert_int_ge(place, (off_t)shape.server_bytes);
	ck_assert_int_eq(lseek(server_fd, 0, SEEK_END), (off_t)shape.server_bytes);
	ck_assert_int_eq(shm_view_map(&before, &shape, client_fd, server_fd, SHM_SIDE_CLIENT), 0);
	ck_assert_int_eq(fallocate(server_fd, 0, place, 4096), 0);
	ck_assert_int_eq(pwrite(server_fd, "x", 1, place), 1);
	ck_assert_int_eq(shm_view_map(&after, &shape, client_fd, server_fd, SHM_SIDE_SERVER), 0);
	word_set(&after.states[0].issued, 7);
	ck_assert_uint_eq(word_relaxed(&before.states[0].issued), 7);
	shm_view_unmap(&before);
	shm_view_unmap(&after);
}

TEST(region, graphs_have_places_of_their_own)
{
	ck_assert_uint_eq(shm_graph_place(&shape, FRMPS_GRAPH_IDS, 1), 0);
	ck_assert_uint_eq(shm_graph_place(&shape, 1, SHM_GRAPH_BYTES + 1), 0);
	ck_assert_uint_eq(shm_graph_place(&shape, 2, SHM_GRAPH_BYTES),
		shm_graph_place(&shape, 1, SHM_GRAPH_BYTES) + SHM_GRAPH_BYTES);
}

/* Each row breaks one rule of a good shape. */
static const struct {
	size_t field;
	uint64_t value;
} bad[] = {
#define ROW(f, v)                                                                                            \
	{                                                                                                    \
		offsetof(struct wire_shape, f), v                                                            \
	}
	ROW(ring_offset, 1),
	ROW(ring_offset, 0),
	ROW(ring_offset, UINT64_MAX - 4095),
	ROW(ring_bytes, 0),
	ROW(ring_bytes, UINT64_MAX),
	ROW(ring_bytes, 4096),
	ROW(ring_bytes, (1 << 20) - 16),
	ROW(arena_offset, 4096),
	ROW(arena_offset, UINT64_MAX - 4095),
	ROW(arena_bytes, 0),
	ROW(arena_bytes, UINT64_MAX),
	ROW(more_offset, 1),
	ROW(more_offset, 4096),
	ROW(more_offset, UINT64_MAX - 4095),
	ROW(client_bytes, 4096),
	ROW(client_bytes, UINT64_MAX),
	ROW(states_offset, 0),
	ROW(states_offset, 1),
	ROW(timelines_offset, 4096),
	ROW(timelines_offset, UINT64_MAX),
	ROW(times_offset, 0),
	ROW(times_offset, 4096),
	ROW(times_offset, UINT64_MAX),
	ROW(journal_offset, 4096),
	ROW(journal_offset, UINT64_MAX - 4095),
	ROW(server_bytes, 4096),
	ROW(server_bytes, UINT64_MAX),
#undef ROW
};

TEST_LOOP(region, bad_shapes_are_refused, 0, sizeof(bad) / sizeof(*bad))
{
	struct wire_shape spoilt = shape;
	struct shm_view view = SHM_VIEW_NULL;

	memcpy((char *)&spoilt + bad[_i].field, &bad[_i].value, sizeof(uint64_t));
	ck_assert_int_eq(shm_view_map(&view, &spoilt, client_fd, server_fd, SHM_SIDE_SERVER), SHM_E_SHAPE);
	ck_assert_ptr_null(view.client);
}

TEST(region, a_journal_without_blocks_is_refused)
{
	struct wire_shape spoilt = shape;

	spoilt.journal_blocks = 0;
	ck_assert_int_eq(shm_shape_check(&spoilt), SHM_E_SHAPE);
	spoilt.journal_blocks = UINT32_MAX;
	ck_assert_int_eq(shm_shape_check(&spoilt), SHM_E_SHAPE);
}

TEST(region, foreign_files_are_refused)
{
	struct shm_view view = SHM_VIEW_NULL;
	int empty = memfd_create("empty", MFD_CLOEXEC);
	int zeros = memfd_create("zeros", MFD_CLOEXEC);

	ck_assert_int_eq(ftruncate(zeros, (off_t)shape.server_bytes), 0);
	ck_assert_int_eq(shm_view_map(&view, &shape, empty, server_fd, SHM_SIDE_SERVER), SHM_E_SHAPE);
	ck_assert_int_eq(shm_view_map(&view, &shape, client_fd, zeros, SHM_SIDE_SERVER), SHM_E_SHAPE);
	close(empty);
	close(zeros);
}

int main(void)
{
	Suite *suite = suite_create("shm/region");
	TCase *tests = tcase_create("region");

	tcase_add_checked_fixture(tests, make, drop);
	suite_add(tests, "region");
	suite_add_tcase(suite, tests);
	return suite_run(suite);
}
