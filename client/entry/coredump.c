// Entry points: core dumps of the device. Programs get none. So the settings say that nothing is
// dumped, and accept only that.

#include "client/entry/entry.h"

#include <string.h>

/* Values of the settings without effect; written as whole words. */
static _Atomic char trigger_host = 1, lightweight;
static _Atomic int generation;

static size_t size_of(CUcoredumpSettings setting)
{
	switch ((int)setting) {
	case CU_COREDUMP_ENABLE_ON_EXCEPTION:
	case CU_COREDUMP_TRIGGER_HOST:
	case CU_COREDUMP_LIGHTWEIGHT:
	case CU_COREDUMP_ENABLE_USER_TRIGGER:
		return sizeof(char);
	case CU_COREDUMP_GENERATION_FLAGS:
		return sizeof(int);
	default:
		return 0;
	}
}

static bool is_name(CUcoredumpSettings setting)
{
	return setting == CU_COREDUMP_FILE || setting == CU_COREDUMP_PIPE;
}

static int value_of(CUcoredumpSettings setting)
{
	switch ((int)setting) {
	case CU_COREDUMP_TRIGGER_HOST:
		return trigger_host;
	case CU_COREDUMP_LIGHTWEIGHT:
		return lightweight;
	case CU_COREDUMP_GENERATION_FLAGS:
		return generation;
	default:
		return 0;
	}
}

/* Files and pipes have no name. */
static CUresult get(CUcoredumpSettings setting, void *value, size_t *size)
{
	size_t needed = is_name(setting) ? 1 : size_of(setting);
	CUresult r = process_enter_early();
	int number = value_of(setting);

	if (r != CUDA_SUCCESS)
		return r;
	if (!size || !needed)
		return CUDA_ERROR_INVALID_VALUE;
	if (value && (is_name(setting) ? *size == 0 : *size != needed))
		return CUDA_ERROR_INVALID_VALUE;
	if (!value)
		*size = needed;
	else if (needed == sizeof(int))
		memcpy(value, &number, sizeof(number));
	else
		*(char *)value = (char)number;
	return CUDA_SUCCESS;
}

/* A request for dumps, or for a place of dumps, is refused. */
static CUresult set(CUcoredumpSettings setting, const void *value, const size_t *size)
{
	CUresult r = process_enter_early();
	char on;

	if (r != CUDA_SUCCESS)
		return r;
	if (is_name(setting))
		return CUDA_ERROR_NOT_SUPPORTED;
	if (!value || !size || !size_of(setting) || *size != size_of(setting))
		return CUDA_ERROR_INVALID_VALUE;
	on = *(const char *)value != 0;
	if (setting == CU_COREDUMP_GENERATION_FLAGS)
		generation = *(const int *)value;
	else if (setting == CU_COREDUMP_TRIGGER_HOST)
		trigger_host = on;
	else if (setting == CU_COREDUMP_LIGHTWEIGHT)
		lightweight = on;
	else if (on)
		return CUDA_ERROR_NOT_SUPPORTED;
	return CUDA_SUCCESS;
}

/* Two settings are only of the whole process. */
static bool is_global(CUcoredumpSettings setting)
{
	return setting == CU_COREDUMP_ENABLE_USER_TRIGGER || setting == CU_COREDUMP_PIPE;
}

CUDA_EXPORT CUresult cuCoredumpGetAttribute(CUcoredumpSettings setting, void *value, size_t *size)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return is_global(setting) ? CUDA_ERROR_INVALID_VALUE : get(setting, value, size);
}

CUDA_EXPORT CUresult cuCoredumpSetAttribute(CUcoredumpSettings setting, void *value, size_t *size)
{
	CUresult r = process_enter_context();

	if (r != CUDA_SUCCESS)
		return r;
	return is_global(setting) ? CUDA_ERROR_INVALID_VALUE : set(setting, value, size);
}

CUDA_EXPORT CUresult cuCoredumpGetAttributeGlobal(CUcoredumpSettings setting, void *value, size_t *size)
{
	return get(setting, value, size);
}

CUDA_EXPORT CUresult cuCoredumpSetAttributeGlobal(CUcoredumpSettings setting, void *value, size_t *size)
{
	return set(setting, value, size);
}
