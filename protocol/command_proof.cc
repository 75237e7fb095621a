// Proof that command.h and command.fbs describe the same bytes: size, alignment and the offset and
// size of every member of every struct, and that the listed members fill the struct, so that
// neither side can have another member. Produces no code; compiled with -fno-access-control,
// because flatc makes the members private. tests/contract/conform.sh checks that every struct of
// the schema has its line here, and is unchanged since every frozen schema.

#include "protocol/command.h"

#include <stddef.h>

#include "command_generated.h"

namespace fb = frmps::protocol;

namespace
{

/* A list per struct, members in order. */
// clang-format off
#define HEAD(X)             X(size) X(op) X(flags) X(stream) X(reserved) X(seq)
#define LAUNCH(X)                                                                                            \
	X(function)                                                                                          \
	X(grid_x) X(grid_y) X(grid_z) X(block_x) X(block_y) X(block_z) X(shared_bytes) X(argument_bytes) X(attribute_count)
#define LAUNCH_ATTRIBUTE(X) X(id) X(reserved) X(value)
#define COPY(X)                                                                                              \
	X(dst) X(src) X(width) X(height) X(depth) X(dst_pitch) X(src_pitch) X(dst_rows) X(src_rows) X(kind) X(reserved)
#define ARRAY_COPY(X)   X(copy) X(dst_array) X(dst_level) X(src_array) X(src_level)
#define SET(X)          X(dst) X(width) X(height) X(pitch) X(value) X(element_bytes)
#define EVENT_RECORD(X) X(event) X(flags)
#define DEPEND(X)       X(seq) X(stream) X(event)
#define WRITE_VALUE(X)  X(address) X(value) X(bytes) X(flags)
#define WAIT_VALUE(X)   X(address) X(value) X(bytes) X(flags)
#define WAKE(X)         X(seq)
#define GRAPH_LAUNCH(X) X(graph) X(reserved)
#define GRAPH_UPDATE(X) X(graph) X(changes) X(applied) X(reserved)
#define GRAPH_CHANGE(X) X(node) X(size) X(op) X(flags) X(reserved)
#define GRAPH_HEAD(X)   X(nodes) X(edges) X(bytes) X(flags) X(serial)
#define GRAPH_NODE(X)   X(size) X(op) X(flags) X(edges) X(reserved)
#define CONDITION(X)    X(word) X(kind) X(bodies)
#define GRAPH_EDGE(X)   X(node) X(from_port) X(to_port) X(type) X(reserved)
// clang-format on

#define PLUS_SIZE(member) +sizeof(c::member)
#define SAME_MEMBER(member)                                                                                  \
	static_assert(offsetof(c, member) == offsetof(table, member##_), "offset of " #member);              \
	static_assert(sizeof(c::member) == sizeof(table::member##_), "size of " #member);

#define PROVE(c_struct, schema_struct, MEMBERS)                                                              \
	struct prove_##c_struct {                                                                            \
		typedef struct c_struct c;                                                                   \
		typedef fb::schema_struct table;                                                             \
		static_assert(sizeof(c) == sizeof(table), "size of " #c_struct);                             \
		static_assert(alignof(c) == alignof(table), "alignment of " #c_struct);                      \
		static_assert(sizeof(c) % 8 == 0, #c_struct " is not a multiple of 8 bytes");                \
		static_assert(0 MEMBERS(PLUS_SIZE) == sizeof(c), "a member of " #c_struct " is not listed"); \
		MEMBERS(SAME_MEMBER)                                                                         \
	}

PROVE(frmps_head, Head, HEAD);
PROVE(frmps_launch, Launch, LAUNCH);
PROVE(frmps_launch_attribute, LaunchAttribute, LAUNCH_ATTRIBUTE);
PROVE(frmps_copy, Copy, COPY);
PROVE(frmps_array_copy, ArrayCopy, ARRAY_COPY);
PROVE(frmps_set, Set, SET);
PROVE(frmps_event_record, EventRecord, EVENT_RECORD);
PROVE(frmps_depend, Depend, DEPEND);
PROVE(frmps_write_value, WriteValue, WRITE_VALUE);
PROVE(frmps_wait_value, WaitValue, WAIT_VALUE);
PROVE(frmps_wake, Wake, WAKE);
PROVE(frmps_graph_launch, GraphLaunch, GRAPH_LAUNCH);
PROVE(frmps_graph_update, GraphUpdate, GRAPH_UPDATE);
PROVE(frmps_graph_change, GraphChange, GRAPH_CHANGE);
PROVE(frmps_condition, Condition, CONDITION);
PROVE(frmps_graph_head, GraphHead, GRAPH_HEAD);
PROVE(frmps_graph_node, GraphNode, GRAPH_NODE);
PROVE(frmps_graph_edge, GraphEdge, GRAPH_EDGE);

/* The largest launch fits a record. */
static_assert(sizeof(frmps_head) + sizeof(frmps_launch) +
			      FRMPS_ATTRIBUTE_MAX * sizeof(frmps_launch_attribute) + FRMPS_ARGUMENT_MAX +
			      FRMPS_RECORD_ALIGN <=
		      FRMPS_RECORD_MAX,
	"FRMPS_RECORD_MAX is too small");
static_assert(FRMPS_RECORD_MAX % FRMPS_RECORD_ALIGN == 0, "records are multiples of their alignment");

} // namespace
