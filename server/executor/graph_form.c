// See graph_form.h. No state.

#include "server/executor/graph_form.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/executor/intake.h"

/* The driver's: a kernel's ports behind its end, and the type of edge that they need. */
#define PORT_MAX	  2u
#define TYPE_PROGRAMMATIC 1u

/* Bytes of body and payload; UINT64_MAX if there is no such op or the body does not even begin. */
static uint64_t body_bytes(uint16_t op, const void *body, uint64_t room)
{
	const struct frmps_launch *launch = body;

	switch (op) {
	case FRMPS_OP_PAD:
		return 0;
	case FRMPS_OP_COPY:
		return sizeof(struct frmps_copy);
	case FRMPS_OP_ARRAY_COPY:
		return sizeof(struct frmps_array_copy);
	case FRMPS_OP_SET:
		return sizeof(struct frmps_set);
	case FRMPS_OP_LAUNCH:
		if (room < sizeof(*launch) || launch->attribute_count > FRMPS_ATTRIBUTE_MAX ||
			launch->argument_bytes > FRMPS_ARGUMENT_MAX)
			return UINT64_MAX;
		return sizeof(*launch) + launch->attribute_count * sizeof(struct frmps_launch_attribute) +
		       launch->argument_bytes;
	default:
		return UINT64_MAX;
	}
}

/* @room: bytes from the body on */
static const char *check_body(uint16_t op, const void *body, uint64_t room)
{
	uint64_t bytes = body_bytes(op, body, room);
	const struct frmps_copy *copy = body; /* also begins an array's */

	/* A change may have made the body smaller. */
	if (bytes > room)
		return "node of an unknown op, or smaller than its parts";
	if (op == FRMPS_OP_SET)
		return intake_check_set(body);
	if (op != FRMPS_OP_COPY && op != FRMPS_OP_ARRAY_COPY)
		return NULL;
	if (copy->kind == (FRMPS_COPY_DST_HOST | FRMPS_COPY_SRC_HOST) ||
		copy->kind & (FRMPS_COPY_DST_ARENA | FRMPS_COPY_SRC_ARENA))
		return "copy of a kind that graphs do not have";
	return op == FRMPS_OP_COPY ? intake_check_copy(copy) : intake_check_array_copy(body);
}

/* @ops: of the nodes before this one, which is number `index`. */
static const char *check_edges(const struct frmps_graph_node *node, uint32_t index, const uint16_t *ops)
{
	const struct frmps_graph_edge *edges = graph_form_edges(node);

	for (uint32_t i = 0; i < node->edges; i++) {
		const struct frmps_graph_edge *edge = &edges[i];

		if (edge->node >= index)
			return "edge to a node that does not come before it";
		if (edge->reserved || edge->to_port || edge->from_port > PORT_MAX ||
			edge->type > TYPE_PROGRAMMATIC)
			return "edge of an unknown kind";
		if ((edge->from_port || edge->type) &&
			(ops[edge->node] != FRMPS_OP_LAUNCH || node->op != FRMPS_OP_LAUNCH))
			return "programmatic edge that is not between kernels";
	}
	return NULL;
}

static unsigned flags_of(uint16_t op)
{
	return (op == FRMPS_OP_LAUNCH ? FRMPS_CMD_COOPERATIVE : 0) |
	       (op == FRMPS_OP_PAD ? 0 : FRMPS_CMD_DISABLED);
}

static const char *check_node(
	const struct frmps_graph_node *node, uint64_t room, uint32_t index, const uint16_t *ops)
{
	const char *wrong;

	if (node->size % FRMPS_RECORD_ALIGN || node->size < sizeof(*node) || node->size > room ||
		node->edges > (node->size - sizeof(*node)) / sizeof(struct frmps_graph_edge))
		return "node of a wrong size";
	if (node->reserved || node->flags & ~flags_of(node->op))
		return "reserved bits of a node are set";
	wrong = check_edges(node, index, ops);
	return wrong ? wrong : check_body(node->op, graph_form_body(node), graph_form_room(node));
}

static const char *check_nodes(const struct frmps_graph_head *head, uint16_t *ops)
{
	const struct frmps_graph_node *node = graph_form_first(head);
	uint64_t left = head->bytes - sizeof(*head), edges = 0;

	for (uint32_t i = 0; i < head->nodes; i++) {
		const char *wrong =
			left < sizeof(*node) ? "fewer nodes than announced" : check_node(node, left, i, ops);

		if (wrong)
			return wrong;
		ops[i] = node->op;
		edges += node->edges;
		left -= node->size;
		node = graph_form_next(node);
	}
	return left || edges != head->edges ? "more nodes or other edges than announced" : NULL;
}

const char *graph_form_check(const uint8_t *bytes, uint64_t size)
{
	const struct frmps_graph_head *head = (const void *)bytes;
	const char *wrong;
	uint16_t *ops;

	if (size < sizeof(*head) || head->bytes != size)
		return "another size than announced";
	if (!head->nodes || head->nodes > FRMPS_GRAPH_NODES_MAX ||
		head->nodes > (size - sizeof(*head)) / sizeof(struct frmps_graph_node))
		return "no node, or too many";
	if (head->flags & ~(FRMPS_GRAPH_PRIORITIES | FRMPS_GRAPH_CHANGES) ||
		!head->serial != !(head->flags & FRMPS_GRAPH_CHANGES))
		return "reserved bits are set";
	if (head->serial && size > FRMPS_GRAPH_CHANGED_MAX)
		return "too large to be changed";
	ops = malloc(head->nodes * sizeof(*ops));
	if (!ops)
		return "no memory to look at it";
	wrong = check_nodes(head, ops);
	free(ops);
	return wrong;
}

const char *graph_form_check_changes(const struct frmps_graph_update *update, uint64_t bytes)
{
	const struct frmps_graph_change *change = graph_form_changes(update);

	for (uint32_t i = 0; i < update->changes; i++, change = graph_form_next_change(change)) {
		const char *wrong;

		if (bytes < sizeof(*change) || change->size < sizeof(*change) || change->size > bytes ||
			change->size % FRMPS_RECORD_ALIGN)
			return "change of a wrong size";
		if (change->op == FRMPS_OP_PAD || change->reserved || change->flags & ~flags_of(change->op))
			return "change of an unknown kind";
		wrong = check_body(change->op, change + 1, change->size - sizeof(*change));
		if (wrong)
			return wrong;
		bytes -= change->size;
	}
	return bytes || !update->changes ? "more changes than announced, or none" : NULL;
}
