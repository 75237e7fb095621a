// A build runs a graph: the graph's form (form.h), and a graph of the service for each description.
// Nodes of a build may be changed. An unneeded build moves to a reclaim list. The next build_new()
// or build_retire() at the latest frees it once its latest launch is done; after a fault, once no
// part of it runs in this process. Launches of builds of the same executable graph follow each
// other on whatever streams.
//
// The owner of a build guards it; reclaim lists have a lock of their own. The graph lock is not
// held: the functions ask the service.

#ifndef FRMPS_CLIENT_GRAPH_BUILD_H
#define FRMPS_CLIENT_GRAPH_BUILD_H

#include <stdbool.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct client_graph;
struct client_stream;
struct graph_build;
struct graph_node;

/**
 * Makes a build of a graph that no other thread changes meanwhile.
 * @flags: of the instantiation
 * @changes: true if its nodes may be changed
 * @ret_bad: as form_make()
 * Return: as form_make(), or the service's error.
 */
CUresult build_new(const struct client_graph *graph, uint64_t flags, bool changes,
	struct graph_build **ret_build, struct graph_node **ret_bad);

/** form_follow() */
CUresult build_follows(struct graph_build *build, struct graph_node *node, bool *ret_follows);

/** Orders the next launch of a build behind the latest launch of its predecessor. */
void build_follow(struct graph_build *build, const struct graph_build *former);

/**
 * Makes an empty build that is in use until the latest launch of another build is done: the owner
 * of resources that this launch may need. NULL without memory.
 */
struct graph_build *build_rest(const struct graph_build *build);

/**
 * Submits a launch.
 * @changed: nodes that were changed since the last launch, and that the build follows
 * @ret_begun: true if any command was submitted, after an error too
 */
CUresult build_launch(struct graph_build *build, struct client_stream *stream,
	struct graph_node *const *changed, uint32_t count, bool *ret_begun);

/**
 * Sends changes ahead of the next launch, so that the executor makes the changes while the program
 * continues. Never waits; sends a limited number, and only if no command came behind the latest
 * launch: the next launch, of whatever stream, waits for the changes.
 * Return: true if all changes were sent.
 */
bool build_change_ahead(struct graph_build *build, struct graph_node *const *changed, uint32_t count);

/**
 * Retires a build: frees it once its latest launch is done. @graph: freed with the build; may be
 * NULL
 */
void build_retire(struct graph_build *build, struct client_graph *graph);

/** Frees the retired builds that are done. */
void build_reap(void);

#endif
