// Control packets: plain structs of wire.h in, FlatBuffers tables out, and back. Runs in every
// process of the project, in the thread of the caller; keeps nothing between calls.
//
// Decoding trusts nothing: flatbuffers' verifier proves that every table, string and vector lies
// inside the packet, and the Reader adds the checks that the verifier lacks: alignment of wide
// vector elements, limits of wire.h, the presence of a known union member. Both directions carry a
// sticky status.
//
// The rows of wire.def list the fields of each message; both directions are generated from these. A
// row that does not match its table in control.fbs does not compile, or fails in test_wire.
//
// Encoding uses a single buffer that can never grow: the Builder checks the room before every
// string and vector, and WIRE_BUILD_SLACK covers the tables and the library's scratch space of the
// largest message. So no allocation can fail halfway. That matters because this also runs inside
// other people's programs, where nothing may abort.
//
// The C++ library is not linked into the client library, because it needs a newer C library than
// programs may have. Functions that flatbuffers' templates refer to and never call are defined
// below.

#include "protocol/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <tuple>

#include "control_generated.h"
#include "protocol/command.h"

/* For an allocator that the library falls back to, and for deleting destructors. */
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

/* Message, body and devices; the verifier refuses more. */
static const flatbuffers::uoffset_t TABLES_MAX = 2 + WIRE_DEVICES_MAX;
static const flatbuffers::uoffset_t DEPTH_MAX = 8;
/* Tables and scratch of the largest message: below 512 bytes per table. */
/* A vector may have as many elements as a packet holds. */
static const uint32_t ANY = UINT32_MAX;

#define MESSAGE(name, table, member, fields)                                                                 \
	static_assert(                                                                                       \
		static_cast<int>(WIRE_##name) == static_cast<int>(fb::Body_##table), "order of the union");
#include "protocol/wire.def"
static_assert(static_cast<int>(WIRE_TYPES) == static_cast<int>(fb::Body_MAX) + 1,
	"a message is missing in wire.def");

const char *wire_type_name(enum wire_type type)
{
	switch (type) {
#define MESSAGE(name, table, member, fields)                                                                 \
	case WIRE_##name:                                                                                    \
		return #table;
#include "protocol/wire.def"
	default:
		return "unknown";
	}
}

/* Rules of a message beyond the limits in its row, in both directions. */
template <typename T> static bool is_valid(const T &)
{
	return true;
}

static bool is_valid(const wire_occupancy &m)
{
	return (m.grid.count == 0 || m.grid.count == 3) && (m.block.count == 0 || m.block.count == 3) &&
	       m.attributes.count % sizeof(struct frmps_launch_attribute) == 0 &&
	       m.attributes.count <= FRMPS_ATTRIBUTE_MAX * sizeof(struct frmps_launch_attribute);
}

static bool is_valid(const wire_activate &m)
{
	return m.sessions.count == m.recover.count;
}

static bool is_valid(const wire_tensor_map &m)
{
	return m.map.count == 0 || m.map.count == WIRE_TENSOR_MAP_WORDS;
}

// ---- encoding ----

namespace
{

/* Allocates the caller's only buffer. The library asks exactly once, because Builder never lets the
 * buffer run full. */
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

	/* Is there room for a string or vector of `bytes` bytes, its length, terminator and
	 * padding? */
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

	/* A vector of at most `most` numbers, and no more than fit a packet; an empty vector is
	 * sent as absent. */
	template <typename T> offsets<T> numbers(const T *at, uint32_t count, uint32_t most)
	{
		if (count > most || (count && !at))
			fail(WIRE_E_INVALID);
		else if (count > WIRE_PACKET_MAX / sizeof(T))
			fail(WIRE_E_SPACE);
		if (!count || status)
			return 0;
		return room(size_t{count} * sizeof(T)) ? fbb.CreateVector(at, count) : 0;
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

	offsets<const fb::Option *> options(const struct wire_options &options)
	{
		require(options.count <= WIRE_OPTIONS_MAX && (!options.count || options.at));
		if (!options.count || status || !room(options.count * sizeof(fb::Option)))
			return 0;
		return fbb.CreateVectorOfStructs(
			reinterpret_cast<const fb::Option *>(options.at), options.count);
	}

	offset<fb::Device> device(const wire_device &m)
	{
		auto name = text(m.name);
		require(m.uuid.count == WIRE_UUID_BYTES);
		auto uuid = numbers(m.uuid.at, m.uuid.count, WIRE_UUID_BYTES);
		auto attributes = numbers(m.attributes.at, m.attributes.count, WIRE_DEVICE_ATTRIBUTES_MAX);
		auto limits = numbers(m.limits.at, m.limits.count, WIRE_DEVICE_LIMITS_MAX);
		auto peers = numbers(m.peers.at, m.peers.count, WIRE_PEERS_MAX);
		return fb::CreateDevice(fbb, name, uuid, attributes, m.total_bytes, m.priority_least,
			m.priority_greatest, limits, peers);
	}

	offsets<offset<fb::Device>> devices(const wire_device *devices, uint32_t count)
	{
		offset<fb::Device> at[WIRE_DEVICES_MAX];
		require(count <= WIRE_DEVICES_MAX);
		for (uint32_t i = 0; i < count && !status; ++i)
			at[i] = device(devices[i]);
		if (!count || status)
			return 0;
		return room(count * sizeof(at[0])) ? fbb.CreateVector(at, count) : 0;
	}

	void require(bool holds)
	{
		if (!holds)
			fail(WIRE_E_INVALID);
	}
};

} // namespace

typedef offset<void> body;

/* The body of a message, for the union. The fields are made in the order of the row, the parts of a
 * table before the table itself, as the library demands. */
static body build_body(Builder *b, const wire_message &message)
{
	switch (message.type) {
#define MESSAGE(name, table, member, fields)                                                                 \
	case WIRE_##name: {                                                                                  \
		const auto &m = message.member;                                                              \
		b->require(is_valid(m));                                                                     \
		return std::apply(fb::Create##table, std::tuple{std::ref(b->fbb) fields}).Union();           \
	}
#define EMPTY(name, table)                                                                                   \
	case WIRE_##name:                                                                                    \
		return fb::Create##table(b->fbb).Union();
#define NUMBER(field)	     , m.field
#define NUMBER_AS(field, in) , m.in
#define TEXT(field)	     , b->text(m.field)
#define TEXT_AS(field, in)   , b->text(m.in)
#define NO_TEXT(in)
#define NUMBERS(field, most)	    , b->numbers(m.field.at, m.field.count, most)
#define TEXTS(field, storage, most) , b->texts(m.field, most)
#define OPTIONS(field)		    , b->options(m.field)
#define BLOCK(field, has, bytes)    , b->numbers(m.field, m.has ? bytes : 0, bytes)
#define DEVICE(field)		    , m.field.uuid.count ? b->device(m.field) : 0
#define DEVICES(field, counter)	    , b->devices(m.field, m.counter)
#include "protocol/wire.def"
	default:
		b->fail(WIRE_E_INVALID);
		return 0;
	}
}

int wire_encode_in(struct wire_room *room, const struct wire_message *message, uint8_t *buffer, size_t size,
	size_t *ret_length)
{
	const wire_message &m = *message;
	Builder b(reinterpret_cast<uint8_t *>(room->words), sizeof(room->words));
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
	wire_room *room = static_cast<wire_room *>(malloc(sizeof(*room)));
	if (!room)
		return -ENOMEM;
	int r = wire_encode_in(room, message, buffer, size, ret_length);
	free(room);
	return r;
}

// ---- decoding ----

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

	/* A block of exactly this size, or an absent block. */
	bool block(const flatbuffers::Vector<uint8_t> *from, uint8_t *to, uint32_t size)
	{
		wire_bytes bytes;
		numbers(from, size, &bytes);
		require(bytes.count == 0 || bytes.count == size);
		if (bad || bytes.count == 0)
			return false;
		memcpy(to, bytes.at, size);
		return true;
	}

	void device(const fb::Device *t, wire_device *m)
	{
		*m = wire_device();
		m->name = "";
		if (!t)
			return;
		m->name = text(t->name());
		numbers(t->uuid(), WIRE_UUID_BYTES, &m->uuid);
		require(m->uuid.count == WIRE_UUID_BYTES);
		numbers(t->attributes(), WIRE_DEVICE_ATTRIBUTES_MAX, &m->attributes);
		m->total_bytes = t->total_bytes();
		m->priority_least = t->priority_least();
		m->priority_greatest = t->priority_greatest();
		numbers(t->limits(), WIRE_DEVICE_LIMITS_MAX, &m->limits);
		numbers(t->peers(), WIRE_PEERS_MAX, &m->peers);
	}

	void devices(
		const flatbuffers::Vector<offset<fb::Device>> *vector, wire_device *devices, uint32_t *count)
	{
		*count = 0;
		if (!vector)
			return;
		require(vector->size() <= WIRE_DEVICES_MAX);
		for (flatbuffers::uoffset_t i = 0; i < vector->size() && !bad; ++i)
			device(vector->Get(i), &devices[(*count)++]);
	}
};

} // namespace

/* Reads the body; false for a type unknown to this version. Absent fields are 0: the whole struct,
 * padding too, because some bodies are compared. */
static bool read_body(Reader *r, const fb::Message *message, wire_message *ret_message)
{
	switch (message->body_type()) {
#define MESSAGE(name, table, member, fields)                                                                 \
	case fb::Body_##table: {                                                                             \
		const fb::table *t = message->body_as_##table();                                             \
		auto *m = &ret_message->member;                                                              \
		memset(m, 0, sizeof(*m));                                                                    \
		fields r->require(is_valid(*m));                                                             \
		return true;                                                                                 \
	}
#define EMPTY(name, table)                                                                                   \
	case fb::Body_##table:                                                                               \
		return true;
#define NUMBER(field)		    m->field = t->field();
#define NUMBER_AS(field, in)	    m->in = t->field();
#define TEXT(field)		    m->field = r->text(t->field());
#define TEXT_AS(field, in)	    m->in = r->text(t->field());
#define NO_TEXT(in)		    m->in = "";
#define NUMBERS(field, most)	    r->numbers(t->field(), most, &m->field);
#define TEXTS(field, storage, most) r->texts(t->field(), m->storage, most, &m->field);
#define OPTIONS(field)		    r->numbers(t->field(), WIRE_OPTIONS_MAX, &m->field);
#define BLOCK(field, has, bytes)    m->has = r->block(t->field(), m->field, bytes);
#define DEVICE(field)		    r->device(t->field(), &m->field);
#define DEVICES(field, counter)	    r->devices(t->field(), m->field, &m->counter);
#include "protocol/wire.def"
	default:
		return false;
	}
}

/* Verifies the packet's structure; NULL for an invalid packet. */
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
	/* The verifier accepts unknown union members, and known members that are absent. */
	if (!t || !t->body() || !read_body(&r, t, ret_message) || r.bad)
		return WIRE_E_INVALID;
	ret_message->id = t->id();
	ret_message->session = t->session();
	ret_message->type = static_cast<enum wire_type>(t->body_type());
	return 0;
}
