// Building and launching graphs (graph.h), and bringing changes of nodes (graph_change.c) into
// built graphs. Serving thread of the session; before a graph is published the module thread
// builds.

#include "server/executor/graph_inside.h"

#include <stdlib.h>

#include "server/executor/body.h"

static struct memory_versions versions_of(const struct tenant *tenant)
{
	return (struct memory_versions){word_acquire(&tenant->device.version),
		word_acquire(&tenant->host.version), word_acquire(&tenant->globals.version)};
}

static bool is_same(const struct memory_versions *a, const struct memory_versions *b)
{
	return a->device == b->device && a->host == b->host && a->globals == b->globals;
}

/* Copies stores of the kernel on, for a constant whose mirror the kernel has a pointer to. A node
 * has room for one copy. */
static CUresult build_store(struct tenant *tenant, struct backend_node *ret)
{
	const struct backend_launch *launch = &ret->launch;
	struct backend_copy copy;
	uint32_t offset = 0;

	while (constant_pointed_at(
		&tenant->constants, launch->arguments, launch->argument_bytes, &offset, &copy)) {
		if (ret->onto && ret->onto != copy.dst)
			return CUDA_ERROR_NOT_SUPPORTED;
		if (!tenant_admits_anywhere(tenant, copy.src, copy.width))
			return CUDA_ERROR_INVALID_VALUE;
		ret->onto = copy.dst;
		ret->store = copy.src;
		ret->store_bytes = copy.width;
	}
	return CUDA_SUCCESS;
}

static CUresult build_launch(
	struct tenant *tenant, const struct frmps_graph_node *node, struct backend_node *ret)
{
	const struct frmps_launch *body = graph_form_body(node);
	const struct function *function = module_function(&tenant->modules, body->function);

	if (!function || function->info.argument_bytes != body->argument_bytes)
		return CUDA_ERROR_INVALID_HANDLE;
	body_launch(&ret->launch, function, body, node->flags & FRMPS_CMD_COOPERATIVE);
	ret->sms = cap_part(tenant, body_take_part(&ret->launch));
	return build_store(tenant, ret);
}

static bool admits_side(struct tenant *tenant, uint64_t address, uint64_t bytes, bool is_host)
{
	return is_host == tenant_is_host(tenant, address) && tenant_admits_anywhere(tenant, address, bytes);
}

static CUresult build_copy(
	struct tenant *tenant, const struct frmps_graph_node *node, struct backend_node *ret)
{
	const struct frmps_copy *body = graph_form_body(node);
	uint64_t dst, src;

	ret->copy = body_copy(body);
	if (!body_span(body->width, body->height, body->depth, body->dst_pitch, body->dst_rows, &dst) ||
		!body_span(body->width, body->height, body->depth, body->src_pitch, body->src_rows, &src) ||
		!admits_side(tenant, body->dst, dst, ret->copy.dst_is_host) ||
		!admits_side(tenant, body->src, src, ret->copy.src_is_host) ||
		!constant_find(&tenant->constants, body->dst, dst, &ret->onto))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

/* A side that is an array, or memory. */
static CUresult build_side(
	struct tenant *tenant, const struct frmps_array_copy *body, bool is_dst, struct backend_node *ret)
{
	const struct frmps_copy *box = &body->copy;
	struct range memory;
	uint64_t bytes;

	if (is_dst ? body->dst_array : body->src_array)
		return array_place(
			tenant, body, is_dst, is_dst ? &ret->copy.dst_at : &ret->copy.src_at, &memory);
	if (!body_span(box->width, box->height, box->depth, is_dst ? box->dst_pitch : box->src_pitch,
		    is_dst ? box->dst_rows : box->src_rows, &bytes) ||
		!admits_side(tenant, is_dst ? box->dst : box->src, bytes,
			is_dst ? ret->copy.dst_is_host : ret->copy.src_is_host) ||
		(is_dst && !constant_find(&tenant->constants, box->dst, bytes, &ret->onto)))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult build_array_copy(
	struct tenant *tenant, const struct frmps_graph_node *node, struct backend_node *ret)
{
	const struct frmps_array_copy *body = graph_form_body(node);
	CUresult code;

	ret->op = FRMPS_OP_COPY;
	ret->copy = body_copy(&body->copy);
	code = build_side(tenant, body, true, ret);
	return code ? code : build_side(tenant, body, false, ret);
}

static CUresult build_set(
	struct tenant *tenant, const struct frmps_graph_node *node, struct backend_node *ret)
{
	const struct frmps_set *body = graph_form_body(node);
	uint64_t row, bytes;

	ret->set = body;
	if (__builtin_mul_overflow(body->width, body->element_bytes, &row) ||
		!body_span(row, body->height, 1, body->pitch, 0, &bytes) ||
		!tenant_admits_anywhere(tenant, body->dst, bytes) ||
		!constant_find(&tenant->constants, body->dst, bytes, &ret->onto))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult build_condition(
	struct tenant *tenant, const struct frmps_graph_node *node, struct backend_node *ret)
{
	ret->condition = graph_form_body(node);
	ret->over = &tenant->view.timelines[0].stream[0].over;
	return tenant_admits_anywhere(tenant, ret->condition->word, sizeof(uint32_t))
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fill_node(
	struct tenant *tenant, const struct frmps_graph_node *node, struct backend_node *ret)
{
	switch (node->op) {
	case FRMPS_OP_LAUNCH:
		return build_launch(tenant, node, ret);
	case FRMPS_OP_COPY:
		return build_copy(tenant, node, ret);
	case FRMPS_OP_ARRAY_COPY:
		return build_array_copy(tenant, node, ret);
	case FRMPS_OP_SET:
		return build_set(tenant, node, ret);
	case FRMPS_OP_CONDITION:
		return build_condition(tenant, node, ret);
	default:
		return CUDA_SUCCESS;
	}
}

/* A disabled node may name freed resources: it is built as a node that does nothing. */
static CUresult build_node(
	struct tenant *tenant, const struct frmps_graph_node *node, struct backend_node *ret)
{
	const struct backend_node nothing = {
		.op = FRMPS_OP_PAD, .edge_count = node->edges, .edges = graph_form_edges(node)};
	CUresult code;

	*ret = nothing;
	ret->op = node->op;
	ret->disabled = node->flags & FRMPS_CMD_DISABLED;
	code = fill_node(tenant, node, ret);
	if (!code || !ret->disabled)
		return code;
	*ret = nothing;
	return CUDA_SUCCESS;
}

CUresult graph_build(struct tenant *tenant, struct graph *graph)
{
	const struct frmps_graph_head *head = graph_head(graph);
	const struct frmps_graph_node *node = graph_form_first(head);
	struct built *built = calloc(1, sizeof(*built) + head->nodes * sizeof(built->nodes[0]));
	CUresult code = built ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	graph->at = versions_of(tenant);
	for (uint32_t i = 0; !code && i < head->nodes; i++, node = graph_form_next(node))
		code = build_node(tenant, node, &built->nodes[i]);
	if (!code) {
		built->changes = graph->changes;
		built->sms = word_relaxed(&tenant->sms);
		code = tenant_ops(tenant)->graph_make(
			built->nodes, head->nodes, head->flags, built->sms, &built->backend);
	}
	if (code) {
		free(built);
		return executor_code(tenant->executor, code);
	}
	built->earlier = graph->built;
	graph->built = built;
	return CUDA_SUCCESS;
}

/* Takes an earlier build for the session's present multiprocessors, or builds the graph for
 * these. */
static CUresult build_again(struct tenant *tenant, struct graph *graph)
{
	uint64_t sms = word_relaxed(&tenant->sms);
	struct built **at = &graph->built, *built;

	while ((built = *at) && built->sms != sms)
		at = &built->earlier;
	if (!built)
		return graph_build(tenant, graph);
	*at = built->earlier;
	built->earlier = graph->built;
	graph->built = built;
	return CUDA_SUCCESS;
}

bool graph_readies(struct tenant *tenant, const struct graph *graph)
{
	const struct frmps_graph_node *node = graph_form_first(graph_head(graph));
	bool ready = true;

	if (!graph->has_parts || (graph->built && graph->built->sms == word_relaxed(&tenant->sms)))
		return true;
	for (uint32_t i = 0; i < graph_head(graph)->nodes; i++, node = graph_form_next(node))
		ready &= cap_readies(tenant, graph_form_part(node));
	return ready;
}

bool graph_may_launch(struct tenant *tenant, uint32_t id)
{
	const struct graph *graph = graph_find(tenant, id);

	return !graph || graph_readies(tenant, graph);
}

/* The device must not use freed memory. Memory that is freed from here on waits for the launch. */
static CUresult check_again(struct tenant *tenant, struct graph *graph)
{
	const struct frmps_graph_node *node = graph_form_first(graph_head(graph));
	struct memory_versions now = versions_of(tenant);
	CUresult code = CUDA_SUCCESS;
	struct backend_node unused;

	if (is_same(&graph->at, &now))
		return CUDA_SUCCESS;
	for (uint32_t i = 0; !code && i < graph_head(graph)->nodes; i++, node = graph_form_next(node))
		code = build_node(tenant, node, &unused);
	if (!code)
		graph->at = now;
	return code;
}

/* ---- launching ---- */

static void note_launch(struct tenant *tenant, const struct frmps_graph_node *node)
{
	const struct frmps_launch *body = graph_form_body(node);
	const struct function *function = module_function(&tenant->modules, body->function);

	if (function)
		remains_note_launch(tenant, function);
}

static void note_launches(struct tenant *tenant, const struct graph *graph)
{
	const struct frmps_graph_node *node = graph_form_first(graph_head(graph));

	for (uint32_t i = 0; i < graph_head(graph)->nodes; i++, node = graph_form_next(node))
		if (node->op == FRMPS_OP_LAUNCH)
			note_launch(tenant, node);
}

/* ---- changes ---- */

/* True if the node can be changed in place. Nothing of a disabled node matters. */
static bool fits(const struct backend_node *was, const struct backend_node *now)
{
	return was->op == now->op ? now->disabled || !was->onto == !now->onto : now->disabled;
}

static CUresult change_node(struct tenant *tenant, struct graph *graph, uint32_t index)
{
	struct backend_node *was = &graph->built->nodes[index], now;
	CUresult code = build_node(tenant, graph->nodes[index], &now);

	if (code)
		return code;
	if (!fits(was, &now))
		return CUDA_ERROR_NOT_SUPPORTED;
	code = executor_code(
		tenant->executor, tenant_ops(tenant)->graph_change(graph->built->backend, index, &now));
	if (code)
		return code;
	if (now.disabled) {
		was->disabled = true;
		return CUDA_SUCCESS;
	}
	*was = now;
	if (now.op == FRMPS_OP_LAUNCH)
		note_launch(tenant, graph->nodes[index]);
	return CUDA_SUCCESS;
}

/* Brings all changes into the built graph. */
static CUresult change_nodes(struct tenant *tenant, struct graph *graph)
{
	CUresult code = CUDA_SUCCESS;

	for (uint32_t i = 0; !code && i < graph_head(graph)->nodes; i++)
		if (graph->changed[i] > graph->built->changes)
			code = change_node(tenant, graph, i);
	if (!code)
		graph->built->changes = graph->changes;
	return code;
}

/* True if a launch would use the built graph now, but for the latest command's changes. */
static bool is_current(const struct tenant *tenant, const struct graph *graph)
{
	struct memory_versions now = versions_of(tenant);

	return graph->built && graph->built->sms == word_relaxed(&tenant->sms) && is_same(&graph->at, &now) &&
	       graph->built->changes + 1 == graph->changes;
}

void graph_change_ahead(struct tenant *tenant, const struct frmps_graph_update *update)
{
	const struct frmps_graph_change *change = graph_form_changes(update);
	struct graph *graph = graph_find(tenant, update->graph);
	CUresult code = CUDA_SUCCESS;

	if (!graph || !is_current(tenant, graph))
		return;
	for (uint32_t i = 0; !code && i < update->changes; i++, change = graph_form_next_change(change))
		code = change_node(tenant, graph, change->node);
	if (!code)
		graph->built->changes = graph->changes;
}

/* Builds the graph anew where a change in place is not possible. */
static CUresult refresh(struct tenant *tenant, struct graph *graph)
{
	CUresult code = change_nodes(tenant, graph);

	if (!code || backend_is_fatal(code) || graph->rebuilt == GRAPH_BUILDS_MOST)
		return code;
	code = graph_build(tenant, graph);
	graph->rebuilt += !code;
	return code;
}

CUresult graph_launch(struct tenant *tenant, struct stream *stream, uint32_t id)
{
	struct graph *graph = graph_find(tenant, id);
	CUresult code = graph ? graph_adopt(tenant, graph) : CUDA_ERROR_INVALID_HANDLE;

	if (!code && graph->built)
		code = check_again(tenant, graph);
	if (!code && (!graph->built || graph->built->sms != word_relaxed(&tenant->sms)))
		code = build_again(tenant, graph);
	if (!code && graph->built->changes != graph->changes)
		code = refresh(tenant, graph);
	if (code)
		return code;
	if (!graph->has_run)
		note_launches(tenant, graph);
	graph->has_run = true;
	return tenant_ops(tenant)->graph_launch(stream->backend, graph->built->backend);
}
