// Control packets: every message type there and back with extreme values; then every truncation and
// many seeded corruptions of each, decoded from a buffer of exactly that size and read to the last
// byte, so that the sanitizer build sees any step outside; then packets that are well-formed and
// against our limits.

#include "protocol/wire.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "protocol/command.h"
#include "tests/lib/seed.h"
#include "tests/lib/suite.h"

#define CORRUPTIONS 1000

/* In wire.def. */
#define ANY UINT32_MAX

static const char *const texts[] = {"", "kernel", "_Z6kernelPfi", "ünï", "a\tb\nc"};
/* Longer than any text that the house writes. */
static char long_text[20000];
/* Elements of vectors; those of one message lie side by side. */
static uint8_t pool[WIRE_PACKET_MAX];
static size_t pool_used;
/* Fields of the message that have a value. */
static unsigned filled;

#define ALL(array)                                                                                           \
	{                                                                                                    \
		(array), sizeof(array) / sizeof(*(array))                                                    \
	}

/* ---- what the tests do with every field of a message ---- */

static const void *pool_take(size_t bytes)
{
	const void *at = pool + pool_used;

	pool_used += (bytes + 7) / 8 * 8;
	ck_assert_uint_le(pool_used, sizeof(pool));
	return at;
}

static uint64_t next_number(void)
{
	return UINT64_MAX - filled++;
}

static void same_names(const struct wire_names *a, const struct wire_names *b)
{
	ck_assert_uint_eq(a->count, b->count);
	for (uint32_t i = 0; i < a->count; ++i)
		ck_assert_str_eq(a->at[i], b->at[i]);
}

#define SAME_ELEMENTS(a, b)                                                                                  \
	do {                                                                                                 \
		ck_assert_uint_eq((a).count, (b).count);                                                     \
		ck_assert_int_eq((a).count ? memcmp((a).at, (b).at, (a).count * sizeof(*(a).at)) : 0, 0);    \
		ck_assert_uint_eq((uintptr_t)(b).at % _Alignof(__typeof__(*(b).at)), 0);                     \
	} while (0)

/* A copy reads all of it, and sanitizers look at it as a whole. */
static void touch(const void *at, size_t bytes)
{
	static uint8_t copy[WIRE_PACKET_MAX];

	ck_assert_uint_le(bytes, sizeof(copy));
	if (bytes)
		memcpy(copy, at, bytes);
	__asm__ volatile("" : : "r"(copy) : "memory");
}

static void touch_text(const char *s)
{
	touch(s, strlen(s) + 1);
}

/* Fills every field with a value that no other field of the message has, vectors to their
 * limits. */
#define TABLE(table, type, fields)                                                                           \
	static void fill_##table(void *at)                                                                   \
	{                                                                                                    \
		struct type *m = at;                                                                         \
		fields                                                                                       \
	}
#define NUMBER(from, in) m->in = (__typeof__(m->in))next_number();
#define NUMBERS(from, in, most)                                                                              \
	m->in.count = (most) == ANY ? sizeof(struct frmps_launch_attribute) : (most);                        \
	m->in.at = pool_take(m->in.count * sizeof(*m->in.at));
#define EXACTLY(from, in, count) memcpy(m->in, pool_take(sizeof(m->in)), sizeof(m->in));
#define TEXT(from, in)		 m->in = filled++ ? texts[filled % 5] : long_text;
#define TEXTS(from, in, most)	 m->in = (struct wire_names)ALL(texts);
#define STRUCTS(from, in, most, type)                                                                        \
	m->in.count = (most);                                                                                \
	m->in.at = pool_take(m->in.count * sizeof(*m->in.at));
#define PART(from, in, table, absent) fill_##table(&m->in);
#define NO_TEXT(in)		      m->in = "";
#include "protocol/wire.def"

/* Compares every field. */
#define TABLE(table, type, fields)                                                                           \
	static void same_##table(const void *sent, const void *received)                                     \
	{                                                                                                    \
		const struct type *a = sent, *b = received;                                                  \
		fields                                                                                       \
	}
#define NUMBER(from, in)	      ck_assert_msg(a->in == b->in, "%s differs", #in);
#define NUMBERS(from, in, most)	      SAME_ELEMENTS(a->in, b->in);
#define EXACTLY(from, in, count)      ck_assert_mem_eq(a->in, b->in, sizeof(a->in));
#define TEXT(from, in)		      ck_assert_str_eq(a->in, b->in);
#define TEXTS(from, in, most)	      same_names(&a->in, &b->in);
#define STRUCTS(from, in, most, type) SAME_ELEMENTS(a->in, b->in);
#define PART(from, in, table, absent) same_##table(&a->in, &b->in);
#define NO_TEXT(in)		      ck_assert_str_eq(a->in, b->in);
#include "protocol/wire.def"

/* Reads everything that a message points to. */
#define TABLE(table, type, fields)                                                                           \
	static void touch_##table(const void *at)                                                            \
	{                                                                                                    \
		const struct type *m = at;                                                                   \
		(void)m;                                                                                     \
		fields                                                                                       \
	}
#define NUMBER(from, in)
#define NUMBERS(from, in, most)                                                                              \
	ck_assert_uint_le(m->in.count, most);                                                                \
	touch(m->in.at, m->in.count * sizeof(*m->in.at));
#define EXACTLY(from, in, count)
#define TEXT(from, in) touch_text(m->in);
#define TEXTS(from, in, most)                                                                                \
	ck_assert_uint_le(m->in.count, most);                                                                \
	for (uint32_t i = 0; i < m->in.count; ++i)                                                           \
		touch_text(m->in.at[i]);
#define STRUCTS(from, in, most, type) NUMBERS(from, in, most)
#define PART(from, in, table, absent) touch_##table(&m->in);
#define NO_TEXT(in)		      touch_text(m->in);
#include "protocol/wire.def"

/* Clears every field of the message. What is left of its struct belongs to other messages. */
#define TABLE(table, type, fields)                                                                           \
	static size_t clear_##table(void *at)                                                                \
	{                                                                                                    \
		struct type *m = at;                                                                         \
		fields return sizeof(*m);                                                                    \
	}
#define CLEAR(in)		      memset(&m->in, 0, sizeof(m->in));
#define NUMBER(from, in)	      CLEAR(in)
#define NUMBERS(from, in, most)	      CLEAR(in)
#define EXACTLY(from, in, count)      CLEAR(in)
#define TEXT(from, in)		      CLEAR(in)
#define TEXTS(from, in, most)	      CLEAR(in) CLEAR(in##_storage)
#define STRUCTS(from, in, most, type) CLEAR(in)
#define PART(from, in, table, absent) clear_##table(&m->in);
#define NO_TEXT(in)		      CLEAR(in)
#include "protocol/wire.def"

static const struct {
	void (*fill)(void *body);
	void (*same)(const void *sent, const void *received);
	void (*touch)(const void *body);
	size_t (*clear)(void *body);
} of_type[WIRE_TYPES] = {
#define MESSAGE(name, table, body) [WIRE_##name] = {fill_##table, same_##table, touch_##table, clear_##table},
#include "protocol/wire.def"
};

/* All bodies begin here. */
static void *body_of(struct wire_message *m)
{
	return &m->hello;
}

/* A message of the type with no field left at its default. */
static struct wire_message *sample(enum wire_type type)
{
	struct wire_message *m = calloc(1, sizeof(*m));

	ck_assert_ptr_nonnull(m);
	m->type = type;
	m->id = UINT64_MAX;
	m->session = UINT64_MAX - 1;
	filled = 0;
	pool_used = 0;
	if (of_type[type].fill)
		of_type[type].fill(body_of(m));
	return m;
}

static void touch_message(struct wire_message *m)
{
	if (of_type[m->type].touch)
		of_type[m->type].touch(body_of(m));
}

/* ---- fixture ---- */

static uint8_t *packet;
static struct wire_message *decoded;

static void prepare(void)
{
	packet = malloc(WIRE_PACKET_MAX);
	decoded = malloc(sizeof(*decoded));
	memset(long_text, 'x', sizeof(long_text) - 1);
	for (size_t i = 0; i < sizeof(pool); ++i)
		pool[i] = (uint8_t)(i * 7 ^ i / 251);
}

static void dispose(void)
{
	free(packet);
	free(decoded);
}

/* Decodes from a buffer of exactly this size. Return: as wire_decode(). */
static int decode_exactly(const uint8_t *bytes, size_t length)
{
	uint8_t *copy = malloc(length ? length : 1);
	struct wire_message *m = decoded;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, bytes, length);
	int r = wire_decode(copy, length, m);
	if (r) {
		/* What libcheck counts of a check that holds costs more than the check. */
		if (r != WIRE_E_INVALID || m->type != WIRE_NONE)
			ck_abort_msg("%d, a message of type %d", r, (int)m->type);
	} else {
		ck_assert_int_gt(m->type, WIRE_NONE);
		ck_assert_int_lt(m->type, WIRE_TYPES);
		touch_message(m);
	}
	free(copy);
	return r;
}

static size_t encode(const struct wire_message *m)
{
	size_t length = 0;

	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), 0);
	ck_assert_uint_gt(length, 0);
	ck_assert_uint_le(length, WIRE_PACKET_MAX);
	return length;
}

static size_t encode_sample(enum wire_type type)
{
	struct wire_message *m = sample(type);
	size_t length = encode(m);

	free(m);
	return length;
}

/* ---- tests ---- */

TEST_LOOP(there_and_back, there_and_back, 1, WIRE_TYPES)
{
	struct wire_message *m = sample((enum wire_type)_i);
	size_t length = encode(m);

	memset(decoded, 0xa5, sizeof(*decoded));
	ck_assert_int_eq(wire_decode(packet, length, decoded), 0);
	ck_assert_int_eq(decoded->type, _i);
	ck_assert_uint_eq(decoded->id, m->id);
	ck_assert_uint_eq(decoded->session, m->session);
	if (of_type[_i].same)
		of_type[_i].same(body_of(m), body_of(decoded));
	touch_message(decoded);
	free(m);
}

/* Fields of other messages with the same struct are zero, and so is the padding. */
TEST_LOOP(there_and_back, rest_is_zero, 1, WIRE_TYPES)
{
	static const struct wire_message zero;
	struct wire_message *m = sample((enum wire_type)_i);
	size_t length = encode(m);

	memset(decoded, 0xa5, sizeof(*decoded));
	ck_assert_int_eq(wire_decode(packet, length, decoded), 0);
	if (of_type[_i].clear)
		ck_assert_mem_eq(body_of(decoded), &zero, of_type[_i].clear(body_of(decoded)));
	free(m);
}

/* All fields zero, all pointers NULL. */
TEST_LOOP(there_and_back, empty_there_and_back, 1, WIRE_TYPES)
{
	struct wire_message *m = calloc(1, sizeof(*m));

	ck_assert_ptr_nonnull(m);
	m->type = (enum wire_type)_i;
	size_t length = encode(m);
	ck_assert_int_eq(wire_decode(packet, length, decoded), 0);
	ck_assert_int_eq(decoded->type, _i);
	ck_assert_uint_eq(decoded->id, 0);
	touch_message(decoded);
	if (_i == WIRE_REPLY)
		ck_assert(decoded->reply.values.count == 0 && decoded->reply.names.count == 0);
	free(m);
}

TEST_LOOP(hostile_packets, every_truncation, 1, WIRE_TYPES)
{
	size_t length = encode_sample((enum wire_type)_i);
	/* Byte by byte at both ends, in steps through the text in the middle. */
	for (size_t n = 0, step; n < length; n += step) {
		decode_exactly(packet, n);
		step = n > 4096 && n + 4096 < length ? 61 : 1;
	}
	ck_assert_int_eq(decode_exactly(packet, 0), WIRE_E_INVALID);
	ck_assert_int_eq(decode_exactly(packet, 7), WIRE_E_INVALID);
	ck_assert_int_eq(decode_exactly(packet, length), 0);
}

/* xorshift: the same on every machine. */
static uint32_t random_word(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

/* The bytes that matter are near both ends; a text of 20 000 bytes between them would swallow most
 * corruptions. */
static size_t random_place(uint32_t *state, size_t length)
{
	uint32_t word = random_word(state);

	if (length <= 4096 || word % 8 == 0)
		return word / 8 % length;
	return word % 8 < 5 ? word / 8 % 1024 : length - 1 - word / 8 % 1024;
}

START_TEST(corruptions)
{
	size_t length = encode_sample((enum wire_type)_i);
	uint32_t state = seed_of(0x9e3779b9u + (uint32_t)_i);
	unsigned refused = 0;

	for (int n = 0; n < CORRUPTIONS; ++n) {
		size_t at = random_place(&state, length);
		uint8_t was = packet[at];
		packet[at] = (uint8_t)random_word(&state);
		refused += decode_exactly(packet, length) != 0;
		packet[at] = was;
	}
	/* The test is worth nothing if corruptions did not reach the structure. */
	ck_assert_uint_gt(refused, 0);
	ck_assert_int_eq(decode_exactly(packet, length), 0);
}
END_TEST

TEST(hostile_packets, noise)
{
	uint32_t state = seed_of(12345);

	for (int n = 0; n < CORRUPTIONS; ++n) {
		size_t length = random_word(&state) % 512;
		for (size_t i = 0; i < length; ++i)
			packet[i] = (uint8_t)random_word(&state);
		if (length >= 8)
			memcpy(packet + 4, "FRMC", 4);
		if (length >= 8 && n % 2)
			memset(packet + 1, 0, 3);
		decode_exactly(packet, length);
	}
}

/* A buffer of any size below the packet's is refused and not written to. */
TEST_LOOP(limits, small_buffers, 1, WIRE_TYPES)
{
	struct wire_message *m = sample((enum wire_type)_i);
	size_t length = encode(m), ret = 99;
	size_t step = length / 50 + 1;

	memset(packet, 0xa5, WIRE_PACKET_MAX);
	for (size_t size = 0; size < length; size += step)
		ck_assert_int_eq(wire_encode(m, packet, size, &ret), WIRE_E_SPACE);
	ck_assert_int_eq(wire_encode(m, packet, length - 1, &ret), WIRE_E_SPACE);
	ck_assert_uint_eq(ret, 99);
	for (size_t i = 0; i < WIRE_PACKET_MAX; ++i)
		if (packet[i] != 0xa5)
			ck_abort_msg("byte %zu was written", i);
	ck_assert_int_eq(wire_encode(m, packet, length, &ret), 0);
	ck_assert_uint_eq(ret, length);
	ck_assert_uint_eq(packet[length], 0xa5);
	free(m);
}

TEST(hostile_packets, foreign_packets)
{
	static const char *const identifiers[] = {"FRMP", "frmc", "\0\0\0\0", "FRMD"};
	size_t length = encode_sample(WIRE_HELLO);

	for (size_t i = 0; i < sizeof(identifiers) / sizeof(*identifiers); ++i) {
		memcpy(packet + 4, identifiers[i], 4);
		ck_assert_int_eq(decode_exactly(packet, length), WIRE_E_INVALID);
	}
	memcpy(packet + 4, "FRMC", 4);
	ck_assert_int_eq(decode_exactly(packet, length), 0);
}

TEST(hostile_packets, unaligned_packets)
{
	size_t length = encode_sample(WIRE_PING);

	memmove(packet + 4, packet, length);
	ck_assert_int_eq(wire_decode(packet + 4, length, decoded), WIRE_E_INVALID);
	memmove(packet + 8, packet + 4, length);
	ck_assert_int_eq(wire_decode(packet + 8, length, decoded), 0);
}

TEST(hostile_packets, long_packets)
{
	size_t length = encode_sample(WIRE_PING);
	uint8_t *longer = calloc(1, WIRE_PACKET_MAX + 8);

	ck_assert_ptr_nonnull(longer);
	memcpy(longer, packet, length);
	ck_assert_int_eq(wire_decode(longer, WIRE_PACKET_MAX, decoded), 0);
	ck_assert_int_eq(wire_decode(longer, WIRE_PACKET_MAX + 1, decoded), WIRE_E_INVALID);
	free(longer);
}

/* Encoding what does not fit a packet at all. */
TEST(limits, too_large)
{
	struct wire_message *m = calloc(1, sizeof(*m));
	char *text = calloc(1, 2 * WIRE_PACKET_MAX);
	const char *many[WIRE_NAMES_MAX];
	uint64_t *values = calloc(WIRE_PACKET_MAX, sizeof(*values));
	size_t length = 0;

	ck_assert_ptr_nonnull(m);
	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_nonnull(values);
	m->type = WIRE_REPLY;
	memset(text, 'y', 2 * WIRE_PACKET_MAX - 1);
	m->reply.text = text;
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_SPACE);
	text[WIRE_PACKET_MAX - 1] = '\0';
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_SPACE);
	text[65000] = '\0';
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), 0);

	/* As many names as a Reply may have: short ones fit, long ones do not. */
	m->reply.text = NULL;
	text[100] = '\0';
	for (unsigned i = 0; i < WIRE_NAMES_MAX; ++i)
		many[i] = text;
	m->reply.names = (struct wire_names)ALL(many);
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), 0);
	ck_assert_int_eq(wire_decode(packet, length, decoded), 0);
	ck_assert_uint_eq(decoded->reply.names.count, WIRE_NAMES_MAX);
	ck_assert_str_eq(decoded->reply.names.at[WIRE_NAMES_MAX - 1], text);
	text[100] = 'y';
	text[200] = '\0';
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_SPACE);

	m->reply.names.count = 0;
	m->reply.values = (struct wire_u64s){values, 8000};
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), 0);
	m->reply.values.count = WIRE_PACKET_MAX / 8;
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_SPACE);
	m->reply.values.count = UINT32_MAX;
	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_SPACE);
	ck_assert_int_eq(wire_encode(m, packet, SIZE_MAX, &length), WIRE_E_SPACE);
	free(values);
	free(text);
	free(m);
}

/* The largest packets that can be: everything below a limit and just at the packet's end, in steps
 * of one byte. */
TEST(limits, just_fits)
{
	struct wire_message *m = calloc(1, sizeof(*m));
	char *text = calloc(1, WIRE_PACKET_MAX);
	const char *many[WIRE_NAMES_MAX];
	size_t length = 0;
	int r = 0, fits = 0;

	ck_assert_ptr_nonnull(m);
	ck_assert_ptr_nonnull(text);
	m->type = WIRE_REPLY;
	for (unsigned i = 0; i < WIRE_NAMES_MAX; ++i)
		many[i] = i % 2 ? "" : NULL;
	m->reply.names = (struct wire_names)ALL(many);
	m->reply.values = (struct wire_u64s){(const uint64_t *)pool_take(40), 5};
	m->reply.text = text;
	memset(text, 'z', WIRE_PACKET_MAX - 1);
	for (size_t n = WIRE_PACKET_MAX - 6400; n < WIRE_PACKET_MAX - 6000; ++n) {
		text[n] = '\0';
		r = wire_encode(m, packet, WIRE_PACKET_MAX, &length);
		fits += r == 0;
		ck_assert(r == 0 || r == WIRE_E_SPACE);
		ck_assert_int_eq(wire_decode(packet, length, decoded), 0);
		text[n] = 'z';
	}
	ck_assert_int_eq(r, WIRE_E_SPACE);
	ck_assert_int_gt(fits, 0);
	free(text);
	free(m);
}

static void refuse(const struct wire_message *m)
{
	size_t length;

	ck_assert_int_eq(wire_encode(m, packet, WIRE_PACKET_MAX, &length), WIRE_E_INVALID);
}

TEST(limits, limits_when_encoding)
{
	static const char *many[WIRE_NAMES_MAX + 1];
	static uint64_t words[WIRE_OPTIONS_MAX * 16];
	struct wire_message *m = sample(WIRE_WELCOME);

	m->welcome.device.uuid.count = 15;
	refuse(m);
	m->welcome.device.uuid.count = 0;
	encode(m); /* without a device */
	m->welcome.device.uuid.count = 16;
	m->welcome.device.limits = (struct wire_u64s){words, WIRE_DEVICE_LIMITS_MAX + 1};
	refuse(m);
	free(m);

	m = sample(WIRE_REPLY);
	m->reply.names = (struct wire_names)ALL(many);
	refuse(m);
	m->reply.names = (struct wire_names){NULL, 1};
	refuse(m);
	m->reply.names.count = 0;
	m->reply.values = (struct wire_u64s){NULL, 1};
	refuse(m);
	free(m);

	m = sample(WIRE_ADMIN);
	m->admin.arguments = (struct wire_names){many, WIRE_ARGUMENTS_MAX};
	encode(m);
	m->admin.arguments = (struct wire_names){many, WIRE_ARGUMENTS_MAX + 1};
	refuse(m);
	free(m);

	m = sample(WIRE_HELLO);
	m->hello.free_windows = (struct wire_u64s){words, WIRE_WINDOW_WORDS_MAX + 1};
	refuse(m);
	free(m);

	m = sample(WIRE_LOAD_MODULE);
	m->load_module.options = (struct wire_options){(struct wire_option *)words, WIRE_OPTIONS_MAX};
	encode(m);
	m->load_module.options.count++;
	refuse(m);
	m->load_module.options = (struct wire_options){NULL, 1};
	refuse(m);
	free(m);
}

TEST(limits, shapes_when_encoding)
{
	struct wire_message *m = sample(WIRE_QUERY_OCCUPANCY);

	m->occupancy.grid.count = 2;
	refuse(m);
	m->occupancy.grid.count = 3;
	m->occupancy.attributes.count -= 1;
	refuse(m);
	free(m);

	m = sample(WIRE_ACTIVATE);
	m->activate.recover.count--;
	refuse(m);
	free(m);

	m = calloc(1, sizeof(*m));
	ck_assert_ptr_nonnull(m);
	refuse(m); /* WIRE_NONE */
	m->type = WIRE_TYPES;
	refuse(m);
	free(m);
}

/* Finds `bytes` at a multiple of 4 in the packet; exactly one place. */
static uint8_t *find(size_t length, const void *bytes, size_t count)
{
	uint8_t *found = NULL;

	for (size_t at = 0; at + count <= length; at += 4)
		if (!memcmp(packet + at, bytes, count)) {
			ck_assert_ptr_null(found);
			found = packet + at;
		}
	ck_assert_ptr_nonnull(found);
	return found;
}

static void put_word(uint8_t *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
}

static uint32_t get_word(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

/* Packets that the verifier finds well-formed but that break our limits, made by changing a
 * vector's length.
 */
TEST(limits, limits_when_decoding)
{
	uint64_t words[WIRE_WINDOW_WORDS_MAX];
	struct wire_message *m = sample(WIRE_HELLO);

	memset(words, 0x5a, sizeof(words));
	m->hello.program = "a program with a name of some length";
	m->hello.free_windows = (struct wire_u64s)ALL(words);
	size_t length = encode(m);
	uint8_t *at = find(length, words, sizeof(words));
	ck_assert_uint_eq(get_word(at - 4), WIRE_WINDOW_WORDS_MAX);
	put_word(at - 4, WIRE_WINDOW_WORDS_MAX + 1);
	ck_assert_int_eq(decode_exactly(packet, length), WIRE_E_INVALID);
	put_word(at - 4, WIRE_WINDOW_WORDS_MAX - 1);
	ck_assert_int_eq(decode_exactly(packet, length), 0);
	free(m);

	m = sample(WIRE_READY);
	length = encode(m);
	at = find(length, m->ready.device.uuid.at, WIRE_UUID_BYTES);
	for (uint32_t count = 0; count < 20; ++count) {
		put_word(at - 4, count);
		ck_assert_int_eq(decode_exactly(packet, length), count == 16 ? 0 : WIRE_E_INVALID);
	}
	free(m);

	m = sample(WIRE_ACTIVATE);
	length = encode(m);
	at = find(length, m->activate.recover.at, m->activate.recover.count * sizeof(uint32_t));
	put_word(at - 4, 4);
	ck_assert_int_eq(decode_exactly(packet, length), WIRE_E_INVALID);
	free(m);

	m = sample(WIRE_QUERY_OCCUPANCY);
	length = encode(m);
	at = find(length, m->occupancy.attributes.at, m->occupancy.attributes.count);
	put_word(at - 4, m->occupancy.attributes.count - 1);
	ck_assert_int_eq(decode_exactly(packet, length), WIRE_E_INVALID);
	free(m);

	/* Two words, no more, no less. */
	m = sample(WIRE_LEND_MEMORY);
	length = encode(m);
	at = find(length, m->lend.token, sizeof(m->lend.token));
	for (uint32_t count = 0; count < 4; ++count) {
		put_word(at - 4, count);
		ck_assert_int_eq(decode_exactly(packet, length), count == 2 ? 0 : WIRE_E_INVALID);
	}
	free(m);
}

/* Numbers of 8 bytes must lie at multiples of 8: the offset of a vector is changed so that it
 * starts 4 bytes later, where a length of 1 and enough bytes follow. */
TEST(hostile_packets, misaligned_numbers)
{
	const uint64_t words[] = {UINT64_C(0x1234567800000001), UINT64_C(0x7777777777777777)};
	struct wire_message *m = sample(WIRE_HELLO);
	bool changed = false;

	m->hello.free_windows = (struct wire_u64s)ALL(words);
	size_t length = encode(m);
	size_t vector = (size_t)(find(length, words, sizeof(words)) - packet) - 4;
	for (size_t at = 0; at < vector; at += 4)
		if (at + get_word(packet + at) == vector) {
			put_word(packet + at, get_word(packet + at) + 4);
			changed = true;
			break;
		}
	ck_assert(changed);
	ck_assert_int_eq(decode_exactly(packet, length), WIRE_E_INVALID);
	free(m);
}

TEST(there_and_back, keeper_has_no_device)
{
	struct wire_message *m = calloc(1, sizeof(*m));

	ck_assert_ptr_nonnull(m);
	m->type = WIRE_READY;
	m->ready.driver_version = 13000;
	size_t length = encode(m);
	ck_assert_int_eq(wire_decode(packet, length, decoded), 0);
	ck_assert_int_eq(decoded->ready.driver_version, 13000);
	ck_assert_uint_eq(decoded->ready.device.uuid.count, 0);
	ck_assert_str_eq(decoded->ready.device.name, "");
	free(m);
}

TEST(there_and_back, type_names)
{
	ck_assert_str_eq(wire_type_name(WIRE_HELLO), "Hello");
	ck_assert_str_eq(wire_type_name(WIRE_ADMIN_REPLY), "AdminReply");
	ck_assert_str_eq(wire_type_name(WIRE_NONE), "unknown");
	ck_assert_str_eq(wire_type_name(WIRE_TYPES), "unknown");
	ck_assert_str_eq(wire_type_name((enum wire_type)12345), "unknown");
	for (int type = 1; type < WIRE_TYPES; ++type)
		ck_assert_str_ne(wire_type_name((enum wire_type)type), "unknown");
}

int main(void)
{
	Suite *suite = suite_create("wire");
	TCase *good = suite_case(suite, "there and back");
	TCase *hostile = suite_case(suite, "hostile packets");
	TCase *limits = suite_case(suite, "limits");

	tcase_add_checked_fixture(good, prepare, dispose);
	suite_add(good, "there_and_back");

	tcase_add_checked_fixture(hostile, prepare, dispose);
	suite_add(hostile, "hostile_packets");
	tcase_add_loop_test(hostile, corruptions, 1, WIRE_TYPES);

	tcase_add_checked_fixture(limits, prepare, dispose);
	suite_add(limits, "limits");
	return suite_run(suite);
}
