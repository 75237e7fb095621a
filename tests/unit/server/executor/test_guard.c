// Where the guard maps the sink, against a backend that only remembers, and the looks at the sink.
// What is mapped is rebuilt from the log and compared, granule by granule.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/guard.h"
#include "server/executor/guard_watch.h"
#include "server/executor/memory.h"
#include "server/executor/pace.h"
#include "server/executor/tenant.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fake_backend.h"

#define GRANULE BACKEND_CHUNK_GRANULE
#define BASE	UINT64_C(0x200000000000)
#define COUNT	512u /* granules of the window */

static struct executor executor;
static struct tenant *owner, *other;
static int control[2];	 /* to a daemon that does not read */
static bool real[COUNT]; /* memory of the owner */

static struct tenant *add_tenant(uint64_t id)
{
	struct tenant *tenant = tenant_new(&executor, id);
	struct wire_shape shape;
	int client_fd, server_fd;

	shm_shape_init(&shape, 1u << 20, 1u << 16, 16);
	ck_assert_int_eq(shm_region_new(&shape, &client_fd, &server_fd), 0);
	ck_assert_int_eq(shm_view_map(&tenant->view, &shape, client_fd, server_fd, SHM_SIDE_SERVER), 0);
	close(client_fd);
	close(server_fd);
	tenant->window_base = BASE + (id - 1) * COUNT * GRANULE;
	tenant->device_bytes = COUNT * GRANULE;
	tenant->generation = 1;
	TAILQ_INSERT_TAIL(&executor.tenants, tenant, link);
	return tenant;
}

static void remove_tenant(struct tenant *tenant)
{
	guard_end(tenant);
	TAILQ_REMOVE(&executor.tenants, tenant, link);
	shm_view_unmap(&tenant->view);
	tenant_unref(tenant);
}

static struct job *new_job(struct tenant *tenant)
{
	struct job *job = job_new(&executor);

	job->tenant = tenant_ref(tenant);
	return job;
}

static void open_guard(struct tenant *tenant)
{
	struct job *job = new_job(tenant);

	job->message = (struct wire_message){.type = WIRE_OPEN_GUARD};
	job->message.open_guard = (struct wire_open_guard){.policy = GUARD_ERROR, .interval_ms = 10};
	job->packet.fds[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	job->packet.fd_count = 1;
	guard_handle(job);
	ck_assert_ptr_nonnull(tenant->guard);
}

static void setup(void)
{
	fake_reset();
	fake.immediate = true;
	memset(real, false, sizeof(real));
	executor = (struct executor){.ops = &fake_ops, .control_fd = -1};
	TAILQ_INIT(&executor.tenants);
	pthread_mutex_init(&executor.control_lock, NULL);
	pthread_mutex_init(&executor.tenants_lock, NULL);
	ck_assert_int_eq(job_board_init(&executor.board), 0);
	contain_init(&executor);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, control), 0);
	executor.control_fd = control[0];
	owner = add_tenant(1);
	other = add_tenant(2);
	open_guard(owner);
}

static void teardown(void)
{
	guard_watch_close(&executor);
	remove_tenant(other);
	remove_tenant(owner);
	contain_deinit(&executor);
	job_board_deinit(&executor.board);
	close(control[0]);
	close(control[1]);
}

/* True for each granule to which the log says that the sink is mapped. */
static void read_sinks(bool *sinks)
{
	memset(sinks, 0, COUNT);
	for (unsigned i = 0; i < fake.count; i++) {
		const struct fake_call *call = &fake.log[i];
		uint32_t granule = (uint32_t)(((uintptr_t)call->object - BASE) / GRANULE);

		if (call->kind != FAKE_SINK_MAP && call->kind != FAKE_SINK_UNMAP)
			continue;
		ck_assert_uint_lt(granule, COUNT);
		/* Nothing is mapped twice, and what is unmapped was mapped. */
		ck_assert(sinks[granule] == (call->kind == FAKE_SINK_UNMAP));
		sinks[granule] = call->kind == FAKE_SINK_MAP;
	}
}

static struct wire_range range(uint32_t from, uint32_t granules)
{
	return (struct wire_range){.address = BASE + from * GRANULE, .bytes = granules * GRANULE};
}

static void map(uint32_t from, uint32_t granules)
{
	struct wire_range wish = range(from, granules);
	bool sinks[COUNT];

	ck_assert_int_eq(guard_make_room(owner, &wish), CUDA_SUCCESS);
	read_sinks(sinks);
	for (uint32_t g = from; g < from + granules; g++)
		ck_assert(!sinks[g]);
	guard_note_mapped(owner, &wish);
	memset(real + from, true, granules);
}

static void unmap(uint32_t from, uint32_t granules)
{
	struct wire_range wish = range(from, granules);

	guard_note_unmapped(owner, &wish);
	memset(real + from, false, granules);
}

/* Where the service itself sees the sink. */
#define HOME (COUNT - 1)

/* The sink is directly beside the memory, and nowhere else. */
static void see_neighbours(void)
{
	bool sinks[COUNT];

	read_sinks(sinks);
	ck_assert(sinks[HOME]);
	for (uint32_t g = 0; g < HOME; g++)
		ck_assert_msg(sinks[g] == (!real[g] && ((g && real[g - 1]) || real[g + 1])),
			"granule %u is %u", g, sinks[g]);
}

static CUresult read_code(void)
{
	static struct packet packet;
	struct wire_message reply;

	ck_assert_int_eq(message_receive(control[1], &packet, &reply), 0);
	ck_assert_int_eq(reply.type, WIRE_REPLY);
	return (CUresult)reply.reply.code;
}

TEST(places, it_may_be_asked_for_again)
{
	const struct guard *guard = owner->guard;

	ck_assert_int_eq(read_code(), CUDA_SUCCESS);
	open_guard(owner);
	ck_assert_int_eq(read_code(), CUDA_SUCCESS);
	ck_assert_ptr_eq(owner->guard, guard);
}

TEST(places, the_sink_is_on_both_sides)
{
	map(101, 3);
	see_neighbours();
	ck_assert_uint_eq(owner->guard->mapped, 2);
	/* At the end of the window there is only one. */
	map(0, 1);
	map(HOME - 1, 1);
	see_neighbours();
}

TEST(places, memory_takes_its_place)
{
	map(101, 3);
	map(105, 2);
	see_neighbours();
	map(104, 1);
	see_neighbours();
	ck_assert_uint_eq(owner->guard->mapped, 2);
}

/* What is freed is bare at once, but for the edges of what stays. */
TEST(places, freed_memory_is_bare)
{
	map(100, 12);
	unmap(100, 12);
	see_neighbours();
	ck_assert_uint_eq(owner->guard->mapped, 0);
	map(100, 4);
	map(104, 4);
	map(108, 4);
	unmap(104, 4);
	see_neighbours();
	ck_assert_uint_eq(owner->guard->mapped, 4);
}

/* A session may have memory before its guard. */
TEST(places, memory_that_was_there_has_neighbours_too)
{
	const struct wire_range there = {.address = other->window_base + 100 * GRANULE, .bytes = 4 * GRANULE};

	ck_assert_int_eq(range_set_add(&other->device_maps, there.address, there.bytes), 0);
	open_guard(other);
	ck_assert_uint_eq(other->guard->mapped, 2);
	range_set_remove(&other->device_maps, there.address, there.bytes);
}

TEST(places, the_services_own_view_is_nobodys)
{
	struct wire_range wish = range(HOME, 1);

	ck_assert_int_eq(guard_make_room(owner, &wish), CUDA_ERROR_OUT_OF_MEMORY);
	wish = range(HOME - 1, 1);
	ck_assert_int_eq(guard_make_room(owner, &wish), CUDA_SUCCESS);
}

TEST(places, a_backend_without_mappings_leaves_it_bare)
{
	fake.fails[FAKE_SINK_MAP] = CUDA_ERROR_OUT_OF_MEMORY;
	map(100, 1);
	ck_assert_uint_eq(owner->guard->mapped, 0);
	fake.fails[FAKE_SINK_MAP] = CUDA_SUCCESS;
	map(101, 1);
	ck_assert_uint_eq(owner->guard->mapped, 1);
}

TEST(places, nothing_stays_mapped)
{
	bool sinks[COUNT];

	srand(1);
	for (int i = 0; i < 200; i++) {
		uint32_t from = (uint32_t)rand() % (HOME - 8), granules = 1 + (uint32_t)rand() % 7;

		for (uint32_t g = from; g < from + granules; g++)
			if (real[g])
				unmap(g, 1);
		map(from, granules);
		see_neighbours();
	}
	guard_end(owner);
	read_sinks(sinks);
	for (uint32_t g = 0; g < COUNT; g++)
		ck_assert(!sinks[g]);
	ck_assert_uint_eq(executor.guard_watch.mapped, 0);
}

/* ---- looks ---- */

static uint64_t now_ns = UINT64_C(1000000000);

/* As dispatch.c: the command is issued, then counted; done at once or not. */
static void launch(struct tenant *tenant, bool ends)
{
	struct shm_stream_state *state = &tenant->view.states[0];
	uint64_t seq = word_relaxed(&state->issued) + 1;

	word_set(&tenant->slots, 1);
	word_release(&state->issued, seq);
	guard_watch_note_launch(tenant);
	word_set(&state->marked, seq);
	if (ends)
		word_release(&shm_view_timeline(&tenant->view, 1)->stream[0].done, seq);
}

/* Steps until a look at a sink is over. `changed`: it finds a change. */
static void look(bool changed)
{
	unsigned checks = fake_count(FAKE_CHECK);
	uint64_t next;

	for (int i = 0; i < 1000; i++) {
		/* The device writes the answer before the mark, which arrives at once. */
		next = guard_watch_step(&executor, now_ns);
		if (fake_count(FAKE_CHECK) > checks && executor.guard_watch.look == LOOK_CHECKING && changed)
			*(uint32_t *)fake_call(FAKE_CHECK, checks)->word = 1;
		if (fake_count(FAKE_CHECK) > checks && executor.guard_watch.look == LOOK_NONE)
			return;
		ck_assert_uint_ne(next, UINT64_MAX);
		now_ns = next > now_ns ? next : now_ns + CLOCK_US;
	}
	ck_abort_msg("no look is taken");
}

static bool is_told(struct tenant *tenant)
{
	return word_relaxed(&tenant->guard_use.verdict) == CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* Whoever else runs. */
TEST(looks, a_hit_is_an_error_of_its_session)
{
	launch(owner, true);
	look(false);
	ck_assert(!is_told(owner));
	launch(owner, true);
	launch(other, true);
	look(true);
	ck_assert(is_told(owner));
	ck_assert(!is_told(other));
}

/* It is let go of (detach.c), which its work does not allow in the end. */
TEST(looks, a_session_that_nobody_serves_hears_of_it_later)
{
	ck_assert_ptr_null(owner->thread);
	launch(owner, true);
	look(true);
	guard_watch_sentence(owner);
	guard_watch_sentence(other);
	ck_assert_uint_eq(word_acquire(&other->view.server->state), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(word_acquire(&owner->view.server->state), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_acquire(&owner->view.server->error), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(looks, a_warning_is_for_the_log)
{
	owner->guard->policy = GUARD_WARN;
	launch(owner, true);
	look(true);
	ck_assert(!is_told(owner));
	ck_assert_uint_ne(owner->guard_use.told_at, 0);
}

/* Whatever is in a sink that could not be filled, no kernel has written it there. */
TEST(looks, a_sink_that_is_not_filled_proves_nothing)
{
	fake.fails[FAKE_SET] = CUDA_ERROR_OUT_OF_MEMORY;
	guard_watch_begin(owner);
	launch(owner, true);
	for (int i = 0; i < 1000; i++) {
		guard_watch_step(&executor, now_ns);
		if (fake_count(FAKE_CHECK))
			*(uint32_t *)fake_call(FAKE_CHECK, 0)->word = 1;
		now_ns += CLOCK_MS;
	}
	ck_assert(!is_told(owner));
	ck_assert_uint_gt(fake_count_failed(FAKE_SET), 1);
	fake.fails[FAKE_SET] = CUDA_SUCCESS;
	launch(owner, true);
	guard_watch_step(&executor, now_ns);
	ck_assert(owner->guard_use.filled);
	launch(owner, true);
	look(true);
	ck_assert(is_told(owner));
}

/* Work that is on the device during a look may write behind it. */
TEST(looks, work_that_goes_on_is_looked_at_again)
{
	launch(owner, false);
	look(false);
	look(true);
	ck_assert(is_told(owner));
}

TEST(looks, other_programs_kernels_ask_for_no_look)
{
	unsigned checks;

	launch(owner, true);
	look(false);
	checks = fake_count(FAKE_CHECK);
	for (int i = 0; i < 1000; i++) {
		launch(other, true);
		guard_watch_step(&executor, now_ns);
		now_ns += CLOCK_MS;
	}
	ck_assert_uint_eq(fake_count(FAKE_CHECK), checks);
}

TEST(looks, nobody_looks_while_nothing_runs)
{
	uint64_t next = 0;

	launch(owner, true);
	look(false);
	for (int i = 0; i < 1000 && next != UINT64_MAX; i++) {
		next = guard_watch_step(&executor, now_ns);
		now_ns = next != UINT64_MAX && next > now_ns ? next : now_ns + CLOCK_US;
	}
	ck_assert_uint_eq(next, UINT64_MAX);
	ck_assert_uint_eq(word_relaxed(&executor.guard_watch.resting), 1);
	launch(owner, true);
	ck_assert_uint_eq(word_relaxed(&executor.guard_watch.resting), 0);
	look(false);
}

TEST(looks, looks_are_a_small_part_of_the_time)
{
	uint64_t begin;

	fake.immediate = false;
	fake_arrive();
	launch(owner, true);
	begin = now_ns;
	guard_watch_step(&executor, now_ns);
	while (executor.guard_watch.look == LOOK_NONE) {
		now_ns += CLOCK_MS;
		guard_watch_step(&executor, now_ns);
	}
	begin = now_ns;
	now_ns += 10 * CLOCK_US;
	fake_arrive();
	while (executor.guard_watch.look != LOOK_NONE)
		guard_watch_step(&executor, now_ns);
	launch(owner, true);
	owner->now = now_ns;
	guard_watch_note_wait(owner);
	ck_assert_uint_eq(word_relaxed(&owner->guard_use.asked), 0);
	owner->now = now_ns = begin + 10 * CLOCK_US + 400 * 10 * CLOCK_US;
	guard_watch_note_wait(owner);
	ck_assert_uint_eq(word_relaxed(&owner->guard_use.asked), 1);
	guard_watch_step(&executor, now_ns);
	ck_assert_int_eq(executor.guard_watch.look, LOOK_CHECKING);
	fake_arrive();
	fake.immediate = true;
	while (executor.guard_watch.look != LOOK_NONE)
		guard_watch_step(&executor, now_ns);
}

TEST(looks, who_waits_while_more_is_under_way_is_looked_at_in_time)
{
	const uint64_t interval = executor.guard_watch.interval_ns;
	uint64_t begin;

	launch(owner, false);
	look(false);
	begin = owner->guard_use.looked_at;
	now_ns += interval / 2;
	launch(owner, false);
	owner->now = now_ns;
	word_set(&executor.guard_watch.open_at, 0);
	guard_watch_note_wait(owner);
	ck_assert_uint_eq(word_relaxed(&owner->guard_use.asked), 1);
	look(false);
	ck_assert_uint_ge(owner->guard_use.looked_at, begin + interval);
	ck_assert_uint_le(owner->guard_use.looked_at, begin + interval + 2 * CLOCK_MS);
	/* And again as soon as what it waits for has ended, not an interval later. */
	launch(owner, true);
	begin = now_ns;
	look(false);
	ck_assert_uint_lt(owner->guard_use.looked_at, begin + interval / 2);
	ck_assert_uint_eq(word_relaxed(&owner->guard_use.asked), 0);
}

TEST(looks, an_end_waits_for_the_look)
{
	launch(owner, true);
	fake.immediate = false;
	owner->closing = true;
	ck_assert(!guard_watch_last_look(owner, clock_now()));
	guard_watch_step(&executor, now_ns);
	ck_assert_int_eq(executor.guard_watch.look, LOOK_CHECKING);
	ck_assert(!guard_watch_last_look(owner, clock_now()));
	fake_arrive();
	guard_watch_step(&executor, now_ns);
	ck_assert(guard_watch_last_look(owner, clock_now()));
	fake.immediate = true;
}

/* Both sessions end, and the look at the first one has begun. Return: ns: when the daemon asked for
 * that, long ago */
static uint64_t end_both(void)
{
	const uint64_t since = clock_now() - 6000 * CLOCK_MS;

	open_guard(other);
	launch(owner, true);
	launch(other, true);
	fake.immediate = false;
	owner->closing = other->closing = true;
	ck_assert(!guard_watch_last_look(owner, since));
	ck_assert(!guard_watch_last_look(other, since));
	guard_watch_step(&executor, now_ns);
	ck_assert_int_eq(executor.guard_watch.look, LOOK_CHECKING);
	return since;
}

/* So many end at once that the last one's look comes late. */
TEST(looks, an_end_waits_for_its_turn)
{
	const uint64_t since = end_both();

	for (int i = 0; i < 2; i++) {
		ck_assert(!guard_watch_last_look(owner, since) || !guard_watch_last_look(other, since));
		fake_arrive();
		while (guard_watch_step(&executor, now_ns) == now_ns &&
			executor.guard_watch.look == LOOK_NONE)
			;
	}
	ck_assert(guard_watch_last_look(owner, since) && guard_watch_last_look(other, since));
	ck_assert(!owner->guard_use.abandoned && !other->guard_use.abandoned);
	fake.immediate = true;
}

TEST(looks, a_device_that_stands_still_costs_the_addresses_of_whom_it_looks_at)
{
	const uint64_t since = end_both();

	ck_assert(!guard_watch_last_look(owner, since));
	executor.guard_watch.moved_at = since;
	ck_assert(guard_watch_last_look(owner, since) && guard_watch_last_look(other, since));
	ck_assert_int_eq(owner->guard_use.abandoned + other->guard_use.abandoned, 1);
	ck_assert(executor.guard_watch.tenant->guard_use.abandoned);
	fake_arrive();
	guard_watch_step(&executor, now_ns);
	fake.immediate = true;
}

/* The work of the step is due. Return: when the next one is, and no call was made. */
static uint64_t step_without_a_call(void)
{
	unsigned calls = fake.count;
	uint64_t next = guard_watch_step(&executor, now_ns);

	ck_assert_uint_eq(fake.count, calls);
	ck_assert_uint_gt(next, now_ns);
	return next;
}

/* A launch of ours crashes the driver there. */
TEST(looks, nothing_is_asked_while_the_driver_handles_a_fault)
{
	const struct backend_watch *watch = &executor.contain.watch;
	struct backend_module *module = (struct backend_module *)&executor;
	const struct backend_fault fault = {.module = module, .code = CUDA_ERROR_ILLEGAL_ADDRESS};

	contain_note_module(&executor, module, owner->id);
	launch(owner, true);
	look(false);
	map(64, 4);
	launch(owner, true);
	now_ns += 2 * executor.guard_watch.interval_ns;
	watch->suspected(watch->context);
	ck_assert_uint_ne(step_without_a_call(), UINT64_MAX);
	watch->stopped(watch->context);
	now_ns = step_without_a_call();
	watch->contained(watch->context, &fault, 1);
	look(false);
	ck_assert_uint_gt(fake_count(FAKE_SINK_MAP), 0);
}

/* Of a session whose sinks are filled while those of another one are looked at: the next one says
 * the same. Before that nobody may take them away. */
TEST(looks, a_mark_that_cannot_be_put_is_not_waited_for)
{
	launch(owner, true);
	fake.immediate = false;
	while (executor.guard_watch.look == LOOK_NONE)
		now_ns = guard_watch_step(&executor, now_ns);
	fake.fails[FAKE_MARK] = CUDA_ERROR_OUT_OF_MEMORY;
	open_guard(other);
	fake.fails[FAKE_MARK] = CUDA_SUCCESS;
	ck_assert(!guard_watch_is_ready(other));
	fake.immediate = true;
	fake_arrive();
	for (int i = 0; i < 100 && executor.guard_watch.look != LOOK_NONE; i++)
		guard_watch_step(&executor, now_ns);
	ck_assert_int_eq(executor.guard_watch.look, LOOK_NONE);
	guard_watch_step(&executor, now_ns);
	ck_assert(guard_watch_is_ready(other));
	launch(owner, true);
	look(true);
	ck_assert(is_told(owner));
}

/* The device answers late: then the answer shows at the next look, which is at somebody else's
 * sinks. Whoever ran since those were clean has not done it. */
TEST(looks, an_answer_without_a_mark_is_not_the_next_ones)
{
	const size_t piece = (256 << 10) / sizeof(uint32_t);
	bool read = false;

	launch(owner, true);
	open_guard(other);
	launch(other, true);
	fake.fails[FAKE_MARK] = CUDA_ERROR_OUT_OF_MEMORY;
	while (!fake_count(FAKE_CHECK))
		now_ns = guard_watch_step(&executor, now_ns);
	fake.fails[FAKE_MARK] = CUDA_SUCCESS;
	ck_assert_ptr_eq(fake_call(FAKE_CHECK, 0)->object, (void *)(uintptr_t)owner->guard->home);
	while (fake_count(FAKE_CHECK) < 2)
		now_ns = guard_watch_step(&executor, now_ns);
	ck_assert_ptr_eq(fake_call(FAKE_CHECK, 1)->object, (void *)(uintptr_t)other->guard->home);
	*(uint32_t *)fake_call(FAKE_CHECK, 0)->word = 1;
	while (executor.guard_watch.look != LOOK_NONE) {
		guard_watch_step(&executor, now_ns);
		/* Every piece is as it should be. */
		for (size_t i = 0; !read && fake_count(FAKE_COPY) && i < piece; i++)
			((uint32_t *)fake_call(FAKE_COPY, 0)->object)[i] = GUARD_PATTERN;
		read = fake_count(FAKE_COPY);
	}
	ck_assert(read);
	ck_assert(!is_told(other));
}

/* ---- the end ---- */

/* The end of a session with many ranges is hundreds of calls. Launches take the mutex of the driver
 * that each of these calls takes, and have as much of the time. */
#define UNMAP_NS (PACE_WORK_NS / 2)

static void map_apart(void)
{
	for (uint32_t g = 1; g < 64; g += 3)
		map(g, 1);
}

TEST(places, many_mappings_go_with_rests)
{
	uint64_t begin, took, calls;

	map_apart();
	fake.undo_ns = UNMAP_NS;
	begin = clock_now();
	guard_end(owner);
	took = clock_now() - begin;
	calls = fake_count(FAKE_SINK_UNMAP);
	ck_assert_uint_ge(calls, 8);
	ck_assert_uint_ge(took - fake.undoing_ns, (calls - 4) * UNMAP_NS);
}

TEST(places, what_else_there_is_comes_between_mappings)
{
	bool sinks[COUNT];
	struct pace pace;
	uint64_t calls;

	map_apart();
	fake.undo_ns = UNMAP_NS;
	for (calls = 0;; calls = fake_count(FAKE_SINK_UNMAP)) {
		pace_begin(&pace, &executor);
		pace.yields = true;
		if (memory_unmap_device(owner, &pace))
			break;
		ck_assert_uint_le(fake_count(FAKE_SINK_UNMAP) - calls, PACE_WORK_NS / UNMAP_NS);
	}
	ck_assert_uint_ge(calls, 8);
	guard_deinit(owner);
	read_sinks(sinks);
	for (uint32_t g = 0; g < COUNT; g++)
		ck_assert(!sinks[g]);
}

int main(void)
{
	Suite *suite = suite_create("guard");
	TCase *places = tcase_create("places"), *looks = tcase_create("looks");

	tcase_add_checked_fixture(places, setup, teardown);
	suite_add(places, "places");
	suite_add_tcase(suite, places);
	tcase_add_checked_fixture(looks, setup, teardown);
	suite_add(looks, "looks");
	suite_add_tcase(suite, looks);
	return suite_run(suite);
}
