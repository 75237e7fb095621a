// Changes of a graph's nodes on a real device: what launches do that are on their way, and those
// behind a change.

#include <stdio.h>

#include "protocol/command.h"
#include "tests/gpu/backend_bed.h"

#define COUNT  256u
#define BYTES  (COUNT * 4u)
#define FILLED WINDOW
#define SUM    (WINDOW + BYTES)
/* Of each launch, in host memory. */
#define PLACE(i) (HOST_DATA + (i)*BYTES)
#define LAUNCHES 32u

struct add_params {
	uint64_t out, a, b;
	uint32_t count;
};

/* A fill, a kernel behind it that adds two things, a copy of its result behind that. */
struct chain {
	struct frmps_graph_edge edges[2];
	struct frmps_set set;
	struct add_params add;
	struct backend_node nodes[3];
};

static void describe(struct chain *chain, uint32_t value, uint64_t place)
{
	chain->edges[1].node = 1;
	chain->set = (struct frmps_set){
		.dst = FILLED, .width = COUNT, .height = 1, .value = value, .element_bytes = 4};
	chain->add = (struct add_params){SUM, FILLED, FILLED, COUNT};
	chain->nodes[0] = (struct backend_node){.op = FRMPS_OP_SET, .set = &chain->set};
	chain->nodes[1] = (struct backend_node){.op = FRMPS_OP_LAUNCH,
		.edge_count = 1,
		.edges = &chain->edges[0],
		.launch = {.grid = {1, 1, 1},
			.block = {COUNT, 1, 1},
			.info = &info,
			.arguments = (const uint8_t *)&chain->add,
			.argument_bytes = sizeof(chain->add)}};
	ok(OPS->function_find(module, "add", true, &chain->nodes[1].launch.function, &info));
	chain->nodes[2] = (struct backend_node){.op = FRMPS_OP_COPY,
		.edge_count = 1,
		.edges = &chain->edges[1],
		.copy = {.dst = place,
			.src = SUM,
			.width = BYTES,
			.height = 1,
			.depth = 1,
			.dst_is_host = true}};
}

static bool has(uint64_t place, uint32_t value)
{
	const uint32_t *words = at(place);
	uint32_t same = 0;

	for (uint32_t i = 0; i < COUNT; i++)
		same += words[i] == value;
	return same == COUNT;
}

static void change_all(struct backend_graph *graph, struct chain *chain)
{
	for (uint32_t i = 0; i < 3; i++)
		ok(OPS->graph_change(graph, i, &chain->nodes[i]));
}

/* All launches are queued behind a gate, so that each change is made while they wait. */
void check_changes(void)
{
	struct backend_stream *stream = stream_new(), *gated = stream_new();
	struct backend_graph *graph = NULL;
	struct backend_event *behind = NULL;
	struct chain chain = {.edges = {{.node = 0}}};
	double begin, took;

	describe(&chain, 0, PLACE(0));
	ok(OPS->graph_make(chain.nodes, 3, FRMPS_GRAPH_CHANGES, 0, &graph));
	ok(OPS->event_create(false, &behind));
	close_gate(gated, 1, 1);
	ok(OPS->event_record(behind, gated));
	ok(OPS->stream_wait(stream, behind));
	begin = now_us();
	for (uint32_t i = 0; i < LAUNCHES; i++) {
		describe(&chain, i + 1, PLACE(i));
		change_all(graph, &chain);
		ok(OPS->graph_launch(stream, graph));
	}
	took = now_us() - begin;
	open_gate();
	wait_stream(stream);
	for (uint32_t i = 0; i < LAUNCHES; i++)
		check(has(PLACE(i), 2 * (i + 1)));
	/* Without the kernel its former result is copied. */
	describe(&chain, 77, PLACE(0));
	chain.nodes[1].disabled = true;
	change_all(graph, &chain);
	ok(OPS->graph_launch(stream, graph));
	wait_stream(stream);
	check(has(PLACE(0), 2 * LAUNCHES));
	chain.nodes[1].disabled = false;
	change_all(graph, &chain);
	ok(OPS->graph_launch(stream, graph));
	wait_stream(stream);
	check(has(PLACE(0), 2 * 77));
	ok(OPS->graph_free(graph));
	ok(OPS->event_destroy(behind));
	ok(OPS->stream_destroy(stream));
	ok(OPS->stream_destroy(gated));
	printf("change and launch of a graph of 3 nodes: %.2f us\n", took / LAUNCHES);
}
