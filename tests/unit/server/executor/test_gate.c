// The gate in front of what stops the device, and what goes through it. In the first cases the test
// is device, client, clock and all threads: it steps the gate and turns the serving loop by hand.
// In the last one the module thread is a real one, and the clock is the real one too.

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/clock.h"
#include "server/executor/hold.h"
#include "server/executor/lookup.h"
#include "server/executor/module_worker.h"
#include "server/executor/serve.h"
#include "tests/unit/server/executor/fixture.h"

#define PATIENCE_US 20000u
/* Turns after which something that must happen has not. Each is a yield at most. */
#define TURNS 20000000u

static struct tenant *stranger; /* asks for a load, has no work */

static struct gate *gate(void)
{
	return &fixture.executor.gate;
}

static void open_gate_bed(void)
{
	fixture_open_default();
	gate()->patience_ns = PATIENCE_US * CLOCK_US;
	stranger = tenant_new(&fixture.executor, 78);
}

static void close_gate_bed(void)
{
	tenant_unref(stranger);
	fixture_close();
}

static uint64_t issued(uint32_t slot)
{
	return fixture.tenant->streams[slot].issued;
}

static void put(uint32_t slot, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		fixture_launch(slot, 0, (uint8_t)i);
	fixture_turn();
}

/* The device finishes what it has of one stream, as far as that is marked. */
static void arrive(uint32_t slot)
{
	word64 *word = &fixture.tenant->timeline->stream[slot].done;

	for (unsigned i = 0; i < fake.count; i++) {
		struct fake_call *call = &fake.log[i];

		if (call->kind != FAKE_MARK || call->arrived || call->word != word)
			continue;
		call->arrived = true;
		word_release(word, call->value);
	}
}

static int step_for(struct tenant *tenant)
{
	fixture_turn();
	return gate_step(&fixture.executor, tenant, fixture.now);
}

static int step(void)
{
	return step_for(stranger);
}

static void begin(void)
{
	gate_begin(&fixture.executor, fixture.now, fixture.now);
}

/* Time passes, then one stream's command ends, and the gate is looked at. */
static int end_after(uint64_t us, uint32_t slot)
{
	fixture_pass(us);
	step();
	arrive(slot);
	return step();
}

TEST(phases, nothing_runs_and_nothing_is_waited_for)
{
	begin();
	ck_assert_int_eq(step(), 0);
	ck_assert_int_eq(gate_phase(gate()), GATE_CLOSED);
	put(1, 3);
	ck_assert_uint_eq(issued(1), 0);
	gate_leave(&fixture.executor);
	ck_assert_int_eq(gate_phase(gate()), GATE_OPEN);
	ck_assert(hold_is_ready(fixture.tenant));
	fixture_turn();
	ck_assert_uint_eq(issued(1), 3);
}

TEST(phases, a_deep_queue_becomes_one_command)
{
	put(1, 5);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 0);
	begin();
	put(1, 4);
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_SHALLOW);
	ck_assert_uint_eq(issued(1), 5);
	ck_assert_uint_eq(fake_count(FAKE_MARK), 1);
	for (uint64_t seq = 6; seq <= 8; seq++) {
		arrive(1);
		fixture_turn();
		ck_assert_uint_eq(issued(1), seq);
		ck_assert_uint_eq(fake_count(FAKE_MARK), seq - 4);
	}
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_LONG_FIRST);
}

TEST(phases, short_ones_go_on_until_the_long_one_ends)
{
	put(1, 1);
	put(2, 1);
	begin();
	put(1, 5);
	put(2, 40);
	ck_assert_int_eq(step(), GATE_E_WAIT);
	for (uint64_t seq = 2; seq <= 12; seq++) {
		ck_assert_int_eq(end_after(100, 2), GATE_E_WAIT);
		ck_assert_uint_eq(issued(2), seq);
		ck_assert_uint_eq(issued(1), 1);
		ck_assert_int_eq(gate_phase(gate()), GATE_LONG_FIRST);
	}
	/* The long one ends, and gets nothing more. The short one's command is the last. */
	ck_assert_int_eq(end_after(10, 1), GATE_E_WAIT);
	ck_assert_uint_eq(issued(1), 1);
	ck_assert_int_eq(gate_phase(gate()), GATE_CLOSED);
	ck_assert_int_eq(end_after(50, 2), 0);
	ck_assert_uint_eq(issued(2), 12);
	ck_assert_uint_eq(issued(1), 1);
	gate_leave(&fixture.executor);
	fixture_turn();
	ck_assert_uint_eq(issued(2), 41);
	ck_assert_uint_eq(issued(1), 6);
}

/* 1 ms commands are not stopped for one that runs for ever, but for one that would end first. */
TEST(phases, nobody_waits_for_one_that_takes_much_longer)
{
	put(1, 1);
	put(2, 1);
	begin();
	put(2, 5);
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert_int_eq(end_after(1000, 2), GATE_E_WAIT);
	ck_assert_uint_eq(issued(2), 1);
	fixture_pass(800);
	step();
	fixture_turn();
	ck_assert_uint_eq(issued(2), 1);
	fixture_pass(400);
	step();
	fixture_turn();
	ck_assert_uint_eq(issued(2), 2);
	/* Once the other has ended it is this one's turn to stop. */
	ck_assert_int_eq(end_after(100, 1), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_LONG_FIRST);
	ck_assert_int_eq(end_after(900, 2), 0);
	ck_assert_uint_eq(issued(2), 2);
}

TEST(phases, closed_for_one_that_turns_out_long)
{
	put(1, 1);
	put(2, 1);
	begin();
	put(1, 1);
	put(2, 9);
	step();
	arrive(2);
	ck_assert_int_eq(end_after(60, 1), GATE_E_WAIT);
	ck_assert_uint_eq(issued(1), 2);
	ck_assert_uint_eq(issued(2), 2);
	ck_assert_int_eq(end_after(100, 2), GATE_E_WAIT);
	ck_assert_int_eq(end_after(30, 2), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_LONG_FIRST);
	/* Not known yet what stream 1 runs, but it is some time since anything long was seen. */
	ck_assert_int_eq(end_after(20, 2), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_CLOSED);
	ck_assert_int_eq(end_after(100, 2), GATE_E_WAIT);
	ck_assert_uint_eq(issued(2), 4);
	fixture_pass(1000);
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_LONG_FIRST);
	fixture_turn();
	ck_assert_uint_eq(issued(2), 5);
	ck_assert_int_eq(end_after(100, 2), GATE_E_WAIT);
	ck_assert_uint_eq(issued(2), 6);
	ck_assert_int_eq(end_after(100, 1), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_CLOSED);
	ck_assert_int_eq(end_after(100, 2), 0);
}

TEST(phases, patience_ends_and_the_others_never_noticed)
{
	uint64_t before = issued(2);
	int result = GATE_E_WAIT;
	unsigned looks = 0;

	put(1, 1);
	put(2, 1);
	begin();
	put(2, 400);
	step();
	while (result == GATE_E_WAIT) {
		result = end_after(100, 2);
		ck_assert_uint_gt(issued(2), before);
		before = issued(2);
		ck_assert_int_ne(gate_phase(gate()), GATE_CLOSED);
		ck_assert_uint_lt(++looks, 400);
	}
	ck_assert_int_eq(result, GATE_E_LONG);
	ck_assert_uint_ge(looks, PATIENCE_US / 100);
	ck_assert_uint_ge(gate()->obstacle.ns, PATIENCE_US * CLOCK_US);
	ck_assert_int_eq(gate_phase(gate()), GATE_OPEN);
	fixture_turn();
	ck_assert_uint_eq(issued(2), 401);
}

/* Also where the command is the requesting session's own. */
TEST_LOOP(phases, a_command_without_end_never_closes_the_gate, 0, 2)
{
	struct tenant *requester = _i ? fixture.tenant : stranger;

	put(1, 1);
	begin();
	for (uint64_t us = 0; us < PATIENCE_US; us += 500) {
		ck_assert_int_eq(step_for(requester), GATE_E_WAIT);
		ck_assert_int_ne(gate_phase(gate()), GATE_CLOSED);
		fixture_pass(500);
	}
	ck_assert_int_eq(step_for(requester), GATE_E_LONG);
	ck_assert(!gate_is_shut(gate()));
	arrive(1);
}

TEST(phases, beside_the_same_command_a_try_is_over_at_its_first_look)
{
	uint64_t asked = fixture.now;

	put(1, 1);
	begin();
	while (step() == GATE_E_WAIT)
		fixture_pass(500);
	for (int i = 0; i < 5; i++) {
		fixture_pass(PATIENCE_US);
		gate_begin(&fixture.executor, asked, fixture.now);
		ck_assert_int_eq(step(), GATE_E_LONG);
	}
	arrive(1);
	fixture_pass(PATIENCE_US);
	gate_begin(&fixture.executor, asked, fixture.now);
	ck_assert_int_eq(step(), 0);
}

/* It has waited for ten times the patience, so it outlasts commands of up to five times that. */
TEST_LOOP(phases, who_has_waited_for_long_puts_up_with_long_commands, 0, 2)
{
	uint64_t asked = fixture.now;

	fixture_pass(10 * PATIENCE_US);
	put(1, 1);
	gate_begin(&fixture.executor, asked, fixture.now);
	put(1, 1);
	step();
	for (int i = 0; i < 4; i++) {
		fixture_pass(PATIENCE_US);
		ck_assert_int_eq(step(), GATE_E_WAIT);
		/* Nobody else is stopped for that. */
		ck_assert_int_eq(gate_phase(gate()), GATE_LONG_FIRST);
	}
	if (_i)
		fixture_pass(PATIENCE_US);
	else
		arrive(1);
	ck_assert_int_eq(step(), _i ? GATE_E_LONG : 0);
	ck_assert_uint_eq(issued(1), 1);
	arrive(1);
}

/* However long that takes, for nothing in it is long. */
TEST(phases, the_gate_is_not_closed_for_a_deep_queue)
{
	put(1, 40);
	begin();
	step();
	for (int i = 0; i < 38; i++) {
		fixture_pass(PATIENCE_US / 4);
		word_release(&fixture.tenant->timeline->stream[1].done, (uint64_t)i + 1);
		ck_assert_int_eq(step(), GATE_E_WAIT);
		ck_assert_int_eq(gate_phase(gate()), GATE_SHALLOW);
	}
	arrive(1);
	ck_assert_int_eq(step(), 0);
}

/* The gate is closed because the others left no gap. */
TEST(phases, it_is_opened_for_what_turns_out_long)
{
	uint32_t slot = 1;

	put(slot, 1);
	begin();
	for (unsigned us = 0; us < PATIENCE_US; us += 1000, slot++) {
		fixture_pass(500);
		put(slot + 1, 1);
		end_after(500, slot);
	}
	step();
	ck_assert_int_eq(gate_phase(gate()), GATE_CLOSED);
	fixture_pass(PATIENCE_US / 2);
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_CLOSED);
	fixture_pass(PATIENCE_US / 2);
	ck_assert_int_eq(step(), GATE_E_LONG);
	ck_assert(!gate_is_shut(gate()));
	arrive(slot);
}

/* Always something long, never the same, and always a new stream, so none is known. */
TEST(phases, what_leaves_no_gap_gets_one_when_the_patience_ends)
{
	uint32_t slot = 1;

	put(slot, 1);
	begin();
	for (unsigned us = 0; us < PATIENCE_US; us += 1000, slot++) {
		ck_assert_int_eq(step(), GATE_E_WAIT);
		ck_assert_int_ne(gate_phase(gate()), GATE_CLOSED);
		fixture_pass(500);
		put(slot + 1, 1);
		ck_assert_uint_eq(issued(slot + 1), 1);
		ck_assert_int_eq(end_after(500, slot), GATE_E_WAIT);
	}
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_CLOSED);
	put(slot + 1, 1);
	ck_assert_uint_eq(issued(slot + 1), 0);
	ck_assert_int_eq(end_after(3000, slot), 0);
}

TEST(phases, a_session_that_was_cut_off_does_not_block)
{
	put(1, 5);
	begin();
	put(1, 5);
	fixture.tenant->stopped = true;
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_SHALLOW);
	arrive(1);
	ck_assert_int_eq(step(), 0);
	ck_assert_uint_eq(issued(1), 5);
}

TEST(phases, the_session_that_asked_ends)
{
	put(1, 1);
	begin();
	put(1, 5);
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert(gate_is_shut(gate()));
	stranger->closing = true;
	ck_assert_int_eq(step(), GATE_E_GONE);
	ck_assert(!gate_is_shut(gate()));
	fixture_turn();
	ck_assert_uint_eq(issued(1), 6);
}

TEST(phases, the_context_is_lost)
{
	put(1, 1);
	begin();
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert(gate_is_shut(gate()));
	word_release(&fixture.executor.lost, CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(step(), GATE_E_GONE);
	ck_assert(!gate_is_shut(gate()));
}

TEST(phases, threads_that_are_awake_must_have_seen_it)
{
	struct serve_thread threads[2] = {{.kick = eventfd(0, EFD_NONBLOCK)}, {.kick = -1}};
	uint64_t rings;

	fixture.executor.pool.threads = threads;
	fixture.executor.pool.count = 2;
	word_release(&threads[0].resting, 1);
	begin();
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_SHALLOW);
	word_release(&threads[1].gate_seen, word_relaxed(&gate()->word));
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_LONG_FIRST);
	word_release(&threads[1].gate_seen, word_relaxed(&gate()->word));
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert_int_eq(gate_phase(gate()), GATE_CLOSED);
	ck_assert_int_eq(step(), GATE_E_WAIT);
	word_release(&threads[1].gate_seen, word_relaxed(&gate()->word));
	ck_assert_int_eq(step(), 0);
	/* Who sleeps on a held stream is woken. */
	fixture.tenant->thread = &threads[0];
	put(1, 1);
	ck_assert_uint_eq(issued(1), 0);
	gate_leave(&fixture.executor);
	ck_assert_int_eq(read(threads[0].kick, &rings, sizeof(rings)), sizeof(rings));
	fixture.tenant->thread = NULL;
	fixture.executor.pool = (struct serve_pool){0};
	close(threads[0].kick);
}

/* ---- with the module thread ---- */

static struct packet packet;
static struct wire_message message;

static struct job *new_job(struct tenant *tenant, enum wire_type type, uint64_t id)
{
	struct job *job = job_new(&fixture.executor);

	job->message = (struct wire_message){.type = type, .id = id, .session = tenant->id};
	job->tenant = tenant_ref(tenant);
	return job;
}

/* Requests are numbered by what they ask for. */
static void ask_for_load(struct tenant *tenant, uint32_t module, const char *image)
{
	struct job *job = new_job(tenant, WIRE_LOAD_MODULE, module);
	int fd = memfd_create("image", MFD_CLOEXEC);

	ck_assert_int_eq(write(fd, image, 2), 2);
	job->packet.fds[0] = fd;
	job->packet.fd_count = 1;
	job->message.load_module = (struct wire_load_module){.module = module, .bytes = 2};
	module_handle(job);
}

static void ask_of(struct tenant *tenant, enum wire_type type, uint32_t module, uint32_t id, const char *name)
{
	struct job *job = new_job(tenant, type, id);

	job->message.symbol = (struct wire_symbol){.module = module, .function = id, .name = name};
	module_handle(job);
}

static void ask(struct tenant *tenant, enum wire_type type, uint32_t id, const char *name)
{
	ask_of(tenant, type, 1, id, name);
}

static void ask_for_attribute(struct tenant *tenant, uint32_t function)
{
	struct job *job = new_job(tenant, WIRE_SET_FUNCTION, function);

	job->message.set_function = (struct wire_set_function){.function = function};
	module_handle(job);
}

static void ask_for_lookup(struct tenant *tenant, uint32_t function)
{
	ask(tenant, WIRE_FIND_FUNCTION, function, "k+");
}

static void turn_now(void)
{
	sched_yield();
	fixture.now = clock_now();
	serve_turn(fixture.tenant, fixture.now);
}

static void turn_until(enum gate_phase phase)
{
	unsigned turns = 0;

	while (gate_phase(gate()) != phase) {
		ck_assert_uint_lt(++turns, TURNS);
		turn_now();
	}
}

/* Return: the code of the next answer, which must be to request `id`. */
static CUresult answer_to(uint64_t id)
{
	unsigned turns = 0;

	while (packet_receive(fixture.control[1], &packet)) {
		ck_assert_uint_lt(++turns, TURNS);
		turn_now();
	}
	ck_assert_int_eq(wire_decode(packet.bytes, packet.length, &message), 0);
	ck_assert_int_eq(message.type, WIRE_REPLY);
	ck_assert_uint_eq(message.id, id);
	return message.reply.code;
}

static void give_module(struct tenant *tenant, uint32_t module)
{
	ask_for_load(tenant, module, "M");
	ck_assert_int_eq(answer_to(module), CUDA_SUCCESS);
}

static void open_module_bed(void)
{
	open_gate_bed();
	deferred_init(&fixture.executor);
	ck_assert_int_eq(module_worker_init(&fixture.executor), 0);
	fixture.now = clock_now();
	give_module(fixture.tenant, 1);
	give_module(stranger, 1);
}

static void free_modules(struct tenant *tenant)
{
	struct module **modules = tenant->modules.modules;

	for (unsigned id = 0; modules && id < MODULE_MAX; id++)
		if (modules[id]) {
			fake_ops.module_unload(modules[id]->backend);
			free(modules[id]->globals);
			free(modules[id]);
		}
	free(modules);
}

/* From the first one that the fixture does not know. */
static void free_functions(struct tenant *tenant, unsigned first)
{
	function_word *functions = atomic_load(&tenant->modules.functions);

	for (unsigned id = first; functions && id < FUNCTION_MAX; id++) {
		struct function *function = atomic_load(&functions[id]);

		if (function)
			free(function->name);
		free(function);
	}
}

static void close_module_bed(void)
{
	module_worker_deinit(&fixture.executor);
	deferred_deinit(&fixture.executor);
	free_functions(fixture.tenant, 2);
	free_functions(stranger, 1);
	free(atomic_load(&stranger->modules.functions));
	free_modules(fixture.tenant);
	free_modules(stranger);
	close_gate_bed();
}

static uint64_t changes(void)
{
	return word_acquire(&gate()->word) >> 2;
}

TEST(module_thread, loading_holds_up_nobody)
{
	put(1, 1);
	ask_for_load(stranger, 2, "M");
	ck_assert_int_eq(answer_to(2), CUDA_SUCCESS);
	ask(stranger, WIRE_FIND_FUNCTION, 101, "k");
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
	ask(stranger, WIRE_FIND_FUNCTION, 102, "unknown");
	ck_assert_int_eq(answer_to(102), CUDA_ERROR_NOT_FOUND);
	ck_assert_uint_eq(changes(), 0);
	ck_assert_uint_eq(issued(1), 1);
}

TEST(module_thread, a_first_lookup_begins_when_the_device_is_empty)
{
	gate()->patience_ns = 60000 * CLOCK_MS;
	put(1, 1);
	ask_for_lookup(stranger, 101);
	turn_until(GATE_LONG_FIRST);
	for (int i = 0; i < 1000; i++)
		turn_now();
	ck_assert_uint_eq(fake_count(FAKE_SETTLE), 0);
	arrive(1);
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_count(FAKE_SETTLE), 1);
	turn_until(GATE_OPEN);
	put(1, 1);
	turn_now();
	ck_assert_uint_eq(issued(1), 2);
}

/* The list between them waits for the gap to end. */
TEST(module_thread, lookups_that_wait_share_a_gap)
{
	gate()->patience_ns = gate()->batch_ns = 60000 * CLOCK_MS;
	put(1, 3);
	ask_for_lookup(stranger, 101);
	turn_until(GATE_SHALLOW);
	ask(stranger, WIRE_LIST_FUNCTIONS, 100, NULL);
	ask_for_lookup(fixture.tenant, 102);
	ask(fixture.tenant, WIRE_FIND_GLOBAL, 103, "g+");
	turn_now();
	arrive(1);
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(102), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(103), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(100), CUDA_SUCCESS);
	ck_assert_uint_eq(message.reply.names.count, 1);
	ck_assert_uint_eq(changes(), 4); /* shallow, long first, closed, open */
}

/* The one of stream 1, which is the only one. */
static void end_kernel(void)
{
	while (word_relaxed(&fixture.tenant->timeline->stream[1].done) < issued(1)) {
		turn_now();
		arrive(1);
	}
}

/* A third session, with nothing. */
static struct tenant *open_third(void)
{
	return tenant_new(&fixture.executor, 79);
}

static void close_third(struct tenant *third)
{
	free_functions(third, 1);
	free(atomic_load(&third->modules.functions));
	free_modules(third);
	tenant_unref(third);
}

/* A first use of code that waits for nothing. */
static void use_code(struct tenant *tenant)
{
	give_module(tenant, 2);
	ask_of(tenant, WIRE_FIND_FUNCTION, 2, 200, "k");
	ck_assert_int_eq(answer_to(200), CUDA_SUCCESS);
	ask_of(tenant, WIRE_FIND_GLOBAL, 2, 201, "g");
	ck_assert_int_eq(answer_to(201), CUDA_SUCCESS);
	ask_for_attribute(tenant, 200);
	ck_assert_int_eq(answer_to(200), CUDA_SUCCESS);
	ask_of(tenant, WIRE_UNLOAD_MODULE, 2, 202, NULL);
	ck_assert_int_eq(answer_to(202), CUDA_SUCCESS);
}

/* Launches of others, short ones, as many as the test likes. */
static void run_others(void)
{
	uint64_t before = issued(2);

	put(2, 3);
	while (issued(2) < before + 3) {
		arrive(2);
		turn_now();
	}
	arrive(2);
}

/* How often the gate has moved when the time is over. */
static uint64_t changes_after(uint64_t ns)
{
	uint64_t end = clock_now() + ns;

	while (clock_now() < end) {
		arrive(2);
		turn_now();
	}
	return changes();
}

/* Processor time of the module thread, ns. */
static uint64_t work_of_thread(void)
{
	clockid_t clock;

	ck_assert_int_eq(pthread_getcpuclockid(fixture.executor.modules.thread, &clock), 0);
	return clock_of(clock);
}

TEST(module_thread, who_waits_for_a_kernel_without_end_holds_nobody_up)
{
	struct tenant *third = open_third();
	uint64_t before, worked, tries;

	put(1, 1);
	ask_for_lookup(stranger, 101);
	turn_until(GATE_SHALLOW);
	/* While it is tried, and while it rests. */
	use_code(third);
	run_others();
	before = changes_after(3 * PATIENCE_US * CLOCK_US);
	use_code(third);
	run_others();
	/* Nor is there anything to do for what waits behind it. */
	ask(stranger, WIRE_LIST_FUNCTIONS, 102, NULL);
	worked = work_of_thread();
	/* Shut and opened once in 100 ms. */
	tries = (changes_after(1000 * CLOCK_MS) - before) / 2;
	ck_assert_uint_ge(tries, 1);
	ck_assert_uint_le(tries, 12);
	ck_assert_uint_lt(work_of_thread() - worked, 250 * CLOCK_MS);
	ck_assert_uint_eq(fake_count(FAKE_SETTLE), 0);
	end_kernel();
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_count(FAKE_SETTLE), 1);
	ck_assert_int_eq(answer_to(102), CUDA_SUCCESS);
	close_third(third);
}

/* Many that wait are found in the order in which they asked. */
TEST(module_thread, all_who_wait_for_the_same_kernel_are_served_in_order)
{
	put(1, 1);
	for (uint32_t i = 101; i < 105; i++)
		ask_for_lookup(i % 2 ? stranger : fixture.tenant, i);
	changes_after(10 * PATIENCE_US * CLOCK_US);
	gate()->batch_ns = 60000 * CLOCK_MS;
	end_kernel();
	for (uint32_t i = 101; i < 105; i++)
		ck_assert_int_eq(answer_to(i), CUDA_SUCCESS);
}

TEST(module_thread, who_ends_while_it_rests_is_gone_at_once)
{
	put(1, 1);
	ask_for_lookup(stranger, 101);
	turn_until(GATE_SHALLOW);
	turn_until(GATE_OPEN);
	stranger->closing = true;
	module_worker_wake(&fixture.executor);
	ck_assert_int_eq(answer_to(101), CUDA_ERROR_INVALID_HANDLE);
	turn_until(GATE_OPEN);
	end_kernel();
}

TEST(module_thread, who_waits_for_oneself_does_not_keep_others_waiting)
{
	put(1, 1);
	ask_for_lookup(fixture.tenant, 101);
	while (!gate_is_shut(gate()))
		turn_now();
	use_code(stranger);
	end_kernel();
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
}

/* The other session's kernel does not end. */
TEST(module_thread, who_needs_no_gap_does_not_wait_for_anothers)
{
	struct tenant *third = open_third();

	gate()->patience_ns = gate()->batch_ns = 60000 * CLOCK_MS;
	put(1, 1);
	ask_for_lookup(stranger, 101);
	turn_until(GATE_LONG_FIRST);
	/* Behind what is another session's and waits for a gap, but not behind its own. */
	ask_for_lookup(fixture.tenant, 102);
	ask(fixture.tenant, WIRE_LIST_FUNCTIONS, 103, NULL);
	ask(stranger, WIRE_LIST_FUNCTIONS, 105, NULL);
	use_code(third);
	give_module(third, 1);
	/* Known to need one when it was tried: not before the others. */
	ask_for_lookup(third, 106);
	ask_of(third, WIRE_LIST_FUNCTIONS, 1, 107, NULL);
	ck_assert_uint_eq(fake_count(FAKE_SETTLE), 0);
	ck_assert_uint_eq(changes(), 2); /* shallow, long first: it went on as it was */
	end_kernel();
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(102), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(106), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(103), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(105), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(107), CUDA_SUCCESS);
	close_third(third);
}

/* What waits for a gap has waited for an hour, so it would go on for 16 s. */
TEST(module_thread, what_has_to_wait_for_an_open_gate_comes_first_when_the_patience_is_over)
{
	struct job *job = new_job(stranger, WIRE_FIND_FUNCTION, 101);
	uint64_t begin = clock_now();

	put(1, 1);
	job->message.symbol = (struct wire_symbol){.module = 1, .function = 101, .name = "k+"};
	job->run = lookup_function;
	job->since = begin - 3600000 * CLOCK_MS;
	module_worker_queue_again(job);
	turn_until(GATE_LONG_FIRST);
	module_handle(new_job(fixture.tenant, WIRE_DROP_ARRAY, 102)); /* which is not there */
	ck_assert_int_eq(answer_to(102), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_uint_lt(clock_now() - begin, 10000 * CLOCK_MS);
	end_kernel();
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
}

/* Many modules wait to be unloaded: one more waits for the gap, but not at the gate. */
TEST(module_thread, an_unload_that_needs_a_gap_waits_for_that_of_another_session)
{
	struct tenant *third = open_third();

	put(1, 1);
	for (unsigned i = 0; i < RECLAIM_MAX; i++) {
		give_module(third, 1);
		ask(third, WIRE_UNLOAD_MODULE, 100, NULL);
		ck_assert_int_eq(answer_to(100), CUDA_SUCCESS);
	}
	give_module(third, 1);
	gate()->patience_ns = 60000 * CLOCK_MS;
	ask_for_lookup(stranger, 101);
	turn_until(GATE_LONG_FIRST);
	ask(third, WIRE_UNLOAD_MODULE, 102, NULL);
	ask(fixture.tenant, WIRE_LIST_FUNCTIONS, 103, NULL);
	ck_assert_int_eq(answer_to(103), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_count(FAKE_MODULE_UNLOAD), 0);
	end_kernel();
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(102), CUDA_SUCCESS);
	ck_assert_uint_ge(fake_count(FAKE_MODULE_UNLOAD), RECLAIM_MAX);
	close_third(third);
}

static CUresult unload(struct tenant *tenant)
{
	unsigned turns = 0;

	ask(tenant, WIRE_UNLOAD_MODULE, 1, NULL);
	while (packet_receive(fixture.control[1], &packet)) {
		ck_assert_uint_lt(++turns, TURNS);
		turn_now();
		job_board_step(&fixture.executor.board, fixture.now);
	}
	ck_assert_int_eq(wire_decode(packet.bytes, packet.length, &message), 0);
	return message.reply.code;
}

TEST(module_thread, an_unload_is_answered_and_done_when_nobody_is_held_up)
{
	put(1, 1);
	ck_assert_int_eq(unload(stranger), CUDA_SUCCESS);
	ask(stranger, WIRE_LIST_FUNCTIONS, 100, NULL);
	ck_assert_int_eq(answer_to(100), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake_count(FAKE_MODULE_UNLOAD), 0);
	ck_assert_uint_eq(changes(), 0);
	give_module(stranger, 1); /* its number is free */
	while (!fake_count(FAKE_MODULE_UNLOAD)) {
		turn_now();
		arrive(1);
	}
	turn_until(GATE_OPEN);
}

/* Behind the end of its own kernels, beside those of others. */
TEST(module_thread, a_module_whose_unloading_waits_for_nothing_goes_at_once)
{
	fake.is_quick = true;
	put(1, 1);
	ck_assert_int_eq(unload(stranger), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_count(FAKE_MODULE_UNLOAD), 1);
	ck_assert_uint_eq(changes(), 0);
	arrive(1);
}

/* So that the standby, where unloads are done at once, has the same addresses. */
TEST(module_thread, unloads_come_before_what_is_put_on_the_device_later)
{
	gate()->patience_ns = 60000 * CLOCK_MS;
	put(1, 1);
	ck_assert_int_eq(unload(stranger), CUDA_SUCCESS);
	ask_for_lookup(fixture.tenant, 101);
	turn_until(GATE_LONG_FIRST);
	ck_assert_uint_eq(fake_count(FAKE_MODULE_UNLOAD), 0);
	turn_now();
	arrive(1);
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_count(FAKE_MODULE_UNLOAD), 1);
	ck_assert_int_lt(fake_position(FAKE_MODULE_UNLOAD, 0), fake_position(FAKE_SETTLE, 0));
}

static _Atomic unsigned released;

static void note_release(struct tenant *tenant)
{
	(void)tenant;
	released++;
}

/* A kernel of two is always on the device, unless the gate is shut. */
static void keep_busy(void)
{
	uint64_t done = word_acquire(&fixture.tenant->timeline->stream[1].done);

	if (fixture.seq[1] < done + 4)
		fixture_launch(1, FRMPS_CMD_MARK, 7);
	turn_now();
	if (issued(1) > done + 1 || gate_is_shut(gate()))
		fake_arrive_one();
}

/* What an ended session has left. Young, it waits for a pause; old, it gets a gap. */
TEST(module_thread, what_is_left_goes_beside_work_without_a_pause)
{
	struct deferred_frees *frees = &fixture.executor.deferred;
	unsigned turns = 0;

	for (int i = 0; i < 4; i++)
		keep_busy();
	deferred_add_tenant(tenant_ref(stranger), 4096, note_release);
	ask(stranger, WIRE_LIST_FUNCTIONS, 100, NULL);
	while (packet_receive(fixture.control[1], &packet))
		keep_busy();
	ck_assert_uint_eq(released, 0);
	ck_assert_uint_eq(changes(), 0);
	pthread_mutex_lock(&frees->lock);
	stranger->deferred.since -= GATE_DEFER_NS;
	pthread_mutex_unlock(&frees->lock);
	while (!released) {
		ck_assert_uint_lt(++turns, TURNS);
		keep_busy();
	}
	turn_until(GATE_OPEN);
	fake_arrive();
}

/* Its mark is there, and it is on the device. */
TEST(phases, a_kernel_that_faulted_leaves_no_gap)
{
	struct contain *contain = &fixture.executor.contain;

	contain->phase = CONTAIN_STOPPED;
	ck_assert(!gate_try(&fixture.executor));
	begin();
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert(!gate()->closed);
	/* It was nothing. */
	contain->phase = CONTAIN_CLEAR;
	ck_assert_int_eq(step(), 0);
	gate_leave(&fixture.executor);
	ck_assert(gate_try(&fixture.executor));
	gate_leave(&fixture.executor);
}

TEST(phases, nobody_has_little_patience)
{
	put(1, 1);
	gate()->patience_ns = 60000 * CLOCK_MS;
	begin();
	fixture_turn();
	ck_assert_int_eq(gate_step(&fixture.executor, NULL, fixture.now), GATE_E_WAIT);
	fixture_pass(GATE_NOBODY_NS / CLOCK_US + 1);
	fixture_turn();
	ck_assert_int_eq(gate_step(&fixture.executor, NULL, fixture.now), GATE_E_LONG);
	ck_assert(!gate_is_shut(gate()));
	arrive(1);
}

int main(void)
{
	Suite *suite = suite_create("gate");
	TCase *phases = suite_case(suite, "phases"), *thread = suite_case(suite, "module thread");

	tcase_add_checked_fixture(phases, open_gate_bed, close_gate_bed);
	suite_add(phases, "phases");
	tcase_add_checked_fixture(thread, open_module_bed, close_module_bed);
	suite_add(thread, "module_thread");
	return suite_run(suite);
}
