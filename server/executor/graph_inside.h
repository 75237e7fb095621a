// What the files of graphs share (graph.h): a graph as it is in this executor.

#ifndef FRMPS_SERVER_EXECUTOR_GRAPH_INSIDE_H
#define FRMPS_SERVER_EXECUTOR_GRAPH_INSIDE_H

#include "server/executor/graph.h"
#include "server/executor/graph_form.h"
#include "server/executor/tenant.h"

/* They change whenever the session loses some. */
struct memory_versions {
	uint64_t device, host, globals;
};

/* A graph as it was built for some multiprocessors. Earlier ones may still run, so they stay until
 * the graph goes: there are no more than groups that the executor makes (cap.c), and than
 * GRAPH_BUILDS_MOST that were built because a change was refused. */
struct built {
	struct built *earlier;
	uint64_t sms;
	uint64_t changes; /* of the graph, as far as they are in it */
	struct backend_graph *backend;
	struct backend_node nodes[]; /* point into the graph's bytes */
};

#define GRAPH_BUILDS_MOST 4u

struct graph {
	struct graph *next; /* of the forgotten ones */
	uint64_t ticket;    /* of a forgotten one: what was last asked for then (drain.c) */
	uint32_t id;
	uint8_t *bytes; /* the description. Changed by the serving thread, with the table's lock */
	struct built
		*built; /* the latest; NULL: none. Serving thread, before it is published module thread */
	struct memory_versions at; /* memory of the session that its nodes were checked against */
	uint32_t function;	   /* of the first kernel; 0: none */
	uint32_t counted;	   /* nodes, as far as they are in the table's sum */
	uint64_t size;		   /* bytes, the same */
	bool has_run;		   /* what its kernels can leave behind is noted. Serving thread */

	/* Of a graph that is changed: graph_change.c. Serving thread; NULL before the first
	 * change. */
	bool looked;	   /* what former executors have changed is in the bytes */
	uint32_t rebuilt;  /* because a change was refused */
	uint64_t changes;  /* so many so far */
	uint64_t *changed; /* by node: the number of its latest change */
	struct frmps_graph_node **nodes;
	uint8_t *kept; /* its place in the session's region */
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

/** Builds a graph from its checked description. What it names must be the session's at this
 * moment. */
CUresult graph_build(struct tenant *tenant, struct graph *graph);

/** Brings what former executors have changed into the bytes of a graph that is used for the first
 * time. */
CUresult graph_adopt(struct tenant *tenant, struct graph *graph);

/** Frees what changes have made. */
void graph_changes_free(struct graph *graph);

#endif
