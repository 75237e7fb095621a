// Graphs in an executor: descriptions that are in order and descriptions that are not, what a graph
// may name, launches from the ring, standbys, and what a take-over says of a graph in doubt.

#include "server/executor/graph.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "protocol/socket.h"
#include "server/executor/drain.h"
#include "server/executor/graph_form.h"
#include "server/executor/module.h"
#include "server/executor/module_worker.h"
#include "server/executor/pace.h"
#include "tests/unit/server/executor/fixture.h"

/* ---- a description ---- */

/* A fill, a kernel of function 1 behind it, a copy behind both. */
struct description {
	_Alignas(16) uint8_t bytes[1024];
	uint64_t size;
};

static struct frmps_graph_head *head_of(struct description *d)
{
	return (void *)d->bytes;
}

/* Adds a node; its edges lead to the nodes before it. */
static struct frmps_graph_node *add(struct description *d, enum frmps_op op, uint32_t edges, const void *body,
	uint32_t bytes, const void *payload, uint32_t payload_bytes)
{
	struct frmps_graph_node *node = (void *)(d->bytes + d->size);
	struct frmps_graph_edge *edge = (void *)(node + 1);
	uint32_t size = (uint32_t)sizeof(*node) + edges * 8 + bytes + payload_bytes;

	*node = (struct frmps_graph_node){.size = (size + 15) / 16 * 16, .op = (uint16_t)op, .edges = edges};
	for (uint32_t i = 0; i < edges; i++)
		*edge++ = (struct frmps_graph_edge){.node = i};
	memcpy(edge, body, bytes);
	if (payload_bytes)
		memcpy((uint8_t *)edge + bytes, payload, payload_bytes);
	d->size += node->size;
	head_of(d)->nodes++;
	head_of(d)->edges += edges;
	head_of(d)->bytes = d->size;
	return node;
}

static struct frmps_graph_node *node_at(struct description *d, unsigned index)
{
	struct frmps_graph_node *node = (void *)(head_of(d) + 1);

	while (index--)
		node = (void *)((uint8_t *)node + node->size);
	return node;
}

static void *body_of(struct frmps_graph_node *node)
{
	return (uint8_t *)(node + 1) + node->edges * 8;
}

static struct description *describe(void)
{
	static struct description d;
	uint64_t argument = 7;

	memset(&d, 0, sizeof(d));
	d.size = sizeof(struct frmps_graph_head);
	add(&d, FRMPS_OP_SET, 0,
		&(struct frmps_set){
			.dst = FIXTURE_WINDOW, .width = 4, .height = 1, .pitch = 16, .element_bytes = 4},
		sizeof(struct frmps_set), NULL, 0);
	add(&d, FRMPS_OP_LAUNCH, 1, &fixture_single, sizeof(struct frmps_launch), &argument, 8);
	add(&d, FRMPS_OP_COPY, 2,
		&(struct frmps_copy){.dst = FIXTURE_WINDOW + 4096,
			.src = FIXTURE_WINDOW,
			.width = 16,
			.height = 1,
			.depth = 1,
			.dst_pitch = 16,
			.src_pitch = 16,
			.dst_rows = 1,
			.src_rows = 1},
		sizeof(struct frmps_copy), NULL, 0);
	return &d;
}

static bool is_in_order(const struct description *d)
{
	return !graph_form_check(d->bytes, d->size);
}

TEST(form, a_description_is_walked)
{
	struct description *d = describe();
	const struct frmps_graph_node *node = graph_form_first(head_of(d));

	ck_assert(is_in_order(d));
	ck_assert_int_eq(node->op, FRMPS_OP_SET);
	node = graph_form_next(node);
	ck_assert_int_eq(((const struct frmps_launch *)graph_form_body(node))->function, 1);
	node = graph_form_next(node);
	ck_assert_uint_eq(graph_form_edges(node)[1].node, 1);
	ck_assert_int_eq(((const struct frmps_copy *)graph_form_body(node))->width, 16);
}

#define SPOIL(number, statement)                                                                             \
	case number:                                                                                         \
		statement;                                                                                   \
		break

/* One thing wrong at a time. Return: false behind the last one. */
static bool spoil(struct description *d, int number)
{
	struct frmps_graph_head *head = head_of(d);
	struct frmps_graph_node *set = node_at(d, 0), *kernel = node_at(d, 1), *copy = node_at(d, 2);
	struct frmps_graph_edge *edges = (void *)(copy + 1), *edge = (void *)(kernel + 1);
	struct frmps_launch *launch = body_of(kernel);
	struct frmps_copy *box = body_of(copy);

	switch (number) {
		SPOIL(0, head->bytes++);
		SPOIL(1, head->nodes = 0);
		SPOIL(2, head->nodes = 2);
		SPOIL(3, head->nodes = 4);
		SPOIL(4, head->nodes = UINT32_MAX);
		SPOIL(5, head->edges = 2);
		SPOIL(6, head->flags = 2);
		SPOIL(7, head->serial = 1);
		SPOIL(8, set->size += 16);
		SPOIL(9, set->size = 8);
		SPOIL(10, set->size = 0);
		SPOIL(11, set->size = UINT32_MAX - 15);
		SPOIL(12, set->op = FRMPS_OP_WRITE_VALUE);
		SPOIL(13, set->op = FRMPS_OP_GRAPH_LAUNCH);
		SPOIL(14, set->flags = FRMPS_CMD_COOPERATIVE);
		SPOIL(15, kernel->flags = FRMPS_CMD_MARK);
		SPOIL(16, kernel->edges = UINT32_MAX);
		SPOIL(17, kernel->reserved = 1);
		SPOIL(18, edge->node = 1);
		SPOIL(19, edge->node = UINT32_MAX);
		SPOIL(20, edge->to_port = 1);
		SPOIL(21, edge->from_port = 1); /* not between kernels */
		SPOIL(22, edges[1].type = 1);
		SPOIL(23, edges[0].reserved = 1);
		SPOIL(24, launch->argument_bytes = 4096);
		SPOIL(25, launch->argument_bytes = UINT32_MAX);
		SPOIL(26, launch->attribute_count = 1);
		SPOIL(27, launch->attribute_count = UINT32_MAX);
		SPOIL(28, box->kind = FRMPS_COPY_DST_ARENA);
		SPOIL(29, box->kind = FRMPS_COPY_DST_HOST | FRMPS_COPY_SRC_HOST);
		SPOIL(30, box->reserved = 1);
		SPOIL(31, ((struct frmps_set *)body_of(set))->element_bytes = 3);
		SPOIL(32, ((struct frmps_set *)body_of(set))->dst++);
		SPOIL(33, d->size -= 16);
	default:
		return false;
	}
	return true;
}

TEST(form, every_fault_of_a_description_is_noticed)
{
	int number = 0;

	for (; spoil(describe(), number); number++) {
		struct description *d = describe();

		spoil(d, number);
		if (is_in_order(d))
			ck_abort_msg("fault %d is not noticed", number);
	}
	ck_assert_int_eq(number, 34);
}

/* Whatever passes the check can be walked: the address sanitizer watches. */
TEST(form, garbage_is_survived)
{
	unsigned seed = 1, passed = 0;
	uint64_t sum = 0;

	for (int i = 0; i < 200000; i++) {
		struct description *d = describe();
		uint8_t *bytes;

		for (unsigned flips = 1 + rand_r(&seed) % 3; flips; flips--)
			d->bytes[(unsigned)rand_r(&seed) % d->size] ^= (uint8_t)(1u << rand_r(&seed) % 8);
		bytes = malloc(d->size);
		memcpy(bytes, d->bytes, d->size);
		if (!graph_form_check(bytes, d->size)) {
			const struct frmps_graph_node *node = graph_form_first((void *)bytes);

			for (uint32_t n = ((struct frmps_graph_head *)(void *)bytes)->nodes; n; n--) {
				for (uint32_t e = 0; e < node->edges; e++)
					sum += graph_form_edges(node)[e].node;
				sum += ((const uint8_t *)node)[node->size - 1];
				node = graph_form_next(node);
			}
			passed++;
		}
		free(bytes);
	}
	/* Addresses and arguments can be anything. */
	ck_assert_uint_gt(passed, 1000);
	ck_assert_uint_lt(passed, 199000);
	ck_assert_uint_lt(sum, UINT64_MAX);
}

/* ---- requests ---- */

static struct packet packet;
static struct wire_message message;

static struct job *new_job(enum wire_type type, uint32_t graph)
{
	struct job *job = job_new(&fixture.executor);

	job->message = (struct wire_message){.type = type, .id = 1, .session = fixture.tenant->id};
	job->message.graph.graph = graph;
	job->tenant = tenant_ref(fixture.tenant);
	return job;
}

static CUresult answer(void)
{
	ck_assert_int_eq(message_receive(fixture.control[1], &packet, &message), 0);
	ck_assert_int_eq(message.type, WIRE_REPLY);
	return (CUresult)message.reply.code;
}

static CUresult make(uint32_t graph, const struct description *d)
{
	struct job *job = new_job(WIRE_MAKE_GRAPH, graph);
	int fd = memfd_create("graph", MFD_CLOEXEC);

	ck_assert_int_eq(write(fd, d->bytes, d->size), (ssize_t)d->size);
	job->packet.fds[0] = fd;
	job->packet.fd_count = 1;
	job->message.graph.bytes = d->size;
	graph_make(job);
	return answer();
}

static void drop(uint32_t graph)
{
	graph_drop(new_job(WIRE_DROP_GRAPH, graph));
	ck_assert_int_eq(answer(), CUDA_SUCCESS);
}

static void launch(uint32_t graph)
{
	struct frmps_graph_launch body = {.graph = graph};

	fixture_put(FRMPS_OP_GRAPH_LAUNCH, 1, FRMPS_CMD_MARK, &body, sizeof(body));
	fixture_turn();
}

TEST(graphs, a_graph_is_made_and_launched)
{
	ck_assert_int_eq(make(5, describe()), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_call(FAKE_GRAPH_MAKE, 0)->value, 3);
	ck_assert_int_eq(make(5, describe()), CUDA_ERROR_INVALID_VALUE);
	launch(5);
	launch(5);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 2);
	fake_arrive();
	ck_assert_uint_eq(fixture_done(1), 2);
	ck_assert_uint_eq(fixture_offences(), 0);
}

static uint64_t graph_sms(unsigned n)
{
	return (uintptr_t)fake_call(FAKE_GRAPH_MAKE, n)->stream;
}

static void have_sms(uint32_t units)
{
	fixture.executor.device.sm_granule = 1;
	fixture.executor.device.sm_units = 4;
	word_release(&fixture.tenant->view.server->share, units << SHM_SHARE_SMS_SHIFT);
	cap_look(fixture.tenant);
	cap_make_wanted(&fixture.executor);
}

/* The one that was built before stays: it may run, and is wanted again when its time comes. */
TEST(graphs, a_graph_is_built_once_for_each_group_of_multiprocessors)
{
	void *first;

	ck_assert_int_eq(make(5, describe()), CUDA_SUCCESS);
	launch(5);
	first = fake_call(FAKE_GRAPH_LAUNCH, 0)->object;
	have_sms(2);
	launch(5);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_MAKE), 2);
	ck_assert_uint_eq(graph_sms(1), BACKEND_SMS(0, 2));
	ck_assert_ptr_ne(fake_call(FAKE_GRAPH_LAUNCH, 1)->object, first);
	launch(5);
	have_sms(0);
	launch(5);
	have_sms(2);
	launch(5);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_MAKE), 2);
	ck_assert_ptr_eq(fake_call(FAKE_GRAPH_LAUNCH, 3)->object, first);
	ck_assert_ptr_eq(fake_call(FAKE_GRAPH_LAUNCH, 4)->object, fake_call(FAKE_GRAPH_LAUNCH, 2)->object);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_FREE), 0);
	/* A new one is built for what the session has. */
	ck_assert_int_eq(make(6, describe()), CUDA_SUCCESS);
	ck_assert_uint_eq(graph_sms(2), BACKEND_SMS(0, 2));
}

/* A kernel with a part of its own. */
static struct description *describe_part(uint64_t part)
{
	static struct description d;
	struct {
		struct frmps_launch_attribute attribute;
		uint64_t argument;
	} payload = {.attribute = {.id = FRMPS_ATTRIBUTE_PART}, .argument = 7};
	struct frmps_launch launch = fixture_single;

	memset(&d, 0, sizeof(d));
	d.size = sizeof(struct frmps_graph_head);
	memcpy(payload.attribute.value, &part, sizeof(part));
	launch.attribute_count = 1;
	add(&d, FRMPS_OP_LAUNCH, 0, &launch, sizeof(launch), &payload, sizeof(payload));
	return &d;
}

static const struct backend_node *made_node(unsigned n)
{
	return fake_call(FAKE_GRAPH_MAKE, n)->object;
}

/* Until that is ready, the launch waits, and what comes behind. */
TEST(graphs, a_kernel_can_have_a_part_of_its_own)
{
	have_sms(0);
	ck_assert_int_eq(make(5, describe_part(BACKEND_SMS(1, 2))), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_MAKE), 0);
	launch(5);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 0);
	cap_make_wanted(&fixture.executor);
	fixture_pass(1000);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 1);
	ck_assert_uint_eq(graph_sms(0), 0);
	ck_assert_uint_eq(made_node(0)->sms, BACKEND_SMS(1, 2));
	/* The part is none of the driver's attributes. */
	ck_assert_uint_eq(made_node(0)->launch.attribute_count, 0);
	ck_assert_uint_eq(made_node(0)->launch.arguments[0], 7);
	/* The next one finds it ready. */
	ck_assert_int_eq(make(6, describe_part(BACKEND_SMS(1, 2))), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_MAKE), 2);
}

TEST(graphs, a_graph_names_only_what_the_session_has)
{
	struct description *d = describe();

	((struct frmps_launch *)body_of(node_at(d, 1)))->function = 2;
	ck_assert_int_eq(make(1, d), CUDA_ERROR_INVALID_VALUE);
	d = describe();
	((struct frmps_copy *)body_of(node_at(d, 2)))->src = FIXTURE_WINDOW + FIXTURE_DEVICE / 2;
	ck_assert_int_eq(make(1, d), CUDA_ERROR_INVALID_VALUE);
	d = describe();
	((struct frmps_copy *)body_of(node_at(d, 2)))->kind = FRMPS_COPY_SRC_HOST;
	ck_assert_int_eq(make(1, d), CUDA_ERROR_INVALID_VALUE);
	d = describe();
	((struct frmps_set *)body_of(node_at(d, 0)))->width = FIXTURE_DEVICE;
	ck_assert_int_eq(make(1, d), CUDA_ERROR_INVALID_VALUE);
	d = describe();
	head_of(d)->nodes = 9;
	ck_assert_int_eq(make(1, d), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_MAKE), 0);
	ck_assert_int_eq(make(FRMPS_GRAPH_IDS, describe()), CUDA_ERROR_INVALID_VALUE);
	ck_assert_int_eq(make(0, describe()), CUDA_ERROR_INVALID_VALUE);
}

/* A constant whose mirror is where the description's copy goes. */
static const struct constant written = {
	{FIXTURE_WINDOW + 4096, FIXTURE_WINDOW + 4096 + 64}, UINT64_C(0x7000000000), 3};

TEST(graphs, what_a_node_writes_to_a_mirror_goes_on)
{
	const struct backend_node *nodes;

	ck_assert_int_eq(constant_add(fixture.tenant, &written), CUDA_SUCCESS);
	ck_assert_int_eq(make(1, describe()), CUDA_SUCCESS);
	nodes = fake_call(FAKE_GRAPH_MAKE, 0)->object;
	ck_assert_uint_eq(nodes[0].onto, 0);
	ck_assert_uint_eq(nodes[2].onto, written.at);
	constant_forget(fixture.tenant, written.module);
	ck_assert_int_eq(constant_add(fixture.tenant,
				 &(struct constant){{FIXTURE_WINDOW, FIXTURE_WINDOW + 16}, written.at, 3}),
		CUDA_SUCCESS);
	ck_assert_int_eq(make(2, describe()), CUDA_SUCCESS);
	nodes = fake_call(FAKE_GRAPH_MAKE, 1)->object;
	ck_assert_uint_eq(nodes[0].onto, written.at);
	ck_assert_uint_eq(nodes[2].onto, 0);
}

/* What was theirs may be somebody else's soon. */
TEST(graphs, graphs_do_not_write_to_modules_that_are_gone)
{
	struct range global = {FIXTURE_WINDOW + 8, FIXTURE_WINDOW + 16};
	struct module with_constant = {.id = written.module}, other = {.id = written.module + 1},
		      with_global = {.id = 9, .globals = &global, .global_count = 1};

	ck_assert_int_eq(constant_add(fixture.tenant, &written), CUDA_SUCCESS);
	for (uint32_t i = 1; i <= 2; i++)
		ck_assert_int_eq(make(i, describe()), CUDA_SUCCESS);
	graph_forget_module(fixture.tenant, &other);
	launch(1);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 1);
	graph_forget_module(fixture.tenant, &with_constant);
	launch(1);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 1);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_error), CUDA_ERROR_INVALID_HANDLE);
	/* The source of its copy, and no more. */
	ck_assert_int_eq(make(3, describe()), CUDA_SUCCESS);
	graph_forget_module(fixture.tenant, &with_global);
	launch(3);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 1);
}

/* Functions of a module that is going are not found any more. */
TEST(graphs, graphs_do_not_run_kernels_of_modules_that_are_gone)
{
	function_word *functions = fixture.tenant->modules.functions;
	struct function *function = functions[1];
	struct module module = {.id = 9};

	ck_assert_int_eq(make(1, describe()), CUDA_SUCCESS);
	functions[1] = NULL;
	graph_forget_module(fixture.tenant, &module);
	launch(1);
	functions[1] = function;
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 0);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_error), CUDA_ERROR_INVALID_HANDLE);
}

/* Where the description's copy goes to. */
TEST(graphs, a_launch_over_memory_that_is_gone_is_a_late_error)
{
	range_set_add(&fixture.tenant->device, FIXTURE_WINDOW + FIXTURE_DEVICE / 2, 4096);
	ck_assert_int_eq(make(1, describe()), CUDA_SUCCESS);
	launch(1);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 1);
	/* Nothing of it. */
	range_set_remove(&fixture.tenant->device, FIXTURE_WINDOW + FIXTURE_DEVICE / 2, 4096);
	launch(1);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 2);
	range_set_remove(&fixture.tenant->device, FIXTURE_WINDOW + 4096, 4096);
	launch(1);
	launch(1);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 2);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_error), CUDA_ERROR_INVALID_VALUE);
	ck_assert_uint_eq(fixture_offences(), 0);
	range_set_add(&fixture.tenant->device, FIXTURE_WINDOW + 4096, 4096);
	launch(1);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 3);
}

TEST(graphs, a_session_has_so_many_nodes_and_no_more)
{
	ck_assert_int_eq(make(1, describe()), CUDA_SUCCESS);
	ck_assert_uint_eq(fixture.tenant->graphs.nodes, 3);
	fixture.tenant->graphs.nodes += GRAPH_NODES_MOST - 6;
	ck_assert_int_eq(make(2, describe()), CUDA_SUCCESS);
	ck_assert_int_eq(make(3, describe()), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(fixture.tenant->graphs.nodes, GRAPH_NODES_MOST);
	/* What is refused for another reason is not counted. */
	ck_assert_int_eq(make(1, describe()), CUDA_ERROR_INVALID_VALUE);
	fixture.tenant->graphs.nodes -= GRAPH_NODES_MOST - 6;
	graph_table_deinit(fixture.tenant);
	ck_assert_uint_eq(fixture.tenant->graphs.nodes, 0);
}

/* Launches of others take the mutex of the driver that each of these calls takes, and have as much
 * of the time. */
TEST(graphs, many_end_with_rests)
{
	uint64_t begin, took;

	for (uint32_t id = 1; id <= 16; id++)
		ck_assert_int_eq(make(id, describe()), CUDA_SUCCESS);
	fake.undo_ns = PACE_WORK_NS / 2;
	begin = clock_now();
	graph_table_deinit(fixture.tenant);
	took = clock_now() - begin;
	fake.undo_ns = 0;
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_FREE), 16);
	/* Those behind the last rest have none behind them. */
	ck_assert_uint_ge(took - fake.undoing_ns, (16 - 2) * PACE_WORK_NS / 2);
}

TEST(graphs, a_launch_of_nothing_is_a_late_error)
{
	launch(3);
	ck_assert_uint_eq(fixture_done(1), 1);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_error), CUDA_ERROR_INVALID_HANDLE);
	ck_assert_uint_eq(fixture_offences(), 0);
	launch(FRMPS_GRAPH_IDS);
	ck_assert_uint_eq(fixture_offences(), 1);
}

/* Freed when what was given to the device is done, whatever the client says. */
TEST(graphs, a_dropped_graph_stays_while_it_may_run)
{
	struct executor *executor = &fixture.executor;

	ck_assert_int_eq(module_worker_init(executor), 0);
	ck_assert_int_eq(make(5, describe()), CUDA_SUCCESS);
	launch(5);
	drop(5);
	launch(5);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 1);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_errors), 1);
	for (int i = 0; i < 10; i++) {
		job_board_step(&executor->board, fixture.now);
		fixture_turn();
	}
	ck_assert(!TAILQ_EMPTY(&executor->board.parked));
	/* Or the session's next graphs would wait behind it for the gap of somebody else's load. */
	ck_assert(module_runs_beside(TAILQ_FIRST(&executor->board.parked)));
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_FREE), 0);
	/* Its id is free again at once. */
	ck_assert_int_eq(make(5, describe()), CUDA_SUCCESS);
	fake_arrive();
	fixture_turn();
	for (int i = 0; i < 10 && !TAILQ_EMPTY(&executor->board.parked); i++)
		job_board_step(&executor->board, fixture.now);
	ck_assert(TAILQ_EMPTY(&executor->board.parked));
	/* Ends when its queue is done. */
	module_worker_deinit(executor);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_FREE), 1);
	ck_assert_ptr_eq(fake_call(FAKE_GRAPH_FREE, 0)->object, fake_call(FAKE_GRAPH_LAUNCH, 0)->object);
}

static unsigned count_parked(void)
{
	const struct job *job;
	unsigned count = 0;

	TAILQ_FOREACH (job, &fixture.executor.board.parked, link)
		count++;
	return count;
}

/* A program may make and drop any number while a kernel of its own runs. */
TEST(graphs, drops_wait_together)
{
	struct executor *executor = &fixture.executor;

	ck_assert_int_eq(module_worker_init(executor), 0);
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(make(5, describe()), CUDA_SUCCESS);
		drop(5);
		job_board_step(&executor->board, fixture.now);
		fixture_turn();
		job_board_step(&executor->board, fixture.now);
	}
	ck_assert_uint_eq(count_parked(), 1);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_FREE), 0);
	fake_arrive();
	while (fake_count(FAKE_GRAPH_FREE) < 100) {
		sched_yield();
		fixture_turn();
		job_board_step(&executor->board, fixture.now);
	}
	ck_assert_uint_eq(count_parked(), 0);
	module_worker_deinit(executor);
}

/* Two nodes with so many edges between them that a program could have any number of bytes here. */
TEST(graphs, what_was_dropped_counts_while_it_stays)
{
	struct executor *executor = &fixture.executor;
	struct graph_table *table = &fixture.tenant->graphs;
	const struct description *d = describe();

	ck_assert_int_eq(module_worker_init(executor), 0);
	fixture_launch(1, FRMPS_CMD_MARK, 1);
	fixture_turn();
	ck_assert_int_eq(make(5, d), CUDA_SUCCESS);
	drop(5);
	ck_assert_uint_eq(table->bytes, d->size);
	table->bytes += GRAPH_BYTES_MOST - 2 * d->size;
	ck_assert_int_eq(make(5, d), CUDA_SUCCESS);
	ck_assert_int_eq(make(6, d), CUDA_ERROR_OUT_OF_MEMORY);
	ck_assert_uint_eq(table->bytes, GRAPH_BYTES_MOST);
	fake_arrive();
	while (fake_count(FAKE_GRAPH_FREE) < 1) {
		sched_yield();
		fixture_turn();
		job_board_step(&executor->board, fixture.now);
	}
	module_worker_deinit(executor);
	ck_assert_int_eq(make(6, d), CUDA_SUCCESS);
	table->bytes -= GRAPH_BYTES_MOST - 2 * d->size;
	graph_table_deinit(fixture.tenant);
	ck_assert_uint_eq(table->bytes, 0);
}

/* What a standby is told may name what the client has freed since. */
TEST(graphs, a_standby_builds_later)
{
	fixture_kill();
	ck_assert_int_eq(fixture.tenant->generation, 0);
	range_set_remove(&fixture.tenant->device, FIXTURE_WINDOW, 4096);
	ck_assert_int_eq(make(5, describe()), CUDA_SUCCESS);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_MAKE), 0);
	ck_assert_int_eq(takeover_tenant(fixture.tenant, 2, TAKEOVER_BY_POLICY, 0, "x"), TAKEOVER_CLEAN);
	launch(5);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 0);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_errors), 1);
	range_set_add(&fixture.tenant->device, FIXTURE_WINDOW, 4096);
	launch(5);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_MAKE), 1);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 1);
}

TEST(graphs, a_graph_in_doubt_is_named)
{
	ck_assert_int_eq(make(5, describe()), CUDA_SUCCESS);
	launch(5);
	fixture_kill();
	ck_assert_int_eq(make(5, describe()), CUDA_SUCCESS);
	ck_assert_int_eq(
		takeover_tenant(fixture.tenant, 2, TAKEOVER_BY_POLICY, CUDA_ERROR_LAUNCH_FAILED, "a fault"),
		TAKEOVER_FAULTED);
	ck_assert_ptr_nonnull(
		strstr(fixture.client.server->reason, "a graph of 3 nodes, the first kernel scale"));
}

TEST(graphs, a_graph_in_doubt_is_repeated_if_the_client_vouches)
{
	ck_assert_int_eq(make(5, describe()), CUDA_SUCCESS);
	launch(5);
	fixture_kill();
	fixture.tenant->replays = true;
	ck_assert_int_eq(make(5, describe()), CUDA_SUCCESS);
	ck_assert_int_eq(
		takeover_tenant(fixture.tenant, 2, TAKEOVER_BY_POLICY, CUDA_ERROR_LAUNCH_FAILED, "a fault"),
		TAKEOVER_REPEATS);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 2);
}

/* ---- changes ---- */

/* The description of a graph that can be changed. */
static struct description *describe_changing(uint32_t serial)
{
	struct description *d = describe();

	head_of(d)->flags = FRMPS_GRAPH_CHANGES;
	head_of(d)->serial = serial;
	return d;
}

/* A change of the fill, which is number 0. */
struct set_change {
	struct frmps_graph_update update;
	struct frmps_graph_change change;
	struct frmps_set set;
	uint8_t padding[8];
};

static struct set_change set_change(uint32_t graph, uint32_t value)
{
	return (struct set_change){.update = {.graph = graph, .changes = 1},
		.change = {.node = 0, .size = 64, .op = FRMPS_OP_SET},
		.set = {.dst = FIXTURE_WINDOW,
			.width = 4,
			.height = 1,
			.pitch = 16,
			.value = value,
			.element_bytes = 4}};
}

static void update(uint32_t graph, uint32_t stream, uint32_t value)
{
	struct set_change body = set_change(graph, value);

	fixture_put(FRMPS_OP_GRAPH_UPDATE, stream, 0, &body, sizeof(body));
	fixture_turn();
}

static void launch_on(uint32_t graph, uint32_t stream)
{
	struct frmps_graph_launch body = {.graph = graph};

	fixture_put(FRMPS_OP_GRAPH_LAUNCH, stream, FRMPS_CMD_MARK, &body, sizeof(body));
	fixture_turn();
}

/* The value that the fill had in the n-th launch, as the backend was told. */
static uint32_t changed_to(unsigned n)
{
	const struct fake_call *call = fake_call(FAKE_GRAPH_CHANGE, n);

	ck_assert_ptr_nonnull(call);
	ck_assert_uint_eq(call->value, 0);
	return fake.set_value[n];
}

TEST(graphs, a_change_is_in_the_launches_behind_it)
{
	ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
	launch(5);
	update(5, 1, 7);
	update(5, 1, 8);
	/* At once: the program may change more before it launches. */
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_CHANGE), 2);
	launch(5);
	launch(5);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_CHANGE), 2);
	ck_assert_uint_eq(changed_to(0), 7);
	ck_assert_uint_eq(changed_to(1), 8);
	ck_assert_int_gt(fake_position(FAKE_GRAPH_CHANGE, 0), fake_position(FAKE_GRAPH_LAUNCH, 0));
	ck_assert_int_lt(fake_position(FAKE_GRAPH_CHANGE, 1), fake_position(FAKE_GRAPH_LAUNCH, 1));
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_MAKE), 1);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_errors), 0);
	ck_assert_uint_eq(fixture_offences(), 0);
}

/* Of memory that is gone no change is brought into what was built; the launch is refused, and one
 * behind a change back is not. */
TEST(graphs, a_change_to_memory_that_is_gone_is_the_launches)
{
	struct set_change body = set_change(5, 7);

	ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
	launch(5);
	body.set.dst = FIXTURE_WINDOW + FIXTURE_DEVICE / 2;
	fixture_put(FRMPS_OP_GRAPH_UPDATE, 1, 0, &body, sizeof(body));
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_CHANGE), 0);
	launch(5);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_errors), 1);
	update(5, 1, 9);
	launch(5);
	ck_assert_uint_eq(changed_to(0), 9);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 2);
}

/* What the backend refuses to change is built anew, some times. */
TEST(graphs, a_change_that_is_refused_makes_another_graph)
{
	ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
	for (uint32_t i = 0; i < 6; i++) {
		fake.fails[FAKE_GRAPH_CHANGE] = CUDA_ERROR_INVALID_VALUE;
		update(5, 1, i);
		launch(5);
	}
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_MAKE), 1 + 4);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), 4);
	ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_errors), 2);
}

/* One thing wrong at a time. @ret_offends: whether the session ends for it. Return: false behind
 * the last one. */
static bool spoil_change(struct set_change *body, int number, bool *ret_offends)
{
	*ret_offends = number < 13;
	switch (number) {
		SPOIL(0, body->update.graph = FRMPS_GRAPH_IDS);
		SPOIL(1, body->update.changes = 0);
		SPOIL(2, body->update.changes = 2);
		SPOIL(3, body->update.applied = 1);
		SPOIL(4, body->change.size = 48);
		SPOIL(5, body->change.size = UINT32_MAX - 15);
		SPOIL(6, body->change.op = FRMPS_OP_PAD);
		SPOIL(7, body->change.flags = FRMPS_CMD_COOPERATIVE);
		SPOIL(8, body->set.element_bytes = 3);
		SPOIL(9, body->update.reserved = 1);
		SPOIL(10, body->change.node = 3);
		SPOIL(11, body->change.node = 2);
		SPOIL(12, body->update.graph = 7);
		SPOIL(13, body->set.dst = FIXTURE_WINDOW + FIXTURE_DEVICE / 2);
		SPOIL(14, body->update.graph = 6);
	default:
		return false;
	}
	return true;
}

TEST_LOOP(graphs, every_fault_of_a_change_is_noticed, 0, 15)
{
	struct set_change body = set_change(5, 7);
	bool offends;

	ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
	/* Not made for it. */
	ck_assert_int_eq(make(7, describe()), CUDA_SUCCESS);
	ck_assert(spoil_change(&body, _i, &offends));
	fixture_put(FRMPS_OP_GRAPH_UPDATE, 1, 0, &body, sizeof(body));
	fixture_turn();
	ck_assert_uint_eq(fixture_offences(), offends);
	launch(5);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_CHANGE), 0);
	if (!offends)
		ck_assert_uint_eq(word_relaxed(&fixture.client.server->late_errors), 1);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), !offends && _i != 13);
}

/* The one of which the program was told is the one that it has from then on. */
TEST(graphs, a_later_executor_has_what_was_changed)
{
	ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
	update(5, 1, 7);
	launch(5);
	fake_arrive();
	fixture_turn();
	for (uint32_t generation = 2; generation < 4; generation++) {
		unsigned before = fake_count(FAKE_GRAPH_CHANGE), launches = fake_count(FAKE_GRAPH_LAUNCH);

		fixture_kill();
		ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
		ck_assert_int_eq(takeover_tenant(fixture.tenant, generation, TAKEOVER_BY_POLICY, 0, "x"),
			TAKEOVER_CLEAN);
		launch(5);
		ck_assert_uint_eq(fake_count(FAKE_GRAPH_CHANGE), before + 1);
		ck_assert_uint_eq(changed_to(before), 7);
		ck_assert_uint_eq(fake_count(FAKE_GRAPH_LAUNCH), launches + 1);
		fake_arrive();
		fixture_turn();
	}
}

/* A launch that is repeated runs with what it had, and so do those behind it: in one stream, or in
 * two that wait for each other. */
TEST_LOOP(graphs, changes_that_are_not_done_are_taken_back, 0, 2)
{
	uint32_t second = _i ? 2 : 1;
	unsigned before;

	ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
	update(5, 1, 7);
	launch_on(5, 1);
	fake_arrive();
	fixture_turn();
	update(5, 1, 8);
	launch_on(5, 1);
	if (_i)
		fixture_depend(2, 1, fixture.seq[1], FRMPS_NO_EVENT);
	update(5, second, 9);
	launch_on(5, second);
	ck_assert_uint_eq(changed_to(2), 9);
	before = fake_count(FAKE_GRAPH_CHANGE);
	fixture_kill();
	fixture.tenant->replays = true;
	ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
	ck_assert_int_eq(takeover_tenant(fixture.tenant, 2, TAKEOVER_BY_POLICY, 0, "x"), TAKEOVER_REPEATS);
	fixture_turn();
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_CHANGE), before + 2);
	ck_assert_uint_eq(changed_to(before), 8);
	ck_assert_uint_eq(changed_to(before + 1), 9);
	/* Also if the executor that repeats them dies. */
	before = fake_count(FAKE_GRAPH_CHANGE);
	fixture_kill();
	fixture.tenant->replays = true;
	ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
	ck_assert_int_eq(takeover_tenant(fixture.tenant, 3, TAKEOVER_BY_POLICY, 0, "x"), TAKEOVER_REPEATS);
	fixture_turn();
	ck_assert_uint_eq(changed_to(before), 8);
	ck_assert_uint_eq(changed_to(before + 1), 9);
	ck_assert_uint_eq(fixture_offences(), 0);
}

/* The value that is there between done commands and those that are repeated. */
TEST(graphs, what_is_repeated_first_has_what_was_before)
{
	unsigned before;

	ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
	update(5, 1, 7);
	launch_on(5, 1);
	fake_arrive();
	fixture_turn();
	launch_on(5, 1);
	update(5, 1, 8);
	launch_on(5, 1);
	before = fake_count(FAKE_GRAPH_CHANGE);
	fixture_kill();
	fixture.tenant->replays = true;
	ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
	ck_assert_int_eq(takeover_tenant(fixture.tenant, 2, TAKEOVER_BY_POLICY, 0, "x"), TAKEOVER_REPEATS);
	fixture_turn();
	ck_assert_uint_eq(changed_to(before), 7);
	ck_assert_uint_eq(changed_to(before + 1), 8);
}

/* Ids are used again, and an executor may die before it has cleared the place. */
TEST(graphs, what_another_graph_of_the_same_id_was_changed_to_is_not_taken_over)
{
	ck_assert_int_eq(make(5, describe_changing(1)), CUDA_SUCCESS);
	update(5, 1, 7);
	launch(5);
	fake_arrive();
	fixture_turn();
	fixture_kill();
	ck_assert_int_eq(make(5, describe_changing(2)), CUDA_SUCCESS);
	ck_assert_int_eq(takeover_tenant(fixture.tenant, 2, TAKEOVER_BY_POLICY, 0, "x"), TAKEOVER_CLEAN);
	launch(5);
	ck_assert_uint_eq(fake_count(FAKE_GRAPH_CHANGE), 1);
	/* The first change of all brings its own description there. */
	update(5, 1, 9);
	launch(5);
	ck_assert_uint_eq(changed_to(1), 9);
}

/* ---- conditions ---- */

/* A fill; behind it a loop with a kernel and a branch in it, which has a fill in each of two
 * bodies; a fill behind that. */
static struct description *describe_condition(void)
{
	static struct description d;
	struct frmps_set set = {
		.dst = FIXTURE_WINDOW, .width = 4, .height = 1, .pitch = 16, .element_bytes = 4};
	struct frmps_launch kernel = fixture_single;
	struct frmps_condition loop = {FIXTURE_WINDOW + 64, CU_GRAPH_COND_TYPE_WHILE, 1},
			       branch = {FIXTURE_WINDOW + 72, CU_GRAPH_COND_TYPE_IF, 2};
	uint32_t in_loop = 4, in_branch[] = {1, 1};
	uint64_t argument = 7;
	struct frmps_graph_node *last;

	memset(&d, 0, sizeof(d));
	d.size = sizeof(struct frmps_graph_head);
	add(&d, FRMPS_OP_SET, 0, &set, sizeof(set), NULL, 0);
	add(&d, FRMPS_OP_CONDITION, 1, &loop, sizeof(loop), &in_loop, sizeof(in_loop));
	add(&d, FRMPS_OP_LAUNCH, 0, &kernel, sizeof(kernel), &argument, 8);
	last = add(&d, FRMPS_OP_CONDITION, 1, &branch, sizeof(branch), in_branch, sizeof(in_branch));
	((struct frmps_graph_edge *)(void *)(last + 1))->node = 2;
	add(&d, FRMPS_OP_SET, 0, &set, sizeof(set), NULL, 0);
	add(&d, FRMPS_OP_SET, 0, &set, sizeof(set), NULL, 0);
	last = add(&d, FRMPS_OP_SET, 1, &set, sizeof(set), NULL, 0);
	((struct frmps_graph_edge *)(void *)(last + 1))->node = 1;
	return &d;
}

static struct frmps_graph_edge *edge_of(struct description *d, unsigned node)
{
	return (void *)(node_at(d, node) + 1);
}

/* One thing wrong at a time. Return: false behind the last one. */
static bool spoil_condition(struct description *d, int number)
{
	struct frmps_condition *loop = body_of(node_at(d, 1)), *branch = body_of(node_at(d, 3));
	uint32_t *in_loop = (uint32_t *)(loop + 1), *in_branch = (uint32_t *)(branch + 1);

	switch (number) {
		SPOIL(0, loop->bodies = 0);
		SPOIL(1, loop->bodies = 2);
		SPOIL(2, branch->bodies = 3);
		SPOIL(3, loop->bodies = UINT32_MAX);
		SPOIL(4, loop->kind = 3);
		SPOIL(5, loop->word++);
		SPOIL(6, *in_loop = 6);
		SPOIL(7, *in_loop = UINT32_MAX);
		SPOIL(8, in_branch[1] = 2);
		SPOIL(9, edge_of(d, 3)->node = 0);
		SPOIL(10, edge_of(d, 6)->node = 2);
		SPOIL(11, edge_of(d, 6)->node = 5);
		SPOIL(12, node_at(d, 1)->flags = FRMPS_CMD_DISABLED);
	default:
		return false;
	}
	return true;
}

TEST(form, every_fault_of_a_condition_is_noticed)
{
	int number = 0;

	ck_assert(is_in_order(describe_condition()));
	for (; spoil_condition(describe_condition(), number); number++) {
		struct description *d = describe_condition();

		spoil_condition(d, number);
		if (is_in_order(d))
			ck_abort_msg("fault %d is not noticed", number);
	}
	ck_assert_int_eq(number, 13);
}

static CUresult make_nested(unsigned depth)
{
	static struct description d;
	struct frmps_condition condition = {FIXTURE_WINDOW + 64, CU_GRAPH_COND_TYPE_IF, 1};

	memset(&d, 0, sizeof(d));
	d.size = sizeof(struct frmps_graph_head);
	for (uint32_t i = depth; i-- > 0;)
		add(&d, FRMPS_OP_CONDITION, 0, &condition, sizeof(condition), &i, sizeof(i));
	return make(1, &d);
}

TEST(graphs, conditions_nest_so_far_and_no_further)
{
	ck_assert_int_eq(make_nested(FRMPS_CONDITION_DEPTH_MAX), CUDA_SUCCESS);
	graph_table_deinit(fixture.tenant);
	ck_assert_int_eq(make_nested(FRMPS_CONDITION_DEPTH_MAX + 1), CUDA_ERROR_INVALID_VALUE);
}

TEST(graphs, a_condition_names_only_what_the_session_has)
{
	struct description *d = describe_condition();
	const struct backend_node *nodes;

	ck_assert_int_eq(make(1, d), CUDA_SUCCESS);
	nodes = fake_call(FAKE_GRAPH_MAKE, 0)->object;
	ck_assert_ptr_eq(nodes[1].over, &fixture.tenant->view.timelines[0].stream[0].over);
	ck_assert_uint_eq(word_acquire(&fixture.client.timelines[0].stream[0].over), 0);
	((struct frmps_condition *)body_of(node_at(d, 1)))->word = FIXTURE_WINDOW + FIXTURE_DEVICE / 2;
	ck_assert_int_eq(make(2, d), CUDA_ERROR_INVALID_VALUE);
	/* Its loops end with the session. */
	tenant_end(fixture.tenant, SHM_SESSION_FAULTED, CUDA_ERROR_LAUNCH_FAILED, "a fault");
	ck_assert_uint_ne(word_acquire(&fixture.client.timelines[0].stream[0].over), 0);
}

TEST(graphs, a_condition_is_no_command)
{
	struct frmps_condition body = {FIXTURE_WINDOW, CU_GRAPH_COND_TYPE_WHILE, 1};

	fixture_put(FRMPS_OP_CONDITION, 1, 0, &body, sizeof(body));
	fixture_turn();
	ck_assert_uint_eq(fixture_offences(), 1);
}

int main(void)
{
	Suite *suite = suite_create("graph");
	TCase *form = tcase_create("form"), *graphs = tcase_create("graphs");

	suite_add(form, "form");
	tcase_set_timeout(form, 60);
	suite_add_tcase(suite, form);
	tcase_add_checked_fixture(graphs, fixture_open_default, fixture_close);
	suite_add(graphs, "graphs");
	suite_add_tcase(suite, graphs);
	return suite_run(suite);
}
