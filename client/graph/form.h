// A graph as a list of steps. What the device does alone becomes descriptions for the service
// (protocol/command.fbs, GraphHead), each launched as one command. What needs this process (host
// functions, events, waits for words, copies of ordinary memory) stands between them:
//
//   slot 0 │ segment 0 │ slot 1 │ segment 1 │ …      slot: steps here; segment: one description
//
// A node of the device is in the first segment that its edges allow; a node of this process in the
// first slot behind the segments of all that it waits for. That orders more than the edges ask for,
// and never less. Most graphs are one segment.

#ifndef FRMPS_CLIENT_GRAPH_FORM_H
#define FRMPS_CLIENT_GRAPH_FORM_H

#include <stdbool.h>
#include <stdint.h>

#include "client/graph/graph.h"
#include "client/stage/box.h"
#include "protocol/cuda_abi.h"

enum graph_step_kind {
	STEP_DEVICE, /* the description; `graph` is the caller's, for the service's id */
	STEP_HOST,
	STEP_COPY, /* a copy inside this process */
	STEP_RECORD,
	STEP_WAIT,
	STEP_BATCH,
};

struct graph_step {
	enum graph_step_kind kind;
	union {
		struct {
			uint8_t *description;
			uint64_t bytes;
			uint32_t graph, nodes;
			bool changes; /* the caller's: GRAPH_UPDATE commands may name it */
		} device;
		CUDA_HOST_NODE_PARAMS host;
		struct box copy;
		CUevent event;
		struct graph_batch batch;
	};
};

/* Owns descriptions and the pinned memory that copies of ordinary memory go through, which outlives
 * contexts.
 */
struct graph_form {
	struct graph_step *steps;
	uint32_t count, room;
	uint64_t *pinned; /* addresses */
	uint32_t pinned_count, pinned_room;
};

/**
 * Takes a graph apart. Nobody else changes it meanwhile; no lock is held: pinned memory is asked of
 * the service.
 * @flags: FRMPS_GRAPH_*
 * @ret_form: zero, or with steps in it, on failure too: form_deinit() is the caller's
 * @ret_bad: the node that is to blame, NULL if none is; written on failure
 * Return: CUDA_ERROR_INVALID_VALUE (a circle of edges, memory that may not be named),
 * CUDA_ERROR_INVALID_HANDLE (a kernel or an event is gone), CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult form_make(const struct client_graph *graph, uint32_t flags, struct graph_form *ret_form,
	struct graph_node **ret_bad);

/**
 * Whether a form goes on to be that of its graph, of which a node was changed. If so a step of this
 * process does from now on what the node does; for what the device does the service is to be told
 * of the change.
 * Return: as form_make().
 */
CUresult form_follow(struct graph_form *form, struct graph_node *node, bool *ret_follows);

/** The change of a node that form_follow() was asked about and that is in a description: its bytes
 * (FRMPS_CHANGES_MAX at most), and itself, for a GRAPH_UPDATE. */
uint32_t form_change_bytes(const struct graph_node *node);
void form_write_change(const struct graph_node *node, struct frmps_graph_change *ret_change);

/** Frees descriptions, which the service has copied. */
void form_drop_descriptions(struct graph_form *form);
/** Frees everything. Nothing of it runs. */
void form_deinit(struct graph_form *form);

#endif
