// Names and texts of results. Pure functions over protocol/errors.def, on any thread, also before
// cuInit and after a fork.

#include "client/entry/api.h"

#include <stddef.h>

static const char *error_name(CUresult error)
{
	switch (error) {
#define X(name, value, text)                                                                                 \
	case name:                                                                                           \
		return #name;
#include "protocol/errors.def"
#undef X
	}
	return NULL;
}

static const char *error_text(CUresult error)
{
	switch (error) {
#define X(name, value, text)                                                                                 \
	case name:                                                                                           \
		return text;
#include "protocol/errors.def"
#undef X
	}
	return NULL;
}

/* An unknown code gives NULL and an error: programs print the string without a look at the
 * result. */
static CUresult answer(const char *string, const char **ret_string)
{
	if (!ret_string)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_string = string;
	return string ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **ret_name)
{
	return answer(error_name(error), ret_name);
}

CUresult cuGetErrorString(CUresult error, const char **ret_text)
{
	return answer(error_text(error), ret_text);
}
