// See handler.h. A handler of another driver or device may look different: then nothing is found,
// and nothing is changed. Measurements and findings on an H100 and an H200 with driver 580.159.04:
//
//   enter ─► save ─► which command? ─► write the record, pause ─┐
//                      ▲   │                                    │
//                      └───┼────────────────────────────────────┘
//                          ▼
//                       restore ─► go on where the warp was
//
// The warp's continuation address lies in its own local memory, which only the warp itself reaches.
// So the first instruction of "restore" becomes a jump into free room: the nearest following gap
// between two pieces of the driver's code.
//
//   restore: jump to lesson              lesson: the address of the warp's record, and a byte there
//            ...                                 not 0: take the address in the record,
//                                                       make the byte 0, and write the
//                                                       address to its place in local memory
//                                                the first instruction of "restore"
//                                                jump to the second
//
// So the warp leaves the handler like any other. Warps must not end in the handler: with EXIT
// there, warps of a fault ended, and beside PyTorch programs after two to eleven faults the device
// neither stopped nor changed the context any more.
//
// The instructions for the address and the byte are the handler's own, which read whether the warp
// is still to wait: they are copied from their place, with the offset of another byte. Their
// registers are restored afterwards.
//
// Threads of a warp that have gone different ways have an address each, and only those that ran
// last go elsewhere. The others go on in place. In their kernel's code they exit; anywhere else
// another stop is necessary.
//
// The handler runs as well when the device saves a context to run another. A warp that is to go
// elsewhere keeps its record then, and goes there after its return. The byte is 0 for all others,
// so nothing changes for them.
//
// The change is made with the context, before anything runs there: a multiprocessor caches lines of
// code that it has run, and the lines after those. At each fault both places are looked at: the
// driver may have put code there.

#include "server/backend/cuda/handler.h"

#include <stdint.h>
#include <string.h>

#include "server/backend/cuda/debugger.h"
#include "server/backend/cuda/warps.h"

struct instruction {
	uint64_t low, high;
};

#define OPCODE	  UINT64_C(0xfff)
#define NOP	  UINT64_C(0x7918)
#define ALIGNMENT 0x80u

/* The opcodes of "restore", from its first instruction to the return and the following
 * instructions. */
static const uint16_t restore[] = {0x983, 0x356, 0x356, 0x983, 0x352, 0x352, 0x356, 0x356, 0x983, 0x202,
	0x202, 0x804, 0x356, 0x983, 0x983, 0x983, 0x94f, 0x94d, 0x947};
/* Opcodes for the address of a record, and for reading and testing a byte there. */
static const uint16_t look[] = {
	0x919, 0x919, 0x819, 0x81a, 0x824, 0x824, 0x802, 0x802, 0x810, 0x210, 0x210, 0x210, 0x980, 0x20c};
enum look_part {
	LOOK_RECORD = 5, /* times the bytes of a record */
	LOOK_LOW,
	LOOK_HIGH, /* address of the save area */
	LOOK_HEAD, /* plus the bytes of its head */
	LOOK_BYTE = 12,
	LOOK_TEST,
	LOOK_LENGTH
};

/* R0 = byte at R4, and P0 = R0 is not 0. The offset of the byte is in the upper half. */
#define READ_BYTE UINT64_C(0x04007980)
#define TEST_LOW  UINT64_C(0x000000ff0000720c)
#define TEST_HIGH UINT64_C(0x03f05270)
/* Reads see the latest writes of the processor and other warps, and nothing cached by the
 * multiprocessor. */
#define SCOPE	     UINT64_C(0x1ff000)
#define SCOPE_SYSTEM UINT64_C(0x114000)
/* Only if P0: R2, R3 = 8 bytes at R4 (the rest is as reading the byte), 0 to a byte at R4, and R2,
 * R3 to local memory, to where the address lies. The latter two wait for all that is fetched. */
#define READ_ADDRESS  UINT64_C(0x04020980)
#define WIDTH	      (UINT64_C(7) << 9)
#define WIDTH_ADDRESS (UINT64_C(5) << 9)
#define CLEAR_LOW     UINT64_C(0x04000385)
#define CLEAR_HIGH    UINT64_C(0x03f3e400005141ff)
#define LOCAL_ADDRESS 0xffffa800
#define STORE_LOW     (UINT64_C(0x02ff000387) | (uint64_t)LOCAL_ADDRESS << 32)
#define STORE_HIGH    UINT64_C(0x03f3e40000100a00)

/* Sources of the fields of a record: a special register (S2R, CS2R), the constants of the launch
 * (LDC), or the handler's own saved values (LDL). Each is an instruction that fetches a value, and
 * a store. */
#define STORE 0x385
static const struct field {
	uint16_t opcode;
	uint32_t source; /* of S2R and CS2R in the second half, of the others in the first */
	uint32_t offset; /* in the record */
} fields[] = {{0x919, 0x0300, WARPS_PLACE}, {0x919, 0x4000, WARPS_REASON}, {0x919, 0x4200, WARPS_ERROR},
	{0x805, 0x15400, WARPS_ERROR_AT}, {0x919, 0x2500, WARPS_BLOCK}, {0x919, 0x2600, WARPS_BLOCK + 4},
	{0x919, 0x2700, WARPS_BLOCK + 8}, {0xb82, 0xe00, WARPS_TASK}, {0xb82, 0xc00, WARPS_ORDINAL},
	{0x983, LOCAL_ADDRESS, WARPS_RETURN_TO}};
#define FIELDS	   (sizeof(fields) / sizeof(fields[0]))
#define ALL_FIELDS ((UINT32_C(1) << FIELDS) - 1)

enum lesson_part {
	LESSON_ADDRESS = LOOK_LENGTH,
	LESSON_CLEAR,
	LESSON_STORE,
	LESSON_FIRST,
	LESSON_BACK,
	LESSON_LENGTH
};

static struct {
	uint64_t restore_at, lesson_at;
	struct instruction first;
	struct instruction lesson[LESSON_LENGTH];
} handler;

/* State of the search in a piece of memory. */
struct search {
	uint64_t area;
	const uint8_t *bytes;
	uint64_t count;
	uint64_t restore, look; /* offsets */
	uint32_t restores, looks;
	uint32_t fields; /* fields that are written as expected: bits */
};

static struct instruction at(const struct search *search, uint64_t offset)
{
	struct instruction instruction;

	memcpy(&instruction, search->bytes + offset, sizeof(instruction));
	return instruction;
}

static bool has_opcodes(const struct search *search, uint64_t offset, const uint16_t *opcodes, uint32_t count)
{
	if (search->count - offset < count * sizeof(struct instruction))
		return false;
	for (uint32_t i = 0; i < count; i++)
		if ((at(search, offset + i * sizeof(struct instruction)).low & OPCODE) != opcodes[i])
			return false;
	return true;
}

static struct instruction look_part(const struct search *search, uint64_t offset, uint32_t part)
{
	return at(search, offset + part * sizeof(struct instruction));
}

static uint64_t constant(const struct search *search, uint64_t offset, enum look_part part)
{
	return look_part(search, offset, part).low >> 32;
}

/* True if the code reads the byte of a record that makes the warp wait. */
static bool reads_the_wait(const struct search *search, uint64_t offset)
{
	struct instruction test;

	if (!has_opcodes(search, offset, look, LOOK_LENGTH))
		return false;
	test = look_part(search, offset, LOOK_TEST);
	return constant(search, offset, LOOK_RECORD) == WARPS_RECORD_BYTES &&
	       constant(search, offset, LOOK_HEAD) == WARPS_HEAD_BYTES &&
	       constant(search, offset, LOOK_LOW) == (search->area & UINT32_MAX) &&
	       constant(search, offset, LOOK_HIGH) == search->area >> 32 &&
	       look_part(search, offset, LOOK_BYTE).low == (READ_BYTE | (uint64_t)WARPS_WAITS << 32) &&
	       test.low == TEST_LOW && (test.high & UINT32_MAX) == TEST_HIGH;
}

/* The fields that an instruction and its successor write: bits. */
static uint32_t writes(const struct search *search, uint64_t offset)
{
	struct instruction fetch = at(search, offset), store = look_part(search, offset, 1);
	bool is_special = (fetch.low & OPCODE) == 0x919 || (fetch.low & OPCODE) == 0x805;
	uint64_t source = is_special ? fetch.high & 0xffffff : fetch.low >> 32;
	uint32_t written = 0;

	for (uint32_t i = 0; i < FIELDS; i++)
		if ((fetch.low & OPCODE) == fields[i].opcode && source == fields[i].source &&
			(store.low & OPCODE) == STORE && store.low >> 32 == fields[i].offset)
			written |= UINT32_C(1) << i;
	return written;
}

static bool is_free(struct instruction instruction)
{
	return instruction.low == NOP || (!instruction.low && !instruction.high);
}

/* To the lines of a multiprocessor's cache. */
static uint64_t align(uint64_t offset)
{
	return (offset + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* The nearest room after "restore". Return: an offset; 0: none */
static uint64_t find_room(const struct search *search)
{
	const uint64_t needed = LESSON_LENGTH * sizeof(struct instruction);
	uint64_t room =
		align(search->restore + sizeof(restore) / sizeof(restore[0]) * sizeof(struct instruction));

	for (uint64_t offset = room; offset + sizeof(struct instruction) <= search->count;
		offset += sizeof(struct instruction)) {
		if (!is_free(at(search, offset)))
			room = align(offset + 1);
		else if (offset + sizeof(struct instruction) >= room + needed)
			return room;
	}
	return 0;
}

/* A jump. The distance counts in words, from the following instruction. */
static struct instruction jump(uint64_t from, uint64_t to)
{
	uint64_t distance = (uint64_t)((int64_t)(to - from - sizeof(struct instruction)) / 4);

	return (struct instruction){
		UINT64_C(0x100007947) | (distance & 0xff) << 16 | (distance >> 8 & 0x3fffffff) << 34,
		UINT64_C(0x003ff20003800000) | (distance >> 38 & 0x3ffff)};
}

static void compose(const struct search *search, uint64_t base, uint64_t room)
{
	struct instruction *lesson = handler.lesson;

	for (uint32_t i = 0; i < LOOK_LENGTH; i++)
		lesson[i] = look_part(search, search->look, i);
	lesson[LOOK_BYTE].low = READ_BYTE | (uint64_t)WARPS_LEAVES << 32;
	lesson[LOOK_BYTE].high = (lesson[LOOK_BYTE].high & ~SCOPE) | SCOPE_SYSTEM;
	lesson[LESSON_ADDRESS] = (struct instruction){READ_ADDRESS | (uint64_t)WARPS_RETURN_TO << 32,
		(lesson[LOOK_BYTE].high & ~WIDTH) | WIDTH_ADDRESS};
	lesson[LESSON_CLEAR] = (struct instruction){CLEAR_LOW | (uint64_t)WARPS_LEAVES << 32, CLEAR_HIGH};
	lesson[LESSON_STORE] = (struct instruction){STORE_LOW, STORE_HIGH};
	lesson[LESSON_FIRST] = at(search, search->restore);
	handler.restore_at = base + search->restore;
	handler.lesson_at = base + room;
	lesson[LESSON_BACK] = jump(handler.lesson_at + LESSON_BACK * sizeof(struct instruction),
		handler.restore_at + sizeof(struct instruction));
	handler.first = lesson[LESSON_FIRST];
}

static bool look_into(void *context, uint64_t base, const uint8_t *bytes, uint64_t count)
{
	struct search *search = context;
	uint64_t room;

	search->bytes = bytes;
	search->count = count;
	search->restores = search->looks = search->fields = 0;
	for (uint64_t offset = 0; offset + 2 * sizeof(struct instruction) <= count;
		offset += sizeof(struct instruction)) {
		search->fields |= writes(search, offset);
		if (has_opcodes(search, offset, restore, sizeof(restore) / sizeof(restore[0]))) {
			search->restore = offset;
			search->restores++;
		}
		if (reads_the_wait(search, offset)) {
			search->look = offset;
			search->looks++;
		}
	}
	if (search->restores != 1 || search->looks != 1 || search->fields != ALL_FIELDS)
		return false;
	room = find_room(search);
	if (room)
		compose(search, base, room);
	return room != 0;
}

static struct instruction hook(void)
{
	return jump(handler.restore_at, handler.lesson_at);
}

bool handler_teach(const void *area)
{
	struct search search = {.area = (uintptr_t)area};
	struct instruction first;

	if (!debugger_search(look_into, &search))
		return false;
	first = hook();
	return debugger_write(handler.lesson_at, handler.lesson, sizeof(handler.lesson)) &&
	       debugger_write(handler.restore_at, &first, sizeof(first));
}

bool handler_is_taught(void)
{
	struct instruction first, there[LESSON_LENGTH], wanted = hook();

	if (!debugger_read(handler.restore_at, &first, sizeof(first)) ||
		!debugger_read(handler.lesson_at, there, sizeof(there)) ||
		memcmp(&first, &wanted, sizeof(first)) != 0)
		return false;
	if (!memcmp(there, handler.lesson, sizeof(there)))
		return true;
	/* No warp is to run that. */
	debugger_write(handler.restore_at, &handler.first, sizeof(handler.first));
	return false;
}
