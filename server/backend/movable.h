// Variables and constants of a cubin that may be moved, and the users of their addresses: the
// reading half of relocate.c. Pure functions on untrusted bytes that lie still; any thread.

#ifndef FRMPS_SERVER_BACKEND_MOVABLE_H
#define FRMPS_SERVER_BACKEND_MOVABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/backend/elf.h"

/* Kinds of relocations. 64-bit addresses, of which the second kind is a generic address: the same
 * here. */
#define MOVABLE_ADDRESS 2u
#define MOVABLE_GENERIC 4u
/* The lower and upper half of an address, in the bits from 32 of an instruction of 128. */
#define MOVABLE_LOWER	   56u
#define MOVABLE_UPPER	   57u
#define MOVABLE_HALF_BYTES 4u
/* A call of a function by its address, in instructions of 4 bytes: the lower 8 bits from bit 16 of
 * the instruction on, the other 47 from bit 34 on. */
#define MOVABLE_CALL 75u

/* A variable that may be moved, by its place in the file. */
struct movable {
	uint64_t section, value, bytes, alignment;
	uint64_t symbol;
	const char *name; /* in the image */
	bool is_constant;
	bool is_managed; /* program and device use it: its block is in managed memory */
	bool is_had;	 /* something has its address */
	bool stays;
	uint64_t beginnings; /* the last variable with its address, counted from 1; 0: none */
};

/* A candidate that begins with the address of another candidate. */
struct movable_beginning {
	struct movable *who;
	uint64_t before; /* the previous one with that address, counted from 1; 0: none */
};

struct movable_relocation {
	uint64_t symbol, target, offset;
	uint32_t type;
	bool is_implicit; /* the addend was where the address goes */
	uint64_t addend;  /* modulo 2^64 */
};

struct movable_reading {
	struct elf elf;
	struct elf_symbols symbols;
	struct movable *candidates;
	uint64_t count;
	struct movable_beginning *beginnings; /* during the opening */
	uint32_t beginning_count, room;
	bool *is_named_whole; /* by section, during the opening: a relocation names the section as a whole */
	uint64_t work, names; /* that may still be done, bytes; that names may have */
	bool is_wrong;
};

/** Is called for a relocation. */
typedef void movable_visit_fn(
	struct movable_reading *reading, const struct movable_relocation *one, void *context);

/** Reads a cubin, any bytes. Return: whether anything may be moved. Ends with movable_close(). */
bool movable_open(struct movable_reading *reading, const uint8_t *cubin, size_t bytes);
void movable_close(struct movable_reading *reading);

/** Visits all relocations of loaded sections, until an error. */
void movable_visit(struct movable_reading *reading, movable_visit_fn *visit, void *context);

/** The candidate of a symbol; NULL: none. @symbol: below symbols.count */
struct movable *movable_of(struct movable_reading *reading, uint64_t symbol);

#endif
