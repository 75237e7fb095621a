// The commands that a client writes on its ring and an executor copies out: operations, flags and
// limits. The structs, with the comments of command.fbs, are in command_structs.h, which schema.py
// makes: no padding is implicit, every struct is a multiple of 8 bytes.

#ifndef FRMPS_PROTOCOL_COMMAND_H
#define FRMPS_PROTOCOL_COMMAND_H

#include <stdint.h>

/* Version of everything in this directory: must be equal on both sides. */
#define FRMPS_PROTOCOL_MAJOR 5u

/* Start and size of each record are multiples of this. */
#define FRMPS_RECORD_ALIGN 16u
/* Largest record: 32 764 bytes of kernel arguments (the driver's limit), attributes, head and
 * body. */
#define FRMPS_RECORD_MAX    36864u
#define FRMPS_ARGUMENT_MAX  32764u
#define FRMPS_ATTRIBUTE_MAX 16u

/* Id of an attribute that only kernels of graphs have, as their last one, and that is none of the
 * driver's: `part` of shm_stream_entry, for this kernel. */
#define FRMPS_ATTRIBUTE_PART UINT32_C(0x66720001)

#define FRMPS_NO_EVENT UINT32_MAX

/* Ids of a session's graphs are 1 … FRMPS_GRAPH_IDS - 1; most nodes of a graph, and most bytes of
 * its description. */
#define FRMPS_GRAPH_IDS	      16384u
#define FRMPS_GRAPH_NODES_MAX (1u << 20)
#define FRMPS_GRAPH_BYTES_MAX (UINT64_C(256) << 20)
/* Most bytes of a changeable graph's description, and of the changes of a command. */
#define FRMPS_GRAPH_CHANGED_MAX (UINT64_C(2) << 20)
#define FRMPS_CHANGES_MAX	18400u

/* Ids of a session's arrays, and of its texture and surface objects, are 1 … these - 1; most levels
 * of an array. */
#define FRMPS_ARRAY_IDS	   16384u
#define FRMPS_OBJECT_IDS   65536u
#define FRMPS_ARRAY_LEVELS 32u

/* Most bodies of a condition, and most nested conditions. */
#define FRMPS_CONDITION_BODIES_MAX 1024u
#define FRMPS_CONDITION_DEPTH_MAX  16u

enum frmps_op {
#define OP(name, value, body, payload, directive) FRMPS_OP_##name = value,
#include "protocol/ops.def"
#undef OP
};

/* head.flags */
#define FRMPS_CMD_MARK	      UINT16_C(1) /* put a completion mark behind this command */
#define FRMPS_CMD_COOPERATIVE UINT16_C(2) /* LAUNCH: all blocks resident together */
#define FRMPS_CMD_DISABLED    UINT16_C(4) /* only nodes of graphs: currently without effect */

/* copy.kind */
#define FRMPS_COPY_DST_ARENA UINT32_C(1) /* dst is an offset into the session's arena */
#define FRMPS_COPY_SRC_ARENA UINT32_C(2) /* src is an offset into the session's arena */
#define FRMPS_COPY_DST_HOST  UINT32_C(4) /* dst lies in the host part of the window */
#define FRMPS_COPY_SRC_HOST  UINT32_C(8) /* src lies in the host part of the window */

/* event_record.flags */
#define FRMPS_EVENT_TIMING UINT32_C(1) /* a later EventElapsed may name this record */

/* graph_head.flags */
#define FRMPS_GRAPH_PRIORITIES UINT32_C(1) /* nodes run at their own priorities, not at the stream's */
#define FRMPS_GRAPH_CHANGES    UINT32_C(2) /* GRAPH_UPDATE commands may name the graph */

#include "protocol/command_structs.h"

/* Ops without a body. */
struct frmps_empty {
	uint8_t nothing[0];
};

/* The largest launch fits a record. */
static_assert(sizeof(struct frmps_head) + sizeof(struct frmps_launch) +
			      FRMPS_ATTRIBUTE_MAX * sizeof(struct frmps_launch_attribute) +
			      FRMPS_ARGUMENT_MAX + FRMPS_RECORD_ALIGN <=
		      FRMPS_RECORD_MAX,
	"FRMPS_RECORD_MAX is too small");
static_assert(FRMPS_RECORD_MAX % FRMPS_RECORD_ALIGN == 0, "records are multiples of their alignment");

#endif
