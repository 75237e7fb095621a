// Graphs: a file with the description, under a number that the library chooses.

#include "server/resource/resource.h"

#include "protocol/command.h"
#include "server/resource/check.h"
#include "server/session/holdings.h"

static int check_make(struct check *check, const struct wire_message *message)
{
	const struct wire_graph *graph = &message->graph;

	if (!graph->graph || graph->graph >= FRMPS_GRAPH_IDS ||
		holdings_has_graph(check->holdings, graph->graph))
		return check_broken(check, "id of a graph is out of range or in use");
	if (graph->bytes > FRMPS_GRAPH_BYTES_MAX)
		return check_answer(check, CUDA_ERROR_OUT_OF_MEMORY);
	return check_image(check, graph->bytes);
}

static bool has(const struct holdings *holdings, const struct wire_message *message)
{
	return holdings_has_graph(holdings, message->graph.graph);
}

static int fill(struct holding *entry, const struct wire_message *message, const struct wire_u64s *values)
{
	(void)values;
	entry->attribute = message->graph.graph;
	entry->image_bytes = message->graph.bytes;
	return 0;
}

static void again(const struct holding *entry, struct wire_message *message)
{
	message->graph = (struct wire_graph){entry->attribute, entry->image_bytes, 0};
}

/* The description is a file; the record names the file. */
static uint64_t cost(const struct wire_message *message)
{
	return message->graph.bytes;
}

static void drop(struct holdings *holdings, const struct wire_message *message)
{
	holdings_remove_id(holdings, WIRE_MAKE_GRAPH, message->graph.graph);
}

const struct resource resource_graph_make = {.check = check_make,
	.fill = fill,
	.again = again,
	.cost = cost,
	.has = has,
	.ids = FRMPS_GRAPH_IDS,
	.costs_no_record = true};
const struct resource resource_graph_drop = {.has = has, .drop = drop};
