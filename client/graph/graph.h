// Graphs of this program: nodes, their parameters and their dependencies. A graph is only memory of
// this process; the service gets its description at the instantiation (exec.h).
//
// The graph lock guards all graphs and captures (capture.h): programs may not work on the same
// graph from two threads at a time, but streams of several threads capture into the same graph. No
// thread waits or asks the service under the lock. Callers of the functions here hold the lock
// unless the comment says otherwise; entry points take it with graph_enter().

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

/* Place of a node in the form of an executable graph (form.h). */
struct graph_place {
	uint32_t step;	/* GRAPH_NO_STEP: not in a step */
	uint32_t index; /* in the step's description */
	uint32_t room;	/* bytes for the node's parameters in the description */
	uint32_t kind;	/* the properties that cannot be changed in place */
};

#define GRAPH_NO_STEP UINT32_MAX

struct graph_node {
	struct slab_object object;
	struct client_graph *graph;
	uint64_t serial; /* unique in the life of the process; grows along the nodes of a graph */
	uint64_t origin; /* in a clone: serial of the original node */
	bool disabled;	 /* only in executable graphs, as the next two */
	bool pending;	 /* changed since the last launch (exec.c) */
	bool unjoined;	 /* a capture under way added it, and no stream has dropped it since (capture.c) */
	struct graph_place place;
	uint32_t mark; /* for walks through the graph */
	struct graph_edges before, behind;
	struct graph_params params;
};

/* The condition of a conditional node. */
struct graph_condition {
	struct graph_condition *next;
	struct graph_memory *memory; /* a reference; the handle is its address */
	unsigned int value;	     /* at the begin of each launch, */
	bool assigns;		     /* if this is set */
};

struct client_graph {
	struct slab_object object;
	uint64_t serial;
	uint64_t origin;		    /* of a clone: serial of the original graph */
	struct graph_node *parent;	    /* the owner; NULL: the program or an executable graph */
	bool capturing;			    /* a capture adds nodes: none may be removed (capture.h) */
	bool instantiated;		    /* a second executable graph is refused (exec.h) */
	struct graph_condition *conditions; /* of a graph that is no child */
	struct graph_node **nodes;	    /* in the order of creation */
	uint32_t count, room;
	struct graph_object *objects; /* user objects that the graph references */
};

void graph_enter(void);
void graph_leave(void);

/** The object of a handle; NULL for an invalid handle. */
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

/**
 * Frees a graph with its nodes. Moves its user objects to *objects, for graph_objects_drop() after
 * leaving.
 */
void graph_free(struct client_graph *graph, struct graph_object **objects);

/**
 * Adds a node.
 * @params: taken over, also on failure
 * @nodes, @data: the dependencies; data NULL: ordinary edges
 * Return: CUDA_ERROR_INVALID_VALUE for nodes of other graphs, duplicates and edges that do not
 * exist, for a second free of the same memory, and for a condition of another graph;
 * CUDA_ERROR_NOT_SUPPORTED for memory in a child, and a condition in the child of a node;
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult graph_add(struct client_graph *graph, struct graph_params *params, const CUgraphNode *nodes,
	const CUgraphEdgeData *data, size_t count, struct graph_node **ret_node);

/** Frees parameters that no node has, a child graph too. */
void graph_drop_params(struct graph_params *params);

/** Removes a node and its edges. */
void graph_remove(struct graph_node *node);

/** Gives a node of a child another child graph, which is taken over. */
void graph_set_child(struct graph_node *node, struct client_graph *child);

/**
 * Adds or removes an edge. @data: NULL: an ordinary edge. CUDA_ERROR_INVALID_VALUE for an edge that
 * exists already, or does not.
 */
CUresult graph_connect(struct graph_node *from, struct graph_node *to, const CUgraphEdgeData *data);
CUresult graph_disconnect(struct graph_node *from, struct graph_node *to);

/** A copy of everything, child graphs too. Nodes of the copy are in the same order. */
CUresult graph_clone(const struct client_graph *graph, struct client_graph **ret_clone);

/**
 * The node of a clone, or of a graph inside it, that was made from the node with this serial; NULL
 * if there is none.
 */
struct graph_node *graph_find_origin(const struct client_graph *clone, uint64_t serial);

/** True if `graph` is `whole`, or inside a node of it. */
bool graph_is_inside(const struct client_graph *graph, const struct client_graph *whole);

/** True while a capture adds nodes to the graph or to a graph inside it. */
bool graph_is_captured(const struct client_graph *graph);

/** True for types that allocate or free. */
bool graph_is_memory(CUgraphNodeType type);

/**
 * True if the graph has nodes that allocate, free or decide. The objects that these name exist
 * once, so the graph has neither clones nor parents.
 */
bool graph_is_unique(const struct client_graph *graph);

/** The graphs in a node, a child or bodies. Return: how many there are */
uint32_t graph_inside(const struct graph_params *params, struct client_graph *const **ret_graphs);

/** Adds a condition to a graph, or to the outermost graph around it. The memory is taken over. */
CUresult graph_add_condition(
	struct client_graph *graph, struct graph_memory *memory, unsigned int value, bool assigns);

/**
 * Marks nodes, each named once, and all nodes that must end before one of these begins; the graph's
 * other marks are 0. False without memory.
 */
bool graph_mark_before(const struct client_graph *graph, const CUgraphNode *ends, size_t count);

/* User objects (objects.c). */

/** CUDA_ERROR_INVALID_VALUE for an invalid user object, or more references than there are. */
CUresult graph_retain_object(struct client_graph *graph, CUuserObject object, unsigned int count, bool moves);
CUresult graph_release_object(
	struct client_graph *graph, CUuserObject object, unsigned int count, struct graph_object **dropped);
/** Takes the references of a graph again, for its clone. */
CUresult graph_objects_clone(const struct client_graph *graph, struct client_graph *clone);
/** Appends a list to another list, which is not empty. */
void graph_objects_join(struct graph_object *objects, struct graph_object *behind);
/**
 * Releases references. With the last reference this thread calls the program's destructor
 * (@at_once), or a thread of the library does. The lock is not held.
 */
void graph_objects_drop(struct graph_object *objects, bool at_once);

#endif
