// Descriptions of graphs, as clients write them (protocol/command.fbs, GraphHead): the check that
// makes a walk over a description safe, and the walk. Pure functions of private memory.

#ifndef FRMPS_SERVER_EXECUTOR_GRAPH_FORM_H
#define FRMPS_SERVER_EXECUTOR_GRAPH_FORM_H

#include <stdint.h>

#include "protocol/command.h"

/**
 * Checks bounds, ops, edges (to earlier nodes only) and bodies; not the session's ownership of
 * resources.
 * @bytes: 8-byte aligned, in memory that no other thread or process writes
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

/** The part of a kernel (shm/layout.h); 0: none, or no kernel. */
uint64_t graph_form_part(const struct frmps_graph_node *node);

/** Numbers of nodes in the bodies of a condition. */
static inline const uint32_t *graph_form_counts(const struct frmps_condition *condition)
{
	return (const uint32_t *)(const void *)(condition + 1);
}

/** Bytes from the body to the end of the node. */
static inline uint32_t graph_form_room(const struct frmps_graph_node *node)
{
	return node->size - (uint32_t)sizeof(*node) - node->edges * (uint32_t)sizeof(struct frmps_graph_edge);
}

/** Bytes of the changes of a GRAPH_UPDATE in the journal, and of the room for the former contents
 * behind them. */
static inline uint32_t graph_changes_bytes(const struct frmps_head *record)
{
	return (record->size - (uint32_t)(sizeof(*record) + sizeof(struct frmps_graph_update))) / 2;
}

/**
 * Checks the changes of a GRAPH_UPDATE, but not that the nodes exist.
 * @bytes: behind the command's body
 * Return: NULL, or what is wrong.
 */
const char *graph_form_check_changes(const struct frmps_graph_update *update, uint64_t bytes);

/* The walk over checked changes: update->changes from the first. */
static inline const struct frmps_graph_change *graph_form_changes(const struct frmps_graph_update *update)
{
	return (const struct frmps_graph_change *)(const void *)(update + 1);
}

static inline const struct frmps_graph_change *graph_form_next_change(const struct frmps_graph_change *change)
{
	return (const struct frmps_graph_change *)(const void *)((const uint8_t *)change + change->size);
}

#endif
