// Graphs of sessions: a description, private and checked, and the backend's executable graph made
// from it.
//
// A graph is built when the session is served and the request comes; commands change the nodes of a
// graph that is made for changes (graph_change.c). In a standby the session may have freed memory
// that the graph names since: a standby keeps the description alone if the build fails, and the
// first launch tries again. The launch of a graph that cannot be built is the client's late error.
//
// The kernels of a built graph keep their multiprocessors, whatever the stream of the launch. So
// where the session's multiprocessors change, the next launch builds the graph once more.

#ifndef FRMPS_SERVER_EXECUTOR_GRAPH_H
#define FRMPS_SERVER_EXECUTOR_GRAPH_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocol/cuda_abi.h"

struct frmps_graph_update;
struct frmps_head;
struct graph;
struct job;
struct module;
struct stream;
struct tenant;

typedef _Atomic(struct graph *) graph_word;

/* Nodes of all graphs of one session at a time. A node of 16 bytes in a description is some 200
 * bytes of the executor, and the driver's own beside that. */
#define GRAPH_NODES_MOST (UINT64_C(4) << 20)
/* Bytes of the descriptions: a few nodes with many edges have many bytes. Twice the daemon's limit,
 * for dropped graphs stay until the session's work has ended. */
#define GRAPH_BYTES_MOST (UINT64_C(2) << 30)

/* Of one session. The module thread writes; the serving thread reads. */
struct graph_table {
	_Atomic(graph_word *) graphs; /* FRMPS_GRAPH_IDS, NULL until first used; published with release */
	struct graph *forgotten;      /* module thread: out of the table, may still be in use by this turn */
	uint64_t nodes, bytes;	      /* module thread: of all graphs */
	bool drops;		      /* module thread: a job waits to free dropped graphs */
	pthread_mutex_t lock;	      /* of descriptions that the serving thread changes */
	uint64_t applied;	      /* serving thread: GRAPH_UPDATE commands so far */
};

/** Requests. Module thread. */
void graph_make(struct job *job);
void graph_drop(struct job *job);

/** Takes graphs with kernels of a module, or copies of its variables, out of the table: no launch
 * finds these graphs from the next turn on. Module thread. */
void graph_forget_module(struct tenant *tenant, const struct module *module);

/** The same for graphs with copies of an array. */
void graph_forget_array(struct tenant *tenant, uint32_t array);

/** Frees the graphs that were removed from the table before the drain with this ticket began. That
 * drain has succeeded. Module thread. */
void graph_free_forgotten(struct tenant *tenant, uint64_t ticket);

/** Frees everything. Module thread; the session is not served any more. */
void graph_table_deinit(struct tenant *tenant);

/** Return: false while the parts of the graph's kernels are to be made ready (cap_readies()).
 * Serving thread. */
bool graph_may_launch(struct tenant *tenant, uint32_t id);

/**
 * Launches a graph in a stream that is open. Serving thread.
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE (no such graph, or a resource that the graph
 * names is gone), or the backend's code.
 */
CUresult graph_launch(struct tenant *tenant, struct stream *stream, uint32_t id);

/**
 * Carries a GRAPH_UPDATE out. Serving thread.
 * @record: in the journal, checked
 * Return: CUDA_SUCCESS, CUDA_ERROR_INVALID_HANDLE (no such graph), CUDA_ERROR_INVALID_VALUE (no
 * such node, or the change is not possible), CUDA_ERROR_OUT_OF_MEMORY. Nothing is changed on
 * failure.
 */
CUresult graph_update(struct tenant *tenant, struct frmps_head *record);

/** Brings the changes of a command that was carried out into the built graph, while the program
 * goes on. The next launch does the rest. Serving thread. */
void graph_change_ahead(struct tenant *tenant, const struct frmps_graph_update *update);

/** Takes back the GRAPH_UPDATE commands that previous executors have carried out and that are not
 * done. Main thread, before the session is served. @records: all such commands, in any order;
 * sorted here */
CUresult graph_take_back(struct tenant *tenant, struct frmps_head **records, uint32_t count);

/** Gives the memory of a graph's place in the session's region back. Module thread, of the executor
 * that serves. */
void graph_give_place_back(struct tenant *tenant, uint32_t id);

/** Name of a graph's first kernel, "" without a kernel or graph. Any thread while nothing is
 * dropped. */
const char *graph_kernel(const struct tenant *tenant, uint32_t id, uint32_t *ret_nodes);

#endif
