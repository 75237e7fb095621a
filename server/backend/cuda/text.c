// See text.h. The ring's address is part of our functions' code. They are compiled when the
// executor starts, for two addresses: the places where the two codes differ contain the address,
// and get that of a session's ring.
//
// An image that cannot be changed is loaded unchanged: then its kernels print to this process's
// standard output, and so into the service's log, with the reason.
//
// A trap has a number, 3 in the driver's assert() and 1 for a compiler's, which distinguishes the
// two (warps.h). PTX cannot express 3, so the machine code is changed.

#include "server/backend/cuda/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/backend/cuda/jit.h"
#include "server/backend/cuda/patch.h"
#include "server/log.h"
#include "shm/text.h"

/* The driver's names for these functions, and ours in our own code. */
#define PRINTF "vprintf"
#define ASSERT "__assertfail"
/* Callers of a function of the driver have this many registers. */
#define REGISTERS 24u

static const char code[] =
#include "server/backend/cuda/text_ptx.inc"
	;
/* Placeholder for the ring's address. */
#define PLACE "0x1122334455667788"

/* Two rings like those of sessions: windows begin at multiples of 4 GiB, so all rings have the same
 * lower half. A compiler computes the address in ways that depend on its bits: for compute
 * capability 7.5 the address becomes a signed offset. */
#define FIRST_RING  UINT64_C(0x0000353ff8000000)
#define SECOND_RING UINT64_C(0x00005a7ff8000000)

/* BPT.TRAP without a predicate, for compute capability 7.5 to 10.0: first half of the
 * instruction. */
#define TRAP_OF_COMPILER UINT64_C(0x000000040000795c)
#define TRAP_OF_ASSERT	 UINT64_C(0x0000000c0000795c)

struct instruction {
	uint64_t low, high;
};

/* Our functions for an address. */
struct functions {
	struct fatbin_bytes cubin;
	struct patch_function prints, asserts; /* their code lies there */
};

static struct functions first, second; /* without code: not there */
static struct functions latest;	       /* those for the ring that was asked for last */
static uint64_t latest_ring;

/* ---- our functions ---- */

static void functions_free(struct functions *functions)
{
	free(functions->cubin.at);
	*functions = (struct functions){0};
}

static bool take(struct functions *functions)
{
	const struct fatbin_bytes *cubin = &functions->cubin;

	return patch_take(cubin->at, cubin->count, PRINTF, &functions->prints) &&
	       patch_take(cubin->at, cubin->count, ASSERT, &functions->asserts);
}

/* An instruction of a function; the function's code lies in the cubin, which is ours. */
static uint8_t *instruction_at(
	const struct functions *functions, const struct patch_function *function, size_t at)
{
	return functions->cubin.at + (function->code - functions->cubin.at) + at;
}

static struct instruction read_at(const struct patch_function *function, size_t at)
{
	struct instruction instruction;

	memcpy(&instruction, function->code + at, sizeof(instruction));
	return instruction;
}

/* Return: true if there was a single trap */
static bool mark_trap(struct functions *functions)
{
	const struct patch_function *asserts = &functions->asserts;
	const uint64_t marked = TRAP_OF_ASSERT;
	uint32_t count = 0;

	for (size_t at = 0; at + sizeof(struct instruction) <= asserts->bytes;
		at += sizeof(struct instruction))
		if (read_at(asserts, at).low == TRAP_OF_COMPILER) {
			memcpy(instruction_at(functions, asserts, at), &marked, sizeof(marked));
			count++;
		}
	return count == 1;
}

static bool functions_make(uint64_t ring, struct functions *ret)
{
	char source[sizeof(code)], address[sizeof(PLACE)];
	CUjit_option option = CU_JIT_MAX_REGISTERS;
	void *registers = (void *)(uintptr_t)REGISTERS, *cubin;
	size_t bytes;

	memcpy(source, code, sizeof(code));
	snprintf(address, sizeof(address), "0x%016llx", (unsigned long long)ring);
	for (char *place = source; (place = strstr(place, PLACE));)
		memcpy(place, address, strlen(address));
	if (jit_compile(CU_JIT_INPUT_PTX, source, sizeof(source), 1, &option, &registers, &cubin, &bytes))
		return false;
	ret->cubin = (struct fatbin_bytes){cubin, bytes};
	return take(ret) && mark_trap(ret);
}

/* ---- for a ring ---- */

/* An instruction that differs for the second address. Return: true if only the upper half of an
 * address, as an operand, makes the difference */
static bool move_instruction(struct instruction *instruction, struct instruction other, uint64_t ring)
{
	uint32_t operand = (uint32_t)(instruction->low >> 32), others = (uint32_t)(other.low >> 32);

	if ((uint32_t)instruction->low != (uint32_t)other.low || instruction->high != other.high ||
		others - operand != (uint32_t)((SECOND_RING >> 32) - (FIRST_RING >> 32)))
		return false;
	operand += (uint32_t)((ring >> 32) - (FIRST_RING >> 32));
	instruction->low = (uint32_t)instruction->low | (uint64_t)operand << 32;
	return true;
}

static bool move_function(const struct functions *functions, const struct patch_function *function,
	const struct patch_function *other, uint64_t ring)
{
	if (function->bytes != other->bytes)
		return false;
	for (size_t at = 0; at + sizeof(struct instruction) <= function->bytes;
		at += sizeof(struct instruction)) {
		struct instruction here = read_at(function, at), there = read_at(other, at);

		if (!memcmp(&here, &there, sizeof(here)))
			continue;
		if (!move_instruction(&here, there, ring))
			return false;
		memcpy(instruction_at(functions, function, at), &here, sizeof(here));
	}
	return true;
}

/* Our functions for a ring. The caller frees them, also after a failure. Return: false on
 * failure */
static bool functions_for(uint64_t ring, struct functions *ret)
{
	*ret = (struct functions){
		.cubin = {first.cubin.at ? malloc(first.cubin.count) : NULL, first.cubin.count}};
	if (!ret->cubin.at || (uint32_t)ring != (uint32_t)FIRST_RING)
		return false;
	memcpy(ret->cubin.at, first.cubin.at, first.cubin.count);
	return take(ret) && move_function(ret, &ret->prints, &second.prints, ring) &&
	       move_function(ret, &ret->asserts, &second.asserts, ring);
}

/* Made once, as each member of a fat binary may need them. Return: NULL: not available */
static const struct functions *current_for(uint64_t ring)
{
	if (latest.cubin.at && latest_ring == ring)
		return &latest;
	functions_free(&latest);
	latest_ring = ring;
	if (functions_for(ring, &latest))
		return &latest;
	functions_free(&latest);
	return NULL;
}

static bool is_same(const struct patch_function *function, const struct patch_function *other)
{
	return function->bytes == other->bytes && !memcmp(function->code, other->code, other->bytes);
}

/* True if the second functions can be made of the first. */
static bool can_move(void)
{
	struct functions moved;
	bool can = functions_for(SECOND_RING, &moved) && is_same(&moved.prints, &second.prints) &&
		   is_same(&moved.asserts, &second.asserts);

	functions_free(&moved);
	return can;
}

void cuda_text_open(void)
{
	if (functions_make(FIRST_RING, &first) && functions_make(SECOND_RING, &second) && can_move())
		return;
	log_warning("the output of kernels goes to the log: the service's own functions for output "
		    "cannot be compiled, or their form is unknown");
	cuda_text_close();
}

void cuda_text_close(void)
{
	functions_free(&first);
	functions_free(&second);
	functions_free(&latest);
}

/* ---- images ---- */

/* @io: the cubin so far; no bytes: unchanged. Left unchanged on failure */
static CUresult patch(
	const struct patch_function *function, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *io)
{
	struct fatbin_bytes patched;
	CUresult result = patch_in(io->at ? io->at : cubin, io->at ? io->count : bytes, function, &patched);

	if (!result) {
		free(io->at);
		*io = patched;
	}
	return result;
}

/* @ret: on the heap, also if this does not succeed */
static CUresult direct(
	uint64_t ring, uint64_t wants, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	const struct functions *functions = current_for(ring);
	CUresult result = functions ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;

	if (!result && wants & SHM_TEXT_PRINTS)
		result = patch(&functions->prints, cubin, bytes, ret);
	if (!result && wants & SHM_TEXT_ASSERTS)
		result = patch(&functions->asserts, cubin, bytes, ret);
	return result;
}

CUresult cuda_text_direct(
	struct backend_text *text, const uint8_t *cubin, size_t bytes, struct fatbin_bytes *ret)
{
	uint64_t wants = (patch_wants(cubin, bytes, PRINTF) ? SHM_TEXT_PRINTS : 0) |
			 (patch_wants(cubin, bytes, ASSERT) ? SHM_TEXT_ASSERTS : 0);
	struct fatbin_bytes directed = {0};
	CUresult result;

	if (!wants)
		return CUDA_SUCCESS;
	result = direct(text->ring, wants, cubin, bytes, &directed);
	if (!result) {
		text->uses |= wants;
		*ret = directed;
		return CUDA_SUCCESS;
	}
	free(directed.at);
	if (result == CUDA_ERROR_OUT_OF_MEMORY)
		return result;
	log_warning("the output of a module's kernels cannot be sent to its program (code %d)", (int)result);
	return CUDA_SUCCESS;
}
