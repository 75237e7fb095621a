// See exec.h. The origins of the copy's nodes are the nodes of the program's graph; build.c owns
// the service's graphs.

#include "client/graph/exec.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "client/graph/build.h"
#include "client/graph/compare.h"
#include "client/graph/memory.h"
#include "client/state/module.h"
#include "client/state/stream.h"
#include "client/submit/crossing.h"

#define EXEC_MAGIC UINT32_C(0x45584543)
#define EXEC_SHIFT 8
#define EXECS	   (1u << 16)
/* Number of changed nodes that are sent ahead of a launch at a time: first and most. */
#define AHEAD_LEAST 16u
#define AHEAD_MOST  64u

/* A graph of the program, which may be destroyed since. */
struct source {
	CUgraph handle;
	uint64_t serial;
};

struct client_exec {
	struct slab_object object;
	pthread_mutex_t lock;
	struct client_graph *graph;
	struct source source;	   /* that was instantiated, or whose memory an update has brought */
	struct graph_build *build; /* replaced as a whole, never changed */
	uint64_t flags;
	uint64_t unloads; /* module_unloads() when the build was last checked */
	bool changed;	  /* the build does not match the graph any more, and */
	bool changes;	  /* the next build must allow changes */
	/* Else the build matches but for these nodes, which the next launch sends, */
	struct graph_node **pending;
	uint32_t pending_count, pending_room;
	uint32_t ahead_at; /* or which are sent ahead of it once there are so many */
};

_Static_assert(sizeof(struct client_exec) <= 1u << EXEC_SHIFT, "an executable graph fits its place");

static struct slab exec_slab = SLAB_INIT(EXEC_SHIFT, EXECS);

struct client_exec *exec_find(CUgraphExec handle)
{
	return slab_find(&exec_slab, handle, EXEC_MAGIC);
}

uint64_t exec_flags(const struct client_exec *exec)
{
	return exec->flags;
}

/* ---- changed nodes ---- */

static void forget_pending(struct client_exec *exec)
{
	for (uint32_t i = 0; i < exec->pending_count; ++i)
		exec->pending[i]->pending = false;
	exec->pending_count = 0;
	exec->ahead_at = AHEAD_LEAST;
}

static bool add_pending(struct client_exec *exec, struct graph_node *node)
{
	uint32_t room = exec->pending_room ? 2 * exec->pending_room : 16;
	struct graph_node **more;

	if (exec->pending_count == exec->pending_room) {
		more = realloc(exec->pending, room * sizeof(struct graph_node *));
		if (!more)
			return false;
		exec->pending = more;
		exec->pending_room = room;
	}
	exec->pending[exec->pending_count++] = node;
	node->pending = true;
	return true;
}

/* Records that a node was changed. */
static void note_change(struct client_exec *exec, struct graph_node *node)
{
	if (exec->changes && (node->pending || add_pending(exec, node)))
		return;
	exec->changed = exec->changes = true;
}

/* Checks that the build still matches the graph, but for the changes that the next launch sends. */
static CUresult follow(struct client_exec *exec, struct graph_node **ret_bad)
{
	CUresult r = CUDA_SUCCESS;
	bool follows = true;

	for (uint32_t i = 0; r == CUDA_SUCCESS && follows && i < exec->pending_count; ++i) {
		r = build_follows(exec->build, exec->pending[i], &follows);
		if (r != CUDA_SUCCESS)
			*ret_bad = exec->pending[i];
	}
	exec->changed |= !follows && r == CUDA_SUCCESS;
	return r;
}

/* Makes a build of the graph as it is. Fails if a kernel's module was unloaded. */
static CUresult make_current(struct client_exec *exec, struct graph_node **ret_bad)
{
	uint64_t unloads = module_unloads();
	struct graph_build *build, *former = exec->build;
	CUresult r;

	if (former && !exec->changed && exec->unloads == unloads) {
		r = follow(exec, ret_bad);
		if (r != CUDA_SUCCESS || !exec->changed)
			return r;
	}
	r = build_new(exec->graph, exec->flags, exec->changes, &build, ret_bad);
	if (r != CUDA_SUCCESS)
		return r;
	forget_pending(exec);
	if (former) {
		build_follow(build, former);
		build_retire(former, NULL);
	}
	exec->build = build;
	exec->changed = false;
	exec->unloads = unloads;
	return CUDA_SUCCESS;
}

/* After a failure to send changes ahead, tries again when there are twice as many. */
static void send_ahead(struct client_exec *exec)
{
	uint32_t count = exec->pending_count, next = 2 * count;
	struct graph_node *bad;

	if (count < exec->ahead_at || exec->changed || exec->unloads != module_unloads())
		return;
	/* The launch reports errors of the changes. */
	if (follow(exec, &bad) == CUDA_SUCCESS && !exec->changed &&
		build_change_ahead(exec->build, exec->pending, count)) {
		forget_pending(exec);
		next = next < AHEAD_MOST ? next : AHEAD_MOST;
	}
	exec->ahead_at = next;
}

/* ---- life ---- */

static CUresult take_copy(CUgraph handle, struct client_graph **ret_copy)
{
	struct client_graph *graph;
	CUresult r;

	graph_enter();
	graph = graph_find(handle);
	if (!graph)
		r = CUDA_ERROR_INVALID_VALUE;
	else if (graph_is_captured(graph))
		r = CUDA_ERROR_ILLEGAL_STATE;
	else
		r = graph_clone(graph, ret_copy);
	graph_leave();
	return r;
}

/* NULL if it was destroyed. Under the graph lock. */
static struct client_graph *find_source(struct source source)
{
	struct client_graph *graph = graph_find(source.handle);

	return graph && graph->serial == source.serial ? graph : NULL;
}

/* The memory of a graph exists once: a second executable graph would write to the same memory.
 * @copy: of the source */
static CUresult claim(struct source source, const struct client_graph *copy)
{
	struct client_graph *graph;
	CUresult r = CUDA_SUCCESS;

	if (!graph_is_unique(copy))
		return CUDA_SUCCESS;
	graph_enter();
	graph = find_source(source);
	if (graph && graph->instantiated)
		r = CUDA_ERROR_NOT_SUPPORTED;
	else if (graph)
		graph->instantiated = true;
	graph_leave();
	return r;
}

static void unclaim(struct source source, const struct client_graph *copy)
{
	struct client_graph *graph;

	if (!graph_is_unique(copy))
		return;
	graph_enter();
	graph = find_source(source);
	if (graph)
		graph->instantiated = false;
	graph_leave();
}

static void drop_copy(struct client_graph *graph)
{
	struct graph_object *objects = NULL;

	graph_enter();
	graph_free(graph, &objects);
	graph_leave();
	graph_objects_drop(objects, false);
}

/* The program's node for a node of the copy. */
static CUgraphNode original(CUgraph handle, const struct graph_node *node)
{
	struct client_graph *graph;
	CUgraphNode found = NULL;

	graph_enter();
	graph = graph_find(handle);
	for (uint32_t i = 0; graph && node && i < graph->count; ++i)
		if (graph->nodes[i]->serial == node->origin)
			found = graph_node_handle(graph->nodes[i]);
	graph_leave();
	return found;
}

/* The copy is there. */
static CUresult set_up(struct client_exec *exec, CUgraphNode *ret_bad)
{
	struct graph_node *bad = NULL;
	CUresult r = claim(exec->source, exec->graph);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_init(&exec->lock, NULL);
	r = make_current(exec, &bad);
	if (r != CUDA_SUCCESS) {
		*ret_bad = original(exec->source.handle, bad);
		unclaim(exec->source, exec->graph);
	}
	return r;
}

CUresult exec_new(CUgraph graph, uint64_t flags, CUgraphExec *ret_exec, CUgraphNode *ret_bad)
{
	struct client_exec *exec = slab_take(&exec_slab);
	CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

	*ret_bad = NULL;
	build_reap();
	if (!exec)
		return r;
	r = take_copy(graph, &exec->graph);
	if (r == CUDA_SUCCESS) {
		exec->source = (struct source){graph, exec->graph->origin};
		exec->flags = flags;
		exec->ahead_at = AHEAD_LEAST;
		r = set_up(exec, ret_bad);
		if (r != CUDA_SUCCESS)
			drop_copy(exec->graph);
	}
	if (r != CUDA_SUCCESS) {
		slab_give(&exec_slab, exec);
		return r;
	}
	atomic_store_explicit(&exec->object.live, EXEC_MAGIC, memory_order_release);
	*ret_exec = (CUgraphExec)(void *)exec;
	return CUDA_SUCCESS;
}

CUresult exec_destroy(CUgraphExec handle)
{
	struct client_exec *exec = exec_find(handle);
	uint32_t magic = EXEC_MAGIC;

	if (!exec || !atomic_compare_exchange_strong(&exec->object.live, &magic, 0))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&exec->lock);
	pthread_mutex_unlock(&exec->lock);
	pthread_mutex_destroy(&exec->lock);
	free(exec->pending);
	unclaim(exec->source, exec->graph);
	build_retire(exec->build, exec->graph);
	slab_give(&exec_slab, exec);
	return CUDA_SUCCESS;
}

/* ---- launching ---- */

/* Checks that all allocation nodes may run. Children have none. */
static CUresult check_memory(const struct client_graph *graph, bool again)
{
	CUresult r = CUDA_SUCCESS;

	for (uint32_t i = 0; r == CUDA_SUCCESS && i < graph->count; ++i) {
		const struct graph_params *params = &graph->nodes[i]->params;

		if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
			r = graph_memory_check(params->memory, again);
	}
	return r;
}

/* Orders a launch behind the frees of the memory that it allocates, on whatever streams. */
static CUresult await_frees(const struct client_graph *graph, struct client_stream *stream)
{
	CUresult r = CUDA_SUCCESS;

	for (uint32_t i = 0; r == CUDA_SUCCESS && i < graph->count; ++i) {
		const struct graph_params *params = &graph->nodes[i]->params;
		struct client_stream *other;
		uint64_t seq;

		if (params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
			continue;
		other = graph_memory_latest_free(params->memory, &seq);
		r = crossing_await(stream, other, seq);
	}
	return r;
}

/* Does the allocation and free nodes; a node's mark says if its memory changed. Return: false if a
 * free node's memory was not allocated. */
static bool change_memory(const struct client_graph *graph)
{
	bool all = true;

	for (uint32_t i = 0; i < graph->count; ++i) {
		struct graph_node *node = graph->nodes[i];

		if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
			node->mark = graph_memory_allocate(node->params.memory);
	}
	for (uint32_t i = 0; i < graph->count; ++i) {
		struct graph_node *node = graph->nodes[i];

		if (node->params.type != CU_GRAPH_NODE_TYPE_MEM_FREE)
			continue;
		node->mark = graph_memory_free(node->params.address);
		all &= node->mark != 0;
	}
	return all;
}

/* Undoes change_memory(), the latest change first. */
static void change_memory_back(const struct client_graph *graph)
{
	for (uint32_t i = graph->count; i-- > 0;)
		if (graph->nodes[i]->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE && graph->nodes[i]->mark)
			graph_memory_undo_free(graph->nodes[i]->params.address);
	for (uint32_t i = graph->count; i-- > 0;) {
		const struct graph_node *node = graph->nodes[i];

		if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && node->mark)
			graph_memory_undo_allocate(node->params.memory);
	}
}

/* Places the frees behind this command, the last of the launch. */
static void place_frees(const struct client_graph *graph, struct client_stream *stream, uint64_t seq)
{
	for (uint32_t i = 0; i < graph->count; ++i) {
		const struct graph_node *node = graph->nodes[i];

		if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE && node->mark)
			graph_memory_freed(node->params.address, stream, seq);
	}
}

/* The program may use or free the memory as soon as the launch is submitted, so the memory is
 * counted before. A launch of which no command was submitted changes nothing. */
static CUresult launch(struct client_exec *exec, struct client_stream *stream)
{
	struct graph_node *bad;
	bool begun;
	CUresult r = make_current(exec, &bad);

	if (r == CUDA_SUCCESS)
		r = check_memory(exec->graph, exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	if (r == CUDA_SUCCESS)
		r = await_frees(exec->graph, stream);
	if (r != CUDA_SUCCESS)
		return r;
	if (!change_memory(exec->graph)) {
		change_memory_back(exec->graph);
		return CUDA_ERROR_INVALID_VALUE;
	}
	r = build_launch(exec->build, stream, exec->pending, exec->pending_count, &begun);
	if (r == CUDA_SUCCESS)
		forget_pending(exec);
	if (r != CUDA_SUCCESS && !begun)
		change_memory_back(exec->graph);
	else
		place_frees(exec->graph, stream, word_acquire(&stream->last));
	return r;
}

CUresult exec_launch(struct client_exec *exec, struct client_stream *stream)
{
	CUresult r;

	pthread_mutex_lock(&exec->lock);
	r = launch(exec, stream);
	pthread_mutex_unlock(&exec->lock);
	return r;
}

CUresult exec_upload(struct client_exec *exec)
{
	struct graph_node *bad;
	CUresult r;

	pthread_mutex_lock(&exec->lock);
	r = make_current(exec, &bad);
	pthread_mutex_unlock(&exec->lock);
	return r;
}

/* ---- changes ---- */

/* The copy's node for a node of the program's graph. */
static struct graph_node *counterpart(const struct client_exec *exec, CUgraphNode handle)
{
	const struct graph_node *node;
	uint64_t serial;

	graph_enter();
	node = graph_find_node(handle);
	serial = node ? node->serial : 0;
	graph_leave();
	return serial ? graph_find_origin(exec->graph, serial) : NULL;
}

/* Takes the parameters over, and frees the former parameters. */
static void set_params(struct client_exec *exec, struct graph_node *node, struct graph_params *params)
{
	struct graph_params former = node->params;

	node->params = *params;
	*params = former;
	if (!params_are_same(&node->params, params))
		note_change(exec, node);
}

/* Memory nodes are changed by an update of the whole alone. */
CUresult exec_set(struct client_exec *exec, CUgraphNode handle, struct graph_params *params)
{
	struct graph_node *node;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&exec->lock);
	node = counterpart(exec, handle);
	if (node && node->params.type == params->type && !graph_is_memory(params->type)) {
		set_params(exec, node, params);
		send_ahead(exec);
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&exec->lock);
	params_deinit(params);
	return r;
}

CUresult exec_set_kernel(struct client_exec *exec, CUgraphNode handle, const CUDA_KERNEL_NODE_PARAMS *given)
{
	struct graph_params params = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
	struct graph_node *node;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&exec->lock);
	node = counterpart(exec, handle);
	if (node && node->params.type == CU_GRAPH_NODE_TYPE_KERNEL)
		r = params_kernel(given, &node->params, &params);
	if (r == CUDA_SUCCESS) {
		set_params(exec, node, &params);
		send_ahead(exec);
	}
	pthread_mutex_unlock(&exec->lock);
	if (r == CUDA_SUCCESS)
		params_deinit(&params);
	return r;
}

/* Only these types can be switched off. */
static bool has_switch(const struct graph_node *node)
{
	return node && (node->params.type == CU_GRAPH_NODE_TYPE_KERNEL ||
			       node->params.type == CU_GRAPH_NODE_TYPE_MEMCPY ||
			       node->params.type == CU_GRAPH_NODE_TYPE_MEMSET);
}

CUresult exec_enable(struct client_exec *exec, CUgraphNode handle, bool enabled)
{
	struct graph_node *node;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&exec->lock);
	node = counterpart(exec, handle);
	if (has_switch(node)) {
		if (node->disabled == enabled)
			note_change(exec, node);
		node->disabled = !enabled;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&exec->lock);
	return r;
}

CUresult exec_is_enabled(struct client_exec *exec, CUgraphNode handle, bool *ret_enabled)
{
	const struct graph_node *node;
	CUresult r = CUDA_ERROR_INVALID_VALUE;

	pthread_mutex_lock(&exec->lock);
	node = counterpart(exec, handle);
	if (has_switch(node)) {
		*ret_enabled = !node->disabled;
		r = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&exec->lock);
	return r;
}

/* ---- updates as a whole ---- */

static void exchange(struct client_exec *exec, struct client_graph *mine, struct client_graph *theirs);

static void exchange_inside(struct client_exec *exec, struct graph_params *a, struct graph_params *b)
{
	struct client_graph *const *mine, *const *theirs;
	uint32_t count = graph_inside(a, &mine);

	graph_inside(b, &theirs);
	for (uint32_t i = 0; i < count; ++i)
		exchange(exec, mine[i], theirs[i]);
	if (a->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
		a->branch.handle = b->branch.handle;
		*a->branch.form = *b->branch.form;
	}
}

/* Exchanges the parameters of the nodes and the user objects; the graphs have the same form. */
static void exchange(struct client_exec *exec, struct client_graph *mine, struct client_graph *theirs)
{
	struct graph_condition *conditions = mine->conditions;
	struct graph_object *objects = mine->objects;

	mine->objects = theirs->objects;
	theirs->objects = objects;
	/* Other handles and values need another form. */
	exec->changed |= conditions != NULL;
	mine->conditions = theirs->conditions;
	theirs->conditions = conditions;
	for (uint32_t i = 0; i < mine->count; ++i) {
		struct graph_params *a = &mine->nodes[i]->params, *b = &theirs->nodes[i]->params, former = *a;
		struct client_graph *const *inside;

		if (graph_inside(a, &inside)) {
			exchange_inside(exec, a, b);
			continue;
		}
		/* The memory of nodes is no part of the build. */
		if (!graph_is_memory(a->type) && !params_are_same(a, b))
			note_change(exec, mine->nodes[i]);
		/* Attributes cannot be changed in place. */
		exec->changed |= a->type == CU_GRAPH_NODE_TYPE_KERNEL &&
				 !params_attributes_are_same(&a->kernel, &b->kernel);
		*a = *b;
		*b = former;
	}
}

/* @copy: of the program's graph; the info is to name nodes of the latter */
static CUresult update(struct client_exec *exec, struct client_graph *mine, struct client_graph *copy,
	CUgraph handle, CUgraphExecUpdateResultInfo *info)
{
	if (graph_compare(mine, copy, info)) {
		info->errorNode = original(handle, graph_find_node(info->errorNode));
		info->errorFromNode = original(handle, graph_find_node(info->errorFromNode));
		return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
	}
	exchange(exec, mine, copy);
	send_ahead(exec);
	return CUDA_SUCCESS;
}

/* The same of a whole executable graph, which has the memory of the program's graph then. */
static CUresult update_all(struct client_exec *exec, struct client_graph *copy, CUgraph handle,
	CUgraphExecUpdateResultInfo *info)
{
	struct source source = {handle, copy->origin};
	bool is_same = source.serial == exec->source.serial;
	CUresult r = is_same ? CUDA_SUCCESS : claim(source, copy);

	if (r != CUDA_SUCCESS)
		return r;
	r = update(exec, exec->graph, copy, handle, info);
	if (is_same)
		return r;
	unclaim(r == CUDA_SUCCESS ? exec->source : source, copy);
	if (r == CUDA_SUCCESS)
		exec->source = source;
	return r;
}

/* After an update the copy has the former parameters, which earlier launches may still need. */
static void retire_copy(struct graph_build *rest, struct client_graph *copy, bool updated)
{
	if (rest)
		build_retire(rest, updated ? copy : NULL);
	if (!updated)
		drop_copy(copy);
}

CUresult exec_update(struct client_exec *exec, CUgraph handle, CUgraphExecUpdateResultInfo *ret_info)
{
	struct graph_build *rest;
	struct client_graph *copy;
	CUresult r = take_copy(handle, &copy);

	*ret_info = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
	if (r != CUDA_SUCCESS) {
		ret_info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
		return r;
	}
	pthread_mutex_lock(&exec->lock);
	rest = build_rest(exec->build);
	r = rest ? update_all(exec, copy, handle, ret_info) : CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&exec->lock);
	if (!rest)
		ret_info->result = CU_GRAPH_EXEC_UPDATE_ERROR;
	retire_copy(rest, copy, r == CUDA_SUCCESS);
	return r;
}

CUresult exec_set_child(struct client_exec *exec, CUgraphNode node, CUgraph handle)
{
	CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_SUCCESS};
	struct graph_build *rest;
	struct client_graph *copy;
	struct graph_node *mine;
	CUresult r = take_copy(handle, &copy);

	if (r != CUDA_SUCCESS)
		return r;
	pthread_mutex_lock(&exec->lock);
	rest = build_rest(exec->build);
	mine = counterpart(exec, node);
	if (!rest)
		r = CUDA_ERROR_OUT_OF_MEMORY;
	else if (!mine || mine->params.type != CU_GRAPH_NODE_TYPE_GRAPH ||
		 update(exec, mine->params.child, copy, handle, &info) != CUDA_SUCCESS)
		r = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&exec->lock);
	retire_copy(rest, copy, r == CUDA_SUCCESS);
	return r;
}
