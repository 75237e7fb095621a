// The driver calls that frmps does not have: the REFUSED rows of client/api.def. Each is a function
// that says so once on stderr and returns CUDA_ERROR_NOT_SUPPORTED, whatever its arguments; it
// writes to none of them. A program that merely looks such a call up, as the CUDA runtime does with
// hundreds, is told nothing and works.
//
// Runs on the program's threads. Owns one "already said" flag per call.

#include "client/state/log.h"
#include "protocol/cuda_abi.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Kept out of line: the functions below are then a handful of instructions each. */
static __attribute__((noinline)) CUresult refuse(atomic_bool *said, const char *symbol, const char *reason)
{
	/* The load alone keeps threads that hammer a refused call from fighting over the line. */
	if (!atomic_load_explicit(said, memory_order_relaxed) &&
		!atomic_exchange_explicit(said, true, memory_order_relaxed))
		client_log(CLIENT_LOG_ERROR, "%s is not supported (%s)", symbol, reason);
	return CUDA_ERROR_NOT_SUPPORTED;
}

/*
 * No parameters are declared: the caller passes what the call's real prototype says, in registers
 * and on its own stack, and this side reads none of it.
 */
#define MAKE_REFUSED(symbol, note)                                                                           \
	CUresult symbol(void) __attribute__((visibility("protected")));                                      \
	CUresult symbol(void)                                                                                \
	{                                                                                                    \
		static atomic_bool said;                                                                     \
		return refuse(&said, #symbol, note);                                                         \
	}
#define MAKE_FULL(symbol, note)
#define MAKE_LOCAL(symbol, note)

#define API(symbol, base, since, variant, kind, note) MAKE_##kind(symbol, note)
#include "client/api.def"
#undef API
