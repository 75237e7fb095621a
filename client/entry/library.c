// Entry points of libraries: modules that belong to no context. These calls need an initialised
// driver and nothing else.

#include "client/entry/entry.h"
#include "client/state/context.h"
#include "client/state/function.h"
#include "client/state/instance.h"
#include "client/state/log.h"
#include "client/state/module.h"

/*
 * An image that the program keeps makes no difference to a copy. The table of host functions and
 * data is for devices that share the host's page tables; the service offers none, and lookups of
 * such functions find nothing. Neither option's value is read; cuBLAS passes none for the first
 * option.
 */
static CUresult check_options(unsigned int count, const CUlibraryOption *options)
{
	if (count > 0 && !options)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count; ++i) {
		if ((int)options[i] < 0 || options[i] >= CU_LIBRARY_NUM_OPTIONS)
			return CUDA_ERROR_INVALID_VALUE;
		if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE)
			client_log(CLIENT_LOG_DEBUG, "a library's table of host functions is not used");
	}
	return CUDA_SUCCESS;
}

/* What the two calls of a load are given beside the image. The service has no use for the values of
 * a library's options. */
struct load {
	CUjit_option *options;
	void **values;
	unsigned int count;
	CUlibraryOption *library_options;
	unsigned int library_count;
};

/* From memory, or with a path from a file. */
static CUresult load(CUlibrary *ret_handle, const char *path, const void *code, const struct load *given)
{
	struct client_module *library;
	struct image image;
	struct jit jit;
	CUresult result = process_enter();

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_handle || (!path && !code))
		return CUDA_ERROR_INVALID_VALUE;
	result = check_options(given->library_count, given->library_options);
	if (result != CUDA_SUCCESS)
		return result;
	result = jit_begin(given->count, given->options, given->values, &jit);
	if (result != CUDA_SUCCESS)
		return result;
	result = path ? image_open_file(path, &image) : image_open(code, &image);
	if (result != CUDA_SUCCESS)
		return result;
	result = module_load(&image, NULL, &jit, &library);
	image_close(&image);
	if (result == CUDA_SUCCESS)
		*ret_handle = (CUlibrary)library;
	return result;
}

CUDA_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options,
	void **values, unsigned int count, CUlibraryOption *library_options,
	__attribute__((unused)) void **library_values, unsigned int library_count)
{
	TRACE_CALL();

	return load(
		library, NULL, code, &(struct load){options, values, count, library_options, library_count});
}

CUDA_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options,
	void **values, unsigned int count, CUlibraryOption *library_options,
	__attribute__((unused)) void **library_values, unsigned int library_count)
{
	TRACE_CALL();

	return load(
		library, path, NULL, &(struct load){options, values, count, library_options, library_count});
}

static CUresult enter(CUlibrary handle, struct client_module **ret_library)
{
	CUresult result = process_enter();

	if (result != CUDA_SUCCESS)
		return result;
	*ret_library = library_find(handle);
	return *ret_library ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUDA_EXPORT CUresult cuLibraryUnload(CUlibrary handle)
{
	TRACE_CALL();
	struct client_module *library;
	CUresult result = also_unsafe(enter(handle, &library));

	return result == CUDA_SUCCESS ? module_unload(library) : result;
}

CUDA_EXPORT CUresult cuLibraryGetKernel(CUkernel *ret_handle, CUlibrary handle, const char *name)
{
	TRACE_CALL();
	struct client_module *library;
	CUresult result = enter(handle, &library);

	if (result != CUDA_SUCCESS)
		return result;
	return module_function(library, name, (struct client_function **)ret_handle);
}

CUDA_EXPORT CUresult cuLibraryGetKernelCount(unsigned int *ret_count, CUlibrary handle)
{
	struct client_module *library;
	CUresult result = enter(handle, &library);

	if (result != CUDA_SUCCESS)
		return result;
	return ret_count ? module_functions(library, MODULE_ORDER_LIBRARY, NULL, 0, ret_count)
			 : CUDA_ERROR_INVALID_VALUE;
}

CUDA_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *ret_handles, unsigned int room, CUlibrary handle)
{
	struct client_module *library;
	unsigned int count;
	CUresult result = enter(handle, &library);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_handles)
		return CUDA_ERROR_INVALID_VALUE;
	return module_functions(
		library, MODULE_ORDER_LIBRARY, (struct client_function **)ret_handles, room, &count);
}

/* The library's instance in the current context. */
static CUresult enter_instance(CUlibrary handle, struct client_module **ret_instance)
{
	CUresult result = process_enter_context();

	if (result == CUDA_SUCCESS)
		result = enter(handle, ret_instance);
	return result == CUDA_SUCCESS ? instance_of(*ret_instance, context_current(), ret_instance) : result;
}

CUDA_EXPORT CUresult cuLibraryGetModule(CUmodule *ret_handle, CUlibrary handle)
{
	struct client_module *instance;
	CUresult result = enter_instance(handle, &instance);

	if (result != CUDA_SUCCESS)
		return result;
	if (!ret_handle)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_handle = (CUmodule)instance;
	return CUDA_SUCCESS;
}

CUDA_EXPORT CUresult cuLibraryGetGlobal(
	CUdeviceptr *ret_address, size_t *ret_bytes, CUlibrary handle, const char *name)
{
	struct client_module *instance;
	CUresult result = enter_instance(handle, &instance);

	return result != CUDA_SUCCESS ? result : module_global(instance, name, ret_address, ret_bytes);
}

CUDA_EXPORT CUresult cuLibraryGetManaged(
	CUdeviceptr *ret_address, size_t *ret_bytes, CUlibrary handle, const char *name)
{
	struct client_module *library;
	CUresult result = enter(handle, &library);

	if (result != CUDA_SUCCESS)
		return result;
	if (!name || (!ret_address && !ret_bytes))
		return CUDA_ERROR_INVALID_VALUE;
	return module_managed(library, name, ret_address, ret_bytes);
}

/* The driver answers this for a name that the library does not have (13.0). */
CUDA_EXPORT CUresult cuLibraryGetUnifiedFunction(void **ret_function, CUlibrary handle, const char *name)
{
	struct client_module *library;
	CUresult result = enter(handle, &library);

	(void)ret_function;
	(void)name;
	return result == CUDA_SUCCESS ? CUDA_ERROR_INVALID_VALUE : result;
}
