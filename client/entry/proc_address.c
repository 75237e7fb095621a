// cuGetProcAddress: from a base name, a driver version and flags to a function of this library.
// Runs on the program's threads, at any time: before cuInit, in a forked child, after the service
// has ended. Owns a constant table.
//
// The rule. A base name has at least one form, each with the driver version that introduced it
// (client/api.def). The caller was compiled with the prototype of the newest form that is not newer
// than the requested version, so the answer is that form, never simply the newest. With
// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM the answer is that form's per-thread variant if
// there is one. A call that the library refuses resolves to its refusing function: callers take a
// missing address for an old driver and crash or fail, but handle CUDA_ERROR_NOT_SUPPORTED.
//
// All functions named here are "protected" (client/entry/api.h): the addresses are fixed when the
// library is linked, so no preloaded or interposed object of the same name can slip into the table.

#include "client/entry/api.h"
#include "client/state/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#pragma GCC visibility push(protected)
#define DECLARE_REFUSED(symbol) CUresult symbol(void);
#define DECLARE_FULL(symbol)
#define DECLARE_LOCAL(symbol)
#define API(symbol, base, since, variant, kind, note) DECLARE_##kind(symbol)
#include "client/api.def"
#undef API
#pragma GCC visibility pop

enum variant {
	LEGACY,
	PTSZ,
};

struct form {
	const char *base;
	const char *symbol;
	void *address;
	int since;
	enum variant variant;
};

static const struct form forms[] = {
#define API(symbol, base, since, variant, kind, note) {base, #symbol, (void *)symbol, since, variant},
#include "client/api.def"
#undef API
};

#define FORMS (sizeof(forms) / sizeof(forms[0]))

/* The first row of a base name; FORMS where there is none. */
static size_t first_form(const char *base)
{
	size_t low = 0, high = FORMS;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(forms[middle].base, base) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low < FORMS && !strcmp(forms[low].base, base) ? low : FORMS;
}

/* Is `form` the per-thread variant of `legacy`, by its symbol: the same and one of two endings? */
static bool is_variant_of(const struct form *form, const struct form *legacy)
{
	size_t length = strlen(legacy->symbol);

	return form->variant == PTSZ && !strncmp(form->symbol, legacy->symbol, length) &&
	       (!strcmp(form->symbol + length, "_ptsz") || !strcmp(form->symbol + length, "_ptds"));
}

/* Streams of threads came with CUDA 7.0: for an older version the driver (580) has no form of a
 * call that has such a variant. */
#define PER_THREAD_SINCE 7000
#define MOST_FLAGS	 (CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)

/* Chooses among the rows of a base name, from `first` on. NULL where every form is newer than
 * `version`. */
static const struct form *choose(size_t first, int version, bool per_thread)
{
	const char *base = forms[first].base;
	const struct form *legacy = NULL;
	size_t i;

	for (i = first; i < FORMS && !strcmp(forms[i].base, base); i++) {
		if (forms[i].variant == LEGACY && forms[i].since <= version)
			legacy = &forms[i];
		else if (per_thread && version < PER_THREAD_SINCE && forms[i].variant == PTSZ)
			return NULL;
		else if (legacy && per_thread && is_variant_of(&forms[i], legacy))
			return &forms[i];
	}
	return legacy;
}

/*
 * A name without an answer: the real driver (580) returns CUDA_SUCCESS, a NULL address and the
 * reason in the status. A caller that passes no status cannot see the reason and, with a look at
 * the result alone, would call address 0. Such a caller gets CUDA_ERROR_NOT_FOUND, which the CUDA
 * runtime accepts as well.
 */
static CUresult resolve(const char *base, int version, uint64_t flags, void **ret_address,
	CUdriverProcAddressQueryResult *ret_status)
{
	bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	size_t first = first_form(base);
	const struct form *form = first < FORMS ? choose(first, version, per_thread) : NULL;

	if (form) {
		*ret_address = form->address;
		*ret_status = CU_GET_PROC_ADDRESS_SUCCESS;
		return CUDA_SUCCESS;
	}
	*ret_address = NULL;
	*ret_status = first < FORMS ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
				    : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	client_log(CLIENT_LOG_DEBUG, "no entry point %s for version %d", base, version);
	return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *base, void **ret_address, int version, uint64_t flags,
	CUdriverProcAddressQueryResult *ret_status)
{
	CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	CUresult result;

	/* A future version: like the real driver, the call writes nothing. */
	if (!base || !ret_address || version > CUDA_ABI_VERSION || flags > MOST_FLAGS)
		return CUDA_ERROR_INVALID_VALUE;
	result = resolve(base, version, flags, ret_address, &status);
	if (ret_status)
		*ret_status = status;
	else if (!*ret_address)
		result = CUDA_ERROR_NOT_FOUND;
	return result;
}

/* The form of CUDA 11.3, whose callers pass no status. */
CUresult cuGetProcAddress(const char *base, void **ret_address, int version, uint64_t flags)
{
	return cuGetProcAddress_v2(base, ret_address, version, flags, NULL);
}
