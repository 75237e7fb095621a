// Graphs of this program: nodes, what they do and what they wait for. A graph is only memory of
// this process; the service hears of it when it is instantiated (exec.h).
//
// One lock guards all graphs and captures (capture.h): programs may not work on one graph from two
// threads at a time, but streams of several threads capture into one. Nothing is waited for and
// nobody is asked inside it. Functions here want it held unless they say otherwise; entry points
// take it with graph_enter().

#ifndef FRMPS_CLIENT_GRAPH_GRAPH_H
#define FRMPS_CLIENT_GRAPH_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "client/graph/params.h"
#include "client/state/slab.h"
#include "protocol/cuda_abi.h"

#define GRAPH_MAGIC	 UINT32_C(0x47524148)
#define GRAPH_SHIFT	 8
#define GRAPH_NODE_MAGIC UINT32_C(0x4e4f4445)
#define GRAPH_NODE_SHIFT 9

struct client_graph;
struct graph_node;
struct graph_object;

/* Half of an edge: the node at its other end. */
struct graph_edge {
	struct graph_node *node;
	CUgraphEdgeData data;
};

struct graph_edges {
	struct graph_edge *at;
	uint32_t count, room;
};

/* Where the form of an executable graph has a node (form.h). */
struct graph_place {
	uint32_t step;	/* GRAPH_NO_STEP: in no step of its own */
	uint32_t index; /* in the step's description */
	uint32_t room;	/* bytes for what it does, there */
	uint32_t kind;	/* what about it cannot be changed */
};

#define GRAPH_NO_STEP UINT32_MAX

struct graph_node {
	struct slab_object object;
	struct client_graph *graph;
	uint64_t serial; /* tells it from every other node of the process's life; grows in a graph */
	uint64_t origin; /* in a clone: serial of the node that it was made from */
	bool disabled;	 /* only in executable graphs, as the next two */
	bool pending;	 /* it was changed, and no launch has that yet (exec.c) */
	struct graph_place place;
	uint32_t mark; /* for whoever walks the graph */
	struct graph_edges before, behind;
	struct graph_params params;
};

/* What a conditional node decides by. */
struct graph_condition {
	struct graph_condition *next;
	struct graph_memory *memory; /* a reference; the handle is its address */
	unsigned int value;	     /* at the begin of each launch, */
	bool assigns;		     /* if it is to have one */
};

struct client_graph {
	struct slab_object object;
	uint64_t serial;
	uint64_t origin;	   /* of a clone: serial of the graph that it was made from */
	struct graph_node *parent; /* the node that owns it; NULL: the program does, or an executable graph */
	bool capturing;		   /* nodes are being captured into it: none may be taken out (capture.h) */
	bool instantiated;	   /* there may be no second executable graph (exec.h) */
	struct graph_condition *conditions; /* of a graph that is no child */
	struct graph_node **nodes;	    /* in the order in which they were made */
	uint32_t count, room;
	struct graph_object *objects; /* user objects that it holds */
};

void graph_enter(void);
void graph_leave(void);

/** What is behind a handle, NULL if nothing is. */
struct client_graph *graph_find(CUgraph handle);
struct graph_node *graph_find_node(CUgraphNode handle);

static inline CUgraph graph_handle(const struct client_graph *graph)
{
	return (CUgraph)(uintptr_t)graph;
}

static inline CUgraphNode graph_node_handle(const struct graph_node *node)
{
	return (CUgraphNode)(uintptr_t)node;
}

/** CUDA_ERROR_OUT_OF_MEMORY. */
CUresult graph_new(struct client_graph **ret_graph);

/** Frees a graph with its nodes. What user objects it held is moved to *objects:
 * graph_objects_drop() after leaving. */
void graph_free(struct client_graph *graph, struct graph_object **objects);

/**
 * Adds a node.
 * @params: taken over, also on failure
 * @nodes, @data: what it waits for; data NULL: ordinary edges
 * Return: CUDA_ERROR_INVALID_VALUE for nodes of other graphs, duplicates and edges that do not
 * exist, for a second free of the same memory, and for a condition of another graph;
 * CUDA_ERROR_NOT_SUPPORTED for memory in a child, and a condition in the child of a node;
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult graph_add(struct client_graph *graph, struct graph_params *params, const CUgraphNode *nodes,
	const CUgraphEdgeData *data, size_t count, struct graph_node **ret_node);

/** Frees parameters that no node has, a child graph too. */
void graph_drop_params(struct graph_params *params);

/** Takes a node out with its edges. */
void graph_remove(struct graph_node *node);

/** Gives a node of a child another child graph, which is taken over. */
void graph_set_child(struct graph_node *node, struct client_graph *child);

/** Adds or removes one edge. @data: NULL: an ordinary one. CUDA_ERROR_INVALID_VALUE if there is one
 * already, or none. */
CUresult graph_connect(struct graph_node *from, struct graph_node *to, const CUgraphEdgeData *data);
CUresult graph_disconnect(struct graph_node *from, struct graph_node *to);

/** A copy of everything, child graphs too. Nodes of the copy are in the same order. */
CUresult graph_clone(const struct client_graph *graph, struct client_graph **ret_clone);

/** The node of a clone, or of a graph inside it, that was made from the node with this serial; NULL
 * if there is none. */
struct graph_node *graph_find_origin(const struct client_graph *clone, uint64_t serial);

/** Whether a graph is this one, or in a node of it. */
bool graph_is_inside(const struct client_graph *graph, const struct client_graph *whole);

/** Whether nodes are being captured into it or a graph inside it. */
bool graph_is_captured(const struct client_graph *graph);

/** Whether nodes of a kind allocate or free. */
bool graph_is_memory(CUgraphNodeType type);

/** Whether it has nodes that allocate, free or decide. What these name is there once, so the graph
 * has neither clones nor parents. */
bool graph_is_unique(const struct client_graph *graph);

/** The graphs in a node, a child or bodies. Return: how many there are */
uint32_t graph_inside(const struct graph_params *params, struct client_graph *const **ret_graphs);

/** Gives a graph, or the one that it is in, a condition, whose memory is taken over. */
CUresult graph_add_condition(
	struct client_graph *graph, struct graph_memory *memory, unsigned int value, bool assigns);

/** Marks nodes, each named once, and all that must end before one of them begins; the graph's other
 * marks are 0. False without memory. */
bool graph_mark_before(const struct client_graph *graph, const CUgraphNode *ends, size_t count);

/* User objects (objects.c). */

/** CUDA_ERROR_INVALID_VALUE for what is no user object, or more references than there are. */
CUresult graph_retain_object(struct client_graph *graph, CUuserObject object, unsigned int count, bool moves);
CUresult graph_release_object(
	struct client_graph *graph, CUuserObject object, unsigned int count, struct graph_object **dropped);
/** The references of a graph once more, for its clone. */
CUresult graph_objects_clone(const struct client_graph *graph, struct client_graph *clone);
/** Puts one list behind another, which is not empty. */
void graph_objects_join(struct graph_object *objects, struct graph_object *behind);
/**
 * Gives references back, and with the last one calls the program's destructor (@at_once), or has it
 * called by a thread of the shim's own. The lock is not held.
 */
void graph_objects_drop(struct graph_object *objects, bool at_once);

#endif
