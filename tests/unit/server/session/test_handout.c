// Files that programs keep open though the service needs them no more: who is looked at when, and
// that it is never all of them at once.

#include "server/session/handout.h"

#include <sys/mman.h>
#include <unistd.h>

#include "protocol/cuda_abi.h"
#include "server/loop/shared_fd.h"
#include "server/session/session.h"
#include "server/session/window.h"
#include "tests/unit/server/session/fixture.h"

#define MANY  200u
#define HIM   ((uid_t)1000)
#define OTHER ((uid_t)1001)

static int kept[MANY];

/* A program of the user has it open, the service needs it no more. Return: the program's own */
static int hand_out(uid_t uid)
{
	int memory = memfd_create("test", MFD_CLOEXEC), own;
	struct shared_fd *file;

	ck_assert_int_eq(ftruncate(memory, 4096), 0);
	file = shared_fd_new(memory);
	ck_assert_int_eq(handout_add(&fake->daemon.handouts, uid, file), 0);
	own = handout_open(file);
	ck_assert_int_ge(own, 0);
	shared_fd_unref(file);
	return own;
}

static uint64_t count_of(uid_t uid)
{
	return handouts_count(&fake->daemon.handouts, &uid);
}

static void keep_many(uid_t uid)
{
	for (unsigned i = 0; i < MANY; i++)
		kept[i] = hand_out(uid);
	ck_assert_uint_eq(count_of(uid), MANY);
	ck_assert_uint_eq(handouts_bytes(&fake->daemon.handouts, uid), MANY * 4096);
}

static void close_from(unsigned first)
{
	for (unsigned i = first; i < MANY; i++)
		close(kept[i]);
}

/* However many there are, and whatever has become of them. */
TEST(looks, a_look_covers_some_of_the_users_own)
{
	boot();
	keep_many(HIM);
	close_from(0);
	handouts_look(&fake->daemon.handouts, OTHER);
	ck_assert_uint_eq(count_of(HIM), MANY);
	handouts_look(&fake->daemon.handouts, HIM);
	ck_assert_uint_lt(count_of(HIM), MANY);
	ck_assert_uint_gt(count_of(HIM), MANY - 64);
	end();
}

/* Those that are over come first in turn, or last: the timer finds them. */
TEST(looks, all_that_is_over_is_found_in_time)
{
	boot();
	keep_many(HIM);
	close_from(MANY - 20);
	FAKE_SKIP_WHILE(fake, count_of(HIM) > MANY - 20);
	for (unsigned i = 0; i < MANY - 20; i++)
		close(kept[i]);
	FAKE_SKIP_WHILE(fake, count_of(HIM));
	ck_assert_uint_eq(handouts_count(&fake->daemon.handouts, NULL), 0);
	ck_assert_uint_eq(handouts_bytes(&fake->daemon.handouts, HIM), 0);
	end();
}

/* The first round of the timer reaches him. */
TEST(looks, a_user_who_keeps_many_holds_nobody_up)
{
	int own;

	boot();
	keep_many(OTHER);
	own = hand_out(HIM);
	close(own);
	FAKE_SKIP_WHILE(fake, count_of(HIM));
	ck_assert_uint_eq(count_of(OTHER), MANY);
	ck_assert_uint_le(fake->skipped_ms, 1100);
	close_from(0);
	end();
}

/*
 * What is kept counts
 */

static int32_t pin(uint64_t bytes)
{
	struct wire_message map = {.type = WIRE_MAP_HOST};

	map.range = (struct wire_range){.address = client.window_base + WINDOW_DEVICE_BYTES, .bytes = bytes};
	fake_request(fake, &client, &map, -1);
	if (TAILQ_FIRST(&fake->daemon.sessions)->request) {
		fake_serve(fake, active, WIRE_MAP_HOST);
		fake_serve(fake, standby, WIRE_MAP_HOST);
	}
	return fake_expect(fake, client.socket, WIRE_REPLY)->reply.code;
}

static void unpin(uint64_t bytes)
{
	struct wire_message unmap = {.type = WIRE_UNMAP_HOST};

	unmap.range =
		(struct wire_range){.address = client.window_base + WINDOW_DEVICE_BYTES, .bytes = bytes};
	fake_request(fake, &client, &unmap, -1);
	fake_serve(fake, active, WIRE_UNMAP_HOST);
	fake_serve(fake, standby, WIRE_UNMAP_HOST);
	fake_expect(fake, client.socket, WIRE_REPLY);
}

/* The limit holds with what the program has, what it keeps open, and for its user's next one. */
TEST(looks, pinned_memory_that_is_kept_is_a_part_of_the_limit)
{
	struct fake_client late;
	int kept_fd;

	boot();
	fake->daemon.rules.general.pinned_limit = 2 * MIB;
	fake_join(fake, &client, active, standby);
	ck_assert_int_eq(pin(2 * MIB + 4096), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_int_eq(pin(2 * MIB), CUDA_SUCCESS);
	kept_fd = packet_take_fd(&fake->packet, 0);
	unpin(2 * MIB);
	ck_assert_int_eq(pin(4096), CUDA_ERROR_OUT_OF_MEMORY);
	fake->daemon.rules.general.pinned_limit = MIB;
	fake_hello(fake, &late);
	fake_expect(fake, late.socket, WIRE_REFUSE);
	ck_assert_int_eq(fake->message.refuse.code, CUDA_ERROR_OUT_OF_MEMORY);
	close(late.socket);
	close(kept_fd);
	ck_assert_int_eq(pin(4096), CUDA_SUCCESS);
	part();
}

int main(void)
{
	Suite *suite = suite_create("handout");
	TCase *looks;

	fake_prepare();
	looks = suite_case(suite, "looks");
	suite_add(looks, "looks");
	return suite_run(suite);
}
