// Descriptions of graphs, as clients write them (protocol/command.fbs, GraphHead): the check that
// makes one safe to walk, and the walk. Pure functions of private memory.

#ifndef FRMPS_SERVER_EXECUTOR_GRAPH_FORM_H
#define FRMPS_SERVER_EXECUTOR_GRAPH_FORM_H

#include <stdint.h>

#include "protocol/command.h"

/**
 * Checks everything but what the session owns: bounds, ops, edges to earlier nodes only, bodies.
 * @bytes: 8-byte aligned, in memory that nobody else writes
 * Return: NULL, or what is wrong.
 */
const char *graph_form_check(const uint8_t *bytes, uint64_t size);

/* The walk, over a checked description: head->nodes nodes from the first. */
static inline const struct frmps_graph_node *graph_form_first(const struct frmps_graph_head *head)
{
	return (const struct frmps_graph_node *)(const void *)(head + 1);
}

static inline const struct frmps_graph_node *graph_form_next(const struct frmps_graph_node *node)
{
	return (const struct frmps_graph_node *)(const void *)((const uint8_t *)node + node->size);
}

static inline const struct frmps_graph_edge *graph_form_edges(const struct frmps_graph_node *node)
{
	return (const struct frmps_graph_edge *)(const void *)(node + 1);
}

static inline const void *graph_form_body(const struct frmps_graph_node *node)
{
	return graph_form_edges(node) + node->edges;
}

#endif
