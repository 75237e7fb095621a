// The guard's slots, against a backend that only remembers, and the judgement on those who ran.
// What is mapped is rebuilt from the log and compared, granule by granule.

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/guard.h"
#include "server/executor/memory.h"
#include "server/executor/pace.h"
#include "server/executor/stray.h"
#include "server/executor/suspect.h"
#include "server/executor/tenant.h"
#include "tests/lib/suite.h"
#include "tests/unit/server/executor/fake_backend.h"

#define GRANULE BACKEND_CHUNK_GRANULE
#define BASE	UINT64_C(0x200000000000)
#define COUNT	512u /* granules of the window */
#define BLOCK	4u   /* of a far slot */
#define REACH	32u

static struct executor executor;
static struct tenant *owner, *other;
static int control[2]; /* to a daemon that does not read */

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
	job->message.open_guard = (struct wire_open_guard){.near_bytes = GRANULE,
		.far_bytes = BLOCK * GRANULE,
		.reach = REACH * GRANULE,
		.policy = GUARD_ERROR,
		.interval_ms = 10};
	for (unsigned i = 0; i < 2; i++)
		job->packet.fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
	job->packet.fd_count = 2;
	guard_handle(job);
	ck_assert_ptr_nonnull(tenant->guard);
}

static void setup(void)
{
	fake_reset();
	fake.immediate = true;
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
	stray_close(&executor);
	remove_tenant(other);
	remove_tenant(owner);
	contain_deinit(&executor);
	job_board_deinit(&executor.board);
	close(control[0]);
	close(control[1]);
}

/* What the log says is mapped: per granule 0 nothing, 1 near, 2 far. */
static void read_slots(uint8_t *slots)
{
	memset(slots, 0, COUNT);
	for (unsigned i = 0; i < fake.count; i++) {
		const struct fake_call *call = &fake.log[i];
		uint32_t from = (uint32_t)(((uintptr_t)call->object - BASE) / GRANULE);
		uint32_t granules = (uint32_t)(call->seq * (call->value / GRANULE));
		bool is_far = call->value > GRANULE;

		if (call->kind != FAKE_SINK_MAP && call->kind != FAKE_SINK_UNMAP)
			continue;
		for (uint32_t g = from; g < from + granules; g++) {
			ck_assert_uint_lt(g, COUNT);
			/* Nothing is mapped twice, and what is unmapped was mapped so. */
			ck_assert_uint_eq(slots[g], call->kind == FAKE_SINK_MAP ? 0 : is_far ? 2 : 1);
			slots[g] = call->kind == FAKE_SINK_MAP ? (is_far ? 2 : 1) : 0;
		}
	}
}

static struct wire_range range(uint32_t from, uint32_t granules)
{
	return (struct wire_range){.address = BASE + from * GRANULE, .bytes = granules * GRANULE};
}

static void map(uint32_t from, uint32_t granules)
{
	struct wire_range wish = range(from, granules);
	uint8_t slots[COUNT];

	ck_assert_int_eq(guard_make_room(owner, &wish), CUDA_SUCCESS);
	read_slots(slots);
	for (uint32_t g = from; g < from + granules; g++)
		ck_assert_uint_eq(slots[g], 0);
	guard_note_mapped(owner, &wish);
}

static void unmap(uint32_t from, uint32_t granules)
{
	struct wire_range wish = range(from, granules);

	guard_note_unmapped(owner, &wish);
}

static void prepare(void)
{
	for (int i = 0; owner->guard->wanted; i++) {
		uint32_t before = owner->guard->mapped;

		ck_assert_int_lt(i, 1000);
		guard_step(owner);
		ck_assert_uint_le(owner->guard->mapped - before, GUARD_STEP_SLOTS);
		ck_assert_uint_gt(owner->guard->mapped, before);
	}
}

/* Where the service itself sees the sinks. */
#define HOME (COUNT - 1 - BLOCK)

static CUresult read_code(void)
{
	static struct packet packet;
	struct wire_message reply;

	ck_assert_int_eq(packet_receive(control[1], &packet), 0);
	ck_assert_int_eq(wire_decode(packet.bytes, packet.length, &reply), 0);
	ck_assert_int_eq(reply.type, WIRE_REPLY);
	return (CUresult)reply.reply.code;
}

START_TEST(it_may_be_asked_for_again)
{
	const struct guard *guard = owner->guard;

	ck_assert_int_eq(read_code(), CUDA_SUCCESS);
	open_guard(owner);
	ck_assert_int_eq(read_code(), CUDA_SUCCESS);
	ck_assert_ptr_eq(owner->guard, guard);
}
END_TEST

START_TEST(what_is_within_reach_is_backed)
{
	uint8_t slots[COUNT];

	map(101, 3);
	prepare();
	read_slots(slots);
	for (uint32_t g = 0; g < HOME; g++) {
		bool real = g >= 101 && g < 104, near = g + REACH >= 101 && g < 104 + REACH;

		ck_assert_msg((slots[g] != 0) == (near && !real), "granule %u is %u", g, slots[g]);
	}
	/* Whole blocks are one slot. */
	ck_assert_uint_eq(slots[100], 1);
	ck_assert_uint_eq(slots[96], 2);
	ck_assert_uint_eq(slots[104], 2);
}
END_TEST

START_TEST(neighbours_are_backed_at_once)
{
	uint8_t slots[COUNT];

	map(101, 3);
	read_slots(slots);
	ck_assert_uint_ne(slots[100], 0);
	ck_assert_uint_ne(slots[104], 0);
	ck_assert_uint_le(owner->guard->mapped, 2);
}
END_TEST

START_TEST(memory_takes_the_place_of_slots)
{
	uint8_t slots[COUNT];

	map(101, 3);
	prepare();
	map(106, 1);
	read_slots(slots);
	ck_assert_uint_eq(slots[106], 0);
	prepare();
	read_slots(slots);
	ck_assert_uint_eq(slots[104], 1);
	ck_assert_uint_eq(slots[107], 1);
	ck_assert_uint_eq(slots[108], 2);
}
END_TEST

static uint32_t count_mapped(uint32_t from, uint32_t to)
{
	uint8_t slots[COUNT];
	uint32_t count = 0;

	read_slots(slots);
	for (uint32_t g = from; g < to; g++)
		count += slots[g] != 0;
	return count;
}

START_TEST(freed_memory_is_backed_a_little_later)
{
	map(100, 12);
	prepare();
	unmap(100, 12);
	ck_assert_uint_eq(count_mapped(100, 112), 0);
	ck_assert_uint_le(stray_step(&executor, owner->guard->step_at - 1), owner->guard->step_at);
	ck_assert_uint_eq(count_mapped(100, 112), 0);
	stray_step(&executor, owner->guard->step_at);
	ck_assert_uint_eq(count_mapped(100, 112), 12);
}
END_TEST

START_TEST(memory_that_comes_back_at_once_costs_no_slot)
{
	uint32_t maps, unmaps;

	map(100, 12);
	prepare();
	maps = fake_count(FAKE_SINK_MAP);
	unmaps = fake_count(FAKE_SINK_UNMAP);
	for (int i = 0; i < 100; i++) {
		unmap(100, 12);
		stray_step(&executor, owner->guard->step_at - 1);
		map(100, 12);
	}
	ck_assert_uint_eq(fake_count(FAKE_SINK_MAP), maps);
	ck_assert_uint_eq(fake_count(FAKE_SINK_UNMAP), unmaps);
}
END_TEST

START_TEST(what_is_freed_does_not_put_off_the_rest)
{
	map(100, 12);
	ck_assert_uint_ne(owner->guard->wanted, 0);
	unmap(100, 12);
	ck_assert_uint_eq(owner->guard->step_at, 0);
}
END_TEST

START_TEST(the_services_own_view_is_nobodys)
{
	struct wire_range wish = range(HOME, 1);

	ck_assert_int_eq(guard_make_room(owner, &wish), CUDA_ERROR_OUT_OF_MEMORY);
	wish = range(HOME - 1, 1);
	ck_assert_int_eq(guard_make_room(owner, &wish), CUDA_SUCCESS);
}
END_TEST

START_TEST(a_backend_without_slots_leaves_it_bare)
{
	fake.fails[FAKE_SINK_MAP] = CUDA_ERROR_OUT_OF_MEMORY;
	map(100, 1);
	guard_step(owner);
	ck_assert(owner->guard->full);
	fake.fails[FAKE_SINK_MAP] = CUDA_SUCCESS;
}
END_TEST

START_TEST(nothing_stays_mapped)
{
	uint8_t slots[COUNT];

	srand(1);
	for (int i = 0; i < 200; i++) {
		uint32_t from = (uint32_t)rand() % (HOME - 8), granules = 1 + (uint32_t)rand() % 7;

		map(from, granules);
		for (int steps = rand() % 3; steps > 0; steps--)
			guard_step(owner);
		unmap(from, granules);
	}
	prepare();
	guard_end(owner);
	read_slots(slots);
	for (uint32_t g = 0; g < COUNT; g++)
		ck_assert_uint_eq(slots[g], 0);
	ck_assert_uint_eq(executor.strays.slots, 0);
}
END_TEST

/* ---- the judgement ---- */

static uint64_t now_ns = UINT64_C(1000000000);

/* As dispatch.c: the command is issued, then counted; done at once or not. */
static void launch(struct tenant *tenant, bool ends)
{
	struct shm_stream_state *state = &tenant->view.states[0];
	uint64_t seq = word_relaxed(&state->issued) + 1;

	word_set(&tenant->slots, 1);
	word_release(&state->issued, seq);
	stray_note_launch(tenant);
	word_set(&state->marked, seq);
	if (ends)
		word_release(&shm_view_timeline(&tenant->view, 1)->stream[0].done, seq);
}

/* Steps until a look at the owner's sinks is over. `changed`: it finds a change. */
static void look(bool changed)
{
	unsigned checks = fake_count(FAKE_CHECK);
	uint64_t next;

	for (int i = 0; i < 1000; i++) {
		/* The device writes the answer before the mark, which arrives at once. */
		next = stray_step(&executor, now_ns);
		if (fake_count(FAKE_CHECK) > checks && executor.strays.state == STRAY_LOOKING && changed)
			*(uint32_t *)fake_call(FAKE_CHECK, checks)->word = 1;
		if (fake_count(FAKE_CHECK) > checks && executor.strays.state == STRAY_IDLE)
			return;
		ck_assert_uint_ne(next, UINT64_MAX);
		now_ns = next > now_ns ? next : now_ns + CLOCK_US;
	}
	ck_abort_msg("no look is taken");
}

START_TEST(the_only_one_that_ran_is_convicted)
{
	launch(owner, true);
	look(false);
	launch(other, true);
	look(true);
	ck_assert(other->stray.convicted);
	ck_assert(!owner->stray.convicted);
}
END_TEST

/* It is let go of (detach.c), which its work does not allow in the end. */
START_TEST(who_is_convicted_while_nobody_serves_it_hears_of_it_later)
{
	ck_assert_ptr_null(other->thread);
	launch(owner, true);
	look(false);
	launch(other, true);
	look(true);
	ck_assert(other->stray.convicted);
	suspect_sentence(owner);
	suspect_sentence(other);
	ck_assert_uint_eq(word_acquire(&owner->view.server->state), SHM_SESSION_RUNNING);
	ck_assert_uint_eq(word_acquire(&other->view.server->state), SHM_SESSION_FAULTED);
	ck_assert_uint_eq(word_acquire(&other->view.server->error), CUDA_ERROR_ILLEGAL_ADDRESS);
}
END_TEST

/* Whatever is in sinks that could not be filled, nobody has written it there. */
START_TEST(sinks_that_are_not_filled_prove_nothing)
{
	fake.fails[FAKE_SET] = CUDA_ERROR_OUT_OF_MEMORY;
	stray_begin(owner);
	launch(other, true);
	for (int i = 0; i < 1000; i++) {
		stray_step(&executor, now_ns);
		if (fake_count(FAKE_CHECK))
			*(uint32_t *)fake_call(FAKE_CHECK, 0)->word = 1;
		now_ns += CLOCK_MS;
	}
	ck_assert(!other->stray.convicted);
	ck_assert_uint_gt(fake_count_failed(FAKE_SET), 1);
	fake.fails[FAKE_SET] = CUDA_SUCCESS;
	launch(owner, true);
	stray_step(&executor, now_ns);
	ck_assert_uint_ne(owner->stray.clean, 0);
	launch(other, true);
	look(true);
	ck_assert(other->stray.convicted);
}
END_TEST

static pid_t start_executor(void)
{
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (!child)
		for (;;)
			pause();
	return child;
}

/* Its kernels may have changed the sinks until the first look behind its end. */
START_TEST(an_executor_before_may_have_done_it)
{
	pid_t child = start_executor();
	const uint32_t pid = (uint32_t)child;

	suspect_set_formers(&executor, &(struct wire_u32s){&pid, 1});
	for (int i = 0; i < 2; i++) {
		launch(owner, true);
		look(true);
		ck_assert(!owner->stray.convicted);
	}
	kill(child, SIGKILL);
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	launch(owner, true);
	look(true);
	ck_assert(!owner->stray.convicted);
	launch(owner, true);
	look(true);
	ck_assert(owner->stray.convicted);
	waitpid(child, NULL, 0);
	suspect_set_formers(&executor, &(struct wire_u32s){&pid, 1});
	ck_assert_uint_eq(executor.strays.former_count, 0);
}
END_TEST

/* The same until the first look behind the moment at which it had closed the session; it lives
 * on. */
START_TEST(an_executor_that_has_closed_the_session_can_not_do_it_any_more)
{
	pid_t child = start_executor();
	const uint32_t pid = (uint32_t)child;

	suspect_set_formers(&executor, &(struct wire_u32s){&pid, 1});
	launch(owner, true);
	look(true);
	suspect_set_formers(&executor, &(struct wire_u32s){NULL, 0});
	launch(owner, true);
	look(true);
	ck_assert(!owner->stray.convicted);
	launch(owner, true);
	look(true);
	ck_assert(owner->stray.convicted);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}
END_TEST

START_TEST(two_that_ran_are_not)
{
	launch(owner, true);
	look(false);
	launch(owner, true);
	launch(other, true);
	look(true);
	ck_assert(!owner->stray.convicted && !other->stray.convicted);
	/* The next time it is clear. */
	launch(owner, true);
	look(true);
	ck_assert(owner->stray.convicted);
}
END_TEST

START_TEST(work_that_goes_on_makes_a_suspect)
{
	launch(other, false);
	launch(owner, true);
	look(false);
	launch(owner, true);
	look(true);
	ck_assert(!owner->stray.convicted && !other->stray.convicted);
}
END_TEST

START_TEST(who_has_left_was_there)
{
	launch(owner, true);
	look(false);
	launch(other, true);
	ck_assert(stray_farewell(other, now_ns));
	launch(owner, true);
	look(true);
	ck_assert(!owner->stray.convicted);
}
END_TEST

START_TEST(nobody_looks_while_nothing_runs)
{
	uint64_t next = 0;

	launch(owner, true);
	look(false);
	for (int i = 0; i < 1000 && next != UINT64_MAX; i++) {
		next = stray_step(&executor, now_ns);
		now_ns = next != UINT64_MAX && next > now_ns ? next : now_ns + CLOCK_US;
	}
	ck_assert_uint_eq(next, UINT64_MAX);
	ck_assert_uint_eq(word_relaxed(&executor.strays.resting), 1);
	launch(owner, true);
	ck_assert_uint_eq(word_relaxed(&executor.strays.resting), 0);
	look(false);
}
END_TEST

START_TEST(looks_are_a_small_part_of_the_time)
{
	uint64_t begin;

	fake.immediate = false;
	fake_arrive();
	launch(owner, true);
	begin = now_ns;
	stray_step(&executor, now_ns);
	while (executor.strays.state == STRAY_IDLE) {
		now_ns += CLOCK_MS;
		stray_step(&executor, now_ns);
	}
	begin = now_ns;
	now_ns += 10 * CLOCK_US;
	fake_arrive();
	while (executor.strays.state != STRAY_IDLE)
		stray_step(&executor, now_ns);
	launch(owner, true);
	owner->now = now_ns;
	stray_note_wait(owner);
	ck_assert_uint_eq(word_relaxed(&owner->stray.asked), 0);
	owner->now = now_ns = begin + 10 * CLOCK_US + 400 * 10 * CLOCK_US;
	stray_note_wait(owner);
	ck_assert_uint_eq(word_relaxed(&owner->stray.asked), 1);
	stray_step(&executor, now_ns);
	ck_assert_int_eq(executor.strays.state, STRAY_LOOKING);
	fake_arrive();
	fake.immediate = true;
	while (executor.strays.state != STRAY_IDLE)
		stray_step(&executor, now_ns);
}
END_TEST

START_TEST(who_waits_while_more_is_under_way_is_looked_at_in_time)
{
	const uint64_t interval = executor.strays.interval_ns;
	uint64_t begin;

	launch(owner, false);
	look(false);
	begin = owner->stray.looked_at;
	now_ns += interval / 2;
	launch(owner, false);
	owner->now = now_ns;
	word_set(&executor.strays.open_at, 0);
	stray_note_wait(owner);
	ck_assert_uint_eq(word_relaxed(&owner->stray.asked), 1);
	look(false);
	ck_assert_uint_ge(owner->stray.looked_at, begin + interval);
	ck_assert_uint_le(owner->stray.looked_at, begin + interval + 2 * CLOCK_MS);
	/* And again as soon as what it waits for has ended, not an interval later. */
	launch(owner, true);
	begin = now_ns;
	look(false);
	ck_assert_uint_lt(owner->stray.looked_at, begin + interval / 2);
	ck_assert_uint_eq(word_relaxed(&owner->stray.asked), 0);
}
END_TEST

START_TEST(an_end_waits_for_the_look)
{
	launch(owner, true);
	fake.immediate = false;
	owner->closing = true;
	ck_assert(!stray_farewell(owner, clock_now()));
	stray_step(&executor, now_ns);
	ck_assert_int_eq(executor.strays.state, STRAY_LOOKING);
	ck_assert(!stray_farewell(owner, clock_now()));
	fake_arrive();
	stray_step(&executor, now_ns);
	ck_assert(stray_farewell(owner, clock_now()));
	fake.immediate = true;
}
END_TEST

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
	ck_assert(!stray_farewell(owner, since));
	ck_assert(!stray_farewell(other, since));
	stray_step(&executor, now_ns);
	ck_assert_int_eq(executor.strays.state, STRAY_LOOKING);
	return since;
}

/* So many end at once that the last one's look comes late. */
START_TEST(an_end_waits_for_its_turn)
{
	const uint64_t since = end_both();

	for (int i = 0; i < 2; i++) {
		ck_assert(!stray_farewell(owner, since) || !stray_farewell(other, since));
		fake_arrive();
		while (stray_step(&executor, now_ns) == now_ns && executor.strays.state == STRAY_IDLE)
			;
	}
	ck_assert(stray_farewell(owner, since) && stray_farewell(other, since));
	ck_assert(!owner->stray.abandoned && !other->stray.abandoned);
	fake.immediate = true;
}
END_TEST

START_TEST(a_device_that_stands_still_costs_the_addresses_of_whom_it_looks_at)
{
	const uint64_t since = end_both();

	ck_assert(!stray_farewell(owner, since));
	executor.strays.moved_at = since;
	ck_assert(stray_farewell(owner, since) && stray_farewell(other, since));
	ck_assert_int_eq(owner->stray.abandoned + other->stray.abandoned, 1);
	ck_assert(executor.strays.tenant->stray.abandoned);
	fake_arrive();
	stray_step(&executor, now_ns);
	fake.immediate = true;
}
END_TEST

/* The work of the step is due. Return: when the next one is, and no call was made. */
static uint64_t step_without_a_call(void)
{
	unsigned calls = fake.count;
	uint64_t next = stray_step(&executor, now_ns);

	ck_assert_uint_eq(fake.count, calls);
	ck_assert_uint_gt(next, now_ns);
	return next;
}

/* A launch of ours crashes the driver there. */
START_TEST(nothing_is_asked_while_the_driver_handles_a_fault)
{
	const struct backend_watch *watch = &executor.contain.watch;
	struct backend_module *module = (struct backend_module *)&executor;
	const struct backend_fault fault = {.module = module, .code = CUDA_ERROR_ILLEGAL_ADDRESS};

	contain_note_module(&executor, module, owner->id);
	launch(owner, true);
	look(false);
	map(64, 4);
	launch(owner, true);
	now_ns += 2 * executor.strays.interval_ns;
	watch->suspected(watch->context);
	ck_assert_uint_ne(step_without_a_call(), UINT64_MAX);
	watch->stopped(watch->context);
	now_ns = step_without_a_call();
	watch->contained(watch->context, &fault, 1);
	look(false);
	ck_assert_uint_gt(fake_count(FAKE_SINK_MAP), 0);
}
END_TEST

/* Of a session whose sinks are filled while those of another one are looked at: the next one says
 * the same. Before that nobody may take them away. */
START_TEST(a_mark_that_cannot_be_put_is_not_waited_for)
{
	launch(owner, true);
	fake.immediate = false;
	while (executor.strays.state == STRAY_IDLE)
		now_ns = stray_step(&executor, now_ns);
	fake.fails[FAKE_MARK] = CUDA_ERROR_OUT_OF_MEMORY;
	open_guard(other);
	fake.fails[FAKE_MARK] = CUDA_SUCCESS;
	ck_assert(!stray_is_ready(other));
	fake.immediate = true;
	fake_arrive();
	for (int i = 0; i < 100 && executor.strays.state != STRAY_IDLE; i++)
		stray_step(&executor, now_ns);
	ck_assert_int_eq(executor.strays.state, STRAY_IDLE);
	stray_step(&executor, now_ns);
	ck_assert(stray_is_ready(other));
	launch(owner, true);
	look(true);
	ck_assert(owner->stray.convicted);
}
END_TEST

/* The device answers late: then the answer shows at the next look, which is at somebody else's
 * sinks. Whoever ran since those were clean has not done it. */
START_TEST(an_answer_without_a_mark_is_not_the_next_ones)
{
	const size_t piece = (256 << 10) / sizeof(uint32_t);
	bool read = false;

	launch(owner, true);
	open_guard(other);
	launch(other, true);
	fake.fails[FAKE_MARK] = CUDA_ERROR_OUT_OF_MEMORY;
	while (!fake_count(FAKE_CHECK))
		now_ns = stray_step(&executor, now_ns);
	fake.fails[FAKE_MARK] = CUDA_SUCCESS;
	ck_assert_ptr_eq(fake_call(FAKE_CHECK, 0)->object, (void *)(uintptr_t)owner->guard->home);
	while (fake_count(FAKE_CHECK) < 2)
		now_ns = stray_step(&executor, now_ns);
	ck_assert_ptr_eq(fake_call(FAKE_CHECK, 1)->object, (void *)(uintptr_t)other->guard->home);
	*(uint32_t *)fake_call(FAKE_CHECK, 0)->word = 1;
	while (executor.strays.state != STRAY_IDLE) {
		stray_step(&executor, now_ns);
		/* Every piece is as it should be. */
		for (size_t i = 0; !read && fake_count(FAKE_COPY) && i < piece; i++)
			((uint32_t *)fake_call(FAKE_COPY, 0)->object)[i] = GUARD_PATTERN;
		read = fake_count(FAKE_COPY);
	}
	ck_assert(read);
	ck_assert(!other->stray.convicted);
}
END_TEST

/* ---- how fast ---- */

#define UNMAP_NS (PACE_WORK_NS / 2)

static unsigned rests;

/* The one that the server takes its rests with. */
int nanosleep(const struct timespec *time, struct timespec *left)
{
	rests++;
	return clock_nanosleep(CLOCK_MONOTONIC, 0, time, left) ? -1 : 0;
}

static void make_room(void)
{
	struct wire_range wish = range(128 - REACH, REACH);

	guard_make_room(owner, &wish);
}

static void end_slots(void)
{
	guard_end(owner);
}

static void end_memory(void)
{
	struct pace pace;

	pace_begin(&pace, &executor);
	for (uint32_t g = 0; g < 2 * REACH; g += 2)
		ck_assert_int_eq(
			range_set_add(&owner->device_maps, range(g, 1).address, range(g, 1).bytes), 0);
	ck_assert(memory_unmap_device(owner, &pace));
	guard_deinit(owner);
}

/* Launches take the mutex of the driver that each of these calls takes, and have as much of the
 * time. */
START_TEST(many_mappings_go_with_rests)
{
	static void (*const ways[])(void) = {make_room, end_slots, end_memory};
	uint64_t begin, took, calls;

	map(128, 1);
	prepare();
	fake.undo_ns = UNMAP_NS;
	begin = clock_now();
	ways[_i]();
	took = clock_now() - begin;
	calls = fake_count(FAKE_SINK_UNMAP) + fake_count(FAKE_CHUNK_UNMAP);
	ck_assert_uint_ge(calls, 8);
	/* Those behind the last rest, of each of two loops, have none behind them. */
	ck_assert_uint_ge(took - fake.undoing_ns, (calls - 4) * UNMAP_NS);
}
END_TEST

/* The end of a session is hundreds of calls. */
START_TEST(what_else_there_is_comes_between_mappings)
{
	uint8_t slots[COUNT];
	struct pace pace;
	uint64_t calls;

	map(128, 1);
	prepare();
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
	read_slots(slots);
	for (uint32_t g = 0; g < HOME; g++)
		ck_assert_uint_eq(slots[g], 0);
}
END_TEST

/* Nobody launches anything then, and all wait for what this thread says of it. */
START_TEST(nobody_rests_when_there_may_be_a_fault)
{
	const struct backend_watch *watch = &executor.contain.watch;

	map(128, 1);
	prepare();
	fake.undo_ns = UNMAP_NS;
	rests = 0;
	if (_i == 0)
		watch->suspected(watch->context);
	else
		executor.lost = EXECUTOR_HALTED;
	make_room();
	ck_assert_uint_ge(fake_count(FAKE_SINK_UNMAP), 4);
	ck_assert_uint_eq(rests, 0);
	executor.lost = 0;
}
END_TEST

/* Nobody launches anything in a standby, and what it is told last may be that it is to take
 * over. */
START_TEST(a_standby_makes_room_without_rests)
{
	map(128, 1);
	prepare();
	fake.undo_ns = UNMAP_NS;
	rests = 0;
	owner->generation = other->generation = 0;
	make_room();
	ck_assert_uint_ge(fake_count(FAKE_SINK_UNMAP), 4);
	ck_assert_uint_eq(rests, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("guard");
	TCase *slots = tcase_create("slots"), *judgement = tcase_create("judgement");

	tcase_add_checked_fixture(slots, setup, teardown);
	tcase_add_test(slots, it_may_be_asked_for_again);
	tcase_add_test(slots, what_is_within_reach_is_backed);
	tcase_add_test(slots, neighbours_are_backed_at_once);
	tcase_add_test(slots, memory_takes_the_place_of_slots);
	tcase_add_test(slots, freed_memory_is_backed_a_little_later);
	tcase_add_test(slots, memory_that_comes_back_at_once_costs_no_slot);
	tcase_add_test(slots, what_is_freed_does_not_put_off_the_rest);
	tcase_add_test(slots, the_services_own_view_is_nobodys);
	tcase_add_test(slots, a_backend_without_slots_leaves_it_bare);
	tcase_add_test(slots, nothing_stays_mapped);
	tcase_add_loop_test(slots, many_mappings_go_with_rests, 0, 3);
	tcase_add_test(slots, what_else_there_is_comes_between_mappings);
	tcase_add_loop_test(slots, nobody_rests_when_there_may_be_a_fault, 0, 2);
	tcase_add_test(slots, a_standby_makes_room_without_rests);
	suite_add_tcase(suite, slots);
	tcase_add_checked_fixture(judgement, setup, teardown);
	tcase_add_test(judgement, the_only_one_that_ran_is_convicted);
	tcase_add_test(judgement, who_is_convicted_while_nobody_serves_it_hears_of_it_later);
	tcase_add_test(judgement, sinks_that_are_not_filled_prove_nothing);
	tcase_add_test(judgement, an_executor_before_may_have_done_it);
	tcase_add_test(judgement, an_executor_that_has_closed_the_session_can_not_do_it_any_more);
	tcase_add_test(judgement, two_that_ran_are_not);
	tcase_add_test(judgement, work_that_goes_on_makes_a_suspect);
	tcase_add_test(judgement, who_has_left_was_there);
	tcase_add_test(judgement, nobody_looks_while_nothing_runs);
	tcase_add_test(judgement, looks_are_a_small_part_of_the_time);
	tcase_add_test(judgement, who_waits_while_more_is_under_way_is_looked_at_in_time);
	tcase_add_test(judgement, an_end_waits_for_the_look);
	tcase_add_test(judgement, an_end_waits_for_its_turn);
	tcase_add_test(judgement, a_device_that_stands_still_costs_the_addresses_of_whom_it_looks_at);
	tcase_add_test(judgement, nothing_is_asked_while_the_driver_handles_a_fault);
	tcase_add_test(judgement, a_mark_that_cannot_be_put_is_not_waited_for);
	tcase_add_test(judgement, an_answer_without_a_mark_is_not_the_next_ones);
	suite_add_tcase(suite, judgement);
	return suite_run(suite);
}
