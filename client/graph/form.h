// A graph as a list of steps. Work of the device alone becomes descriptions for the service
// (protocol/command.fbs, GraphHead), each launched by a command. Work that needs this process (host
// functions, events, waits for words, copies of pageable memory or of another device's) stands
// between the descriptions:
//
//   slot 0 │ segment 0 │ slot 1 │ segment 1 │ …      slot: steps here; segment: one description
//
// A node of the device is in the first segment that its edges allow; a node of this process in the
// first slot behind the segments of all its dependencies. So the order is that of the edges, or
// stricter. Most graphs are a single segment.

#ifndef FRMPS_CLIENT_GRAPH_FORM_H
#define FRMPS_CLIENT_GRAPH_FORM_H

#include <stdbool.h>
#include <stdint.h>

#include "client/graph/graph.h"
#include "client/stage/box.h"
#include "protocol/cuda_abi.h"

enum graph_step_kind {
	STEP_DEVICE, /* the description; `graph` has the service's id, which the caller sets */
	STEP_HOST,
	STEP_COPY,  /* a copy inside this process */
	STEP_FERRY, /* a copy with memory that the graph's device does not reach */
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

/* Owns descriptions, and the pinned memory for copies of pageable memory, which outlives
 * contexts. */
struct graph_form {
	struct graph_step *steps;
	uint32_t count, room;
	uint64_t *pinned; /* addresses */
	uint32_t pinned_count, pinned_room;
};

/** The session of a graph: of its first node that names a kernel or memory of a device. NULL: none
 * does. */
struct session *form_session(const struct client_graph *graph);

/**
 * Takes a graph apart, in the calling thread's session. No other thread changes the graph
 * meanwhile; no lock is held: the function asks the service for pinned memory.
 * @flags: FRMPS_GRAPH_*
 * @ret_form: zero, or with steps, on failure too: the caller calls form_deinit()
 * @ret_bad: the node that caused the error, or NULL; written on failure
 * Return: CUDA_ERROR_INVALID_VALUE (a circle of edges, memory that may not be named),
 * CUDA_ERROR_INVALID_HANDLE (a destroyed kernel or event), CUDA_ERROR_OUT_OF_MEMORY,
 * CUDA_ERROR_NOT_SUPPORTED (also for a kernel of another device).
 */
CUresult form_make(const struct client_graph *graph, uint32_t flags, struct graph_form *ret_form,
	struct graph_node **ret_bad);

/**
 * Checks if a form still fits its graph after a change of a node. If so, a step of this process is
 * changed at once; for a step of the device the caller sends the change to the service.
 * Return: as form_make().
 */
CUresult form_follow(struct graph_form *form, struct graph_node *node, bool *ret_follows);

/**
 * The change of a node in a description, behind form_follow(), for a GRAPH_UPDATE: its size
 * (FRMPS_CHANGES_MAX bytes at most), and its contents.
 */
uint32_t form_change_bytes(const struct graph_node *node);
void form_write_change(const struct graph_node *node, struct frmps_graph_change *ret_change);

/** Frees descriptions, which the service has copied. */
void form_drop_descriptions(struct graph_form *form);
/** Frees everything. No part of the form runs. */
void form_deinit(struct graph_form *form);

#endif
