// Machine code of devices 7.0 to 9.0, for three questions: which addresses of variables does code
// read, does code know where constants are, and which memory does an instruction use?

#ifndef FRMPS_SERVER_BACKEND_SASS_H
#define FRMPS_SERVER_BACKEND_SASS_H

#include <stdbool.h>
#include <stdint.h>

#define SASS_INSTRUCTION_BYTES 16u

/* Bytes of a slot of .nv.constant4, an address. */
#define SASS_SLOT_BYTES 8u

/* The table of addresses that code reads. */
struct sass_table {
	uint64_t count;
	const bool *is_function; /* of the driver's, by slot */
	bool *is_read;		 /* by slot */
	uint64_t *read;		 /* the slots in use, room for all, in the order of discovery */
	uint64_t read_count;
};

/** True if code of a device can be read here. @arch: 10 * major + minor */
bool sass_is_known(unsigned arch);

/**
 * Notes the slots that code may read. Any bytes, any thread.
 * Return: false if the code may read others.
 */
bool sass_note_reads(const uint8_t *code, uint64_t bytes, struct sass_table *table);

/**
 * True if code may know addresses of constants. Reading constants needs no address, but their
 * places in their bank. Any arch and bytes, any thread.
 */
bool sass_may_know_constants(unsigned arch, const uint8_t *code, uint64_t bytes);

#endif
