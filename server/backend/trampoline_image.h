// Makes the cubin of trampolines. A trampoline is a kernel of two instructions: takes an address
// from the end of its parameters and calls the code there. So code in ordinary device memory runs
// with the driver's setup for the trampoline: registers, barriers, local memory, shared memory. The
// cubin has the hardware's data for the launch, so there is a trampoline for each class of these.
// Pure functions; any thread.

#ifndef FRMPS_SERVER_BACKEND_TRAMPOLINE_IMAGE_H
#define FRMPS_SERVER_BACKEND_TRAMPOLINE_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trampoline_class {
	uint32_t registers; /* 24 to 255 */
	uint32_t barriers;  /* 1 to 16 */
	uint32_t carried;   /* bytes of parameters, a multiple of 8; the address is in the last 8 */
};

struct trampoline_form {
	const struct trampoline_class *classes;
	uint32_t count; /* at most TRAMPOLINE_CLASSES_MAX */
	bool has_bank;	/* with 64 KiB of constants of its own, a variable TRAMPOLINE_BANK */
	uint32_t local; /* bytes of local memory for each thread; 0: what the context has anyway */
};

#define TRAMPOLINE_CLASSES_MAX 1024u
#define TRAMPOLINE_BANK	       "bank"
#define TRAMPOLINE_BANK_BYTES  65536u
#define TRAMPOLINE_NAME_BYTES  32u
/* The size of a parameter has 14 bits: a trampoline that carries more has several of this size, and
 * a last one. */
#define TRAMPOLINE_PARAMETER_BYTES 16376u

/** The name of a class's kernel. */
void trampoline_name(const struct trampoline_class *class, char ret_name[TRAMPOLINE_NAME_BYTES]);

/** A cubin for devices 9.0, on the heap. NULL: no memory. */
uint8_t *trampoline_image(const struct trampoline_form *form, size_t *ret_bytes);

#endif
