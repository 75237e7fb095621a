// The driver's half of the runtime's start-up check (see integrity.h). Runs on the program's
// threads a few times per copy of the CUDA runtime; speed does not matter. All state is on the
// stack.

#include "client/link/integrity.h"

#include <string.h>

#define BLOCK 16

/* The substitution table of RFC 1319: a permutation of 0..255 made from the digits of pi. */
static const uint8_t pi_bytes[256] = {
	41,
	46,
	67,
	201,
	162,
	216,
	124,
	1,
	61,
	54,
	84,
	161,
	236,
	240,
	6,
	19,
	98,
	167,
	5,
	243,
	192,
	199,
	115,
	140,
	152,
	147,
	43,
	217,
	188,
	76,
	130,
	202,
	30,
	155,
	87,
	60,
	253,
	212,
	224,
	22,
	103,
	66,
	111,
	24,
	138,
	23,
	229,
	18,
	190,
	78,
	196,
	214,
	218,
	158,
	222,
	73,
	160,
	251,
	245,
	142,
	187,
	47,
	238,
	122,
	169,
	104,
	121,
	145,
	21,
	178,
	7,
	63,
	148,
	194,
	16,
	137,
	11,
	34,
	95,
	33,
	128,
	127,
	93,
	154,
	90,
	144,
	50,
	39,
	53,
	62,
	204,
	231,
	191,
	247,
	151,
	3,
	255,
	25,
	48,
	179,
	72,
	165,
	181,
	209,
	215,
	94,
	146,
	42,
	172,
	86,
	170,
	198,
	79,
	184,
	56,
	210,
	150,
	164,
	125,
	182,
	118,
	252,
	107,
	226,
	156,
	116,
	4,
	241,
	69,
	157,
	112,
	89,
	100,
	113,
	135,
	32,
	134,
	91,
	207,
	101,
	230,
	45,
	168,
	2,
	27,
	96,
	37,
	173,
	174,
	176,
	185,
	246,
	28,
	70,
	97,
	105,
	52,
	64,
	126,
	15,
	85,
	71,
	163,
	35,
	221,
	81,
	175,
	58,
	195,
	92,
	249,
	206,
	186,
	197,
	234,
	38,
	44,
	83,
	13,
	110,
	133,
	40,
	132,
	9,
	211,
	223,
	205,
	244,
	65,
	129,
	77,
	82,
	106,
	220,
	55,
	200,
	108,
	193,
	171,
	250,
	36,
	225,
	123,
	8,
	12,
	189,
	177,
	74,
	120,
	136,
	149,
	139,
	227,
	99,
	232,
	109,
	233,
	203,
	213,
	254,
	59,
	0,
	29,
	57,
	242,
	239,
	183,
	14,
	102,
	88,
	208,
	228,
	166,
	119,
	114,
	248,
	235,
	117,
	75,
	10,
	49,
	68,
	80,
	180,
	143,
	237,
	31,
	26,
	219,
	153,
	141,
	51,
	159,
	17,
	131,
	20,
};

struct md2 {
	uint8_t state[3 * BLOCK];
	uint8_t checksum[BLOCK];
	uint8_t pending[BLOCK];
	size_t pending_bytes;
};

static void mix(struct md2 *md2, const uint8_t block[BLOCK])
{
	unsigned int t = 0;

	for (int i = 0; i < BLOCK; i++) {
		md2->state[BLOCK + i] = block[i];
		md2->state[2 * BLOCK + i] = block[i] ^ md2->state[i];
	}
	for (unsigned int round = 0; round < 18; round++) {
		for (int i = 0; i < 3 * BLOCK; i++) {
			md2->state[i] ^= pi_bytes[t];
			t = md2->state[i];
		}
		t = (t + round) & 0xff;
	}
}

static void absorb(struct md2 *md2, const uint8_t block[BLOCK])
{
	uint8_t last = md2->checksum[BLOCK - 1];

	for (int i = 0; i < BLOCK; i++) {
		md2->checksum[i] ^= pi_bytes[block[i] ^ last];
		last = md2->checksum[i];
	}
	mix(md2, block);
}

static void md2_add(struct md2 *md2, const void *data, size_t length)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < length; i++) {
		md2->pending[md2->pending_bytes++] = bytes[i];
		if (md2->pending_bytes == BLOCK) {
			absorb(md2, md2->pending);
			md2->pending_bytes = 0;
		}
	}
}

static void md2_end(struct md2 *md2, uint8_t ret_digest[INTEGRITY_DIGEST_BYTES])
{
	uint8_t padding[BLOCK], checksum[BLOCK];
	size_t missing = BLOCK - md2->pending_bytes;

	memset(padding, (int)missing, sizeof(padding));
	md2_add(md2, padding, missing);
	memcpy(checksum, md2->checksum, sizeof(checksum));
	mix(md2, checksum);
	memcpy(ret_digest, md2->state, INTEGRITY_DIGEST_BYTES);
}

void integrity_md2(const void *data, size_t length, uint8_t ret_digest[INTEGRITY_DIGEST_BYTES])
{
	struct md2 md2 = {0};

	md2_add(&md2, data, length);
	md2_end(&md2, ret_digest);
}

/* HMAC: the key, padded differently, goes in front of the message and in front of the inner
 * digest. */
static void keyed_begin(struct md2 *md2, uint8_t pad)
{
	static const uint8_t key[BLOCK] = {0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52, 0xaa, 0x08, 0x41,
		0x36, 0x0b, 0xf5, 0x5a, 0x9f};
	uint8_t padded[BLOCK];

	for (int i = 0; i < BLOCK; i++)
		padded[i] = key[i] ^ pad;
	memset(md2, 0, sizeof(*md2));
	md2_add(md2, padded, sizeof(padded));
}

static void add_number(struct md2 *md2, uint64_t number, int bytes)
{
	for (int i = 0; i < bytes; i++) {
		uint8_t byte = (uint8_t)(number >> (8 * i));

		md2_add(md2, &byte, 1);
	}
}

static void add_facts(struct md2 *md2, const struct integrity_facts *facts)
{
	add_number(md2, facts->driver_version, 4);
	add_number(md2, facts->version, 4);
	add_number(md2, facts->pid, 4);
	add_number(md2, facts->thread, 4);
	add_number(md2, facts->runtime_table, 8);
	add_number(md2, facts->integrity_table, 8);
	add_number(md2, facts->integrity_function, 8);
	add_number(md2, facts->seconds, 8);
}

static void add_device(struct md2 *md2, const struct integrity_device *device)
{
	md2_add(md2, device->uuid, sizeof(device->uuid));
	add_number(md2, (uint32_t)device->domain, 4);
	add_number(md2, (uint32_t)device->bus, 4);
	add_number(md2, (uint32_t)device->device, 4);
}

/* The fixed answers, as the runtime's two words in memory. */
static void fixed_answer(uint32_t digit, uint8_t ret_digest[INTEGRITY_DIGEST_BYTES])
{
	const uint64_t words[2] = {
		digit == 0 ? UINT64_C(0x3341181c03cb675c) : UINT64_C(0x1841181c03cb675c),
		UINT64_C(0x8ed383aa1f4cd1e8),
	};

	memcpy(ret_digest, words, sizeof(words));
}

void integrity_answer(const struct integrity_facts *facts, const struct integrity_device *devices,
	size_t device_count, uint8_t ret_digest[INTEGRITY_DIGEST_BYTES])
{
	uint8_t inner[INTEGRITY_DIGEST_BYTES];
	struct md2 md2;

	if (facts->version % 10 < 2) {
		fixed_answer(facts->version % 10, ret_digest);
		return;
	}
	keyed_begin(&md2, 0x36);
	add_facts(&md2, facts);
	for (size_t i = 0; i < device_count; i++)
		add_device(&md2, &devices[i]);
	md2_end(&md2, inner);
	keyed_begin(&md2, 0x5c);
	md2_add(&md2, inner, sizeof(inner));
	md2_end(&md2, ret_digest);
}
