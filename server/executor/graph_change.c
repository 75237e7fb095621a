// Changes of graphs' nodes (graph.h): GRAPH_UPDATE commands, in order with launches.
//
// A change is made in the graph's description, and at once, or at the next launch, in the built
// graph (graph_build.c). The present description is also saved in the graph's place in the
// session's region (shm/layout.h), for later executors. That place has the description as of the
// command that was issued last. So an executor that takes over first takes back the changes of
// commands that are not done, the latest first, and issues these commands again.
//
// Why this survives an executor that dies anywhere:
//   - a place is valid once it has the description's head, which is written last. The head has a
//     serial number, so the contents of an earlier graph with the same id do not count;
//   - behind the changes, the journal's copy of a command has room for the former contents. These
//     are written first, then `applied`, then the place;
//   - taking a change back writes the former contents, then sets `applied` to zero. Both steps may
//     be done twice.
//
// Serving thread of the session; graph_take_back() the main thread, before serving starts.

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/executor/graph_inside.h"
#include "server/executor/stream.h"
#include "server/log.h"

static size_t place_bytes(const struct graph *graph)
{
	return (graph->size + 4095) & ~(size_t)4095;
}

void graph_changes_free(struct graph *graph)
{
	if (graph->kept)
		munmap(graph->kept, place_bytes(graph));
	free(graph->nodes);
	free(graph->changed);
	graph->kept = NULL;
	graph->nodes = NULL;
	graph->changed = NULL;
}

/* Makes a table of the nodes, by number. */
static CUresult make_tables(struct graph *graph)
{
	const struct frmps_graph_head *head = graph_head(graph);
	struct frmps_graph_node *node = (struct frmps_graph_node *)(void *)(graph_head(graph) + 1);

	if (graph->nodes)
		return CUDA_SUCCESS;
	graph->nodes = calloc(head->nodes, sizeof(struct frmps_graph_node *));
	graph->changed = calloc(head->nodes, sizeof(uint64_t));
	if (!graph->nodes || !graph->changed) {
		free(graph->nodes);
		free(graph->changed);
		graph->nodes = NULL;
		graph->changed = NULL;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	for (uint32_t i = 0; i < head->nodes; i++) {
		graph->nodes[i] = node;
		node = (struct frmps_graph_node *)(void *)((uint8_t *)node + node->size);
	}
	return CUDA_SUCCESS;
}

/* ---- the graph's place ---- */

static CUresult map_place(struct tenant *tenant, struct graph *graph)
{
	uint64_t place = shm_graph_place(&tenant->view.shape, graph->id, graph->size);
	void *at;

	if (graph->kept)
		return CUDA_SUCCESS;
	if (!place || !graph_head(graph)->serial)
		return CUDA_ERROR_INVALID_VALUE;
	/* Makes the file long enough. Without its pages, a write without free memory would end the
	 * executor. */
	if (fallocate(tenant->server_fd, 0, (off_t)place, (off_t)place_bytes(graph)))
		return CUDA_ERROR_OUT_OF_MEMORY;
	at = mmap(NULL, place_bytes(graph), PROT_READ | PROT_WRITE, MAP_SHARED, tenant->server_fd,
		(off_t)place);
	if (at == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph->kept = at;
	return CUDA_SUCCESS;
}

static bool is_kept(const struct graph *graph)
{
	return memcmp(graph->kept, graph->bytes, sizeof(struct frmps_graph_head)) == 0;
}

/* Without asking for memory. */
static bool may_be_kept(const struct tenant *tenant, const struct graph *graph)
{
	uint64_t place = shm_graph_place(&tenant->view.shape, graph->id, graph->size);
	struct frmps_graph_head head;

	return place && pread(tenant->server_fd, &head, sizeof(head), (off_t)place) == sizeof(head) &&
	       memcmp(&head, graph->bytes, sizeof(head)) == 0;
}

static CUresult keep(struct tenant *tenant, struct graph *graph)
{
	const size_t head = sizeof(struct frmps_graph_head);
	CUresult code = map_place(tenant, graph);

	if (code || is_kept(graph))
		return code;
	memset(graph->kept, 0, head);
	atomic_thread_fence(memory_order_release);
	memcpy(graph->kept + head, graph->bytes + head, graph->size - head);
	atomic_thread_fence(memory_order_release);
	memcpy(graph->kept, graph->bytes, head);
	return CUDA_SUCCESS;
}

void graph_give_place_back(struct tenant *tenant, uint32_t id)
{
	uint64_t place = shm_graph_place(&tenant->view.shape, id, 0);

	if (place && fallocate(tenant->server_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)place,
			     SHM_GRAPH_BYTES))
		log_debug("the place of a graph cannot be given back");
}

/* ---- changes of previous executors ---- */

static bool has_same_form(const struct frmps_graph_node *a, const struct frmps_graph_node *b)
{
	return a->size == b->size && a->op == b->op && a->edges == b->edges &&
	       memcmp(graph_form_edges(a), graph_form_edges(b), a->edges * sizeof(struct frmps_graph_edge)) ==
		       0;
}

/* @bytes: private, and in order */
static CUresult take_over(struct tenant *tenant, struct graph *graph, const uint8_t *bytes)
{
	const struct frmps_graph_node *node = graph_form_first((const void *)bytes);
	uint32_t count = graph_head(graph)->nodes;

	for (uint32_t i = 0; i < count; i++, node = graph_form_next(node)) {
		if (!has_same_form(graph->nodes[i], node))
			return CUDA_ERROR_INVALID_VALUE;
		graph->changed[i] = memcmp(graph->nodes[i], node, node->size) != 0;
	}
	graph->changes = 1;
	pthread_mutex_lock(&tenant->graphs.lock);
	memcpy(graph->bytes, bytes, graph->size);
	pthread_mutex_unlock(&tenant->graphs.lock);
	return CUDA_SUCCESS;
}

static CUresult read_place(struct tenant *tenant, struct graph *graph)
{
	CUresult code = map_place(tenant, graph);
	uint8_t *bytes = NULL;

	if (!code)
		code = make_tables(graph);
	if (!code && !(bytes = malloc(graph->size)))
		code = CUDA_ERROR_OUT_OF_MEMORY;
	if (!code) {
		memcpy(bytes, graph->kept, graph->size);
		code = graph_form_check(bytes, graph->size) ? CUDA_ERROR_INVALID_VALUE
							    : take_over(tenant, graph, bytes);
	}
	free(bytes);
	return code;
}

CUresult graph_adopt(struct tenant *tenant, struct graph *graph)
{
	CUresult code = CUDA_SUCCESS;

	if (graph->looked)
		return code;
	if (graph_head(graph)->serial && may_be_kept(tenant, graph))
		code = read_place(tenant, graph);
	graph->looked = !code;
	return code;
}

/* ---- commands ---- */

/* The place of a change's former contents in the journal's copy of a command. */
static struct frmps_graph_change *former_of(
	const struct frmps_head *record, const struct frmps_graph_change *change)
{
	return (struct frmps_graph_change *)(uintptr_t)((const uint8_t *)change +
							graph_changes_bytes(record));
}

static bool names_node(const struct graph *graph, const struct frmps_graph_change *change)
{
	const struct frmps_graph_node *node =
		change->node < graph_head(graph)->nodes ? graph->nodes[change->node] : NULL;
	uint32_t room = node ? graph_form_room(node) : 0;

	return node && change->op == node->op && change->size - sizeof(*change) == (room + 15) / 16 * 16;
}

static bool names_nodes(const struct graph *graph, const struct frmps_graph_update *update)
{
	const struct frmps_graph_change *change = graph_form_changes(update);
	bool does = true;

	for (uint32_t i = 0; does && i < update->changes; i++, change = graph_form_next_change(change))
		does = names_node(graph, change);
	return does;
}

static void save(const struct graph *graph, const struct frmps_head *record)
{
	const struct frmps_graph_update *update = (const void *)(record + 1);
	const struct frmps_graph_change *change = graph_form_changes(update);

	for (uint32_t i = 0; i < update->changes; i++, change = graph_form_next_change(change)) {
		const struct frmps_graph_node *node = graph->nodes[change->node];
		struct frmps_graph_change *former = former_of(record, change);

		*former = *change;
		former->flags = node->flags;
		memcpy(former + 1, graph_form_body(node), graph_form_room(node));
	}
}

static void write_node(struct frmps_graph_node *node, const struct frmps_graph_change *change)
{
	node->flags = change->flags;
	memcpy((void *)(uintptr_t)graph_form_body(node), change + 1, graph_form_room(node));
}

/* Writes the same node in the graph's place. Size and edges are those of the private node. */
static void write_kept(const struct graph *graph, const struct frmps_graph_change *change)
{
	const struct frmps_graph_node *node = graph->nodes[change->node];
	uint8_t *kept = graph->kept + ((const uint8_t *)node - graph->bytes);

	((struct frmps_graph_node *)(void *)kept)->flags = change->flags;
	memcpy(kept + ((const uint8_t *)graph_form_body(node) - (const uint8_t *)node), change + 1,
		graph_form_room(node));
}

static void apply(struct tenant *tenant, struct graph *graph, const struct frmps_graph_update *update)
{
	const struct frmps_graph_change *change = graph_form_changes(update);

	graph->changes++;
	pthread_mutex_lock(&tenant->graphs.lock);
	for (uint32_t i = 0; i < update->changes; i++, change = graph_form_next_change(change)) {
		write_kept(graph, change);
		write_node(graph->nodes[change->node], change);
		graph->changed[change->node] = graph->changes;
	}
	pthread_mutex_unlock(&tenant->graphs.lock);
}

CUresult graph_update(struct tenant *tenant, struct frmps_head *record)
{
	struct frmps_graph_update *update = (void *)(record + 1);
	struct graph *graph = graph_find(tenant, update->graph);
	CUresult code = graph ? graph_adopt(tenant, graph) : CUDA_ERROR_INVALID_HANDLE;

	if (!code)
		code = keep(tenant, graph);
	if (!code)
		code = make_tables(graph);
	if (!code && !names_nodes(graph, update))
		code = CUDA_ERROR_INVALID_VALUE;
	if (code)
		return code;
	save(graph, record);
	atomic_thread_fence(memory_order_release);
	update->applied = ++tenant->graphs.applied;
	atomic_thread_fence(memory_order_release);
	apply(tenant, graph, update);
	return CUDA_SUCCESS;
}

/* ---- taking back ---- */

static bool is_in_order(const struct frmps_head *record)
{
	const struct frmps_graph_update *update = (const void *)(record + 1);
	uint64_t least = sizeof(*record) + sizeof(*update) + 2 * sizeof(struct frmps_graph_change);

	return record->size >= least && graph_changes_bytes(record) % FRMPS_RECORD_ALIGN == 0 &&
	       !graph_form_check_changes(update, graph_changes_bytes(record));
}

/* The graph is one that this executor has not used yet. */
static CUresult take_back(struct tenant *tenant, struct frmps_head *record)
{
	struct frmps_graph_update *update = (void *)(record + 1);
	const struct frmps_graph_change *change = graph_form_changes(update);
	struct graph *graph = graph_find(tenant, update->graph);
	CUresult code;

	/* A dropped graph is not launched any more. */
	if (!graph || !may_be_kept(tenant, graph))
		return CUDA_SUCCESS;
	code = map_place(tenant, graph);
	if (!code)
		code = make_tables(graph);
	if (!code && !names_nodes(graph, update))
		code = CUDA_ERROR_INVALID_VALUE;
	for (uint32_t i = 0; !code && i < update->changes; i++, change = graph_form_next_change(change))
		write_kept(graph, former_of(record, change));
	return code;
}

static struct frmps_graph_update *update_of(struct frmps_head *record)
{
	return (void *)(record + 1);
}

static int compare_latest_first(const void *a, const void *b)
{
	uint64_t x = update_of(*(struct frmps_head *const *)a)->applied,
		 y = update_of(*(struct frmps_head *const *)b)->applied;

	return x < y ? 1 : x > y ? -1 : 0;
}

CUresult graph_take_back(struct tenant *tenant, struct frmps_head **records, uint32_t count)
{
	CUresult code = CUDA_SUCCESS;

	qsort(records, count, sizeof(struct frmps_head *), compare_latest_first);
	for (uint32_t i = 0; !code && i < count; i++) {
		code = is_in_order(records[i]) ? take_back(tenant, records[i]) : CUDA_ERROR_INVALID_VALUE;
		atomic_thread_fence(memory_order_release);
		if (!code)
			update_of(records[i])->applied = 0;
	}
	return code;
}
