// Entry points of functions. Every call accepts kernels of libraries too, because the runtime
// passes these.

#include "client/entry/entry.h"
#include "client/state/function.h"
#include "client/state/instance.h"
#include "client/state/module.h"

static CUresult enter(CUfunction handle, struct client_function **ret_function)
{
	CUresult result = process_enter_context();

	if (result != CUDA_SUCCESS)
		return result;
	return function_enter(handle, ret_function);
}

CUDA_EXPORT CUresult cuFuncGetAttribute(int *ret_value, CUfunction_attribute attribute, CUfunction handle)
{
	struct client_function *function;
	CUresult result = enter(handle, &function);

	return result != CUDA_SUCCESS ? result : function_attribute(function, (int)attribute, ret_value);
}

CUDA_EXPORT CUresult cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
	struct client_function *function;
	CUresult result = enter(handle, &function);

	return result != CUDA_SUCCESS ? result : function_set_attribute(function, (int)attribute, value);
}

CUDA_EXPORT CUresult cuFuncSetCacheConfig(CUfunction handle, CUfunc_cache config)
{
	struct client_function *function;
	CUresult result = enter(handle, &function);

	return result != CUDA_SUCCESS ? result : function_set_cache_config(function, (int)config);
}

/* Banks of shared memory have the same width on every device of the service: the value is checked
 * and ignored. */
CUDA_EXPORT CUresult cuFuncSetSharedMemConfig(CUfunction handle, CUsharedconfig config)
{
	struct client_function *function;
	CUresult result = enter(handle, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if ((int)config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
		config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuFuncGetModule(CUmodule *ret_handle, CUfunction handle)
{
	struct client_function *function;
	CUresult result = enter(handle, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_handle)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_handle = (CUmodule)function->module;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuFuncGetName(const char **ret_name, CUfunction handle)
{
	struct client_function *function;
	CUresult result = enter(handle, &function);

	/* The driver returns this error for NULL, in this call alone. */
	if (result == CUDA_ERROR_INVALID_HANDLE && !handle)
		return CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_name)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_name = function->name;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuFuncGetParamInfo(CUfunction handle, size_t index, size_t *ret_offset, size_t *ret_size)
{
	struct client_function *function;
	CUresult result = enter(handle, &function);

	return result != CUDA_SUCCESS ? result : function_param_info(function, index, ret_offset, ret_size);
}

/* The service loads every kernel before the program has its handle. */
CUDA_EXPORT CUresult cuFuncIsLoaded(CUfunctionLoadingState *ret_state, CUfunction handle)
{
	struct client_function *function;
	CUresult result = enter(handle, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_state)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_state = CU_FUNCTION_LOADING_STATE_LOADED;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuFuncLoad(CUfunction handle)
{
	TRACE_CALL();
	struct client_function *function;

	return enter(handle, &function);
}
