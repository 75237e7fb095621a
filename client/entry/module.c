// Entry points of modules.

#include "client/state/module.h"

#include <stdlib.h>
#include <strings.h>

#include "client/entry/entry.h"
#include "client/state/context.h"
#include "client/state/function.h"
#include "client/state/session.h"
#include "client/text/text.h"

/* From memory, or with a path from a file. */
static CUresult load(CUmodule *ret_handle, const char *path, const void *code, unsigned int count,
	const CUjit_option *options, void **values)
{
	struct client_module *module;
	struct image image;
	struct jit jit;
	CUresult result = process_enter_context();

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_handle)
		return CUDA_ERROR_INVALID_VALUE;
	result = jit_begin(count, options, values, &jit);
	if (result != CUDA_SUCCESS)
		return result;
	result = path ? image_open_file(path, &image) : image_open(code, &image);
	if (result != CUDA_SUCCESS)
		return result;
	result = module_load(&image, context_current(), &jit, &module);
	image_close(&image);
	text_flush(session_self());
	if (result == CUDA_SUCCESS)
		*ret_handle = (CUmodule)module;
	return result;
}

CUDA_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
	TRACE_CALL();

	return load(module, path, NULL, 0, NULL, NULL);
}

CUDA_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	TRACE_CALL();

	return load(module, NULL, image, 0, NULL, NULL);
}

CUDA_EXPORT CUresult cuModuleLoadDataEx(
	CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
	TRACE_CALL();

	return load(module, NULL, image, count, options, values);
}

CUDA_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatbin)
{
	TRACE_CALL();

	return load(module, NULL, fatbin, 0, NULL, NULL);
}

/* The usual first lines of calls on a module. */
static CUresult enter(CUmodule handle, struct client_module **ret_module)
{
	CUresult result = process_enter_context();

	if (result != CUDA_SUCCESS)
		return result;
	*ret_module = module_find(handle);
	return *ret_module ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUDA_EXPORT CUresult cuModuleUnload(CUmodule handle)
{
	TRACE_CALL();
	struct client_module *module;
	CUresult result = also_unsafe(enter(handle, &module));

	if (result != CUDA_SUCCESS)
		return result;
	/* A library's module is unloaded with the library. */
	if (module->library)
		return CUDA_ERROR_NOT_PERMITTED;
	return module_unload(module);
}

CUDA_EXPORT CUresult cuModuleGetFunction(CUfunction *ret_handle, CUmodule handle, const char *name)
{
	TRACE_CALL();
	struct client_module *module;
	CUresult result = enter(handle, &module);

	if (result != CUDA_SUCCESS)
		return result;
	return module_function(module, name, (struct client_function **)ret_handle);
}

CUDA_EXPORT CUresult cuModuleGetGlobal_v2(
	CUdeviceptr *ret_address, size_t *ret_bytes, CUmodule handle, const char *name)
{
	TRACE_CALL();
	struct client_module *module;
	CUresult result = enter(handle, &module);

	return result != CUDA_SUCCESS ? result : module_global(module, name, ret_address, ret_bytes);
}

CUDA_EXPORT CUresult cuModuleGetFunctionCount(unsigned int *ret_count, CUmodule handle)
{
	struct client_module *module;
	CUresult result = enter(handle, &module);

	if (result != CUDA_SUCCESS)
		return result;
	return ret_count ? module_functions(module, MODULE_ORDER_MODULE, NULL, 0, ret_count)
			 : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *ret_handles, unsigned int room, CUmodule handle)
{
	struct client_module *module;
	unsigned int count;
	CUresult result = enter(handle, &module);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_handles)
		return CUDA_ERROR_INVALID_VALUE;
	return module_functions(
		module, MODULE_ORDER_MODULE, (struct client_function **)ret_handles, room, &count);
}

/* The driver defines this environment variable, so the library reads it for the program. The
 * service has its own loading mode. */
CUDA_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *ret_mode)
{
	const char *wish = getenv("CUDA_MODULE_LOADING");
	CUresult result = process_enter_early();

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_mode)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_mode = wish && strcasecmp(wish, "EAGER") == 0 ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}
