// See graph.h. A graph is published to the serving thread like a function (module.c): in an array
// by id, and freed only when the serving thread has begun another turn after it was taken out
// (drain.c).

#include "server/executor/graph.h"

#include <stdlib.h>
#include <string.h>

#include "server/executor/clock.h"
#include "server/executor/dispatch.h"
#include "server/executor/drain.h"
#include "server/executor/graph_form.h"
#include "server/executor/pace.h"
#include "server/executor/tenant.h"
#include "server/file.h"
#include "server/log.h"

/* How long a drop waits for the session's work. */
#define DROP_NS (UINT64_C(10000) * CLOCK_MS)

/* They change whenever the session loses some. */
struct memory_versions {
	uint64_t device, host, globals;
};

/* A graph as it was built for some multiprocessors. Earlier ones may still run, so they stay until
 * the graph goes: there are no more than groups that the executor makes (cap.c). */
struct built {
	struct built *earlier;
	uint64_t sms;
	struct backend_graph *backend;
	struct backend_node nodes[]; /* point into the graph's bytes */
};

struct graph {
	struct graph *next; /* of the forgotten ones */
	uint64_t ticket;    /* of a forgotten one: what was last asked for then (drain.c) */
	uint8_t *bytes;
	struct built
		*built; /* the latest; NULL: none. Serving thread, before it is published module thread */
	struct memory_versions at; /* memory of the session that its nodes were checked against */
	uint32_t function;	   /* of the first kernel; 0: none */
	uint32_t counted;	   /* nodes, as far as they are in the table's sum */
	uint64_t size;		   /* bytes, the same */
	bool has_run;		   /* what its kernels can leave behind is noted. Serving thread */
};

static const struct frmps_graph_head *head_of(const struct graph *graph)
{
	return (const void *)graph->bytes;
}

static graph_word *find_slot(const struct graph_table *table, uint32_t id)
{
	/* Pairs with the release in make_slot(). */
	graph_word *graphs =
		atomic_load_explicit(&((struct graph_table *)table)->graphs, memory_order_acquire);

	return graphs && id && id < FRMPS_GRAPH_IDS ? &graphs[id] : NULL;
}

static struct graph *find(const struct tenant *tenant, uint32_t id)
{
	graph_word *slot = find_slot(&tenant->graphs, id);

	/* Pairs with the release in graph_make(). */
	return slot ? atomic_load_explicit(slot, memory_order_acquire) : NULL;
}

static graph_word *make_slot(struct graph_table *table, uint32_t id)
{
	if (!atomic_load_explicit(&table->graphs, memory_order_relaxed))
		atomic_store_explicit(
			&table->graphs, calloc(FRMPS_GRAPH_IDS, sizeof(graph_word)), memory_order_release);
	return find_slot(table, id);
}

static struct memory_versions versions_of(struct tenant *tenant)
{
	return (struct memory_versions){word_acquire(&tenant->device.version),
		word_acquire(&tenant->host.version), word_acquire(&tenant->globals.version)};
}

static bool is_same(const struct memory_versions *a, const struct memory_versions *b)
{
	return a->device == b->device && a->host == b->host && a->globals == b->globals;
}

/* ---- building ---- */

/* What a kernel may write to a constant's mirror that it has a pointer to. A node has room for
 * one. */
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
	ret->launch = dispatch_launch(function, body, node->flags & FRMPS_CMD_COOPERATIVE);
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

	ret->copy = dispatch_copy(body);
	if (!dispatch_span(body->width, body->height, body->depth, body->dst_pitch, body->dst_rows, &dst) ||
		!dispatch_span(
			body->width, body->height, body->depth, body->src_pitch, body->src_rows, &src) ||
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
	if (!dispatch_span(box->width, box->height, box->depth, is_dst ? box->dst_pitch : box->src_pitch,
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
	ret->copy = dispatch_copy(&body->copy);
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
		!dispatch_span(row, body->height, 1, body->pitch, 0, &bytes) ||
		!tenant_admits_anywhere(tenant, body->dst, bytes) ||
		!constant_find(&tenant->constants, body->dst, bytes, &ret->onto))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

static CUresult build_node(
	struct tenant *tenant, const struct frmps_graph_node *node, struct backend_node *ret)
{
	*ret = (struct backend_node){
		.op = node->op, .edge_count = node->edges, .edges = graph_form_edges(node)};
	switch (node->op) {
	case FRMPS_OP_LAUNCH:
		return build_launch(tenant, node, ret);
	case FRMPS_OP_COPY:
		return build_copy(tenant, node, ret);
	case FRMPS_OP_ARRAY_COPY:
		return build_array_copy(tenant, node, ret);
	case FRMPS_OP_SET:
		return build_set(tenant, node, ret);
	default:
		return CUDA_SUCCESS;
	}
}

/* From the checked description. What it names must be the session's at this moment. */
static CUresult build(struct tenant *tenant, struct graph *graph)
{
	const struct frmps_graph_head *head = head_of(graph);
	const struct frmps_graph_node *node = graph_form_first(head);
	struct built *built = calloc(1, sizeof(*built) + head->nodes * sizeof(built->nodes[0]));
	CUresult code = built ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

	graph->at = versions_of(tenant);
	for (uint32_t i = 0; !code && i < head->nodes; i++, node = graph_form_next(node))
		code = build_node(tenant, node, &built->nodes[i]);
	if (!code) {
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

/* What the session may use now is what it was built for, or what it was built for once. */
static CUresult build_again(struct tenant *tenant, struct graph *graph)
{
	uint64_t sms = word_relaxed(&tenant->sms);
	struct built **at = &graph->built, *built;

	while ((built = *at) && built->sms != sms)
		at = &built->earlier;
	if (!built)
		return build(tenant, graph);
	*at = built->earlier;
	built->earlier = graph->built;
	graph->built = built;
	return CUDA_SUCCESS;
}

/* The device is not to be sent to memory that is gone. What goes from here on waits for what is
 * launched. */
static CUresult check_again(struct tenant *tenant, struct graph *graph)
{
	const struct frmps_graph_node *node = graph_form_first(head_of(graph));
	struct memory_versions now = versions_of(tenant);
	CUresult code = CUDA_SUCCESS;
	struct backend_node unused;

	if (is_same(&graph->at, &now))
		return CUDA_SUCCESS;
	for (uint32_t i = 0; !code && i < head_of(graph)->nodes; i++, node = graph_form_next(node))
		code = build_node(tenant, node, &unused);
	if (!code)
		graph->at = now;
	return code;
}

/* ---- requests ---- */

static void free_built(struct tenant *tenant, struct built *built)
{
	if (!executor_is_lost(tenant->executor))
		executor_code(tenant->executor, tenant_ops(tenant)->graph_free(built->backend));
	free(built);
}

static void graph_free(struct tenant *tenant, struct graph *graph)
{
	struct built *built;

	if (!graph)
		return;
	while ((built = graph->built)) {
		graph->built = built->earlier;
		free_built(tenant, built);
	}
	tenant->graphs.nodes -= graph->counted;
	tenant->graphs.bytes -= graph->size;
	free(graph->bytes);
	free(graph);
}

static uint32_t first_function(const struct graph *graph)
{
	const struct frmps_graph_node *node = graph_form_first(head_of(graph));

	for (uint32_t i = 0; i < head_of(graph)->nodes; i++, node = graph_form_next(node))
		if (node->op == FRMPS_OP_LAUNCH)
			return ((const struct frmps_launch *)graph_form_body(node))->function;
	return 0;
}

/* A graph of a description that came as a file, not built. @ret_text: more about an error */
static CUresult take(struct job *job, struct graph *graph, const char **ret_text)
{
	struct tenant *tenant = job->tenant;
	int fd = job->packet.fd_count ? job->packet.fds[0] : -1;
	uint64_t bytes = job->message.graph.bytes;
	CUresult code;

	if (bytes > FRMPS_GRAPH_BYTES_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (bytes > GRAPH_BYTES_MOST - tenant->graphs.bytes) {
		*ret_text = "too many bytes in all graphs of the program";
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	code = file_read(fd, bytes, &graph->bytes);
	if (code)
		return code;
	graph->size = bytes;
	tenant->graphs.bytes += bytes;
	*ret_text = graph_form_check(graph->bytes, bytes);
	if (*ret_text)
		return CUDA_ERROR_INVALID_VALUE;
	if (tenant->graphs.nodes + head_of(graph)->nodes > GRAPH_NODES_MOST) {
		*ret_text = "too many nodes in all graphs of the program";
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	graph->counted = head_of(graph)->nodes;
	tenant->graphs.nodes += graph->counted;
	graph->function = first_function(graph);
	return CUDA_SUCCESS;
}

void graph_make(struct job *job)
{
	struct tenant *tenant = job->tenant;
	graph_word *slot = make_slot(&tenant->graphs, job->message.graph.graph);
	struct graph *graph = calloc(1, sizeof(*graph));
	const char *text = NULL;
	CUresult code = CUDA_SUCCESS;

	if (!slot || atomic_load_explicit(slot, memory_order_relaxed))
		code = CUDA_ERROR_INVALID_VALUE;
	else if (!graph)
		code = CUDA_ERROR_OUT_OF_MEMORY;
	if (!code)
		code = take(job, graph, &text);
	/* To a standby the request may come when the client has gone on. */
	if (!code && build(tenant, graph) && word_relaxed(&tenant->generation))
		code = CUDA_ERROR_INVALID_VALUE;
	if (code)
		graph_free(tenant, graph);
	else
		/* Pairs with the acquire in find(). */
		atomic_store_explicit(slot, graph, memory_order_release);
	job_reply(job, code, NULL, 0, text);
}

/* @pace: NULL: without rests */
static void free_forgotten(struct tenant *tenant, uint64_t ticket, struct pace *pace)
{
	struct graph **at = &tenant->graphs.forgotten, *graph;

	while ((graph = *at)) {
		if (graph->ticket >= ticket) {
			at = &graph->next;
			continue;
		}
		*at = graph->next;
		graph_free(tenant, graph);
		if (pace)
			pace_step(pace);
	}
}

void graph_free_forgotten(struct tenant *tenant, uint64_t ticket)
{
	free_forgotten(tenant, ticket, NULL);
}

static void forget(struct tenant *tenant, graph_word *slot)
{
	struct graph *graph = atomic_load_explicit(slot, memory_order_relaxed);

	if (!graph)
		return;
	atomic_store_explicit(slot, NULL, memory_order_release);
	graph->ticket = word_relaxed(&tenant->asked);
	graph->next = tenant->graphs.forgotten;
	tenant->graphs.forgotten = graph;
}

static int drop_drain(struct job *job);

/* Whether any was taken out since the drain with this ticket began. */
static bool has_later(const struct tenant *tenant, uint64_t ticket)
{
	const struct graph *graph = tenant->graphs.forgotten;

	while (graph && graph->ticket < ticket)
		graph = graph->next;
	return graph;
}

/* Where the work did not end in time, the next drop frees what was waited for, too, or the end. */
static void drop_finish(struct job *job)
{
	struct tenant *tenant = job->tenant;

	if (job->drained)
		graph_free_forgotten(tenant, job->ticket);
	tenant->graphs.drops = has_later(tenant, job->ticket);
	if (!tenant->graphs.drops) {
		job_free(job);
		return;
	}
	job->step = drop_drain;
	job_park(job);
}

static void drop_drained(struct job *job)
{
	job->run = drop_finish;
	module_worker_queue(job);
}

static int drop_drain(struct job *job)
{
	drain_begin(job, DROP_NS, drop_drained);
	return 0;
}

/* One job for all of a session, however many come while it waits. */
static void free_later(struct tenant *tenant)
{
	struct job *later = tenant->graphs.drops ? NULL : job_new(tenant->executor);

	if (!later)
		return;
	tenant->graphs.drops = true;
	later->message.type = WIRE_DROP_GRAPH;
	later->tenant = tenant_ref(tenant);
	later->step = drop_drain;
	job_park(later);
}

/* The client says that no launch is under way; that is made sure of after it has its answer. */
void graph_drop(struct job *job)
{
	graph_word *slot = find_slot(&job->tenant->graphs, job->message.graph.graph);

	/* Unless it was forgotten with a module. */
	if (slot && atomic_load_explicit(slot, memory_order_relaxed)) {
		forget(job->tenant, slot);
		free_later(job->tenant);
	}
	job_reply(job, CUDA_SUCCESS, NULL, 0, NULL);
}

/* What is on its way out: a module, or an array. */
struct leaver {
	const struct module *module;
	uint32_t array;
};

/* What a module has in the context, which may be somebody else's when it is gone. */
static bool is_of_module(struct tenant *tenant, const struct module *module, uint64_t address, uint64_t bytes)
{
	for (uint32_t i = 0; i < module->global_count; i++)
		if (module->globals[i].start < address + bytes && address < module->globals[i].end)
			return true;
	return constant_touches(tenant, module->id, address, bytes);
}

static bool copy_uses(struct tenant *tenant, const struct frmps_copy *copy, const struct module *module)
{
	uint64_t dst, src;

	return (dispatch_span(
			copy->width, copy->height, copy->depth, copy->dst_pitch, copy->dst_rows, &dst) &&
		       is_of_module(tenant, module, copy->dst, dst)) ||
	       (dispatch_span(
			copy->width, copy->height, copy->depth, copy->src_pitch, copy->src_rows, &src) &&
		       is_of_module(tenant, module, copy->src, src));
}

static bool set_uses(struct tenant *tenant, const struct frmps_set *set, const struct module *module)
{
	uint64_t row, bytes;

	return !__builtin_mul_overflow(set->width, set->element_bytes, &row) &&
	       dispatch_span(row, set->height, 1, set->pitch, 0, &bytes) &&
	       is_of_module(tenant, module, set->dst, bytes);
}

static bool uses_module(
	struct tenant *tenant, const struct frmps_graph_node *node, const struct module *module)
{
	const struct frmps_launch *launch = graph_form_body(node);
	const struct frmps_array_copy *copy = graph_form_body(node);
	const struct function *function;

	switch (node->op) {
	case FRMPS_OP_LAUNCH:
		function = module_function(&tenant->modules, launch->function);
		return function && function->module == module;
	case FRMPS_OP_COPY:
	case FRMPS_OP_ARRAY_COPY: /* it begins like the other */
		return copy_uses(tenant, &copy->copy, module);
	case FRMPS_OP_SET:
		return set_uses(tenant, graph_form_body(node), module);
	default:
		return false;
	}
}

static bool node_uses(struct tenant *tenant, const struct frmps_graph_node *node, const struct leaver *leaver)
{
	const struct frmps_array_copy *copy = graph_form_body(node);

	if (leaver->module)
		return uses_module(tenant, node, leaver->module);
	return node->op == FRMPS_OP_ARRAY_COPY &&
	       (copy->dst_array == leaver->array || copy->src_array == leaver->array);
}

static bool uses(struct tenant *tenant, const struct graph *graph, const struct leaver *leaver)
{
	const struct frmps_graph_node *node = graph_form_first(head_of(graph));

	for (uint32_t i = 0; i < head_of(graph)->nodes; i++, node = graph_form_next(node))
		if (node_uses(tenant, node, leaver))
			return true;
	return false;
}

static void forget_users(struct tenant *tenant, const struct leaver *leaver)
{
	graph_word *slot;

	for (uint32_t id = 1; (slot = find_slot(&tenant->graphs, id)); id++) {
		const struct graph *graph = atomic_load_explicit(slot, memory_order_relaxed);

		if (graph && uses(tenant, graph, leaver))
			forget(tenant, slot);
	}
}

void graph_forget_module(struct tenant *tenant, const struct module *module)
{
	forget_users(tenant, &(struct leaver){.module = module});
}

void graph_forget_array(struct tenant *tenant, uint32_t array)
{
	forget_users(tenant, &(struct leaver){.array = array});
}

void graph_table_deinit(struct tenant *tenant)
{
	graph_word *slot;
	struct pace pace;

	for (uint32_t id = 1; (slot = find_slot(&tenant->graphs, id)); id++)
		forget(tenant, slot);
	pace_begin(&pace, tenant->executor);
	free_forgotten(tenant, UINT64_MAX, &pace);
	free(atomic_load_explicit(&tenant->graphs.graphs, memory_order_relaxed));
	atomic_store_explicit(&tenant->graphs.graphs, NULL, memory_order_relaxed);
}

/* ---- launching ---- */

static void note_launches(struct tenant *tenant, const struct graph *graph)
{
	const struct frmps_graph_node *node = graph_form_first(head_of(graph));

	for (uint32_t i = 0; i < head_of(graph)->nodes; i++, node = graph_form_next(node)) {
		const struct frmps_launch *body = graph_form_body(node);
		const struct function *function = node->op == FRMPS_OP_LAUNCH
							  ? module_function(&tenant->modules, body->function)
							  : NULL;

		if (function)
			remains_note_launch(tenant, function);
	}
}

CUresult graph_launch(struct tenant *tenant, struct stream *stream, uint32_t id)
{
	struct graph *graph = find(tenant, id);
	CUresult code = graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;

	if (!code && graph->built)
		code = check_again(tenant, graph);
	if (!code && (!graph->built || graph->built->sms != word_relaxed(&tenant->sms)))
		code = build_again(tenant, graph);
	if (code)
		return code;
	if (!graph->has_run)
		note_launches(tenant, graph);
	graph->has_run = true;
	return tenant_ops(tenant)->graph_launch(stream->backend, graph->built->backend);
}

const char *graph_kernel(const struct tenant *tenant, uint32_t id, uint32_t *ret_nodes)
{
	const struct graph *graph = find(tenant, id);
	const struct function *function = graph ? module_function(&tenant->modules, graph->function) : NULL;

	*ret_nodes = graph ? head_of(graph)->nodes : 0;
	return function ? function->name : "";
}
