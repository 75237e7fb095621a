// What is made of a graph to run it: its form (form.h) and the service's graphs, one for each
// description. What its nodes do may be changed; one that is not needed any more is buried, and
// given back when its latest launch is done, at the latest when the next build is made or buried;
// after a fault when nothing of it runs in this process any more. Launches of builds of one
// executable graph follow each other on whatever streams.
//
// A build is guarded by whoever has it; graves have a lock of their own. The graph lock is not
// held: the service is asked.

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
 * Makes a build of a graph that nobody changes meanwhile.
 * @flags: of the instantiation
 * @changes: whether its nodes may be changed
 * @ret_bad: as form_make()
 * Return: as form_make(), or what the service said.
 */
CUresult build_new(const struct client_graph *graph, uint64_t flags, bool changes,
	struct graph_build **ret_build, struct graph_node **ret_bad);

/** form_follow() */
CUresult build_follows(struct graph_build *build, struct graph_node *node, bool *ret_follows);

/** The next launch of a build comes behind the latest one of its predecessor. */
void build_follow(struct graph_build *build, const struct graph_build *former);

/** A build of nothing that is as long under way as the latest launch of another one: for what that
 * launch may need. NULL without memory. */
struct graph_build *build_rest(const struct graph_build *build);

/** Lets a launch that is about to be submitted come behind a command, which may be of another
 * stream. @other: NULL: behind none */
CUresult build_await(struct client_stream *stream, struct client_stream *other, uint64_t seq);

/**
 * Submits a launch.
 * @changed: nodes that were changed since the last one, and that the build follows
 * @ret_begun: whether any of it was submitted, after an error too
 */
CUresult build_launch(struct graph_build *build, struct client_stream *stream,
	struct graph_node *const *changed, uint32_t count, bool *ret_begun);

/**
 * Sends changes ahead of the next launch, so that the executor makes them while the program goes
 * on. Without any wait, not without end, and only where nothing came behind the latest launch: the
 * next one, of whatever stream, waits for them.
 * Return: whether they were sent, all of them
 */
bool build_change_ahead(struct graph_build *build, struct graph_node *const *changed, uint32_t count);

/** Ends a build. @graph: ends with it; may be NULL */
void build_bury(struct graph_build *build, struct client_graph *graph);

/** Gives back what is over. */
void build_reap(void);

#endif
