// Control packets: plain structs of wire.h in, FlatBuffers tables out, and back. Runs in every process of the
// house, in the thread of the caller; keeps nothing between calls.
//
// Decoding trusts nothing: flatbuffers' verifier proves that every table, string and vector lies inside the
// packet, and the Reader adds what the verifier leaves open: alignment of wide vector elements, limits of
// wire.h, a known union member that is really there. Both directions carry a sticky status, so that the
// functions per message stay straight lines.
//
// Encoding builds in one buffer that can never grow: the Builder asks for room before every string and
// vector, and BUILD_SLACK covers the tables and the library's scratch space of the largest message. So no
// allocation can fail halfway, which matters because this also runs inside the programs of others, where
// nothing may abort.
//
// The C++ library is not linked into the shim, because it needs a newer C library than programs may have. What
// flatbuffers' templates refer to and nobody calls is defined below.

#include "protocol/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control_generated.h"
#include "protocol/command.h"

/* For an allocator that the library falls back to and for deleting destructors. */
void *operator new[](size_t)
{
	__builtin_trap();
}
void operator delete[](void *) noexcept
{
	__builtin_trap();
}
void operator delete(void *) noexcept
{
	__builtin_trap();
}
extern "C" void __cxa_pure_virtual(void)
{
	__builtin_trap();
}

namespace fb = frmps::protocol;

template <typename T> using offset = flatbuffers::Offset<T>;
template <typename T> using offsets = offset<flatbuffers::Vector<T>>;

static_assert(FLATBUFFERS_LITTLEENDIAN, "vectors are handed out in place");
static_assert(sizeof(wire_option) == sizeof(fb::Option) && alignof(wire_option) == alignof(fb::Option),
	"options are handed out in place");
static_assert(offsetof(wire_option, id) == 0 && offsetof(wire_option, reserved) == 4 &&
		      offsetof(wire_option, value) == 8,
	"options are handed out in place");

/* Message, body and devices; the verifier gives up beyond. */
static const flatbuffers::uoffset_t TABLES_MAX = 2 + WIRE_DEVICES_MAX;
static const flatbuffers::uoffset_t DEPTH_MAX = 8;
/* Tables and scratch of the largest message: below 512 bytes per table. */
static const size_t BUILD_SLACK = 16384;

/* Every type once: wire name, table. The order is the union's. */
#define MESSAGES(X)                                                                                          \
	X(HELLO, Hello)                                                                                      \
	X(WELCOME, Welcome)                                                                                  \
	X(REFUSE, Refuse)                                                                                    \
	X(REPLY, Reply)                                                                                      \
	X(MAP_MEMORY, MapMemory)                                                                             \
	X(UNMAP_MEMORY, UnmapMemory)                                                                         \
	X(MAP_HOST, MapHost)                                                                                 \
	X(UNMAP_HOST, UnmapHost)                                                                             \
	X(QUERY_MEMORY, QueryMemory)                                                                         \
	X(LOAD_MODULE, LoadModule)                                                                           \
	X(UNLOAD_MODULE, UnloadModule)                                                                       \
	X(FIND_FUNCTION, FindFunction)                                                                       \
	X(FIND_GLOBAL, FindGlobal)                                                                           \
	X(LIST_FUNCTIONS, ListFunctions)                                                                     \
	X(SET_FUNCTION, SetFunction)                                                                         \
	X(QUERY_OCCUPANCY, QueryOccupancy)                                                                   \
	X(QUERY_ELAPSED, QueryElapsed)                                                                       \
	X(OPEN_SESSION, OpenSession)                                                                         \
	X(CLOSE_SESSION, CloseSession)                                                                       \
	X(ACTIVATE, Activate)                                                                                \
	X(SHUTDOWN, Shutdown)                                                                                \
	X(PING, Ping)                                                                                        \
	X(READY, Ready)                                                                                      \
	X(OFFENCE, Offence)                                                                                  \
	X(LOST, Lost)                                                                                        \
	X(CREATE_CHUNK, CreateChunk)                                                                         \
	X(RELEASE_CHUNK, ReleaseChunk)                                                                       \
	X(ADMIN, Admin)                                                                                      \
	X(ADMIN_REPLY, AdminReply)                                                                           \
	X(OPEN_GUARD, OpenGuard)                                                                             \
	X(STRAY, Stray)                                                                                      \
	X(HALT, Halt)                                                                                        \
	X(SUSPECT, Suspect)                                                                                  \
	X(CREATE_MEMORY, CreateMemory)                                                                       \
	X(RELEASE_MEMORY, ReleaseMemory)                                                                     \
	X(MAP_HANDLE, MapHandle)                                                                             \
	X(EXPORT_MEMORY, ExportMemory)                                                                       \
	X(IMPORT_MEMORY, ImportMemory)                                                                       \
	X(RESERVE_WINDOW, ReserveWindow)                                                                     \
	X(ENCODE_TENSOR_MAP, EncodeTensorMap)                                                                \
	X(MAKE_GRAPH, MakeGraph)                                                                             \
	X(DROP_GRAPH, DropGraph)                                                                             \
	X(FAULT, Fault)                                                                                      \
	X(DETACH_SESSION, DetachSession)                                                                     \
	X(LINK_ADD, LinkAdd)                                                                                 \
	X(LINK_COMPLETE, LinkComplete)                                                                       \
	X(LINK_DROP, LinkDrop)                                                                               \
	X(IMPORT_HOST, ImportHost)                                                                           \
	X(MAKE_ARRAY, MakeArray)                                                                             \
	X(BACK_ARRAY, BackArray)                                                                             \
	X(DROP_ARRAY, DropArray)                                                                             \
	X(MAKE_OBJECT, MakeObject)                                                                           \
	X(DROP_OBJECT, DropObject)                                                                           \
	X(SET_LIMIT, SetLimit)                                                                               \
	X(MAKE_FILE, MakeFile)                                                                               \
	X(END_KERNELS, EndKernels)

#define X(name, table)                                                                                       \
	static_assert(                                                                                       \
		static_cast<int>(WIRE_##name) == static_cast<int>(fb::Body_##table), "order of the union");
MESSAGES(X)
#undef X
static_assert(
	static_cast<int>(WIRE_TYPES) == static_cast<int>(fb::Body_MAX) + 1, "a message is missing in wire.h");

const char *wire_type_name(enum wire_type type)
{
	switch (type) {
#define X(name, table)                                                                                       \
	case WIRE_##name:                                                                                    \
		return #table;
		MESSAGES(X)
#undef X
	default:
		return "unknown";
	}
}

// Encoding
// ----------------------------------------------------------------------------------------------------------

namespace
{

/* Hands out the caller's one buffer. The library asks exactly once, because Builder never lets it run full.
 */
class OneBuffer final : public flatbuffers::Allocator
{
      public:
	OneBuffer(uint8_t *at, size_t bytes) : at_(at), bytes_(bytes)
	{
	}
	uint8_t *allocate(size_t bytes) override
	{
		if (bytes > bytes_)
			__builtin_trap();
		return at_;
	}
	void deallocate(uint8_t *, size_t) override
	{
	}

      private:
	uint8_t *at_;
	size_t bytes_;
};

struct Builder {
	OneBuffer memory;
	flatbuffers::FlatBufferBuilder fbb;
	int status = 0; /* sticky */

	Builder(uint8_t *at, size_t bytes) : memory(at, bytes), fbb(bytes, &memory)
	{
	}

	void fail(int code)
	{
		if (!status)
			status = code;
	}

	/* Is there room for a string or vector of `bytes` bytes, its length, terminator and padding? */
	bool room(size_t bytes)
	{
		if (bytes > WIRE_PACKET_MAX || fbb.GetSize() + bytes + 32 > WIRE_PACKET_MAX)
			fail(WIRE_E_SPACE);
		return !status;
	}

	offset<flatbuffers::String> text(const char *s)
	{
		if (!s)
			return 0;
		size_t length = strnlen(s, WIRE_PACKET_MAX);
		return room(length) ? fbb.CreateString(s, length) : 0;
	}

	/* A vector of numbers with `least` to `most` elements; none at all is sent as absent. */
	template <typename T> offsets<T> numbers(const T *at, uint32_t count, uint32_t most)
	{
		if (count > most || (count && !at))
			fail(WIRE_E_INVALID);
		if (!count || status)
			return 0;
		return room(size_t{count} * sizeof(T)) ? fbb.CreateVector(at, count) : 0;
	}

	/* As many numbers as fit a packet. */
	template <typename T> offsets<T> numbers(const T *at, uint32_t count)
	{
		if (count > WIRE_PACKET_MAX / sizeof(T))
			fail(WIRE_E_SPACE);
		return numbers(at, count, UINT32_MAX);
	}

	offsets<offset<flatbuffers::String>> texts(const struct wire_names &names, uint32_t most)
	{
		offset<flatbuffers::String> at[WIRE_NAMES_MAX];
		if (names.count > most || (names.count && !names.at))
			fail(WIRE_E_INVALID);
		if (!names.count || status)
			return 0;
		for (uint32_t i = 0; i < names.count; ++i)
			at[i] = text(names.at[i] ? names.at[i] : "");
		return room(names.count * sizeof(at[0])) ? fbb.CreateVector(at, names.count) : 0;
	}

	void require(bool holds)
	{
		if (!holds)
			fail(WIRE_E_INVALID);
	}
};

} // namespace

/* All functions below describe one body each and return it for the union. Parts are made before the table
 * that holds them, as the library demands. */
typedef offset<void> body;

static body build_hello(Builder *b, const wire_hello &m)
{
	auto program = b->text(m.program);
	auto windows = b->numbers(m.free_windows.at, m.free_windows.count, WIRE_WINDOW_WORDS_MAX);
	auto identity = b->text(m.identity);
	return fb::CreateHello(b->fbb, m.major, m.minor, m.features, program, windows, m.window_base,
		m.window_bytes, m.recovery, identity)
		.Union();
}

static offset<fb::Device> build_device(Builder *b, const wire_device &m)
{
	auto name = b->text(m.name);
	b->require(m.uuid.count == WIRE_UUID_BYTES);
	auto uuid = b->numbers(m.uuid.at, m.uuid.count, WIRE_UUID_BYTES);
	auto attributes = b->numbers(m.attributes.at, m.attributes.count, WIRE_DEVICE_ATTRIBUTES_MAX);
	auto limits = b->numbers(m.limits.at, m.limits.count, WIRE_DEVICE_LIMITS_MAX);
	return fb::CreateDevice(
		b->fbb, name, uuid, attributes, m.total_bytes, m.priority_least, m.priority_greatest, limits);
}

static offsets<offset<fb::Device>> build_devices(Builder *b, const wire_welcome &m)
{
	offset<fb::Device> at[WIRE_DEVICES_MAX];
	b->require(m.device_count <= WIRE_DEVICES_MAX);
	for (uint32_t i = 0; i < m.device_count && !b->status; ++i)
		at[i] = build_device(b, m.devices[i]);
	if (!m.device_count || b->status)
		return 0;
	return b->room(m.device_count * sizeof(at[0])) ? b->fbb.CreateVector(at, m.device_count) : 0;
}

static body build_welcome(Builder *b, const wire_welcome &m)
{
	const wire_shape &s = m.shape;
	auto devices = build_devices(b, m);
	return fb::CreateWelcome(b->fbb, m.major, m.minor, m.features, m.session, m.token, m.window_base,
		m.device_bytes, m.host_bytes, s.ring_offset, s.ring_bytes, s.arena_offset, s.arena_bytes,
		s.client_bytes, s.states_offset, s.timelines_offset, s.journal_offset, s.server_bytes,
		s.journal_blocks, m.driver_version, devices, m.spin_us, m.memory_limit, s.times_offset)
		.Union();
}

static body build_reply(Builder *b, const wire_reply &m)
{
	auto values = b->numbers(m.values.at, m.values.count);
	auto names = b->texts(m.names, WIRE_NAMES_MAX);
	auto text = b->text(m.text);
	return fb::CreateReply(b->fbb, m.code, values, names, text).Union();
}

static offsets<const fb::Option *> build_options(Builder *b, const wire_options &m)
{
	b->require(m.count <= WIRE_OPTIONS_MAX && (!m.count || m.at));
	if (!m.count || b->status || !b->room(m.count * sizeof(fb::Option)))
		return 0;
	return b->fbb.CreateVectorOfStructs(reinterpret_cast<const fb::Option *>(m.at), m.count);
}

static body build_load_module(Builder *b, const wire_load_module &m)
{
	auto options = build_options(b, m.options);
	return fb::CreateLoadModule(
		b->fbb, m.module, m.kind, m.bytes, options, m.variables, m.is_filled, m.file)
		.Union();
}

static body build_symbol(Builder *b, enum wire_type type, const wire_symbol &m)
{
	auto name = type == WIRE_FIND_FUNCTION || type == WIRE_FIND_GLOBAL ? b->text(m.name) : 0;
	if (type == WIRE_UNLOAD_MODULE)
		return fb::CreateUnloadModule(b->fbb, m.module).Union();
	if (type == WIRE_FIND_FUNCTION)
		return fb::CreateFindFunction(b->fbb, m.module, m.function, name).Union();
	if (type == WIRE_FIND_GLOBAL)
		return fb::CreateFindGlobal(b->fbb, m.module, name).Union();
	return fb::CreateListFunctions(b->fbb, m.module, m.from).Union();
}

static bool occupancy_is_valid(const wire_occupancy &m)
{
	return (m.grid.count == 0 || m.grid.count == 3) && (m.block.count == 0 || m.block.count == 3) &&
	       m.attributes.count % sizeof(struct frmps_launch_attribute) == 0 &&
	       m.attributes.count <= FRMPS_ATTRIBUTE_MAX * sizeof(struct frmps_launch_attribute);
}

static body build_occupancy(Builder *b, const wire_occupancy &m)
{
	b->require(occupancy_is_valid(m));
	auto grid = b->numbers(m.grid.at, m.grid.count);
	auto block = b->numbers(m.block.at, m.block.count);
	auto attributes = b->numbers(m.attributes.at, m.attributes.count);
	return fb::CreateQueryOccupancy(b->fbb, m.function, m.query, m.flags, m.blocks, m.block_size,
		m.shared_bytes, grid, block, attributes)
		.Union();
}

static body build_open_session(Builder *b, const wire_open_session &m)
{
	const wire_shape &s = m.shape;
	auto program = b->text(m.program);
	return fb::CreateOpenSession(b->fbb, m.window_base, m.device_bytes, m.host_bytes, s.ring_offset,
		s.ring_bytes, s.arena_offset, s.arena_bytes, s.client_bytes, s.states_offset,
		s.timelines_offset, s.journal_offset, s.server_bytes, s.journal_blocks, m.recovery, program,
		m.pid, m.text, s.times_offset)
		.Union();
}

static body build_activate(Builder *b, const wire_activate &m)
{
	b->require(m.sessions.count == m.recover.count);
	auto sessions = b->numbers(m.sessions.at, m.sessions.count);
	auto recover = b->numbers(m.recover.at, m.recover.count);
	auto reason = b->text(m.reason);
	auto formers = b->numbers(m.formers.at, m.formers.count);
	return fb::CreateActivate(
		b->fbb, m.generation, sessions, recover, m.code, reason, m.canary_ms, formers)
		.Union();
}

static body build_ready(Builder *b, const wire_ready &m)
{
	offset<fb::Device> device = m.device.uuid.count ? build_device(b, m.device) : 0;
	return fb::CreateReady(b->fbb, device, m.driver_version, m.contains).Union();
}

static body build_admin(Builder *b, const wire_admin &m)
{
	auto command = b->text(m.command);
	auto arguments = b->texts(m.arguments, WIRE_ARGUMENTS_MAX);
	return fb::CreateAdmin(b->fbb, command, arguments).Union();
}

static body build_range(Builder *b, enum wire_type type, const wire_range &m)
{
	if (type == WIRE_MAP_MEMORY)
		return fb::CreateMapMemory(b->fbb, m.address, m.bytes, m.flags).Union();
	if (type == WIRE_UNMAP_MEMORY)
		return fb::CreateUnmapMemory(b->fbb, m.address, m.bytes).Union();
	if (type == WIRE_MAP_HOST)
		return fb::CreateMapHost(b->fbb, m.address, m.bytes, m.flags).Union();
	return fb::CreateUnmapHost(b->fbb, m.address, m.bytes).Union();
}

/* Bodies of a text, with or without a code. */
static body build_text(Builder *b, enum wire_type type, int32_t code, const char *s)
{
	auto text = b->text(s);
	if (type == WIRE_REFUSE)
		return fb::CreateRefuse(b->fbb, code, text).Union();
	if (type == WIRE_OFFENCE)
		return fb::CreateOffence(b->fbb, text).Union();
	if (type == WIRE_LOST)
		return fb::CreateLost(b->fbb, code, text).Union();
	if (type == WIRE_SUSPECT)
		return fb::CreateSuspect(b->fbb, text).Union();
	if (type == WIRE_END_KERNELS)
		return fb::CreateEndKernels(b->fbb, code, text).Union();
	return fb::CreateAdminReply(b->fbb, code, text).Union();
}

static body build_fault(Builder *b, const wire_trouble &m)
{
	auto kernel = b->text(m.text);
	return fb::CreateFault(b->fbb, m.code, kernel, m.instruction, m.took, m.number, m.ended).Union();
}

static body build_stray(Builder *b, const wire_stray &m)
{
	auto text = b->text(m.text);
	return fb::CreateStray(b->fbb, m.culprit, text).Union();
}

static body build_memory(Builder *b, enum wire_type type, const wire_memory &m)
{
	if (type == WIRE_CREATE_MEMORY)
		return fb::CreateCreateMemory(b->fbb, m.handle, m.bytes).Union();
	if (type == WIRE_RELEASE_MEMORY)
		return fb::CreateReleaseMemory(b->fbb, m.handle).Union();
	if (type == WIRE_MAP_HANDLE)
		return fb::CreateMapHandle(b->fbb, m.address, m.bytes, m.handle).Union();
	if (type == WIRE_EXPORT_MEMORY)
		return fb::CreateExportMemory(b->fbb, m.handle, m.address).Union();
	return fb::CreateImportMemory(b->fbb, m.handle, m.token[0], m.token[1]).Union();
}

static body build_window(Builder *b, const wire_window &m)
{
	auto windows = b->numbers(m.free_windows.at, m.free_windows.count, WIRE_WINDOW_WORDS_MAX);
	return fb::CreateReserveWindow(b->fbb, m.address, m.bytes, windows).Union();
}

static body build_tensor_map(Builder *b, const wire_tensor_map &m)
{
	const uint32_t most = WIRE_TENSOR_RANK_MAX;
	b->require(m.map.count == 0 || m.map.count == WIRE_TENSOR_MAP_WORDS);
	auto dims = b->numbers(m.dims.at, m.dims.count, most);
	auto strides = b->numbers(m.strides.at, m.strides.count, most);
	auto box = b->numbers(m.box.at, m.box.count, most);
	auto element_strides = b->numbers(m.element_strides.at, m.element_strides.count, most);
	auto lower = b->numbers(m.lower.at, m.lower.count, most);
	auto upper = b->numbers(m.upper.at, m.upper.count, most);
	auto map = b->numbers(m.map.at, m.map.count);
	return fb::CreateEncodeTensorMap(b->fbb, m.kind, m.type, m.rank, m.address, dims, strides, box,
		element_strides, lower, upper, m.channels, m.pixels, m.interleave, m.swizzle, m.promotion,
		m.fill, map)
		.Union();
}

static body build_link(Builder *b, enum wire_type type, const wire_link &m)
{
	if (type == WIRE_LINK_DROP)
		return fb::CreateLinkDrop(b->fbb, m.link).Union();
	auto options = build_options(b, m.options);
	if (type == WIRE_LINK_COMPLETE)
		return fb::CreateLinkComplete(b->fbb, m.link, m.position, options).Union();
	auto own = build_options(b, m.own);
	auto name = b->text(m.name);
	return fb::CreateLinkAdd(b->fbb, m.link, m.position, m.type, m.bytes, name, options, own, m.file)
		.Union();
}

static body build_array(Builder *b, const wire_array &m)
{
	return fb::CreateMakeArray(
		b->fbb, m.array, m.levels, m.width, m.height, m.depth, m.format, m.channels, m.flags)
		.Union();
}

static body build_object(Builder *b, const wire_object &m)
{
	auto texture = b->numbers(m.texture, m.has_texture ? WIRE_TEXTURE_BYTES : 0);
	auto view = b->numbers(m.view, m.has_view ? WIRE_VIEW_BYTES : 0);
	return fb::CreateMakeObject(b->fbb, m.object, m.kind, m.resource, m.array, m.level, m.format,
		m.channels, m.address, m.bytes, m.width, m.height, m.pitch, texture, view, m.value)
		.Union();
}

/* The switch over all types, one line each. */
static body build_body(Builder *b, const wire_message &m)
{
	switch (m.type) {
	case WIRE_HELLO:
		return build_hello(b, m.hello);
	case WIRE_WELCOME:
		return build_welcome(b, m.welcome);
	case WIRE_REPLY:
		return build_reply(b, m.reply);
	case WIRE_MAP_MEMORY:
	case WIRE_UNMAP_MEMORY:
	case WIRE_MAP_HOST:
	case WIRE_UNMAP_HOST:
		return build_range(b, m.type, m.range);
	case WIRE_QUERY_MEMORY:
		return fb::CreateQueryMemory(b->fbb).Union();
	case WIRE_LOAD_MODULE:
		return build_load_module(b, m.load_module);
	case WIRE_UNLOAD_MODULE:
	case WIRE_FIND_FUNCTION:
	case WIRE_FIND_GLOBAL:
	case WIRE_LIST_FUNCTIONS:
		return build_symbol(b, m.type, m.symbol);
	case WIRE_SET_FUNCTION:
		return fb::CreateSetFunction(
			b->fbb, m.set_function.function, m.set_function.attribute, m.set_function.value)
			.Union();
	case WIRE_QUERY_OCCUPANCY:
		return build_occupancy(b, m.occupancy);
	case WIRE_QUERY_ELAPSED:
		return fb::CreateQueryElapsed(b->fbb, m.elapsed.start_event, m.elapsed.end_event,
			m.elapsed.start_seq, m.elapsed.end_seq, m.elapsed.start_stream, m.elapsed.end_stream)
			.Union();
	case WIRE_OPEN_SESSION:
		return build_open_session(b, m.open_session);
	case WIRE_CLOSE_SESSION:
		return fb::CreateCloseSession(b->fbb, m.close_session.patience_ms).Union();
	case WIRE_DETACH_SESSION:
		return fb::CreateDetachSession(b->fbb, m.close_session.patience_ms).Union();
	case WIRE_ACTIVATE:
		return build_activate(b, m.activate);
	case WIRE_SHUTDOWN:
		return fb::CreateShutdown(b->fbb).Union();
	case WIRE_PING:
		return fb::CreatePing(b->fbb).Union();
	case WIRE_HALT:
		return fb::CreateHalt(b->fbb, m.halt.gently, m.halt.fence).Union();
	case WIRE_READY:
		return build_ready(b, m.ready);
	case WIRE_REFUSE:
		return build_text(b, m.type, m.refuse.code, m.refuse.text);
	case WIRE_OFFENCE:
	case WIRE_LOST:
	case WIRE_SUSPECT:
	case WIRE_END_KERNELS:
		return build_text(b, m.type, m.trouble.code, m.trouble.text);
	case WIRE_FAULT:
		return build_fault(b, m.trouble);
	case WIRE_CREATE_CHUNK:
		return fb::CreateCreateChunk(b->fbb, m.chunk.bytes).Union();
	case WIRE_RELEASE_CHUNK:
		return fb::CreateReleaseChunk(b->fbb, m.chunk.handle).Union();
	case WIRE_OPEN_GUARD:
		return fb::CreateOpenGuard(b->fbb, m.open_guard.near_bytes, m.open_guard.far_bytes,
			m.open_guard.reach, m.open_guard.policy, m.open_guard.interval_ms)
			.Union();
	case WIRE_STRAY:
		return build_stray(b, m.stray);
	case WIRE_CREATE_MEMORY:
	case WIRE_RELEASE_MEMORY:
	case WIRE_MAP_HANDLE:
	case WIRE_EXPORT_MEMORY:
	case WIRE_IMPORT_MEMORY:
		return build_memory(b, m.type, m.memory);
	case WIRE_RESERVE_WINDOW:
		return build_window(b, m.window);
	case WIRE_ENCODE_TENSOR_MAP:
		return build_tensor_map(b, m.tensor_map);
	case WIRE_MAKE_GRAPH:
		return fb::CreateMakeGraph(b->fbb, m.graph.graph, m.graph.bytes, m.graph.file).Union();
	case WIRE_DROP_GRAPH:
		return fb::CreateDropGraph(b->fbb, m.graph.graph).Union();
	case WIRE_LINK_ADD:
	case WIRE_LINK_COMPLETE:
	case WIRE_LINK_DROP:
		return build_link(b, m.type, m.link);
	case WIRE_IMPORT_HOST:
		return fb::CreateImportHost(
			b->fbb, m.import.address, m.import.bytes, m.import.session, m.import.source)
			.Union();
	case WIRE_SET_LIMIT:
		return fb::CreateSetLimit(b->fbb, m.limit.limit, m.limit.value).Union();
	case WIRE_MAKE_ARRAY:
		return build_array(b, m.array);
	case WIRE_BACK_ARRAY:
		return fb::CreateBackArray(b->fbb, m.back_array.array, m.back_array.address,
			m.back_array.bytes, m.back_array.offset, m.back_array.span)
			.Union();
	case WIRE_DROP_ARRAY:
		return fb::CreateDropArray(b->fbb, m.array.array).Union();
	case WIRE_MAKE_OBJECT:
		return build_object(b, m.object);
	case WIRE_DROP_OBJECT:
		return fb::CreateDropObject(b->fbb, m.object.object).Union();
	case WIRE_MAKE_FILE:
		return fb::CreateMakeFile(b->fbb).Union();
	case WIRE_ADMIN:
		return build_admin(b, m.admin);
	case WIRE_ADMIN_REPLY:
		return build_text(b, m.type, m.admin_reply.code, m.admin_reply.json);
	default:
		b->fail(WIRE_E_INVALID);
		return 0;
	}
}

static int encode_in(uint8_t *scratch, size_t scratch_bytes, const wire_message &m, uint8_t *buffer,
	size_t size, size_t *ret_length)
{
	Builder b(scratch, scratch_bytes);
	body content = build_body(&b, m);
	if (b.status)
		return b.status;
	fb::FinishMessageBuffer(
		b.fbb, fb::CreateMessage(b.fbb, m.id, m.session, static_cast<fb::Body>(m.type), content));
	size_t length = b.fbb.GetSize();
	if (length > size || length > WIRE_PACKET_MAX)
		return WIRE_E_SPACE;
	memcpy(buffer, b.fbb.GetBufferPointer(), length);
	*ret_length = length;
	return 0;
}

int wire_encode(const struct wire_message *message, uint8_t *buffer, size_t size, size_t *ret_length)
{
	const size_t bytes = WIRE_PACKET_MAX + BUILD_SLACK;
	uint8_t *scratch = static_cast<uint8_t *>(malloc(bytes));
	if (!scratch)
		return -ENOMEM;
	int r = encode_in(scratch, bytes, *message, buffer, size, ret_length);
	free(scratch);
	return r;
}

// Decoding
// ----------------------------------------------------------------------------------------------------------

namespace
{

/* Reads fields of verified tables. */
struct Reader {
	bool bad = false; /* sticky */

	void require(bool holds)
	{
		if (!holds)
			bad = true;
	}

	const char *text(const flatbuffers::String *s)
	{
		return s ? s->c_str() : "";
	}

	/* Points `ret` (a wire_* vector) to the elements. */
	template <typename V, typename R> void numbers(const V *vector, uint32_t most, R *ret)
	{
		typedef decltype(ret->at) pointer;
		*ret = R{nullptr, 0};
		if (!vector || !vector->size())
			return;
		uintptr_t at = reinterpret_cast<uintptr_t>(vector->Data());
		require(vector->size() <= most && at % alignof(decltype(*ret->at)) == 0);
		if (!bad)
			*ret = R{reinterpret_cast<pointer>(vector->Data()), vector->size()};
	}

	void texts(const flatbuffers::Vector<offset<flatbuffers::String>> *vector, const char **storage,
		uint32_t most, struct wire_names *ret)
	{
		*ret = wire_names{storage, 0};
		if (!vector)
			return;
		require(vector->size() <= most);
		if (bad)
			return;
		for (flatbuffers::uoffset_t i = 0; i < vector->size(); ++i)
			storage[i] = vector->Get(i)->c_str();
		ret->count = vector->size();
	}
};

} // namespace

static void read(Reader *r, const fb::Hello *t, wire_hello *m)
{
	m->major = t->major();
	m->minor = t->minor();
	m->features = t->features();
	m->program = r->text(t->program());
	r->numbers(t->free_windows(), WIRE_WINDOW_WORDS_MAX, &m->free_windows);
	m->window_base = t->window_base();
	m->window_bytes = t->window_bytes();
	m->recovery = t->recovery();
	m->identity = r->text(t->identity());
}

static void read(Reader *r, const fb::Device *t, wire_device *m)
{
	m->name = r->text(t->name());
	r->numbers(t->uuid(), WIRE_UUID_BYTES, &m->uuid);
	r->require(m->uuid.count == WIRE_UUID_BYTES);
	r->numbers(t->attributes(), WIRE_DEVICE_ATTRIBUTES_MAX, &m->attributes);
	m->total_bytes = t->total_bytes();
	m->priority_least = t->priority_least();
	m->priority_greatest = t->priority_greatest();
	r->numbers(t->limits(), WIRE_DEVICE_LIMITS_MAX, &m->limits);
}

/* Welcome and OpenSession carry the same layout. */
template <typename T> static void read_shape(const T *t, wire_shape *m)
{
	m->ring_offset = t->ring_offset();
	m->ring_bytes = t->ring_bytes();
	m->arena_offset = t->arena_offset();
	m->arena_bytes = t->arena_bytes();
	m->client_bytes = t->client_bytes();
	m->states_offset = t->states_offset();
	m->timelines_offset = t->timelines_offset();
	m->journal_offset = t->journal_offset();
	m->server_bytes = t->server_bytes();
	m->journal_blocks = t->journal_blocks();
	m->times_offset = t->times_offset();
}

static void read_devices(Reader *r, const flatbuffers::Vector<offset<fb::Device>> *t, wire_welcome *m)
{
	m->device_count = 0;
	if (!t)
		return;
	r->require(t->size() <= WIRE_DEVICES_MAX);
	for (flatbuffers::uoffset_t i = 0; i < t->size() && !r->bad; ++i)
		read(r, t->Get(i), &m->devices[m->device_count++]);
}

static void read(Reader *r, const fb::Welcome *t, wire_welcome *m)
{
	m->major = t->major();
	m->minor = t->minor();
	m->features = t->features();
	m->session = t->session();
	m->token = t->token();
	m->window_base = t->window_base();
	m->device_bytes = t->device_bytes();
	m->host_bytes = t->host_bytes();
	read_shape(t, &m->shape);
	m->driver_version = t->driver_version();
	read_devices(r, t->devices(), m);
	m->spin_us = t->spin_us();
	m->memory_limit = t->memory_limit();
}

static void read(Reader *r, const fb::Refuse *t, wire_refuse *m)
{
	m->code = t->code();
	m->text = r->text(t->text());
}

static void read(Reader *r, const fb::Reply *t, wire_reply *m)
{
	m->code = t->code();
	r->numbers(t->values(), UINT32_MAX, &m->values);
	r->texts(t->names(), m->name_storage, WIRE_NAMES_MAX, &m->names);
	m->text = r->text(t->text());
}

template <typename T> static void read_range(const T *t, uint32_t flags, wire_range *m)
{
	m->address = t->address();
	m->bytes = t->bytes();
	m->flags = flags;
}

static void read(Reader *r, const fb::LoadModule *t, wire_load_module *m)
{
	m->module = t->module_();
	m->kind = t->kind();
	m->bytes = t->bytes();
	r->numbers(t->options(), WIRE_OPTIONS_MAX, &m->options);
	m->variables = t->variables();
	m->is_filled = t->is_filled();
	m->file = t->file();
}

static void set_symbol(wire_symbol *m, uint32_t module, uint32_t function, const char *name)
{
	m->module = module;
	m->function = function;
	m->name = name;
	m->from = 0;
}

static void read(Reader *, const fb::SetFunction *t, wire_set_function *m)
{
	m->function = t->function();
	m->attribute = t->attribute();
	m->value = t->value();
}

static void read(Reader *r, const fb::QueryOccupancy *t, wire_occupancy *m)
{
	m->function = t->function();
	m->query = t->query();
	m->flags = t->flags();
	m->blocks = t->blocks();
	m->block_size = t->block_size();
	m->shared_bytes = t->shared_bytes();
	r->numbers(t->grid(), 3, &m->grid);
	r->numbers(t->block(), 3, &m->block);
	r->numbers(t->attributes(), UINT32_MAX, &m->attributes);
	r->require(occupancy_is_valid(*m));
}

static void read(Reader *, const fb::QueryElapsed *t, wire_elapsed *m)
{
	m->start_event = t->start_event();
	m->end_event = t->end_event();
	m->start_seq = t->start_seq();
	m->end_seq = t->end_seq();
	m->start_stream = t->start_stream();
	m->end_stream = t->end_stream();
}

static void read(Reader *r, const fb::OpenSession *t, wire_open_session *m)
{
	m->window_base = t->window_base();
	m->device_bytes = t->device_bytes();
	m->host_bytes = t->host_bytes();
	read_shape(t, &m->shape);
	m->recovery = t->recovery();
	m->program = r->text(t->program());
	m->pid = t->pid();
	m->text = t->text();
}

static void read(Reader *r, const fb::Activate *t, wire_activate *m)
{
	m->generation = t->generation();
	r->numbers(t->sessions(), UINT32_MAX, &m->sessions);
	r->numbers(t->recover(), UINT32_MAX, &m->recover);
	r->require(m->sessions.count == m->recover.count);
	m->code = t->code();
	m->reason = r->text(t->reason());
	m->canary_ms = t->canary_ms();
	r->numbers(t->formers(), UINT32_MAX, &m->formers);
}

static void read(Reader *r, const fb::Ready *t, wire_ready *m)
{
	m->device = wire_device();
	m->device.name = "";
	if (t->device())
		read(r, t->device(), &m->device);
	m->driver_version = t->driver_version();
	m->contains = t->contains();
}

static void read(Reader *, const fb::OpenGuard *t, wire_open_guard *m)
{
	m->near_bytes = t->near_bytes();
	m->far_bytes = t->far_bytes();
	m->reach = t->reach();
	m->policy = t->policy();
	m->interval_ms = t->interval_ms();
}

static void read(Reader *r, const fb::ReserveWindow *t, wire_window *m)
{
	m->address = t->address();
	m->bytes = t->bytes();
	r->numbers(t->free_windows(), WIRE_WINDOW_WORDS_MAX, &m->free_windows);
}

static void read(Reader *r, const fb::EncodeTensorMap *t, wire_tensor_map *m)
{
	const uint32_t most = WIRE_TENSOR_RANK_MAX;
	m->kind = t->kind();
	m->type = t->type();
	m->rank = t->rank();
	m->channels = t->channels();
	m->pixels = t->pixels();
	m->interleave = t->interleave();
	m->swizzle = t->swizzle();
	m->promotion = t->promotion();
	m->fill = t->fill();
	m->address = t->address();
	r->numbers(t->dims(), most, &m->dims);
	r->numbers(t->strides(), most, &m->strides);
	r->numbers(t->box(), most, &m->box);
	r->numbers(t->element_strides(), most, &m->element_strides);
	r->numbers(t->lower(), most, &m->lower);
	r->numbers(t->upper(), most, &m->upper);
	r->numbers(t->map(), WIRE_TENSOR_MAP_WORDS, &m->map);
	r->require(m->map.count == 0 || m->map.count == WIRE_TENSOR_MAP_WORDS);
}

static void read(const fb::MakeArray *t, wire_array *m)
{
	*m = wire_array();
	m->array = t->array();
	m->levels = t->levels();
	m->width = t->width();
	m->height = t->height();
	m->depth = t->depth();
	m->format = t->format();
	m->channels = t->channels();
	m->flags = t->flags();
}

static void read(const fb::BackArray *t, wire_back_array *m)
{
	memset(m, 0, sizeof(*m));
	m->array = t->array();
	m->address = t->address();
	m->bytes = t->bytes();
	m->offset = t->offset();
	m->span = t->span();
}

/* A description of exactly this size, or none. */
static bool read_description(Reader *r, const flatbuffers::Vector<uint8_t> *from, uint8_t *to, uint32_t size)
{
	wire_bytes bytes;
	r->numbers(from, size, &bytes);
	r->require(bytes.count == 0 || bytes.count == size);
	if (r->bad || bytes.count == 0)
		return false;
	memcpy(to, bytes.at, size);
	return true;
}

static void read(Reader *r, const fb::MakeObject *t, wire_object *m)
{
	memset(m, 0, sizeof(*m)); /* padding, too: objects are compared */
	m->object = t->object();
	m->kind = t->kind();
	m->resource = t->resource();
	m->array = t->array();
	m->level = t->level();
	m->format = t->format();
	m->channels = t->channels();
	m->address = t->address();
	m->bytes = t->bytes();
	m->width = t->width();
	m->height = t->height();
	m->pitch = t->pitch();
	m->value = t->value();
	m->has_texture = read_description(r, t->texture(), m->texture, WIRE_TEXTURE_BYTES);
	m->has_view = read_description(r, t->view(), m->view, WIRE_VIEW_BYTES);
}

static void read_memory(const fb::Message *t, wire_memory *m)
{
	*m = wire_memory();
	switch (t->body_type()) {
	case fb::Body_CreateMemory:
		m->handle = t->body_as_CreateMemory()->handle();
		m->bytes = t->body_as_CreateMemory()->bytes();
		break;
	case fb::Body_ReleaseMemory:
		m->handle = t->body_as_ReleaseMemory()->handle();
		break;
	case fb::Body_MapHandle:
		m->handle = t->body_as_MapHandle()->handle();
		m->address = t->body_as_MapHandle()->address();
		m->bytes = t->body_as_MapHandle()->bytes();
		break;
	case fb::Body_ExportMemory:
		m->handle = t->body_as_ExportMemory()->handle();
		m->address = t->body_as_ExportMemory()->address();
		break;
	default:
		m->handle = t->body_as_ImportMemory()->handle();
		m->token[0] = t->body_as_ImportMemory()->token_low();
		m->token[1] = t->body_as_ImportMemory()->token_high();
		break;
	}
}

static void read_link(Reader *r, const fb::Message *t, wire_link *m)
{
	*m = wire_link();
	m->name = "";
	if (t->body_type() == fb::Body_LinkDrop) {
		m->link = t->body_as_LinkDrop()->link();
	} else if (t->body_type() == fb::Body_LinkComplete) {
		m->link = t->body_as_LinkComplete()->link();
		m->position = t->body_as_LinkComplete()->position();
		r->numbers(t->body_as_LinkComplete()->options(), WIRE_OPTIONS_MAX, &m->options);
	} else {
		const fb::LinkAdd *a = t->body_as_LinkAdd();
		m->link = a->link();
		m->position = a->position();
		m->type = a->type();
		m->bytes = a->bytes();
		m->name = r->text(a->name());
		r->numbers(a->options(), WIRE_OPTIONS_MAX, &m->options);
		r->numbers(a->own(), WIRE_OPTIONS_MAX, &m->own);
		m->file = a->file();
	}
}

static void read(Reader *r, const fb::Admin *t, wire_admin *m)
{
	m->command = r->text(t->command());
	r->texts(t->arguments(), m->name_storage, WIRE_ARGUMENTS_MAX, &m->arguments);
}

static void set_trouble(wire_trouble *m, int32_t code, const char *text)
{
	*m = wire_trouble{code, text, 0, 0, 0, false};
}

static void read(Reader *r, const fb::Fault *t, wire_trouble *m)
{
	*m = wire_trouble{
		t->code(), r->text(t->kernel()), t->instruction(), t->took(), t->number(), t->ended()};
}

static void read_symbol(Reader *r, const fb::Message *t, wire_symbol *m)
{
	switch (t->body_type()) {
	case fb::Body_UnloadModule:
		return set_symbol(m, t->body_as_UnloadModule()->module_(), 0, "");
	case fb::Body_FindFunction: {
		const fb::FindFunction *f = t->body_as_FindFunction();
		return set_symbol(m, f->module_(), f->function(), r->text(f->name()));
	}
	case fb::Body_FindGlobal:
		return set_symbol(
			m, t->body_as_FindGlobal()->module_(), 0, r->text(t->body_as_FindGlobal()->name()));
	default:
		set_symbol(m, t->body_as_ListFunctions()->module_(), 0, "");
		m->from = t->body_as_ListFunctions()->from();
	}
}

/* The switch over all types, one line each; false for a type that this version does not know. */
static bool read_body(Reader *r, const fb::Message *t, wire_message *m)
{
	switch (t->body_type()) {
	case fb::Body_Hello:
		return read(r, t->body_as_Hello(), &m->hello), true;
	case fb::Body_Welcome:
		return read(r, t->body_as_Welcome(), &m->welcome), true;
	case fb::Body_Refuse:
		return read(r, t->body_as_Refuse(), &m->refuse), true;
	case fb::Body_Reply:
		return read(r, t->body_as_Reply(), &m->reply), true;
	case fb::Body_MapMemory:
		return read_range(t->body_as_MapMemory(), t->body_as_MapMemory()->flags(), &m->range), true;
	case fb::Body_UnmapMemory:
		return read_range(t->body_as_UnmapMemory(), 0, &m->range), true;
	case fb::Body_MapHost:
		return read_range(t->body_as_MapHost(), t->body_as_MapHost()->flags(), &m->range), true;
	case fb::Body_UnmapHost:
		return read_range(t->body_as_UnmapHost(), 0, &m->range), true;
	case fb::Body_LoadModule:
		return read(r, t->body_as_LoadModule(), &m->load_module), true;
	case fb::Body_UnloadModule:
	case fb::Body_FindFunction:
	case fb::Body_FindGlobal:
	case fb::Body_ListFunctions:
		return read_symbol(r, t, &m->symbol), true;
	case fb::Body_SetFunction:
		return read(r, t->body_as_SetFunction(), &m->set_function), true;
	case fb::Body_QueryOccupancy:
		return read(r, t->body_as_QueryOccupancy(), &m->occupancy), true;
	case fb::Body_QueryElapsed:
		return read(r, t->body_as_QueryElapsed(), &m->elapsed), true;
	case fb::Body_OpenSession:
		return read(r, t->body_as_OpenSession(), &m->open_session), true;
	case fb::Body_CloseSession:
		return m->close_session.patience_ms = t->body_as_CloseSession()->patience_ms(), true;
	case fb::Body_DetachSession:
		return m->close_session.patience_ms = t->body_as_DetachSession()->patience_ms(), true;
	case fb::Body_Activate:
		return read(r, t->body_as_Activate(), &m->activate), true;
	case fb::Body_Ready:
		return read(r, t->body_as_Ready(), &m->ready), true;
	case fb::Body_Offence:
		return set_trouble(&m->trouble, 0, r->text(t->body_as_Offence()->reason())), true;
	case fb::Body_Suspect:
		return set_trouble(&m->trouble, 0, r->text(t->body_as_Suspect()->text())), true;
	case fb::Body_Fault:
		return read(r, t->body_as_Fault(), &m->trouble), true;
	case fb::Body_EndKernels:
		return set_trouble(&m->trouble, t->body_as_EndKernels()->code(),
			       r->text(t->body_as_EndKernels()->reason())),
		       true;
	case fb::Body_Lost:
		return set_trouble(
			       &m->trouble, t->body_as_Lost()->code(), r->text(t->body_as_Lost()->text())),
		       true;
	case fb::Body_CreateChunk:
		return m->chunk = wire_chunk{t->body_as_CreateChunk()->bytes(), 0}, true;
	case fb::Body_ReleaseChunk:
		return m->chunk = wire_chunk{0, t->body_as_ReleaseChunk()->handle()}, true;
	case fb::Body_OpenGuard:
		return read(r, t->body_as_OpenGuard(), &m->open_guard), true;
	case fb::Body_Stray:
		m->stray = wire_stray{t->body_as_Stray()->culprit(), r->text(t->body_as_Stray()->text())};
		return true;
	case fb::Body_CreateMemory:
	case fb::Body_ReleaseMemory:
	case fb::Body_MapHandle:
	case fb::Body_ExportMemory:
	case fb::Body_ImportMemory:
		return read_memory(t, &m->memory), true;
	case fb::Body_ReserveWindow:
		return read(r, t->body_as_ReserveWindow(), &m->window), true;
	case fb::Body_EncodeTensorMap:
		return read(r, t->body_as_EncodeTensorMap(), &m->tensor_map), true;
	case fb::Body_MakeGraph:
		m->graph = wire_graph{t->body_as_MakeGraph()->graph(), t->body_as_MakeGraph()->bytes(),
			t->body_as_MakeGraph()->file()};
		return true;
	case fb::Body_DropGraph:
		return m->graph = wire_graph{t->body_as_DropGraph()->graph(), 0, 0}, true;
	case fb::Body_LinkAdd:
	case fb::Body_LinkComplete:
	case fb::Body_LinkDrop:
		return read_link(r, t, &m->link), true;
	case fb::Body_ImportHost: {
		const fb::ImportHost *i = t->body_as_ImportHost();
		return m->import = wire_import{i->address(), i->bytes(), i->session(), i->source()}, true;
	}
	case fb::Body_SetLimit:
		return m->limit = wire_limit{t->body_as_SetLimit()->limit(), t->body_as_SetLimit()->value()},
		       true;
	case fb::Body_MakeArray:
		return read(t->body_as_MakeArray(), &m->array), true;
	case fb::Body_BackArray:
		return read(t->body_as_BackArray(), &m->back_array), true;
	case fb::Body_DropArray:
		m->array = wire_array();
		return m->array.array = t->body_as_DropArray()->array(), true;
	case fb::Body_MakeObject:
		return read(r, t->body_as_MakeObject(), &m->object), true;
	case fb::Body_DropObject:
		m->object = wire_object();
		return m->object.object = t->body_as_DropObject()->object(), true;
	case fb::Body_Admin:
		return read(r, t->body_as_Admin(), &m->admin), true;
	case fb::Body_AdminReply:
		m->admin_reply.code = t->body_as_AdminReply()->code();
		m->admin_reply.json = r->text(t->body_as_AdminReply()->json());
		return true;
	case fb::Body_QueryMemory:
	case fb::Body_MakeFile:
	case fb::Body_Shutdown:
	case fb::Body_Ping:
		return true;
	case fb::Body_Halt:
		m->halt.gently = t->body_as_Halt()->gently();
		m->halt.fence = t->body_as_Halt()->fence();
		return true;
	default:
		return false;
	}
}

/* Proves the packet's structure; NULL if it is not one. */
static const fb::Message *verify(const uint8_t *packet, size_t length)
{
	flatbuffers::Verifier::Options options;
	options.max_depth = DEPTH_MAX;
	options.max_tables = TABLES_MAX;
	if (length > WIRE_PACKET_MAX || reinterpret_cast<uintptr_t>(packet) % 8)
		return nullptr;
	flatbuffers::Verifier verifier(packet, length, options);
	return fb::VerifyMessageBuffer(verifier) ? fb::GetMessage(packet) : nullptr;
}

int wire_decode(const uint8_t *packet, size_t length, struct wire_message *ret_message)
{
	Reader r;
	ret_message->type = WIRE_NONE;
	const fb::Message *t = verify(packet, length);
	/* The verifier accepts unknown union members, and known ones that are absent. */
	if (!t || !t->body() || !read_body(&r, t, ret_message) || r.bad)
		return WIRE_E_INVALID;
	ret_message->id = t->id();
	ret_message->session = t->session();
	ret_message->type = static_cast<enum wire_type>(t->body_type());
	return 0;
}
