// See form.h. Two passes: the graph with all its children is flattened into items, in an order that
// the edges allow; then the items are assigned to slots and segments.

#include "client/graph/form.h"

#include <stdlib.h>
#include <string.h>

#include "client/graph/memory.h"
#include "client/stage/copy.h"
#include "client/state/array.h"
#include "client/state/event.h"
#include "client/state/function.h"
#include "client/state/host.h"
#include "client/state/process.h"
#include "client/state/ranges.h"
#include "client/state/session.h"
#include "protocol/command.h"

#define NOWHERE UINT32_MAX

/* A graph_place.kind: the node cannot be changed in place. */
#define GRAPH_FIXED UINT32_MAX
/* The node is in a body of a condition. It is not known that the driver can change a fill there, or
 * switch a node there off. */
#define GRAPH_IN_BODY (UINT32_C(1) << 30)

struct link {
	uint32_t item;
	CUgraphEdgeData data;
};

/* A unit of work of the device or of this process. */
struct item {
	struct graph_node *node; /* the node, if the item is all of its work; else NULL */
	bool here;
	uint32_t first_link, link_count; /* to earlier items */
	uint32_t owner;			 /* the condition around the item; NOWHERE: none */
	uint32_t place;			 /* segment, or slot */
	uint32_t index;			 /* within its segment */
	struct graph_step step;		 /* if `here` */
	/* On the device. */
	uint16_t op, flags;
	const struct frmps_launch *launch; /* in a node's parameters */
	uint32_t launch_bytes;
	const struct frmps_condition *condition; /* in a node's parameters */
	struct frmps_array_copy copy;		 /* COPY: the first part */
	struct frmps_set set;
};

struct maker {
	struct item *items;
	uint32_t count, room;
	struct link *links;
	uint32_t link_count, link_room;
	uint32_t owner; /* of the items that are being made */
	uint32_t depth; /* conditions around the items */
	struct graph_form *form;
	struct graph_node *bad;
};

/* Makes room for another element in an array that grows by doubling. */
static bool grow(void *array, uint32_t count, uint32_t *room, size_t bytes)
{
	uint32_t more = *room ? 2 * *room : 16;
	void *old, *new;

	memcpy(&old, array, sizeof(old));
	if (count < *room)
		return true;
	new = realloc(old, more * bytes);
	if (!new)
		return false;
	memcpy(array, &new, sizeof(new));
	*room = more;
	return true;
}

/* ---- items ---- */

static struct item *add_item(struct maker *maker, bool here)
{
	struct item *item;

	if (!grow(&maker->items, maker->count, &maker->room, sizeof(*item)))
		return NULL;
	item = &maker->items[maker->count++];
	*item = (struct item){
		.here = here, .op = FRMPS_OP_PAD, .first_link = maker->link_count, .owner = maker->owner};
	return item;
}

/* To the newest item. */
static CUresult add_link(struct maker *maker, uint32_t to, const CUgraphEdgeData *data)
{
	static const CUgraphEdgeData ordinary;

	if (to == NOWHERE)
		return CUDA_SUCCESS;
	if (!grow(&maker->links, maker->link_count, &maker->link_room, sizeof(struct link)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	maker->links[maker->link_count++] = (struct link){to, data ? *data : ordinary};
	maker->items[maker->count - 1].link_count++;
	return CUDA_SUCCESS;
}

/* Links the newest item to the dependencies of a node: the mark of a node is its last item. @begin:
 * for nodes of a child without dependencies */
static CUresult link_node(struct maker *maker, const struct graph_node *node, uint32_t begin)
{
	CUresult r = CUDA_SUCCESS;

	if (node->before.count == 0)
		r = add_link(maker, begin, NULL);
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < node->before.count; ++i)
		r = add_link(maker, node->before.at[i].node->mark, &node->before.at[i].data);
	return r;
}

static CUresult add_kernel(struct item *item, const struct graph_kernel *kernel)
{
	const struct client_function *function = function_find(kernel->function);

	if (!function || function->serial != kernel->function_serial)
		return CUDA_ERROR_INVALID_HANDLE;
	if (function->session != session_self())
		return CUDA_ERROR_NOT_SUPPORTED;
	function_launched(function);
	item->op = FRMPS_OP_LAUNCH;
	item->flags = kernel->cooperative ? FRMPS_CMD_COOPERATIVE : 0;
	item->launch = kernel->body;
	item->launch_bytes = params_kernel_bytes(kernel);
	return CUDA_SUCCESS;
}

static CUresult add_set(struct item *item, const CUDA_MEMSET_NODE_PARAMS *set)
{
	const struct copy_fill fill = {
		set->dst, set->pitch, set->width, set->height, set->value, set->elementSize};

	item->op = FRMPS_OP_SET;
	return copy_fill_form(&fill, &item->set);
}

static void add_device_copy(
	struct item *item, struct box box, const struct copy_side *dst, const struct copy_side *src)
{
	uint32_t kind = (dst->place == COPY_PINNED ? FRMPS_COPY_DST_HOST : 0) |
			(src->place == COPY_PINNED ? FRMPS_COPY_SRC_HOST : 0);

	box.dst.address += dst->shift;
	box.src.address += src->shift;
	item->op = copy_has_array(&box) ? FRMPS_OP_ARRAY_COPY : FRMPS_OP_COPY;
	item->copy = copy_form(&box, kind);
}

/* The properties of an item that cannot be changed in place: its op and flags, and which sides of a
 * copy are host memory. Boxes of several rows and arrays cannot be changed at all. */
static uint32_t kind_of(const struct item *item, bool in_body)
{
	const struct frmps_copy *copy = &item->copy.copy;
	uint32_t kind = item->op | (uint32_t)item->flags << 16 | (in_body ? GRAPH_IN_BODY : 0);

	switch (item->op) {
	case FRMPS_OP_LAUNCH:
		return kind;
	case FRMPS_OP_SET:
		return item->set.height == 1 && !in_body ? kind : GRAPH_FIXED;
	case FRMPS_OP_COPY:
		return copy->height == 1 && copy->depth == 1 ? kind | copy->kind << 20 : GRAPH_FIXED;
	default:
		return GRAPH_FIXED;
	}
}

/* Allocates pinned memory for a box, its rows packed. */
static CUresult stage(struct maker *maker, const struct box *box, struct box_side *ret_side)
{
	struct graph_form *form = maker->form;
	struct range memory = {.kind = RANGE_BEHIND};
	CUresult r;

	if (__builtin_mul_overflow(box->width, box->height, &memory.bytes) ||
		__builtin_mul_overflow(memory.bytes, box->depth, &memory.bytes) ||
		!grow(&form->pinned, form->pinned_count, &form->pinned_room, sizeof(*form->pinned)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = host_alloc_range(&memory);
	if (r != CUDA_SUCCESS)
		return r;
	form->pinned[form->pinned_count++] = memory.address;
	*ret_side = (struct box_side){.address = memory.address, .pitch = box->width, .rows = box->height};
	return CUDA_SUCCESS;
}

/* A copy of pageable memory: the first half here, the second half on the device, or the reverse.
 * The node becomes the newest two items. */
static CUresult add_staged(struct maker *maker, const struct graph_node *node, const struct box *box,
	const struct copy_side *dst, const struct copy_side *src, uint32_t begin)
{
	static const struct copy_side pinned = {.place = COPY_PINNED};
	bool to_device = dst->place == COPY_DEVICE;
	struct box first = *box, second = *box;
	struct item *item;
	CUresult r = stage(maker, box, &first.dst);

	if (r != CUDA_SUCCESS)
		return r;
	second.src = first.dst;
	item = add_item(maker, to_device);
	if (!item)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (to_device)
		item->step = (struct graph_step){.kind = STEP_COPY, .copy = first};
	else
		add_device_copy(item, first, &pinned, src);
	r = link_node(maker, node, begin);
	if (r != CUDA_SUCCESS)
		return r;
	item = add_item(maker, !to_device);
	if (!item)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (to_device)
		add_device_copy(item, second, dst, &pinned);
	else
		item->step = (struct graph_step){.kind = STEP_COPY, .copy = second};
	return add_link(maker, maker->count - 2, NULL);
}

/* Whether a side is memory of another device than the graph's. */
static bool is_elsewhere(const struct copy_side *side)
{
	return side->place == COPY_DEVICE && !copy_reaches(side);
}

/* A copy that goes through pinned memory of both devices (stage/ferry.h), in the order of the
 * stream. */
static CUresult add_ferry(struct maker *maker, const struct graph_node *node, const struct copy_side *dst,
	const struct copy_side *src, uint32_t begin)
{
	struct item *item;

	if (copy_is_plain(dst) || copy_is_plain(src))
		return CUDA_ERROR_NOT_SUPPORTED;
	item = add_item(maker, true);
	if (!item)
		return CUDA_ERROR_OUT_OF_MEMORY;
	item->step = (struct graph_step){.kind = STEP_FERRY, .copy = node->params.copy.box};
	return link_node(maker, node, begin);
}

static CUresult add_copy(struct maker *maker, struct graph_node *node, uint32_t begin)
{
	struct box box = node->params.copy.box;
	bool empty = box_is_empty(&box);
	struct copy_side dst, src;
	struct item *item;
	CUresult r = empty ? CUDA_SUCCESS : copy_examine(&box, node->params.copy.how, &dst, &src);
	bool here = !empty && r == CUDA_SUCCESS && dst.place != COPY_DEVICE && src.place != COPY_DEVICE;

	if (r != CUDA_SUCCESS)
		return r;
	if (!empty && (is_elsewhere(&dst) || is_elsewhere(&src)))
		return add_ferry(maker, node, &dst, &src, begin);
	if (!empty && !here && (dst.place == COPY_PAGEABLE || src.place == COPY_PAGEABLE))
		return add_staged(maker, node, &box, &dst, &src, begin);
	item = add_item(maker, here);
	if (!item)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (here) {
		item->step = (struct graph_step){.kind = STEP_COPY, .copy = box};
	} else if (!empty) {
		item->node = node;
		add_device_copy(item, box, &dst, &src);
	}
	return link_node(maker, node, begin);
}

static CUresult add_step(struct item *item, const struct graph_params *params)
{
	item->here = true;
	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_HOST:
		item->step = (struct graph_step){.kind = STEP_HOST, .host = params->host};
		return CUDA_SUCCESS;
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		item->step = (struct graph_step){.kind = STEP_BATCH, .batch = params->batch};
		return CUDA_SUCCESS;
	default:
		item->step = (struct graph_step){
			.kind = params->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? STEP_RECORD : STEP_WAIT,
			.event = params->event,
		};
		return event_is_live(params->event) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	}
}

static CUresult flatten(struct maker *maker, const struct client_graph *graph, uint32_t begin);

/* The item that a child's nodes without dependencies wait for: the child's only dependency, or a
 * join of several. Joins are nodes of the device's graph, and cost time there. */
static CUresult begin_child(
	struct maker *maker, const struct graph_node *node, uint32_t begin, uint32_t *ret_begin)
{
	CUresult r = CUDA_SUCCESS;

	*ret_begin = node->before.count ? node->before.at[0].node->mark : begin;
	if (node->before.count > 1) {
		r = add_item(maker, false) ? link_node(maker, node, begin) : CUDA_ERROR_OUT_OF_MEMORY;
		*ret_begin = maker->count - 1;
	}
	return r;
}

static uint32_t count_ends(const struct client_graph *graph, const struct graph_node **ret_last)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < graph->count; ++i)
		if (graph->nodes[i]->behind.count == 0) {
			*ret_last = graph->nodes[i];
			++count;
		}
	return count;
}

/* The item that the nodes behind a child wait for: the child's last item, or a join of several. */
static CUresult end_child(
	struct maker *maker, const struct client_graph *child, uint32_t begin, uint32_t *ret_end)
{
	const struct graph_node *last;
	uint32_t ends = count_ends(child, &last);
	CUresult r = CUDA_SUCCESS;

	if (ends == 1) {
		*ret_end = last->mark;
		return CUDA_SUCCESS;
	}
	if (!add_item(maker, false))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*ret_end = maker->count - 1;
	if (ends == 0)
		r = add_link(maker, begin, NULL);
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < child->count; ++i)
		if (child->nodes[i]->behind.count == 0)
			r = add_link(maker, child->nodes[i]->mark, NULL);
	return r;
}

static CUresult add_child(struct maker *maker, struct graph_node *node, uint32_t begin)
{
	const struct client_graph *child = node->params.child;
	uint32_t first;
	CUresult r = begin_child(maker, node, begin, &first);

	if (r == CUDA_SUCCESS)
		r = flatten(maker, child, first);
	if (r == CUDA_SUCCESS)
		r = end_child(maker, child, first, &node->mark);
	return r;
}

/* The driver has copies in bodies, but none of what the program or another stream has a part in. */
static CUresult refuse_in_body(const struct item *item)
{
	return item->step.kind == STEP_COPY || item->step.kind == STEP_FERRY ? CUDA_ERROR_NOT_SUPPORTED
									     : CUDA_ERROR_INVALID_VALUE;
}

/* The bodies of a condition follow the condition; the device does all of their work. */
static CUresult add_bodies(struct maker *maker, struct graph_node *node, uint32_t condition)
{
	const struct graph_branch *branch = &node->params.branch;
	uint32_t *counts = (uint32_t *)(void *)(branch->form + 1), owner = maker->owner;
	CUresult r = ++maker->depth > FRMPS_CONDITION_DEPTH_MAX ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;

	maker->owner = condition;
	for (uint32_t i = 0; r == CUDA_SUCCESS && i < branch->count; ++i) {
		uint32_t first = maker->count;

		r = flatten(maker, branch->bodies[i], NOWHERE);
		counts[i] = maker->count - first;
	}
	for (uint32_t i = condition + 1; r == CUDA_SUCCESS && i < maker->count; ++i)
		if (maker->items[i].here)
			r = refuse_in_body(&maker->items[i]);
	maker->owner = owner;
	--maker->depth;
	return r;
}

static CUresult add_condition(struct maker *maker, struct graph_node *node, uint32_t begin)
{
	struct item *item = add_item(maker, false);
	uint32_t condition = maker->count - 1;
	CUresult r;

	if (!item)
		return CUDA_ERROR_OUT_OF_MEMORY;
	item->op = FRMPS_OP_CONDITION;
	item->condition = node->params.branch.form;
	r = link_node(maker, node, begin);
	if (r == CUDA_SUCCESS)
		r = add_bodies(maker, node, condition);
	node->mark = condition;
	return r;
}

static CUresult add_simple(struct maker *maker, struct graph_node *node, uint32_t begin)
{
	const struct graph_params *params = &node->params;
	struct item *item = add_item(maker, false);
	CUresult r = item ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	if (r != CUDA_SUCCESS)
		return r;
	item->node = node;
	switch (node->disabled ? CU_GRAPH_NODE_TYPE_EMPTY : params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		r = add_kernel(item, &params->kernel);
		break;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		r = add_set(item, &params->set);
		break;
	case CU_GRAPH_NODE_TYPE_HOST:
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		r = add_step(item, params);
		break;
	default: /* allocation nodes: the memory already exists */
		break;
	}
	return r == CUDA_SUCCESS ? link_node(maker, node, begin) : r;
}

static CUresult add_node(struct maker *maker, struct graph_node *node, uint32_t begin)
{
	CUresult r;

	node->place = (struct graph_place){.step = GRAPH_NO_STEP};
	if (node->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
		r = add_condition(maker, node, begin);
	else if (node->params.type == CU_GRAPH_NODE_TYPE_GRAPH)
		r = add_child(maker, node, begin);
	else if (node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY && !node->disabled)
		r = add_copy(maker, node, begin);
	else
		r = add_simple(maker, node, begin);
	if (r != CUDA_SUCCESS && !maker->bad)
		maker->bad = node;
	/* The excluded types have set the mark. */
	if (node->params.type != CU_GRAPH_NODE_TYPE_CONDITIONAL &&
		node->params.type != CU_GRAPH_NODE_TYPE_GRAPH)
		node->mark = maker->count - 1;
	return r;
}

/* In an order that the edges allow: the order of creation, if that is such an order. */
static CUresult flatten(struct maker *maker, const struct client_graph *graph, uint32_t begin)
{
	struct graph_node **ready = malloc((graph->count + 1) * sizeof(struct graph_node *));
	uint32_t first = 0, end = 0;
	CUresult r = ready ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	for (uint32_t i = 0; ready && i < graph->count; ++i) {
		graph->nodes[i]->mark = graph->nodes[i]->before.count;
		if (graph->nodes[i]->mark == 0)
			ready[end++] = graph->nodes[i];
	}
	while (r == CUDA_SUCCESS && first < end) {
		struct graph_node *node = ready[first++];

		r = add_node(maker, node, begin);
		for (uint32_t i = 0; i < node->behind.count; ++i)
			if (--node->behind.at[i].node->mark == 0)
				ready[end++] = node->behind.at[i].node;
	}
	free(ready);
	return r == CUDA_SUCCESS && end < graph->count ? CUDA_ERROR_INVALID_VALUE : r;
}

/* ---- slots and segments ---- */

/* Return: the highest place. */
static uint32_t deal(struct maker *maker)
{
	uint32_t highest = 0;

	for (uint32_t i = 0; i < maker->count; ++i) {
		struct item *item = &maker->items[i];

		if (item->owner != NOWHERE)
			item->place = maker->items[item->owner].place;
		for (uint32_t j = 0; j < item->link_count; ++j) {
			const struct item *to = &maker->items[maker->links[item->first_link + j].item];
			uint32_t least = to->place + (item->here && !to->here);

			item->place = item->place < least ? least : item->place;
		}
		highest = highest < item->place ? item->place : highest;
	}
	return highest;
}

static uint64_t padded(uint64_t bytes)
{
	return (bytes + FRMPS_RECORD_ALIGN - 1) / FRMPS_RECORD_ALIGN * FRMPS_RECORD_ALIGN;
}

static const void *body_of(const struct item *item, uint64_t *ret_bytes)
{
	switch (item->op) {
	case FRMPS_OP_LAUNCH:
		*ret_bytes = item->launch_bytes;
		return item->launch;
	case FRMPS_OP_COPY:
		*ret_bytes = sizeof(item->copy.copy);
		return &item->copy.copy;
	case FRMPS_OP_ARRAY_COPY:
		*ret_bytes = sizeof(item->copy);
		return &item->copy;
	case FRMPS_OP_SET:
		*ret_bytes = sizeof(item->set);
		return &item->set;
	case FRMPS_OP_CONDITION:
		*ret_bytes = sizeof(*item->condition) + item->condition->bodies * sizeof(uint32_t);
		return item->condition;
	default:
		*ret_bytes = 0;
		return NULL;
	}
}

/* A link is an edge inside a segment; the order of segments implies all others. */
static bool is_edge(const struct maker *maker, const struct item *item, uint32_t link)
{
	const struct item *to = &maker->items[maker->links[item->first_link + link].item];

	return !to->here && to->place == item->place;
}

static uint32_t count_edges(const struct maker *maker, const struct item *item)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < item->link_count; ++i)
		count += is_edge(maker, item, i);
	return count;
}

static uint64_t node_bytes(const struct maker *maker, const struct item *item)
{
	uint64_t body;

	body_of(item, &body);
	return padded(sizeof(struct frmps_graph_node) +
		      count_edges(maker, item) * sizeof(struct frmps_graph_edge) + body);
}

static void write_node(const struct maker *maker, const struct item *item, struct frmps_graph_node *node)
{
	struct frmps_graph_edge *edge = (struct frmps_graph_edge *)(void *)(node + 1);
	uint64_t bytes;
	const void *body = body_of(item, &bytes);

	*node = (struct frmps_graph_node){
		.size = (uint32_t)node_bytes(maker, item),
		.op = item->op,
		.flags = item->flags,
		.edges = count_edges(maker, item),
	};
	for (uint32_t i = 0; i < item->link_count; ++i) {
		const struct link *link = &maker->links[item->first_link + i];
		const struct item *to = &maker->items[link->item];
		bool kernels = to->op == FRMPS_OP_LAUNCH && item->op == FRMPS_OP_LAUNCH;

		if (is_edge(maker, item, i))
			*edge++ = (struct frmps_graph_edge){
				.node = to->index,
				.from_port = kernels ? link->data.from_port : 0,
				.type = kernels ? link->data.type : 0,
			};
	}
	if (bytes)
		memcpy(edge, body, bytes);
}

static struct graph_step *add_form_step(struct graph_form *form)
{
	if (!grow(&form->steps, form->count, &form->room, sizeof(struct graph_step)))
		return NULL;
	return &form->steps[form->count++];
}

/* Computes the size of a segment, and numbers its items. */
static struct frmps_graph_head measure(struct maker *maker, uint32_t place, uint32_t flags, bool *ret_works)
{
	struct frmps_graph_head head = {.bytes = sizeof(head), .flags = flags};

	*ret_works = false;
	for (uint32_t i = 0; i < maker->count; ++i) {
		struct item *item = &maker->items[i];

		if (item->here || item->place != place)
			continue;
		item->index = head.nodes++;
		head.edges += count_edges(maker, item);
		head.bytes += node_bytes(maker, item);
		*ret_works |= item->op != FRMPS_OP_PAD;
	}
	return head;
}

/* Of an item in the latest step. */
static void note_place(const struct maker *maker, const struct item *item)
{
	uint32_t room;

	if (!item->node)
		return;
	room = (uint32_t)node_bytes(maker, item) - (uint32_t)sizeof(struct frmps_graph_node) -
	       count_edges(maker, item) * (uint32_t)sizeof(struct frmps_graph_edge);
	item->node->place = (struct graph_place){.step = maker->form->count - 1,
		.index = item->index,
		.room = room,
		.kind = item->here ? item->step.kind : kind_of(item, item->owner != NOWHERE)};
}

static CUresult write_segment(struct maker *maker, uint32_t place, uint32_t flags)
{
	bool works;
	struct frmps_graph_head head = measure(maker, place, flags, &works);
	struct graph_step *step;
	uint8_t *at;

	if (!works)
		return CUDA_SUCCESS;
	if (head.nodes > FRMPS_GRAPH_NODES_MAX || head.bytes > FRMPS_GRAPH_BYTES_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	at = calloc(1, head.bytes);
	step = at ? add_form_step(maker->form) : NULL;
	if (!step) {
		free(at);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*step = (struct graph_step){
		.kind = STEP_DEVICE, .device = {.description = at, .bytes = head.bytes, .nodes = head.nodes}};
	memcpy(at, &head, sizeof(head));
	at += sizeof(head);
	for (uint32_t i = 0; i < maker->count; ++i) {
		const struct item *item = &maker->items[i];

		if (item->here || item->place != place)
			continue;
		write_node(maker, item, (struct frmps_graph_node *)(void *)at);
		note_place(maker, item);
		at += node_bytes(maker, item);
	}
	return CUDA_SUCCESS;
}

static CUresult write_slot(struct maker *maker, uint32_t place)
{
	for (uint32_t i = 0; i < maker->count; ++i) {
		const struct item *item = &maker->items[i];
		struct graph_step *step;

		if (!item->here || item->place != place)
			continue;
		step = add_form_step(maker->form);
		if (!step)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*step = item->step;
		note_place(maker, item);
	}
	return CUDA_SUCCESS;
}

/* The first items set the words of conditions. Return: in *ret_begin the item that all others wait
 * for */
static CUresult add_values(struct maker *maker, const struct client_graph *graph, uint32_t *ret_begin)
{
	CUresult r = CUDA_SUCCESS;

	*ret_begin = NOWHERE;
	for (const struct graph_condition *at = graph->conditions; r == CUDA_SUCCESS && at; at = at->next) {
		struct item *item = at->assigns ? add_item(maker, false) : NULL;

		if (!at->assigns)
			continue;
		if (!item)
			return CUDA_ERROR_OUT_OF_MEMORY;
		item->op = FRMPS_OP_SET;
		item->set = (struct frmps_set){.dst = graph_memory_address(at->memory),
			.width = 1,
			.height = 1,
			.pitch = sizeof(uint32_t),
			.value = at->value,
			.element_bytes = sizeof(uint32_t)};
		r = add_link(maker, *ret_begin, NULL);
		*ret_begin = maker->count - 1;
	}
	return r;
}

/* NULL: it is host memory. */
static struct session *session_of_side(const struct box_side *box_side)
{
	struct copy_side side;

	if (box_side->array)
		return box_side->array->session;
	return copy_classify(box_side->address, 1, &side) == CUDA_SUCCESS && side.place == COPY_DEVICE
		       ? side.session
		       : NULL;
}

static struct session *session_of(const struct graph_params *params)
{
	const struct client_function *function;
	struct session *session = NULL;
	struct client_graph *const *inside;
	uint32_t count;

	switch (params->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		function = function_find(params->kernel.function);
		return function ? function->session : NULL;
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return session_holding(params->set.dst);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		session = session_of_side(&params->copy.box.dst);
		return session ? session : session_of_side(&params->copy.box.src);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return session_holding(graph_memory_address(params->memory));
	default:
		count = graph_inside(params, &inside);
		for (uint32_t i = 0; i < count && !session; ++i)
			session = form_session(inside[i]);
		return session;
	}
}

static bool is_kernel(const struct graph_params *params)
{
	return params->type == CU_GRAPH_NODE_TYPE_KERNEL;
}

/* Kernels say best where a graph runs: copies and fills may be of a peer's memory. */
struct session *form_session(const struct client_graph *graph)
{
	struct session *session = NULL;

	for (uint32_t i = 0; i < graph->count && !session; ++i)
		if (is_kernel(&graph->nodes[i]->params))
			session = session_of(&graph->nodes[i]->params);
	for (uint32_t i = 0; i < graph->count && !session; ++i)
		session = session_of(&graph->nodes[i]->params);
	return session;
}

CUresult form_make(const struct client_graph *graph, uint32_t flags, struct graph_form *ret_form,
	struct graph_node **ret_bad)
{
	struct maker maker = {.form = ret_form, .owner = NOWHERE};
	uint32_t highest, begin;
	CUresult r;

	*ret_form = (struct graph_form){0};
	r = add_values(&maker, graph, &begin);
	if (r == CUDA_SUCCESS)
		r = flatten(&maker, graph, begin);
	highest = r == CUDA_SUCCESS ? deal(&maker) : 0;
	for (uint32_t place = 0; r == CUDA_SUCCESS && place <= highest; ++place) {
		r = write_slot(&maker, place);
		if (r == CUDA_SUCCESS)
			r = write_segment(&maker, place, flags);
	}
	if (r != CUDA_SUCCESS)
		*ret_bad = maker.bad;
	free(maker.items);
	free(maker.links);
	return r;
}

/* ---- changes ---- */

/* The work of a device node as a single item; op PAD: several items, or another kind of work. */
static CUresult make_item(const struct graph_node *node, struct item *ret_item)
{
	struct box box = node->params.copy.box;
	struct copy_side dst, src;
	CUresult r;

	*ret_item = (struct item){.op = FRMPS_OP_PAD};
	switch (node->params.type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		return add_kernel(ret_item, &node->params.kernel);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		return add_set(ret_item, &node->params.set);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		r = box_is_empty(&box) ? CUDA_SUCCESS : copy_examine(&box, node->params.copy.how, &dst, &src);
		if (r == CUDA_SUCCESS && !box_is_empty(&box) && copy_reaches(&dst) && copy_reaches(&src) &&
			(dst.place == COPY_DEVICE || src.place == COPY_DEVICE))
			add_device_copy(ret_item, box, &dst, &src);
		return r;
	default:
		return CUDA_SUCCESS;
	}
}

static CUresult follow_on_device(
	const struct graph_form *form, const struct graph_node *node, bool *ret_follows)
{
	bool in_body = node->place.kind & GRAPH_IN_BODY;
	struct item item;
	uint64_t bytes;
	CUresult r = make_item(node, &item);

	/* A node that is switched off may name a destroyed kernel. */
	if (r != CUDA_SUCCESS)
		return node->disabled ? CUDA_SUCCESS : r;
	if (in_body && node->disabled)
		return CUDA_SUCCESS;
	body_of(&item, &bytes);
	*ret_follows = form->steps[node->place.step].device.changes && node->place.kind != GRAPH_FIXED &&
		       kind_of(&item, in_body) == node->place.kind && bytes <= node->place.room &&
		       form_change_bytes(node) <= FRMPS_CHANGES_MAX;
	return CUDA_SUCCESS;
}

CUresult form_follow(struct graph_form *form, struct graph_node *node, bool *ret_follows)
{
	struct item item = {0};
	struct graph_step *step;
	CUresult r;

	*ret_follows = false;
	if (node->place.step == GRAPH_NO_STEP)
		return CUDA_SUCCESS;
	step = &form->steps[node->place.step];
	if (step->kind == STEP_DEVICE)
		return follow_on_device(form, node, ret_follows);
	r = add_step(&item, &node->params);
	if (r == CUDA_SUCCESS)
		*step = item.step;
	*ret_follows = r == CUDA_SUCCESS;
	return r;
}

uint32_t form_change_bytes(const struct graph_node *node)
{
	return (uint32_t)(sizeof(struct frmps_graph_change) + padded(node->place.room));
}

void form_write_change(const struct graph_node *node, struct frmps_graph_change *ret_change)
{
	struct item item;
	uint64_t bytes;
	const void *body;

	*ret_change = (struct frmps_graph_change){
		.node = node->place.index, .size = form_change_bytes(node), .op = (uint16_t)node->place.kind};
	memset(ret_change + 1, 0, padded(node->place.room));
	/* The kernel was unloaded just now: the executor reports the error. */
	if (make_item(node, &item) != CUDA_SUCCESS)
		return;
	ret_change->flags = item.flags | (node->disabled ? FRMPS_CMD_DISABLED : 0);
	body = body_of(&item, &bytes);
	memcpy(ret_change + 1, body, bytes);
}

void form_drop_descriptions(struct graph_form *form)
{
	for (uint32_t i = 0; i < form->count; ++i) {
		if (form->steps[i].kind != STEP_DEVICE)
			continue;
		free(form->steps[i].device.description);
		form->steps[i].device.description = NULL;
	}
}

void form_deinit(struct graph_form *form)
{
	form_drop_descriptions(form);
	/* After a fault the device may still access the memory. */
	for (uint32_t i = 0; i < form->pinned_count && process_error() == CUDA_SUCCESS; ++i)
		host_free_range(form->pinned[i], RANGE_BEHIND);
	free(form->steps);
	free(form->pinned);
	*form = (struct graph_form){0};
}
