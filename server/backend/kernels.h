// The kernels of a cubin: the hardware's data for launching them, their attributes for programs,
// and their code, ready to run at an address. A driver reads the same when it loads a module; the
// service reads all this to load modules itself (cuda/loader.h), because a driver's load waits
// until everything on the device has ended.
//
// Code refers to its surroundings by addresses of variables and by banks of constants:
//   bank 0   the launch: the driver's words, then the parameters, from KERNELS_PARAMETERS on
//   bank 2   numbers of a kernel: tables of jumps, its own and those of functions that it calls
//   bank 3   the __constant__ variables of the module
//   bank 4   the module's table of addresses
// The driver binds banks 2 to 4 for a module that the driver has loaded. For code that the service
// loads, banks 2 and 4 move behind the parameters, into bank 0 (the tail): kernels_place() rewrites
// the instructions that read them. Bank 3 stays, because programs write there while kernels are in
// flight: the launcher of the kernel provides that bank. Modules share banks: the constants of each
// begin at an offset, which is added in its instructions.
//
// Formats are those of nvcc 12 and 13 for devices 9.0. Pure functions on untrusted bytes that lie
// still; any thread.

#ifndef FRMPS_SERVER_BACKEND_KERNELS_H
#define FRMPS_SERVER_BACKEND_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/backend/backend.h"
#include "server/backend/elf.h"
#include "server/backend/load_reason.h"

/* The only architecture with known encodings, 10 * major + minor. */
#define KERNELS_ARCHITECTURE 90u
/* Where parameters begin in bank 0. */
#define KERNELS_PARAMETERS     0x210u
#define KERNELS_CONSTANT_ALIGN 256u
/* Parameters, tail and the address of the code together, bytes: the most a launch can carry. */
#define KERNELS_CARRIED_MAX 32760u

struct kernels_kernel {
	const char *name;	   /* in the cubin */
	uint32_t section;	   /* of the kernel's code */
	uint32_t jumps;		   /* section of its bank 2; 0: none */
	uint32_t info, info_bytes; /* place of the section .nv.info in the cubin */
	uint32_t registers, barriers;
	uint32_t stack;	     /* bytes of local memory that a thread needs */
	uint32_t shared;     /* bytes of static shared memory */
	uint32_t parameters; /* bytes */
	uint32_t tail;	     /* offset behind the parameters of the result of kernels_place() */
	uint32_t tail_bytes;
	bool is_named; /* something has the address of its code: the code needs a place before parts are
			* filled */
	int32_t attributes[BACKEND_FUNC_ATTRS];
	struct backend_shape shape;
};

/* A variable's section, or a function's code that kernels call. */
struct kernels_part {
	uint32_t section;
	uint64_t bytes;
	bool is_code;
	bool is_zero; /* the cubin has no bytes of this part */
};

struct kernels {
	struct elf elf;
	struct elf_symbols symbols;
	struct kernels_kernel *at; /* in the order of their sections, as a driver lists them */
	const struct kernels_kernel **by_name;
	uint32_t count;
	struct kernels_part *parts; /* referred to by kernels */
	uint32_t part_count;
	uint64_t *places;	   /* by section: address on the device; the caller sets those of parts */
	bool *has_place;	   /* by section */
	uint32_t *relocations;	   /* by section: the section with its relocations; 0: none */
	uint32_t constants, slots; /* sections of banks 3 and 4; 0: there is none */
	uint64_t constant_bytes;
	uint32_t constant_offset;      /* in bank 3, a multiple of KERNELS_CONSTANT_ALIGN; the caller
					* sets this before placing */
	uint32_t constant_offset_most; /* 0: code may know the bank's address */
	bool counts_reserved;	       /* the size of shared memory includes the driver's part */
	bool functions_jump;	       /* functions that kernels call have tables of jumps */
	uint32_t common_tail;	       /* then: the tail of all kernels with such tables */
	bool reads_constants;	       /* code reads bank 3, or may know its address */
	uint64_t work;		       /* bytes that may still be looked at */
	enum load_reason why;	       /* the reason why placing is impossible */
};

/**
 * Reads a cubin, any bytes. The bytes stay in place until kernels_close().
 * Return: CUDA_SUCCESS; CUDA_ERROR_NOT_SUPPORTED: ret->why has the reason;
 * CUDA_ERROR_OUT_OF_MEMORY. Ends with kernels_close() in each case.
 */
CUresult kernels_open(struct kernels *ret, const uint8_t *cubin, size_t bytes);
void kernels_close(struct kernels *kernels);

/* Type of the sections with attributes: of a kernel, whose code sh_info names, or of the module. */
#define KERNELS_INFO UINT32_C(0x70000000)
/** What such a section of a kernel, any bytes, demands of launches. @ret_shape: all zero before */
void kernels_shape(const uint8_t *info, uint64_t bytes, struct backend_shape *ret_shape);

/** NULL: there is no kernel of that name. */
const struct kernels_kernel *kernels_find(const struct kernels *kernels, const char *name);

/** Layout of the parameters. Return: false if not understood. */
bool kernels_parameters(const struct kernels *kernels, const struct kernels_kernel *kernel,
	struct backend_function_info *ret_info);

/** The first bytes of a part, with all addresses filled in. @ret: part->bytes, zeros where the
 * cubin has none */
void kernels_fill_part(const struct kernels *kernels, const struct kernels_part *part, uint8_t *ret);
/** The same of bank 3. @ret: constant_bytes */
void kernels_fill_constants(const struct kernels *kernels, uint8_t *ret);

/** Bytes of a kernel's code, with the functions and data of the code. */
uint64_t kernels_code_bytes(const struct kernels *kernels, const struct kernels_kernel *kernel);
/**
 * A kernel's code for its place, after all parts have theirs.
 * @ret_code: kernels_code_bytes()
 * @ret_tail: kernel->tail_bytes; to be carried by a launch at offset kernel->tail of its parameters
 */
void kernels_place(const struct kernels *kernels, const struct kernels_kernel *kernel, uint8_t *ret_code,
	uint8_t *ret_tail);

/** Where a variable of the cubin lies, also a constant: then in bank 3. Return: false: there is
 * none of that name. */
bool kernels_variable(const struct kernels *kernels, const char *name, bool *ret_is_constant,
	uint64_t *ret_address, uint64_t *ret_bytes);

#endif
