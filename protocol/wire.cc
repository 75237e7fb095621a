// Control packets: plain structs of wire.h in, FlatBuffers tables out, and back. Runs in every
// process of the project, in the thread of the caller; keeps nothing between calls.
//
// Decoding trusts nothing: flatbuffers' verifier proves that every table, string and vector lies
// inside the packet, and the Reader adds the checks that the verifier lacks: alignment of wide
// vector elements, limits of wire.h, the presence of a known union member. Both directions carry a
// sticky status.
//
// schema.py makes the rows of wire.def from control.fbs; both directions are macros over these
// rows. A row that does not match flatc's table does not compile, or fails in test_wire.
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
#define STRUCT(table, type)                                                                                  \
	static_assert(sizeof(type) == sizeof(fb::table) && alignof(type) == alignof(fb::table),              \
		"lists of structs are handed out in place");
#define MESSAGE(name, table, body)                                                                           \
	static_assert(                                                                                       \
		static_cast<int>(WIRE_##name) == static_cast<int>(fb::Body_##table), "order of the union");
#define EMPTY(name, table) MESSAGE(name, table, )
#include "protocol/wire.def"
static_assert(static_cast<int>(WIRE_TYPES) == static_cast<int>(fb::Body_MAX) + 1, "a message is missing");

/* Message, body, Device and Shape; the verifier refuses more. */
static const flatbuffers::uoffset_t TABLES_MAX = 4;
static const flatbuffers::uoffset_t DEPTH_MAX = 8;
/* A vector may have as many elements as a packet holds. */
static const uint32_t ANY = UINT32_MAX;

const char *wire_type_name(enum wire_type type)
{
	switch (type) {
#define MESSAGE(name, table, body)                                                                           \
	case WIRE_##name:                                                                                    \
		return #table;
#define EMPTY(name, table) MESSAGE(name, table, )
#include "protocol/wire.def"
	default:
		return "unknown";
	}
}

/* Rules of a table beyond the limits in its row, in both directions. */
template <typename T> static bool is_valid(const T &)
{
	return true;
}

static bool is_valid(const wire_device &m)
{
	return m.uuid.count == WIRE_UUID_BYTES;
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

/* Is a table that is part of a message in the packet? */
template <typename T> static bool is_there(const T &)
{
	return true;
}

/* The keeper knows no device. */
static bool is_there(const wire_device &m)
{
	return m.uuid.count;
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

	/* A list of at most `most` structs, with the same bytes in C and on the wire. */
	template <typename T, typename L> offsets<const T *> structs(const L &list, uint32_t most)
	{
		require(list.count <= most && (!list.count || list.at));
		if (!list.count || status || !room(list.count * sizeof(T)))
			return 0;
		return fbb.CreateVectorOfStructs(reinterpret_cast<const T *>(list.at), list.count);
	}

	void require(bool holds)
	{
		if (!holds)
			fail(WIRE_E_INVALID);
	}
};

} // namespace

/* A function for each table. The fields are made in the order of the table, the parts of a table
 * before the table itself, as the library demands. */
#define TABLE(table, type, fields)                                                                           \
	static offset<fb::table> build_##table(Builder *b, const type &m)                                    \
	{                                                                                                    \
		b->require(is_valid(m));                                                                     \
		return std::apply(fb::Create##table, std::tuple{std::ref(b->fbb) fields});                   \
	}
#define NUMBER(from, in)	      , m.in
#define NUMBERS(from, in, most)	      , b->numbers(m.in.at, m.in.count, most)
#define EXACTLY(from, in, count)      , b->numbers(m.in, count, count)
#define TEXT(from, in)		      , b->text(m.in)
#define TEXTS(from, in, most)	      , b->texts(m.in, most)
#define STRUCTS(from, in, most, type) , b->structs<fb::type>(m.in, most)
#define PART(from, in, table, absent) , is_there(m.in) ? build_##table(b, m.in) : 0
#define NO_TEXT(in)
#include "protocol/wire.def"

/* The body of a message, for the union. */
static offset<void> build_body(Builder *b, const wire_message &message)
{
	switch (message.type) {
#define MESSAGE(name, table, body)                                                                           \
	case WIRE_##name:                                                                                    \
		return build_##table(b, message.body).Union();
#define EMPTY(name, table)                                                                                   \
	case WIRE_##name:                                                                                    \
		return fb::Create##table(b->fbb).Union();
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
	offset<void> content = build_body(&b, m);
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

	/* A vector of exactly so many elements, into an array. */
	template <typename T> void exactly(const flatbuffers::Vector<T> *vector, T *to, uint32_t count)
	{
		require(vector && vector->size() == count);
		for (uint32_t i = 0; i < count && !bad; ++i)
			to[i] = vector->Get(i);
	}
};

} // namespace

/* A function for each table. Absent fields are 0: the whole struct, padding too, because some
 * bodies are compared. */
#define TABLE(table, type, fields)                                                                           \
	static void read_##table(Reader *r, const fb::table *t, type *m)                                     \
	{                                                                                                    \
		memset(m, 0, sizeof(*m));                                                                    \
		fields r->require(is_valid(*m));                                                             \
	}
#define NUMBER(from, in)	      m->in = t->from();
#define NUMBERS(from, in, most)	      r->numbers(t->from(), most, &m->in);
#define EXACTLY(from, in, count)      r->exactly(t->from(), m->in, count);
#define TEXT(from, in)		      m->in = r->text(t->from());
#define TEXTS(from, in, most)	      r->texts(t->from(), m->in##_storage, most, &m->in);
#define STRUCTS(from, in, most, type) r->numbers(t->from(), most, &m->in);
#define PART(from, in, table, absent)                                                                        \
	if (t->from()) {                                                                                     \
		read_##table(r, t->from(), &m->in);                                                          \
	} else {                                                                                             \
		absent                                                                                       \
	}
#define NO_TEXT(in) m->in = "";
#include "protocol/wire.def"

/* Reads the body; false for a type unknown to this version. */
static bool read_body(Reader *r, const fb::Message *message, wire_message *ret_message)
{
	switch (message->body_type()) {
#define MESSAGE(name, table, body)                                                                           \
	case fb::Body_##table:                                                                               \
		read_##table(r, message->body_as_##table(), &ret_message->body);                             \
		return true;
#define EMPTY(name, table)                                                                                   \
	case fb::Body_##table:                                                                               \
		return true;
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
