// See graph_form.h. No state.

#include "server/executor/graph_form.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "server/executor/body.h"
#include "server/executor/intake.h"

/* Values of the driver: the ports of a kernel other than its end, and the type of edge for these
 * ports. */
#define PORT_MAX	  2u
#define TYPE_PROGRAMMATIC 1u

/* Bytes of body and payload; UINT64_MAX if there is no such op or the body is cut off. */
static uint64_t body_bytes(uint16_t op, const void *body, uint64_t room)
{
	const struct frmps_condition *condition = body;
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
	case FRMPS_OP_CONDITION:
		if (room < sizeof(*condition) || !condition->bodies ||
			condition->bodies > FRMPS_CONDITION_BODIES_MAX)
			return UINT64_MAX;
		return sizeof(*condition) + condition->bodies * sizeof(uint32_t);
	default:
		return UINT64_MAX;
	}
}

static const char *check_condition(const struct frmps_condition *condition)
{
	if (condition->kind > CU_GRAPH_COND_TYPE_SWITCH || condition->word % sizeof(uint32_t) ||
		(condition->kind == CU_GRAPH_COND_TYPE_WHILE && condition->bodies != 1) ||
		(condition->kind == CU_GRAPH_COND_TYPE_IF && condition->bodies > 2))
		return "condition of an unknown kind";
	return NULL;
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
	if (op == FRMPS_OP_CONDITION)
		return check_condition(body);
	if (op != FRMPS_OP_COPY && op != FRMPS_OP_ARRAY_COPY)
		return NULL;
	if (copy->kind == (FRMPS_COPY_DST_HOST | FRMPS_COPY_SRC_HOST) ||
		copy->kind & (FRMPS_COPY_DST_ARENA | FRMPS_COPY_SRC_ARENA))
		return "copy of a kind that graphs do not have";
	return op == FRMPS_OP_COPY ? intake_check_copy(copy) : intake_check_array_copy(body);
}

/* Facts about the nodes before the present node. */
struct seen {
	uint16_t op;
	uint32_t body; /* number of the body's first node, plus one; 0: in none */
};

/* The walk. */
struct check {
	const struct frmps_graph_node *node; /* number `index` */
	uint32_t index;
	uint64_t left, edges;
	struct seen *seen;
};

static const char *check_edges(const struct check *check, uint32_t body)
{
	const struct frmps_graph_node *node = check->node;
	const struct frmps_graph_edge *edges = graph_form_edges(node);

	for (uint32_t i = 0; i < node->edges; i++) {
		const struct frmps_graph_edge *edge = &edges[i];

		if (edge->node >= check->index)
			return "edge to a node that does not come before it";
		if (check->seen[edge->node].body != body)
			return "edge into a body, or out of it";
		if (edge->reserved || edge->to_port || edge->from_port > PORT_MAX ||
			edge->type > TYPE_PROGRAMMATIC)
			return "edge of an unknown kind";
		if ((edge->from_port || edge->type) &&
			(check->seen[edge->node].op != FRMPS_OP_LAUNCH || node->op != FRMPS_OP_LAUNCH))
			return "programmatic edge that is not between kernels";
	}
	return NULL;
}

static unsigned flags_of(uint16_t op)
{
	return (op == FRMPS_OP_LAUNCH ? FRMPS_CMD_COOPERATIVE : 0) |
	       (op == FRMPS_OP_PAD || op == FRMPS_OP_CONDITION ? 0 : FRMPS_CMD_DISABLED);
}

static const char *check_node(const struct check *check, uint32_t body)
{
	const struct frmps_graph_node *node = check->node;
	const char *wrong;

	if (check->left < sizeof(*node))
		return "fewer nodes than announced";
	if (node->size % FRMPS_RECORD_ALIGN || node->size < sizeof(*node) || node->size > check->left ||
		node->edges > (node->size - sizeof(*node)) / sizeof(struct frmps_graph_edge))
		return "node of a wrong size";
	if (node->reserved || node->flags & ~flags_of(node->op))
		return "reserved bits of a node are set";
	wrong = check_edges(check, body);
	return wrong ? wrong : check_body(node->op, graph_form_body(node), graph_form_room(node));
}

static const char *check_range(struct check *check, uint32_t end, uint32_t body, unsigned depth);

/* Checks the bodies of a condition that itself was checked. */
static const char *check_bodies(
	struct check *check, const struct frmps_condition *condition, uint32_t end, unsigned depth)
{
	const uint32_t *counts = graph_form_counts(condition);
	const char *wrong = depth < FRMPS_CONDITION_DEPTH_MAX ? NULL : "conditions in too many conditions";

	for (uint32_t i = 0; !wrong && i < condition->bodies; i++)
		wrong = counts[i] > end - check->index
				? "body with nodes that are not there"
				: check_range(check, check->index + counts[i], check->index + 1, depth + 1);
	return wrong;
}

static const char *check_range(struct check *check, uint32_t end, uint32_t body, unsigned depth)
{
	const char *wrong = NULL;

	while (!wrong && check->index < end) {
		const struct frmps_graph_node *node = check->node;

		wrong = check_node(check, body);
		if (wrong)
			return wrong;
		check->seen[check->index] = (struct seen){node->op, body};
		check->edges += node->edges;
		check->left -= node->size;
		check->index++;
		check->node = graph_form_next(node);
		if (node->op == FRMPS_OP_CONDITION)
			wrong = check_bodies(check, graph_form_body(node), end, depth);
	}
	return wrong;
}

static const char *check_nodes(const struct frmps_graph_head *head, struct seen *seen)
{
	struct check check = {
		.node = graph_form_first(head), .left = head->bytes - sizeof(*head), .seen = seen};
	const char *wrong = check_range(&check, head->nodes, 0, 0);

	if (wrong)
		return wrong;
	return check.left || check.edges != head->edges ? "more nodes or other edges than announced" : NULL;
}

uint64_t graph_form_part(const struct frmps_graph_node *node)
{
	const struct frmps_launch *body = graph_form_body(node);
	struct backend_launch launch;

	if (node->op != FRMPS_OP_LAUNCH)
		return 0;
	launch = (struct backend_launch){
		.attributes = (const void *)(body + 1), .attribute_count = body->attribute_count};
	return body_take_part(&launch);
}

const char *graph_form_check(const uint8_t *bytes, uint64_t size)
{
	const struct frmps_graph_head *head = (const void *)bytes;
	const char *wrong;
	struct seen *seen;

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
	seen = malloc(head->nodes * sizeof(*seen));
	if (!seen)
		return "no memory to look at it";
	wrong = check_nodes(head, seen);
	free(seen);
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
		if (change->op == FRMPS_OP_PAD || change->op == FRMPS_OP_CONDITION || change->reserved ||
			change->flags & ~flags_of(change->op))
			return "change of an unknown kind";
		wrong = check_body(change->op, change + 1, change->size - sizeof(*change));
		if (wrong)
			return wrong;
		bytes -= change->size;
	}
	return bytes || !update->changes ? "more changes than announced, or none" : NULL;
}
