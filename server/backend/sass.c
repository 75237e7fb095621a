// See sass.h. A compiler that sees a whole program puts the addresses of all its variables into
// bank 4 of the constants, used or not. Instructions, of 128 bits each (bit 0 is the lowest of the
// first byte), name the places that code reads there:
//
//    0…11  operation, and of what kind its operands are        54…58  bank of a constant operand
//   12…15  predicate, negated                                  73…75  LDC, ULDC: size
//   16…23  register written                                    78…79  LDC: how the index is taken
//   24…31  first operand; LDC: a register that is added
//   38…53  offset in the bank; 32…63 is the value of an operand that is a number
//
// The meaning of bits 54…58 in other instructions is not known here: any with bank 4 there counts as a read.
// So there may be too many reads, but not too few.
//
// Addresses of functions are loaded with an index, which the compiler puts into a register a few
// instructions before. Such a load counts as understood if that number leads to a function.
//
// A constant's address is its place in bank 3, plus the bank's own address, which the driver puts
// into bank 0. So code that has such an address has read that word.
//
// Pure functions on untrusted bytes; any thread.

#include "server/backend/sass.h"

#include <string.h>

#define BYTES SASS_INSTRUCTION_BYTES
#define BANK  4u
/* The driver's data for every kernel. */
#define DRIVER_BANK 0u
/* Operations. */
#define LDC  0xb82u
#define ULDC 0xab9u
#define MOV  0x802u /* of a number */
#define WHAT 0x1ffu /* without the kind of its operands */
/* Kinds, bits 9 to 11, with a constant operand: the last of three, or the second. */
#define KIND_LAST   3u
#define KIND_SECOND 5u
/* No register, and always. */
#define RZ 255u
#define PT 7u
/* Limit of the search for a load's index before the load, instructions. */
#define LOOK_BACK 64u

struct instruction {
	uint64_t low, high;
};

/* By which instruction a register was written last. */
struct written {
	uint64_t by; /* counted from 1; 0: none */
	uint32_t number;
	bool is_number;
};

/* Brought up to date where somebody asks: code may ask at every instruction, and each is looked at
 * once. */
struct registers {
	uint64_t count; /* instructions in this set, or too far back */
	struct written latest[RZ];
};

static struct instruction read_at(const uint8_t *code, uint64_t at)
{
	struct instruction instruction;

	memcpy(&instruction, code + at, sizeof(instruction));
	return instruction;
}

static unsigned bits(uint64_t word, unsigned from, unsigned count)
{
	return (unsigned)(word >> from & ((UINT64_C(1) << count) - 1));
}

static unsigned operation(const struct instruction *i)
{
	return bits(i->low, 0, 12);
}

/* Of LDC and ULDC. */
static unsigned size_of(const struct instruction *i)
{
	static const unsigned char sizes[8] = {1, 1, 2, 2, 4, 8, 16, 16};

	return sizes[bits(i->high, 9, 3)];
}

/* The number of registers that the instruction may write. */
static unsigned written_by(const struct instruction *i)
{
	switch (operation(i) & WHAT) {
	case 0x185: /* stores: to any memory, global, local, shared */
	case 0x186:
	case 0x187:
	case 0x188:
	case ULDC &WHAT: /* another kind of registers */
		return 0;
	case MOV &WHAT: /* also of registers and constants */
	case 0x010:	/* IADD3, LEA, LOP3, IMAD */
	case 0x011:
	case 0x012:
	case 0x024:
		return 1;
	default:
		return 4;
	}
}

static void note_written(struct registers *registers, const struct instruction *i)
{
	unsigned first = bits(i->low, 16, 8), end = first + written_by(i);
	const struct written written = {.by = registers->count,
		.number = (uint32_t)(i->low >> 32),
		.is_number = operation(i) == MOV && bits(i->low, 12, 4) == PT};

	for (unsigned reg = first; reg < end && reg < RZ; reg++)
		registers->latest[reg] = written;
}

/* The number in the register before instruction `index`. */
static bool find_number(
	struct registers *registers, const uint8_t *code, uint64_t index, unsigned reg, uint64_t *ret_number)
{
	const struct written *written = &registers->latest[reg];

	if (index > LOOK_BACK && registers->count < index - LOOK_BACK)
		registers->count = index - LOOK_BACK;
	while (registers->count < index) {
		struct instruction i = read_at(code, registers->count++ * BYTES);

		note_written(registers, &i);
	}
	*ret_number = written->number;
	return written->by && written->by + LOOK_BACK > index && written->is_number;
}

/* Return: whether that is in the table. */
static bool note(struct sass_table *table, uint64_t offset, uint64_t bytes)
{
	uint64_t first = offset / SASS_SLOT_BYTES, last = (offset + bytes - 1) / SASS_SLOT_BYTES;

	for (uint64_t slot = first; slot <= last && slot < table->count; slot++) {
		if (!table->is_read[slot])
			table->read[table->read_count++] = slot;
		table->is_read[slot] = true;
	}
	return last < table->count;
}

/* Return: true if the loaded value is known. */
static bool note_load(struct registers *registers, const uint8_t *code, uint64_t at,
	const struct instruction *i, struct sass_table *table)
{
	uint64_t offset = bits(i->low, 38, 16), number;
	unsigned index = bits(i->low, 24, 8);

	if (operation(i) == ULDC)
		return !index && note(table, offset, size_of(i));
	if (bits(i->high, 14, 2))
		return false;
	if (index == RZ)
		return note(table, offset, size_of(i));
	if (!find_number(registers, code, at / BYTES, index, &number))
		return false;
	offset += number;
	return offset / SASS_SLOT_BYTES < table->count && table->is_function[offset / SASS_SLOT_BYTES] &&
	       offset % SASS_SLOT_BYTES + size_of(i) <= SASS_SLOT_BYTES;
}

bool sass_is_known(unsigned arch)
{
	return arch >= 70 && arch <= 90;
}

bool sass_note_reads(const uint8_t *code, uint64_t bytes, struct sass_table *table)
{
	bool known = bytes % BYTES == 0;
	struct registers registers = {0};

	for (uint64_t at = 0; known && at < bytes; at += BYTES) {
		struct instruction i = read_at(code, at);

		if (bits(i.low, 54, 5) != BANK)
			continue;
		if (operation(&i) == LDC || operation(&i) == ULDC)
			known = note_load(&registers, code, at, &i, table);
		else
			/* A load of 64 bits reads a whole slot. Places beyond the table are no
			 * constants. */
			note(table, bits(i.low, 38, 16) / SASS_SLOT_BYTES * SASS_SLOT_BYTES, SASS_SLOT_BYTES);
	}
	return known;
}

/* The place of bank 3's address in bank 0, as compilers assume. Return: false if unknown. */
static bool find_bank_address(unsigned arch, uint64_t *ret_offset)
{
	*ret_offset = arch == 90 ? 0xd0 : 0x50;
	return arch >= 75 && arch <= 90;
}

/* True if the instruction may read a word of 64 bits in bank 0, or some of that word. */
static bool may_read(const struct instruction *i, uint64_t word)
{
	unsigned kind = bits(i->low, 9, 3), index = bits(i->low, 24, 8);
	uint64_t offset = bits(i->low, 38, 16);

	if ((kind != KIND_LAST && kind != KIND_SECOND) || bits(i->low, 54, 5) != DRIVER_BANK)
		return false;
	if (operation(i) != LDC && operation(i) != ULDC)
		return offset / SASS_SLOT_BYTES == word / SASS_SLOT_BYTES;
	/* A number that is added to an offset before is unknown. */
	if (index != (operation(i) == LDC ? RZ : 0))
		return offset < word + SASS_SLOT_BYTES;
	return offset < word + SASS_SLOT_BYTES && offset + size_of(i) > word;
}

bool sass_may_know_constants(unsigned arch, const uint8_t *code, uint64_t bytes)
{
	bool may = bytes % BYTES != 0;
	uint64_t word;

	if (!find_bank_address(arch, &word))
		return true;
	for (uint64_t at = 0; !may && at + BYTES <= bytes; at += BYTES) {
		struct instruction i = read_at(code, at);

		may = may_read(&i, word);
	}
	return may;
}
