// See graph.h. A graph is published to the serving thread like a function (module.c): in an array
// by id, and freed only when the serving thread has begun another turn after the removal from the
// table (drain.c).

#include "server/executor/graph.h"

#include <stdlib.h>
#include <string.h>

#include "server/executor/body.h"
#include "server/executor/drain.h"
#include "server/executor/graph_form.h"
#include "server/executor/graph_inside.h"
#include "server/executor/pace.h"
#include "server/executor/tenant.h"
#include "server/file.h"
#include "server/log.h"

static graph_word *make_slot(struct graph_table *table, uint32_t id)
{
	if (!atomic_load_explicit(&table->graphs, memory_order_relaxed))
		atomic_store_explicit(
			&table->graphs, calloc(FRMPS_GRAPH_IDS, sizeof(graph_word)), memory_order_release);
	return graph_slot(table, id);
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
	graph_changes_free(graph);
	free(graph->bytes);
	free(graph);
}

static void note_kernels(struct graph *graph)
{
	const struct frmps_graph_node *node = graph_form_first(graph_head(graph));

	for (uint32_t i = 0; i < graph_head(graph)->nodes; i++, node = graph_form_next(node)) {
		const struct frmps_launch *body = graph_form_body(node);

		if (node->op != FRMPS_OP_LAUNCH)
			continue;
		if (!graph->function)
			graph->function = body->function;
		graph->has_parts |= graph_form_part(node) != 0;
	}
}

/* Makes a graph from a description that came as a file, without building it. @ret_text: more about
 * an error */
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
	if (tenant->graphs.nodes + graph_head(graph)->nodes > GRAPH_NODES_MOST) {
		*ret_text = "too many nodes in all graphs of the program";
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	graph->counted = graph_head(graph)->nodes;
	tenant->graphs.nodes += graph->counted;
	note_kernels(graph);
	return CUDA_SUCCESS;
}

/* Codes of a build that mean the same to the program as natively; all others say that the
 * description names what is not there. */
static bool is_passed_on(CUresult code)
{
	return code == CUDA_ERROR_NOT_SUPPORTED || code == CUDA_ERROR_OUT_OF_MEMORY;
}

void graph_make(struct job *job)
{
	struct tenant *tenant = job->tenant;
	graph_word *slot = make_slot(&tenant->graphs, job->message.graph.graph);
	struct graph *graph = calloc(1, sizeof(*graph));
	const char *text = NULL;
	CUresult code = CUDA_SUCCESS, built;

	if (!slot || atomic_load_explicit(slot, memory_order_relaxed))
		code = CUDA_ERROR_INVALID_VALUE;
	else if (!graph)
		code = CUDA_ERROR_OUT_OF_MEMORY;
	if (!code) {
		graph->id = job->message.graph.graph;
		code = take(job, graph, &text);
	}
	/* To a standby the request may come when the client has gone on. A graph whose
	 * parts are not ready is built at the first launch. */
	if (!code && graph_readies(tenant, graph) && (built = graph_build(tenant, graph)) &&
		word_relaxed(&tenant->generation)) {
		log_info("session %llu (%s, pid %d): a graph of %u nodes cannot be built, code %d",
			(unsigned long long)tenant->id, tenant->program, tenant->pid,
			graph_head(graph)->nodes, (int)built);
		code = is_passed_on(built) ? built : CUDA_ERROR_INVALID_VALUE;
	}
	if (code)
		graph_free(tenant, graph);
	else
		/* Pairs with the acquire in graph_find(). */
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

static void drop_drained(struct job *job);

/* Return: true if a graph was removed since the drain with this ticket began. */
static bool has_later(const struct tenant *tenant, uint64_t ticket)
{
	const struct graph *graph = tenant->graphs.forgotten;

	while (graph && graph->ticket < ticket)
		graph = graph->next;
	return graph;
}

/* Where the work did not end in time, the next drop frees these graphs, too, or the session's end
 * does. */
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
	drain_park(job, drop_drained);
}

static void drop_drained(struct job *job)
{
	module_worker_queue(job, drop_finish);
}

/* One job for all drops of a session that come while the job waits. */
static void free_later(struct tenant *tenant)
{
	struct job *later = tenant->graphs.drops ? NULL : job_new(tenant->executor);

	if (!later)
		return;
	tenant->graphs.drops = true;
	later->message.type = WIRE_DROP_GRAPH;
	later->tenant = tenant_ref(tenant);
	drain_park(later, drop_drained);
}

/* The client says that no launch is in flight. The executor verifies that after the answer. */
void graph_drop(struct job *job)
{
	graph_word *slot = graph_slot(&job->tenant->graphs, job->message.graph.graph);

	/* Unless the graph was forgotten with a module. */
	if (slot && atomic_load_explicit(slot, memory_order_relaxed)) {
		forget(job->tenant, slot);
		free_later(job->tenant);
	}
	/* No take-over needs the graph any more, and the id is not reused yet. */
	if (word_relaxed(&job->tenant->generation))
		graph_give_place_back(job->tenant, job->message.graph.graph);
	job_reply(job, CUDA_SUCCESS, NULL, 0, NULL);
}

/* A module or an array that is about to be freed. */
struct leaver {
	const struct module *module;
	uint32_t array;
};

/* True for addresses of a module in the context: another session may get these after the unload. */
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

	return (body_span(copy->width, copy->height, copy->depth, copy->dst_pitch, copy->dst_rows, &dst) &&
		       is_of_module(tenant, module, copy->dst, dst)) ||
	       (body_span(copy->width, copy->height, copy->depth, copy->src_pitch, copy->src_rows, &src) &&
		       is_of_module(tenant, module, copy->src, src));
}

static bool set_uses(struct tenant *tenant, const struct frmps_set *set, const struct module *module)
{
	uint64_t row, bytes;

	return !__builtin_mul_overflow(set->width, set->element_bytes, &row) &&
	       body_span(row, set->height, 1, set->pitch, 0, &bytes) &&
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
		/* Functions of a module that is being unloaded are not found any more. */
		return !function || function->module == module;
	case FRMPS_OP_COPY:
	case FRMPS_OP_ARRAY_COPY: /* it begins like FRMPS_OP_COPY */
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
	const struct frmps_graph_node *node = graph_form_first(graph_head(graph));

	for (uint32_t i = 0; i < graph_head(graph)->nodes; i++, node = graph_form_next(node))
		if (node_uses(tenant, node, leaver))
			return true;
	return false;
}

/* In a standby, where nothing runs, the description lacks later changes and so proves nothing about
 * the graph: the standby only drops what it has built. */
static void leave(struct tenant *tenant, graph_word *slot)
{
	struct graph *graph = atomic_load_explicit(slot, memory_order_relaxed);
	struct built *built;

	if (word_relaxed(&tenant->generation) || !graph_head(graph)->serial) {
		forget(tenant, slot);
		return;
	}
	while ((built = graph->built)) {
		graph->built = built->earlier;
		free_built(tenant, built);
	}
}

static void forget_users(struct tenant *tenant, const struct leaver *leaver)
{
	graph_word *slot;

	for (uint32_t id = 1; (slot = graph_slot(&tenant->graphs, id)); id++) {
		const struct graph *graph = atomic_load_explicit(slot, memory_order_relaxed);
		bool leaves;

		pthread_mutex_lock(&tenant->graphs.lock);
		leaves = graph && uses(tenant, graph, leaver);
		pthread_mutex_unlock(&tenant->graphs.lock);
		if (leaves)
			leave(tenant, slot);
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

	for (uint32_t id = 1; (slot = graph_slot(&tenant->graphs, id)); id++)
		forget(tenant, slot);
	pace_begin(&pace, tenant->executor);
	free_forgotten(tenant, UINT64_MAX, &pace);
	free(atomic_load_explicit(&tenant->graphs.graphs, memory_order_relaxed));
	atomic_store_explicit(&tenant->graphs.graphs, NULL, memory_order_relaxed);
}

const char *graph_kernel(const struct tenant *tenant, uint32_t id, uint32_t *ret_nodes)
{
	const struct graph *graph = graph_find(tenant, id);
	const struct function *function = graph ? module_function(&tenant->modules, graph->function) : NULL;

	*ret_nodes = graph ? graph_head(graph)->nodes : 0;
	return function ? function->name : "";
}
