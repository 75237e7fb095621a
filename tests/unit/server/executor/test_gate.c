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

#include "server/executor/clock.h"
#include "server/executor/hold.h"
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
	gate_begin(&fixture.executor, fixture.now);
}

/* Time passes, then one stream's command ends, and the gate is looked at. */
static int end_after(uint64_t us, uint32_t slot)
{
	fixture_pass(us);
	step();
	arrive(slot);
	return step();
}

START_TEST(nothing_runs_and_nothing_is_waited_for)
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
END_TEST

START_TEST(a_deep_queue_becomes_one_command)
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
END_TEST

START_TEST(short_ones_go_on_until_the_long_one_ends)
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
END_TEST

/* 1 ms commands are not stopped for one that runs for ever, but for one that would end first. */
START_TEST(nobody_waits_for_one_that_takes_much_longer)
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
END_TEST

START_TEST(closed_for_one_that_turns_out_long)
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
END_TEST

START_TEST(patience_ends_and_the_others_never_noticed)
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
	ck_assert_int_eq(result, GATE_E_REFUSED);
	ck_assert_uint_ge(looks, PATIENCE_US / 100);
	ck_assert_uint_ge(gate()->refused_ns, PATIENCE_US * CLOCK_US);
	ck_assert_int_eq(gate_phase(gate()), GATE_OPEN);
	fixture_turn();
	ck_assert_uint_eq(issued(2), 401);
}
END_TEST

START_TEST(ones_own_long_command_is_awaited)
{
	struct tenant *self = fixture.tenant;

	put(1, 1);
	put(2, 1);
	begin();
	put(2, 40);
	for (uint64_t seq = 2; seq <= 12; seq++) {
		fixture_pass(PATIENCE_US / 5);
		step_for(self);
		arrive(2);
		ck_assert_int_eq(step_for(self), seq < 6 ? GATE_E_WAIT : GATE_E_OWN);
		fixture_turn();
		ck_assert_int_eq(gate_phase(gate()), GATE_LONG_FIRST);
		if (seq > 4) /* as long as its commands are it may have to wait once */
			ck_assert_uint_gt(issued(2), seq - 3);
	}
	arrive(1);
	arrive(2);
	fixture_pass(10);
	step_for(self);
	arrive(2);
	ck_assert_int_eq(step_for(self), 0);
}
END_TEST

/* Always something long, never the same, and always a new stream, so none is known. */
START_TEST(what_leaves_no_gap_gets_one_when_the_patience_ends)
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
END_TEST

START_TEST(a_session_that_was_cut_off_does_not_block)
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
END_TEST

START_TEST(the_session_that_asked_ends)
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
END_TEST

START_TEST(the_context_is_lost)
{
	put(1, 1);
	begin();
	ck_assert_int_eq(step(), GATE_E_WAIT);
	ck_assert(gate_is_shut(gate()));
	word_release(&fixture.executor.lost, CUDA_ERROR_ILLEGAL_ADDRESS);
	ck_assert_int_eq(step(), GATE_E_GONE);
	ck_assert(!gate_is_shut(gate()));
}
END_TEST

START_TEST(threads_that_are_awake_must_have_seen_it)
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
END_TEST

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

static void ask(struct tenant *tenant, enum wire_type type, uint32_t id, const char *name)
{
	struct job *job = new_job(tenant, type, id);

	job->message.symbol = (struct wire_symbol){.module = 1, .function = id, .name = name};
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

START_TEST(loading_holds_up_nobody)
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
END_TEST

START_TEST(a_first_lookup_begins_when_the_device_is_empty)
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
END_TEST

/* The list between them waits for the gap to end. */
START_TEST(lookups_that_wait_share_a_gap)
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
END_TEST

START_TEST(a_refusal_says_why)
{
	snprintf(fixture.tenant->program, sizeof(fixture.tenant->program), "runner");
	put(1, 1);
	ask_for_lookup(stranger, 101);
	ck_assert_int_eq(answer_to(101), CUDA_ERROR_SYSTEM_NOT_READY);
	ck_assert_ptr_nonnull(strstr(message.reply.text, "another program (runner, pid"));
	ck_assert_ptr_nonnull(strstr(message.reply.text, "load_patience_ms"));
	ck_assert_uint_eq(fake_count(FAKE_SETTLE), 0);
	turn_until(GATE_OPEN);
	/* It may be asked for again. */
	gate()->patience_ns = 60000 * CLOCK_MS;
	arrive(1);
	ask_for_lookup(stranger, 101);
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
}
END_TEST

/* What waits in the queue has waited since then. */
static void have_asked_at(uint64_t since)
{
	struct module_worker *worker = &fixture.executor.modules;
	struct job *job;

	pthread_mutex_lock(&worker->lock);
	TAILQ_FOREACH (job, &worker->queue, link)
		job->since = since;
	pthread_mutex_unlock(&worker->lock);
}

/* Each after its own time, not one after the other. */
START_TEST(who_waits_for_the_same_kernel_is_refused_together)
{
	uint64_t begin, asked;

	gate()->patience_ns = 1000 * CLOCK_MS;
	put(1, 1);
	begin = clock_now();
	for (uint32_t i = 101; i < 105; i++)
		ask_for_lookup(stranger, i);
	have_asked_at(begin);
	asked = clock_now();
	for (uint32_t i = 101; i < 105; i++)
		ck_assert_int_eq(answer_to(i), CUDA_ERROR_SYSTEM_NOT_READY);
	ck_assert_uint_ge(clock_now() - begin, gate()->patience_ns);
	/* The first waits: shallow, long first, open. Those whose time is over then do not:
	 * shallow, open. */
	if (asked - begin < gate()->patience_ns / 2)
		ck_assert_uint_le(changes(), 3 + 3 * 2);
	arrive(1);
}
END_TEST

START_TEST(who_waits_for_oneself_does_not_keep_others_waiting)
{
	put(1, 1);
	ask_for_lookup(fixture.tenant, 101);
	while (!gate_is_shut(gate()))
		turn_now();
	ask(stranger, WIRE_LIST_FUNCTIONS, 100, NULL);
	ck_assert_int_eq(answer_to(100), CUDA_SUCCESS);
	/* And neither does a lookup, which is another's to be refused. */
	ask_for_lookup(stranger, 102);
	ck_assert_int_eq(answer_to(102), CUDA_ERROR_SYSTEM_NOT_READY);
	arrive(1);
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
}
END_TEST

/* The other session's kernel does not end. */
START_TEST(who_needs_no_gap_does_not_wait_for_anothers)
{
	struct tenant *third = tenant_new(&fixture.executor, 79);

	gate()->patience_ns = 60000 * CLOCK_MS;
	put(1, 1);
	ask_for_lookup(stranger, 101);
	turn_until(GATE_LONG_FIRST);
	/* Behind what is another session's and waits for a gap, but not behind its own. */
	ask_for_lookup(fixture.tenant, 102);
	ask(fixture.tenant, WIRE_LIST_FUNCTIONS, 103, NULL);
	ask(third, WIRE_LIST_FUNCTIONS, 104, NULL);
	ask(stranger, WIRE_LIST_FUNCTIONS, 105, NULL);
	ck_assert_int_eq(answer_to(104), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake_count(FAKE_SETTLE), 0);
	ck_assert_uint_eq(changes(), 2); /* shallow, long first: it went on as it was */
	while (!fake_count(FAKE_MARK))
		turn_now();
	arrive(1);
	ck_assert_int_eq(answer_to(101), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(102), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(103), CUDA_SUCCESS);
	ck_assert_int_eq(answer_to(105), CUDA_SUCCESS);
	tenant_unref(third);
}
END_TEST

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

START_TEST(an_unload_is_answered_and_done_when_nobody_is_held_up)
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
END_TEST

/* Behind the end of its own kernels, beside those of others. */
START_TEST(a_module_whose_unloading_waits_for_nothing_goes_at_once)
{
	fake.is_quick = true;
	put(1, 1);
	ck_assert_int_eq(unload(stranger), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_count(FAKE_MODULE_UNLOAD), 1);
	ck_assert_uint_eq(changes(), 0);
	arrive(1);
}
END_TEST

/* So that the standby, where unloads are done at once, has the same addresses. */
START_TEST(unloads_come_before_what_is_put_on_the_device_later)
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
END_TEST

/* Its mark is there, and it is on the device. */
START_TEST(a_kernel_that_faulted_leaves_no_gap)
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
END_TEST

START_TEST(nobody_has_little_patience)
{
	put(1, 1);
	gate()->patience_ns = 60000 * CLOCK_MS;
	begin();
	fixture_turn();
	ck_assert_int_eq(gate_step(&fixture.executor, NULL, fixture.now), GATE_E_WAIT);
	fixture_pass(GATE_NOBODY_NS / CLOCK_US + 1);
	fixture_turn();
	ck_assert_int_eq(gate_step(&fixture.executor, NULL, fixture.now), GATE_E_REFUSED);
	ck_assert(!gate_is_shut(gate()));
	arrive(1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gate");
	TCase *phases = suite_case(suite, "phases"), *thread = suite_case(suite, "module thread");

	tcase_add_checked_fixture(phases, open_gate_bed, close_gate_bed);
	tcase_add_test(phases, nothing_runs_and_nothing_is_waited_for);
	tcase_add_test(phases, a_deep_queue_becomes_one_command);
	tcase_add_test(phases, short_ones_go_on_until_the_long_one_ends);
	tcase_add_test(phases, nobody_waits_for_one_that_takes_much_longer);
	tcase_add_test(phases, closed_for_one_that_turns_out_long);
	tcase_add_test(phases, patience_ends_and_the_others_never_noticed);
	tcase_add_test(phases, ones_own_long_command_is_awaited);
	tcase_add_test(phases, what_leaves_no_gap_gets_one_when_the_patience_ends);
	tcase_add_test(phases, a_session_that_was_cut_off_does_not_block);
	tcase_add_test(phases, the_session_that_asked_ends);
	tcase_add_test(phases, the_context_is_lost);
	tcase_add_test(phases, threads_that_are_awake_must_have_seen_it);
	tcase_add_test(phases, a_kernel_that_faulted_leaves_no_gap);
	tcase_add_test(phases, nobody_has_little_patience);
	tcase_add_checked_fixture(thread, open_module_bed, close_module_bed);
	tcase_add_test(thread, loading_holds_up_nobody);
	tcase_add_test(thread, a_first_lookup_begins_when_the_device_is_empty);
	tcase_add_test(thread, lookups_that_wait_share_a_gap);
	tcase_add_test(thread, a_refusal_says_why);
	tcase_add_test(thread, who_waits_for_the_same_kernel_is_refused_together);
	tcase_add_test(thread, who_waits_for_oneself_does_not_keep_others_waiting);
	tcase_add_test(thread, who_needs_no_gap_does_not_wait_for_anothers);
	tcase_add_test(thread, an_unload_is_answered_and_done_when_nobody_is_held_up);
	tcase_add_test(thread, a_module_whose_unloading_waits_for_nothing_goes_at_once);
	tcase_add_test(thread, unloads_come_before_what_is_put_on_the_device_later);
	return suite_run(suite);
}
