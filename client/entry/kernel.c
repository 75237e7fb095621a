// Entry points of kernels (functions of libraries). These calls need no context; questions per
// device have the same answer for the only device that a program sees.

#include "client/entry/entry.h"
#include "client/state/device.h"
#include "client/state/function.h"
#include "client/state/instance.h"
#include "client/state/module.h"

static CUresult enter(CUkernel handle, struct client_function **ret_function)
{
	struct client_function *function;
	CUresult result = process_enter();

	if (result != CUDA_SUCCESS)
		return result;
	result = function_use(handle, &function);
	if (result != CUDA_SUCCESS)
		return result;
	if (!function->module->library)
		return CUDA_ERROR_INVALID_HANDLE;
	*ret_function = function;
	return CUDA_SUCCESS;
}

static CUresult enter_device(CUkernel handle, CUdevice device, struct client_function **ret_function)
{
	CUresult result = enter(handle, ret_function);

	if (result != CUDA_SUCCESS)
		return result;
	return device_check(device);
}

CUDA_EXPORT CUresult cuKernelGetAttribute(
	int *ret_value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device)
{
	struct client_function *function;
	CUresult result = enter_device(kernel, device, &function);

	return result != CUDA_SUCCESS ? result : function_attribute(function, (int)attribute, ret_value);
}

CUDA_EXPORT CUresult cuKernelSetAttribute(
	CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device)
{
	struct client_function *function;
	CUresult result = enter_device(kernel, device, &function);

	return result != CUDA_SUCCESS ? result : function_set_attribute(function, (int)attribute, value);
}

CUDA_EXPORT CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device)
{
	struct client_function *function;
	CUresult result = enter_device(kernel, device, &function);

	return result != CUDA_SUCCESS ? result : function_set_cache_config(function, (int)config);
}

CUDA_EXPORT CUresult cuKernelGetFunction(CUfunction *ret_handle, CUkernel kernel)
{
	TRACE_CALL();
	struct client_function *function;
	CUresult result = process_enter_context();

	if (result == CUDA_SUCCESS)
		result = enter(kernel, &function);
	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_handle)
		return CUDA_ERROR_INVALID_VALUE;
	result = instance_function(function, NULL, &function);
	if (result == CUDA_SUCCESS)
		*ret_handle = (CUfunction)function;
	return result;
}

CUDA_EXPORT CUresult cuKernelGetLibrary(CUlibrary *ret_handle, CUkernel kernel)
{
	struct client_function *function;
	CUresult result = enter(kernel, &function);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_handle)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_handle = (CUlibrary)function->module;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuKernelGetName(const char **ret_name, CUkernel kernel)
{
	struct client_function *function;
	CUresult result = enter(kernel, &function);

	/* As cuFuncGetName(). */
	if (result == CUDA_ERROR_INVALID_HANDLE && !kernel)
		return CUDA_ERROR_INVALID_VALUE;
	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_name)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_name = function->name;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t *ret_offset, size_t *ret_size)
{
	struct client_function *function;
	CUresult result = enter(kernel, &function);

	return result != CUDA_SUCCESS ? result : function_param_info(function, index, ret_offset, ret_size);
}
