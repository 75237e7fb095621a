// Shared by the graph files (graph.h): a graph in this executor.

#ifndef FRMPS_SERVER_EXECUTOR_GRAPH_INSIDE_H
#define FRMPS_SERVER_EXECUTOR_GRAPH_INSIDE_H

#include "server/executor/graph.h"
#include "server/executor/graph_form.h"
#include "server/executor/tenant.h"

/* A version changes whenever the session loses memory of that kind. */
struct memory_versions {
	uint64_t device, host, globals;
};

/* A build of a graph, for some multiprocessors. Earlier builds may still run, so all builds stay
 * until the graph is freed: at most one for each group that the executor makes (cap.c), and
 * GRAPH_BUILDS_MOST after refused changes. */
struct built {
	struct built *earlier;
	uint64_t sms;
	uint64_t changes; /* changes of the graph that this build has */
	struct backend_graph *backend;
	struct backend_node nodes[]; /* point into the graph's bytes */
};

#define GRAPH_BUILDS_MOST 4u

struct graph {
	struct graph *next; /* of the list of forgotten graphs */
	uint64_t ticket;    /* of a forgotten graph: the latest drain ticket then (drain.c) */
	uint32_t id;
	uint8_t *bytes;	     /* the description. Changed by the serving thread, with the table's lock */
	struct built *built; /* the latest; NULL: none. Serving thread; module thread before publication */
	struct memory_versions at; /* of the session's memory at the check of the nodes */
	uint32_t function;	   /* of the first kernel; 0: none */
	uint32_t counted;	   /* nodes that are in the table's sum */
	uint64_t size;		   /* bytes, the same */
	bool has_run;		   /* residual state of the kernels is noted. Serving thread */
	bool has_parts;		   /* kernels have parts of their own */

	/* Of a graph that is changed: graph_change.c. Serving thread; NULL before the first
	 * change. */
	bool looked;	   /* changes of previous executors are in the bytes */
	uint32_t rebuilt;  /* because a change was refused */
	uint64_t changes;  /* number of changes so far */
	uint64_t *changed; /* by node: the number of its latest change */
	struct frmps_graph_node **nodes;
	uint8_t *kept; /* the graph's place in the session's region */
};

static inline struct frmps_graph_head *graph_head(const struct graph *graph)
{
	return (struct frmps_graph_head *)(void *)graph->bytes;
}

static inline graph_word *graph_slot(const struct graph_table *table, uint32_t id)
{
	/* Pairs with the release in make_slot(). */
	graph_word *graphs =
		atomic_load_explicit(&((struct graph_table *)table)->graphs, memory_order_acquire);

	return graphs && id && id < FRMPS_GRAPH_IDS ? &graphs[id] : NULL;
}

static inline struct graph *graph_find(const struct tenant *tenant, uint32_t id)
{
	graph_word *slot = graph_slot(&tenant->graphs, id);

	/* Pairs with the release in graph_make(). */
	return slot ? atomic_load_explicit(slot, memory_order_acquire) : NULL;
}

/** Builds a graph from the checked description. The session must own all resources that the graph
 * names at this moment. */
CUresult graph_build(struct tenant *tenant, struct graph *graph);

/** Requests the groups of the kernels' parts if the graph is to be built. Return: false while these
 * are to be made. Serving thread; module thread before publication. */
bool graph_readies(struct tenant *tenant, const struct graph *graph);

/** Brings changes of previous executors into the bytes of a graph at its first use. */
CUresult graph_adopt(struct tenant *tenant, struct graph *graph);

/** Frees the memory of changes. */
void graph_changes_free(struct graph *graph);

#endif
